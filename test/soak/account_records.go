// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/tidewaiter/tidewaiter/api/v1alpha1"

// checkRecords counts the requests again, as the records must have them.
func (a *accounts) checkRecords() {
	type row struct{ site, tool string }
	want, have := map[row]v1alpha1.ToolRecord{}, map[row]v1alpha1.ToolRecord{}
	for i := range a.requests {
		r := &a.requests[i]
		at := row{r.Spec.ServerRef.Name, r.Spec.Tool}
		w := want[at]
		e := r.Status.Execution
		switch phase := r.CurrentPhase(); {
		case phase == v1alpha1.PhaseDenied:
			w.Denied++
		case phase == v1alpha1.PhaseAmbiguous:
			w.Ambiguous++
		case phase == v1alpha1.PhaseSucceeded && r.Status.Resolution == nil:
			w.Approved++
		case phase == v1alpha1.PhaseFailed && (e == nil || e.Outcome != v1alpha1.OutcomeNotSent):
			w.Failed++
		}
		want[at] = w
	}
	for site, records := range a.records {
		for _, record := range records {
			at := row{site, record.Tool}
			have[at] = record
			if _, asked := want[at]; !asked {
				want[at] = v1alpha1.ToolRecord{} // nothing is to be counted
			}
			if len(record.Accounted) > 0 {
				a.mismatch("the record of %s %s holds %d requests that are counted", site, record.Tool, len(record.Accounted))
			}
		}
	}
	for at, w := range want {
		h := have[at]
		if h.Approved != w.Approved || h.Failed != w.Failed || h.Denied != w.Denied || h.Ambiguous != w.Ambiguous {
			a.mismatch("the record of %s %s has %d approved, %d failed, %d denied, %d ambiguous; the requests %d, %d, %d, %d",
				at.site, at.tool, h.Approved, h.Failed, h.Denied, h.Ambiguous, w.Approved, w.Failed, w.Denied, w.Ambiguous)
		}
	}
}
