// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

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
