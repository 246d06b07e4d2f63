// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestExecuted(t *testing.T) {
	t.Parallel()
	o := options(t)
	now := day
	o.Now = func() time.Time { return now }
	w := open(t, o)
	denied := decision("denied")
	denied.Verdict = VerdictDeny
	outcome := decision("outcome")
	outcome.Kind = KindOutcome
	appendAll(t, w, Sync, decision("old"), denied, outcome)
	now = day.Add(48 * time.Hour)
	appendAll(t, w, Sync, decision("young"))
	check := func(w *Writer, want map[string]bool) {
		t.Helper()
		got := map[string]bool{}
		for uid := range want {
			got[uid] = w.Executed(uid)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("executed (-want +got):\n%s", diff)
		}
	}
	check(w, map[string]bool{"uid-old": true, "uid-young": true, "uid-denied": false, "uid-outcome": false, "uid-other": false})

	// A restart forgets nothing that still matters, and keeps nothing that does not.
	closeWriter(t, w)
	w = open(t, o)
	check(w, map[string]bool{"uid-old": true, "uid-young": true, "uid-denied": false, "uid-outcome": false})
	now = day.Add(uidRetention + time.Minute)
	appendAll(t, w, Sync, decision("new"))
	check(w, map[string]bool{"uid-old": false, "uid-young": true, "uid-new": true})
	closeWriter(t, w)
	w = open(t, o)
	check(w, map[string]bool{"uid-old": false, "uid-young": true, "uid-new": true})
}
