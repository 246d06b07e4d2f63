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

func TestUnclear(t *testing.T) {
	t.Parallel()
	o := options(t)
	now := day
	o.Now = func() time.Time { return now }
	w := open(t, o)
	sent := func(hash string) Receipt {
		return Receipt{Kind: KindDecision, Verdict: VerdictAllow, CallID: "call-" + hash, ActionHash: hash, Tool: "update_invoice"}
	}
	ended := func(hash, outcome string) Receipt {
		r := sent(hash)
		r.Kind, r.Outcome = KindOutcome, outcome
		return r
	}
	approved := func(hash string) Receipt {
		r := sent(hash)
		r.RequestUID = "uid-" + hash
		return r
	}
	check := func(w *Writer, want map[string]bool) {
		t.Helper()
		got := map[string]bool{}
		for hash := range want {
			got[hash] = w.Unclear(hash)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("unclear (-want +got):\n%s", diff)
		}
	}
	appendAll(t, w, Sync, sent("fine"), ended("fine", "Succeeded"), sent("lost"), ended("lost", "Unclear"), sent("flying"),
		sent("settled"), ended("settled", "Unclear"), approved("settled"), sent("asked"), approved("asked"))
	check(w, map[string]bool{"fine": false, "lost": true, "flying": false, "settled": false, "asked": false, "other": false})

	// What was in flight when the process ended has no known end.
	closeWriter(t, w)
	w = open(t, o)
	check(w, map[string]bool{"fine": false, "lost": true, "flying": true, "settled": false, "other": false})
	closeWriter(t, w)
	now = day.Add(uidRetention + time.Minute)
	w = open(t, o)
	check(w, map[string]bool{"lost": false, "flying": false})
	closeWriter(t, w)
}
