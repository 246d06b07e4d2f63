// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// evidence is all that was left of a soak.
type evidence struct {
	// executions are the server's own count, told what agents were told.
	executions []execution
	told       []told
	requests   []v1alpha1.ApprovalRequest
	// records are those of each site.
	records map[string][]v1alpha1.ToolRecord
	// receipts are the chain of each gateway, in order.
	receipts map[string][]receipt.Receipt
	// keys are those of the actions, by hash.
	keys map[string]string
	// faults are broken chains, panics, and ends that nobody wanted.
	faults []string
}

// bounds are how often something may have run.
type bounds struct{ least, most int }

func (b *bounds) add(other bounds) { b.least, b.most = b.least+other.least, b.most+other.most }

func (b bounds) hold(n int) bool { return n >= b.least && n <= b.most }

var (
	never = bounds{0, 0}
	once  = bounds{1, 1}
	maybe = bounds{0, 1}
)

// accounts are what came out.
type accounts struct {
	evidence
	mismatches []string
	// dispatches are the decisions on which a call with effects left, by request; those without one by key.
	dispatches map[string][]dispatch
	unattended map[string][]dispatch
	// causes is how many requests and receipts each key has.
	causes map[string]int
	// lostReads are reads that ran and whose receipt died with a batch.
	lostReads int
	// unended are dispatches without an outcome, since the gateway was killed.
	unended int
}

// dispatch is a decision that let a call with effects leave, with its outcome.
type dispatch struct {
	gateway string
	outcome string // "" without one
}

// account compares everything with everything.
func account(e evidence) *accounts {
	a := &accounts{evidence: e, dispatches: map[string][]dispatch{}, unattended: map[string][]dispatch{}, causes: map[string]int{}}
	a.mismatches = slices.Clone(e.faults)
	a.checkReceipts()
	a.checkTold()
	a.checkRequests()
	a.checkRecords()
	return a
}

func (a *accounts) mismatch(format string, args ...any) {
	a.mismatches = append(a.mismatches, fmt.Sprintf(format, args...))
}

// checkTold compares what agents were told with what the server did, message by message.
func (a *accounts) checkTold() {
	ran := map[string]int{}
	byTrace := map[string]told{}
	for _, t := range a.told {
		byTrace[t.Trace] = t
	}
	for _, e := range a.executions {
		ran[e.Trace]++
		switch t, known := byTrace[e.Trace]; {
		case !known:
			a.mismatch("%s %s was executed for a message that no agent sent", e.Tool, e.Key)
		case t.Key != e.Key || t.Tool != e.Tool:
			a.mismatch("%s %s was executed for a message about %s %s", e.Tool, e.Key, t.Tool, t.Key)
		}
	}
	for _, t := range a.told {
		may := map[answer]bounds{nothing: maybe, executed: once, refused: never}[t.Answer]
		if t.Tool == toolRead && may.most > 0 {
			may.most = 2 // a gateway sends a read once more when its connection breaks before the answer
		}
		if !may.hold(ran[t.Trace]) {
			a.mismatch("%s %s: the agent was told %q, and the server executed it %d times", t.Tool, t.Key, t.Code, ran[t.Trace])
		}
		if t.Code == foreign {
			a.mismatch("%s %s: the agent got the answer of another call", t.Tool, t.Key)
		}
	}
}

// checkRequests compares each action with the requests and receipts that let it run.
func (a *accounts) checkRequests() {
	may := map[string]*bounds{}
	at := func(key string) *bounds {
		if may[key] == nil {
			may[key] = &bounds{}
		}
		return may[key]
	}
	for i := range a.requests {
		a.causes[keyOf(&a.requests[i])]++
	}
	seen := map[string]bool{}
	for i := range a.requests {
		r := &a.requests[i]
		seen[string(r.UID)] = true
		at(keyOf(r)).add(a.fateOf(r))
	}
	for uid, all := range a.dispatches {
		if len(all) > 1 {
			a.mismatch("request %s was used %d times, by the receipts", uid, len(all))
		}
		if !seen[uid] {
			a.mismatch("request %s stands in a receipt, and nowhere else", uid)
		}
	}
	for key, all := range a.unattended {
		for _, d := range all {
			at(key).add(fate(d.outcome))
		}
	}
	ran := map[string]int{}
	reads := map[string]bool{}
	for _, e := range a.executions {
		if e.Tool == toolRead {
			reads[e.Trace] = true
		} else {
			ran[e.Key]++
			at(e.Key)
		}
	}
	for key, b := range may {
		if !b.hold(ran[key]) {
			a.mismatch("%s was executed %d times, and by requests and receipts %d to %d times", key, ran[key], b.least, b.most)
		}
	}
	a.checkReads(len(reads))
}

// fate says how often a call with this outcome ran.
func fate(outcome string) bounds {
	switch v1alpha1.ExecutionOutcome(outcome) {
	case v1alpha1.OutcomeSucceeded, v1alpha1.OutcomeToolError:
		return once
	case v1alpha1.OutcomeNotSent, v1alpha1.OutcomeRejected:
		return never
	default:
		return maybe
	}
}

// fateOf says how often the action of a request ran on it, and compares the request with its receipts.
func (a *accounts) fateOf(r *v1alpha1.ApprovalRequest) bounds {
	sent := a.dispatches[string(r.UID)]
	e, phase := r.Status.Execution, r.CurrentPhase()
	switch phase {
	case v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed, v1alpha1.PhaseAmbiguous:
		if e == nil {
			a.mismatch("request %s is %s, and nobody executed it", r.Name, phase)
			return never
		}
	case v1alpha1.PhaseDenied, v1alpha1.PhaseDismissed, v1alpha1.PhaseExpired, v1alpha1.PhaseCancelled:
		if e != nil || len(sent) > 0 {
			a.mismatch("request %s is %s, and was executed", r.Name, phase)
		}
		return never
	default:
		a.mismatch("request %s is still %s", r.Name, phase)
		return maybe
	}
	if len(sent) > 0 && sent[0].gateway != e.Gateway {
		a.mismatch("request %s was claimed by %s and sent by %s", r.Name, e.Gateway, sent[0].gateway)
	}
	if len(sent) == 0 && fate(string(e.Outcome)) == once {
		a.mismatch("request %s is %s, and no receipt let it leave", r.Name, e.Outcome)
	}
	if known := e.Outcome; known != "" && len(sent) > 0 && sent[0].outcome != string(known) && sent[0].outcome != "" {
		a.mismatch("request %s says %s, and its receipt %s", r.Name, known, sent[0].outcome)
	}
	found := r.Status.Resolution
	switch {
	case found != nil && found.Outcome == v1alpha1.ResolutionNotExecuted || len(sent) == 0:
		return never
	case found != nil && a.causes[keyOf(r)] == 1:
		return once
	case found != nil:
		return maybe // the person saw that it ran, and not on which request
	case sent[0].outcome != "":
		return fate(cmp.Or(string(e.Outcome), sent[0].outcome))
	default:
		return fate(string(e.Outcome))
	}
}
