// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// recordPromptly records the outcome on the request before the agent learns it, if that is quick, and tells whether it
// was.
func (e *execution) recordPromptly() bool {
	ctx, cancel := e.detached(promptly)
	defer cancel()
	return e.store(ctx)
}

// record records the outcome on the request, however long the API takes. If it never does, the manager calls the
// request Ambiguous after its deadline, and the receipt has the truth.
func (e *execution) record() {
	ctx, cancel := e.detached(outcomePatience)
	defer cancel()
	for !e.store(ctx) {
		timer := e.Clock.NewTimer(outcomeRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// refusedBeforeDispatch are the JSON-RPC errors by which a server says that it did not start a call.
var refusedBeforeDispatch = []int{
	mcp.PARSE_ERROR, mcp.INVALID_REQUEST, mcp.METHOD_NOT_FOUND, mcp.HEADER_MISMATCH,
	mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, mcp.UNSUPPORTED_PROTOCOL_VERSION,
}

// outcomeOf reads the fate of a call from its answer. What is not plainly a success or plainly a refusal is unclear.
func outcomeOf(a wire.Answer) v1alpha1.ExecutionOutcome {
	switch {
	case a.Error && (a.UnknownTool || slices.Contains(refusedBeforeDispatch, a.Code)):
		return v1alpha1.OutcomeRejected
	case a.Error || !a.Complete:
		return v1alpha1.OutcomeUnclear
	case a.IsError:
		return v1alpha1.OutcomeToolError
	default:
		return v1alpha1.OutcomeSucceeded
	}
}

// outcomeOfResponse reads the fate of a call from a whole HTTP answer.
func outcomeOfResponse(resp *http.Response, body, id []byte) v1alpha1.ExecutionOutcome {
	answer, found, err := wire.ScanAnswer(body)
	if err == nil && found && (wire.SameID(answer.ID, id) || resp.StatusCode != http.StatusOK && string(answer.ID) == "null") {
		outcome := outcomeOf(answer)
		if outcome == v1alpha1.OutcomeRejected || resp.StatusCode == http.StatusOK {
			return outcome
		}
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized,
		resp.StatusCode == http.StatusForbidden && resp.Header.Get("WWW-Authenticate") != "",
		resp.StatusCode == http.StatusNotFound && resp.Request != nil && resp.Request.Header.Get(sessionHeader) != "":
		return v1alpha1.OutcomeRejected
	default:
		return v1alpha1.OutcomeUnclear
	}
}
