// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failpoint names the instants at which a crash is worst, and kills a process there that was told to die at one. Only
// programs that are built with the tag failpoints can be told; in all others Hit is empty.
package failpoint

import (
	"errors"
	"os"
	"strconv"
)

// Point is an instant in the life of a call, or of what is counted.
type Point string

const (
	// BeforeClaim: the approval was judged, and nothing is claimed.
	BeforeClaim Point = "before-claim"
	// AfterClaim: the claim stands in the API, and no receipt says so.
	AfterClaim Point = "after-claim"
	// AfterDecision: the receipt of the decision is on disk, and nothing has left.
	AfterDecision Point = "after-decision"
	// Sending: the call is about to leave. With a delay the gateway dies when part or all of it is with the server.
	Sending Point = "sending"
	// AfterAnswer: the answer is here, and nothing knows of it.
	AfterAnswer Point = "after-answer"
	// AfterOutcomeReceipt: the receipt of the outcome was written, and the request does not show it.
	AfterOutcomeReceipt Point = "after-outcome-receipt"
	// AfterOutcome: the request shows the outcome, and the agent was told nothing.
	AfterOutcome Point = "after-outcome"

	// BeforeCount: the manager has read what is to be counted, and saved nothing.
	BeforeCount Point = "before-count"
	// AfterCount: the records are saved, and the requests do not say that they are counted.
	AfterCount Point = "after-count"
	// AfterMark: a request says that it is counted, and the records still hold its UID.
	AfterMark Point = "after-mark"
)

// OfGateway returns the points that a gateway passes, OfManager those of a manager.
func OfGateway() []Point {
	return []Point{BeforeClaim, AfterClaim, AfterDecision, Sending, AfterAnswer, AfterOutcomeReceipt, AfterOutcome}
}

// OfManager returns the points that a manager passes.
func OfManager() []Point { return []Point{BeforeCount, AfterCount, AfterMark} }

// Variable is the environment variable that names the point at which a process dies, how often it is passed until then,
// and, behind a plus sign, how long after it: after-claim=3, or sending=1+15ms.
const Variable = "TIDEWAITER_FAILPOINT"

// syncedSuffix names the file beside another that says how much of that is on disk.
const syncedSuffix = ".synced"

// Synced tells how much of a file is on disk; nothing where nobody has said so.
func Synced(path string) (int64, error) {
	note, err := os.ReadFile(path + syncedSuffix)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(note) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(note), 10, 64)
}
