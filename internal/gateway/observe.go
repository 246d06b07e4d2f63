// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// observation is what the receipt of a call says that it would have come to, nil for a call that is not only observed.
func (c *call) observation(d policy.Decision) *receipt.Observed {
	if d.Observed == nil {
		return nil
	}
	would := asObserved(*d.Observed)
	reads := judged{decision: *d.Observed}.reads()
	switch {
	case d.Observed.Effect == policy.Deny || reads:
	case c.unknown:
		would = &receipt.Observed{Verdict: receipt.VerdictDeny, Code: codeUndefined}
	case c.wouldRefuse != "":
		would = &receipt.Observed{Verdict: receipt.VerdictDeny, Code: c.wouldRefuse}
	}
	return would
}

// asObserved returns a verdict as receipts keep one that was not put into force.
func asObserved(d policy.Decision) *receipt.Observed {
	return &receipt.Observed{Verdict: receipt.Verdict(d.Effect.String()), Code: string(d.Reason), GatedBy: d.GatedBy}
}
