// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"maps"
	"time"
)

// fates remembers the actions that left without a request and of which nobody knows whether they took effect. What left
// on a request has its fate there.
type fates struct {
	flights map[string]fate // sent and not ended, by callID
	unclear map[string]fate // by action hash
}

type fate struct {
	actionHash string
	at         time.Time
}

func newFates() *fates { return &fates{flights: map[string]fate{}, unclear: map[string]fate{}} }

// note takes in one receipt, in the order of the chain.
func (f *fates) note(r *Receipt) {
	if r.ActionHash == "" {
		return
	}
	switch {
	case r.dispatches():
		// A person let the same action run again, and was told.
		delete(f.unclear, r.ActionHash)
	case r.RequestUID != "":
	case r.Kind == KindDecision && r.Verdict == VerdictAllow:
		f.forget(r.Time)
		f.flights[r.CallID] = fate{r.ActionHash, r.Time}
	case r.Kind == KindOutcome:
		delete(f.flights, r.CallID)
		if r.Outcome == outcomeUnclear {
			f.unclear[r.ActionHash] = fate{r.ActionHash, r.Time}
		}
	}
}

// outcomeUnclear is the outcome of a call that may have taken effect or not.
const outcomeUnclear = "Unclear"

// restart says that the process that noted the flights is gone, and their ends with it.
func (f *fates) restart() {
	for _, flight := range f.flights {
		f.unclear[flight.actionHash] = flight
	}
	clear(f.flights)
}

// forget drops what is too old to matter.
func (f *fates) forget(now time.Time) {
	old := func(_ string, x fate) bool { return now.Sub(x.at) > uidRetention }
	maps.DeleteFunc(f.flights, old)
	maps.DeleteFunc(f.unclear, old)
}
