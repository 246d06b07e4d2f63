// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import "time"

// Limits bound what a gateway takes, keeps and passes on, so that nobody's excess is more than their own trouble. Each
// is a setting of the binary.
type Limits struct {
	// Message bounds a message of an agent, in bytes.
	Message int64
	// Answer bounds an answer that passes as it comes, in bytes; a stream of events has no end of its own.
	Answer int64
	// Event bounds one event of a stream, and an answer that has to be read whole before it is relayed: a list of tools,
	// and the answer to a call with effects. In bytes.
	Event int64
	// Failures in a row of a server, after which it is left alone for Rest.
	Failures int
	Rest     time.Duration
}

// DefaultLimits are those of a gateway that was not told others.
func DefaultLimits() Limits {
	return Limits{Message: 4 << 20, Answer: 64 << 20, Event: 16 << 20, Failures: 5, Rest: 10 * time.Second}
}
