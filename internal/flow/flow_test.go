// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package flow_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/internal/flow"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ann   = snapshot.Caller{Username: "ann"}
	bob   = snapshot.Caller{Username: "bob"}
	pay   = flow.Call{Owner: ann, Action: "pay 500"}
	asked = wire.Next{State: "s1", HasState: true, Asks: []string{"confirm"}}
)

func open(call flow.Call) *flow.Flow[int] {
	return &flow.Flow[int]{Call: call, Deadline: noon.Add(time.Minute)}
}

func TestARoundGoesOnOnlyWithTheCallThatWaitsForIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		next  wire.Next
		call  flow.Call
		round wire.Round
		want  flow.Refusal
	}{
		"what was asked":              {asked, pay, wire.Round{State: "s1", HasState: true, Answers: []string{"confirm"}}, flow.Taken},
		"no answer at all":            {asked, pay, wire.Round{State: "s1", HasState: true}, flow.Taken},
		"a state alone":               {wire.Next{State: "s1", HasState: true}, pay, wire.Round{State: "s1", HasState: true}, flow.Taken},
		"answers without a state":     {wire.Next{Asks: []string{"a", "b"}}, pay, wire.Round{Answers: []string{"b"}}, flow.Taken},
		"an empty state":              {wire.Next{HasState: true}, pay, wire.Round{HasState: true}, flow.Taken},
		"another state":               {asked, pay, wire.Round{State: "s2", HasState: true, Answers: []string{"confirm"}}, flow.Unknown},
		"no state where there is one": {asked, pay, wire.Round{Answers: []string{"confirm"}}, flow.Unknown},
		"a state where there is none": {wire.Next{Asks: []string{"a"}}, pay, wire.Round{HasState: true, Answers: []string{"a"}}, flow.Unknown},
		"another action":              {asked, flow.Call{Owner: ann, Action: "pay 5000"}, wire.Round{State: "s1", HasState: true}, flow.Unknown},
		"another caller":              {asked, flow.Call{Owner: bob, Action: pay.Action}, wire.Round{State: "s1", HasState: true}, flow.Unknown},
		"for another user":            {asked, flow.Call{Owner: snapshot.Caller{Username: "ann", ActsFor: "bob"}, Action: pay.Action}, wire.Round{State: "s1", HasState: true}, flow.Unknown},
		"an answer that nobody asked": {asked, pay, wire.Round{State: "s1", HasState: true, Answers: []string{"confirm", "amount"}}, flow.Unasked},
		"an answer where none is":     {wire.Next{State: "s1", HasState: true}, pay, wire.Round{State: "s1", HasState: true, Answers: []string{"confirm"}}, flow.Unasked},
		"a call that became a task":   {wire.Next{Task: wire.TaskState{ID: "t", Status: "working"}}, pay, wire.Round{}, flow.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b flow.Book[int]
			f := open(pay)
			b.Keep(f, tc.next, noon)
			got, why := b.Take(tc.call, tc.round, noon)
			if why != tc.want || (got == f) != (tc.want == flow.Taken) {
				t.Fatalf("refused with %q, want %q", why, tc.want)
			}
			if why != flow.Taken {
				return
			}
			if _, again := b.Take(tc.call, tc.round, noon); again != flow.Unknown {
				t.Errorf("the same round again: %q", again)
			}
			b.Release(f)
			if _, again := b.Take(tc.call, tc.round, noon); again != flow.Taken {
				t.Errorf("again, after nothing was sent: %q", again)
			}
			b.End(f)
			b.Release(f)
			if _, again := b.Take(tc.call, tc.round, noon); again != flow.Unknown {
				t.Errorf("after the end: %q", again)
			}
		})
	}
}

func TestHowATaskEnds(t *testing.T) {
	t.Parallel()
	fine, broken, error := &wire.Answer{Complete: true}, &wire.Answer{Complete: true, IsError: true}, &wire.Answer{Error: true}
	type heard struct {
		status string
		result *wire.Answer // inline
		fetch  *wire.Answer // by tasks/result, in place of a status
		after  time.Duration
		want   flow.Ending
	}
	for name, story := range map[string][]heard{
		"completed with its result":          {{status: "working"}, {status: "completed", result: fine, want: flow.Succeeded}},
		"completed with an error":            {{status: "completed", result: broken, want: flow.ToolError}},
		"completed with what is none":        {{status: "completed", result: &wire.Answer{}, want: flow.Unclear}},
		"completed, then the result":         {{status: "completed"}, {fetch: fine, want: flow.Succeeded}},
		"completed, and the tool failed":     {{status: "completed"}, {fetch: broken, want: flow.ToolError}},
		"completed, and nobody asks":         {{status: "completed"}, {after: 9 * time.Second}, {after: time.Second, want: flow.Succeeded}},
		"failed, and the tool said so":       {{status: "failed"}, {fetch: broken, want: flow.ToolError}},
		"failed, and nobody asks":            {{status: "failed"}, {after: 10 * time.Second, want: flow.Unclear}},
		"cancelled":                          {{status: "cancelled", want: flow.Unclear}},
		"a result that cannot be fetched":    {{fetch: error}, {status: "working"}, {after: 59 * time.Second}, {after: time.Second, want: flow.Unclear}},
		"never heard of again":               {{after: time.Minute, want: flow.Unclear}},
		"completed just before the deadline": {{after: 59 * time.Second}, {status: "completed"}, {after: time.Second, want: flow.Succeeded}},
		"lost, and found":                    {{after: time.Minute, want: flow.Unclear}, {fetch: fine, want: flow.Succeeded}},
		"failed, however often it is asked":  {{status: "failed"}, {after: 9 * time.Second, status: "failed"}, {after: time.Second, want: flow.Unclear}},
		"a status that nobody knows":         {{status: "done"}, {after: time.Minute, want: flow.Unclear}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b flow.Book[int]
			f, now := open(pay), noon
			b.Keep(f, wire.Next{Task: wire.TaskState{ID: "t", Status: "working"}}, now)
			for i, step := range story {
				now = now.Add(step.after)
				var got *flow.Flow[int]
				ending := flow.Open
				switch {
				case step.fetch != nil:
					got, ending = b.HearResult("t", *step.fetch)
				case step.status != "":
					got, ending = b.Hear(wire.TaskState{ID: "t", Status: step.status, Result: step.result}, now)
				default:
					if overdue := b.Overdue(now); len(overdue) == 1 {
						got, ending = overdue[0].Flow, overdue[0].Ending
					}
				}
				if ending != step.want || (got == f) != (step.want != flow.Open) {
					t.Errorf("step %d: %v, want %v", i, ending, step.want)
				}
			}
			if again := b.Overdue(now.Add(time.Hour)); len(again) > 0 {
				t.Error("it ends once more")
			}
		})
	}
}

func TestWhoMayKnowOfATask(t *testing.T) {
	t.Parallel()
	var b flow.Book[int]
	f := open(pay)
	b.Keep(f, wire.Next{Task: wire.TaskState{ID: "t", Status: "working"}}, noon)
	b.Free("read")
	b.Free("t") // whose it is stays
	b.Free("")
	for _, tc := range []struct {
		id   string
		from snapshot.Caller
		want bool
	}{{"t", ann, false}, {"t", bob, true}, {"read", bob, false}, {"another", bob, false}, {"", bob, false}} {
		if got := b.Hides(tc.id, tc.from); got != tc.want {
			t.Errorf("%q hidden from %s: %t", tc.id, tc.from.Username, got)
		}
	}
	if b.Keep(open(flow.Call{Owner: bob}), wire.Next{Task: wire.TaskState{ID: "t", Status: "working"}}, noon) {
		t.Error("a second task has the id of the first")
	}
	b.End(f)
	if !b.Hides("t", bob) {
		t.Error("the result of a task that has ended is anybody's")
	}
	for _, id := range []string{"another", ""} {
		if _, known := b.Task(id); known {
			t.Errorf("the task %q is known, which nobody spoke of", id)
		}
	}
}

func TestOnlyARoundThatWasTakenIsReleased(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meanwhile func(*flow.Book[int], *flow.Flow[int])
		want      flow.Refusal
	}{
		"it was taken":        {func(*flow.Book[int], *flow.Flow[int]) {}, flow.Taken},
		"it runs as a task":   {func(b *flow.Book[int], f *flow.Flow[int]) { b.Keep(f, wire.Next{Task: wire.TaskState{ID: "t"}}, noon) }, flow.Unknown},
		"the call has ended":  {func(b *flow.Book[int], f *flow.Flow[int]) { b.End(f) }, flow.Unknown},
		"it waits for a next": {func(b *flow.Book[int], f *flow.Flow[int]) { b.Keep(f, wire.Next{State: "s2", HasState: true}, noon) }, flow.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b flow.Book[int]
			b.Keep(open(pay), asked, noon)
			round := wire.Round{State: "s1", HasState: true}
			f, _ := b.Take(pay, round, noon)
			tc.meanwhile(&b, f)
			b.Release(f)
			if _, got := b.Take(pay, round, noon); got != tc.want {
				t.Errorf("the round again: %q, want %q", got, tc.want)
			}
		})
	}
}

// Whoever has many tasks of calls without effects, or many that have ended, must not make the book forget whose one is
// that runs.
func TestATaskThatRunsIsNotForgotten(t *testing.T) {
	t.Parallel()
	for name, crowd := range map[string]func(b *flow.Book[int], id string){
		"for tasks of reads": func(b *flow.Book[int], id string) { b.Free(id) },
		"for tasks that have ended": func(b *flow.Book[int], id string) {
			f := open(flow.Call{Owner: bob})
			b.Keep(f, wire.Next{Task: wire.TaskState{ID: id, Status: "working"}}, noon)
			b.End(f)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b flow.Book[int]
			f := open(pay)
			b.Keep(f, wire.Next{Task: wire.TaskState{ID: "t", Status: "working"}}, noon)
			for i := range 10_000 {
				crowd(&b, fmt.Sprint(i))
			}
			if !b.Hides("t", bob) || b.Hides("t", ann) {
				t.Error("nobody knows whose it is")
			}
			if got, ending := b.HearResult("t", wire.Answer{Complete: true}); got != f || ending != flow.Succeeded {
				t.Errorf("its result is not heard: %v", ending)
			}
			if !b.Hides("t", bob) {
				t.Error("nobody knows whose it was")
			}
		})
	}
}

// The tasks of reads have bounds of their own, and do not push out whose an ended task was.
func TestTasksOfReadsPushNothingOut(t *testing.T) {
	t.Parallel()
	var b flow.Book[int]
	f := open(pay)
	b.Keep(f, wire.Next{Task: wire.TaskState{ID: "t", Status: "working"}}, noon)
	b.End(f)
	for i := range 10_000 {
		b.Free(fmt.Sprint(i))
	}
	if !b.Hides("t", bob) {
		t.Error("nobody knows whose it was")
	}
	if _, known := b.Task("0"); known {
		t.Error("tasks of reads are remembered without bounds")
	}
	if _, known := b.Task("9999"); !known {
		t.Error("the last task of a read is forgotten")
	}
}

func TestABookHasBounds(t *testing.T) {
	t.Parallel()
	var b flow.Book[int]
	kept := map[string]int{}
	for _, owner := range []snapshot.Caller{ann, {Username: "ann", ActsFor: "bob"}, bob, {Username: "eve"}} { // ann takes all she can first
		for i := range 600 {
			if b.Keep(open(flow.Call{Owner: owner, Action: pay.Action}), wire.Next{State: fmt.Sprint(i), HasState: true}, noon) {
				kept[owner.Username]++
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"ann": 512, "bob": 512}, kept); diff != "" || len(b.Overdue(noon.Add(time.Hour))) != 1024 {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if !b.Keep(open(pay), asked, noon) {
		t.Error("there is no room after their end")
	}
}

// Of any number of messages at once, one goes on with a call.
func TestOneMessageIsSentForARound(t *testing.T) {
	t.Parallel()
	for range 50 {
		var b flow.Book[int]
		b.Keep(open(pay), asked, noon)
		var sent atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if f, _ := b.Take(pay, wire.Round{State: "s1", HasState: true}, noon); f != nil {
					sent.Add(1)
				}
			})
		}
		all.Wait()
		if sent.Load() != 1 {
			t.Fatalf("%d messages for one round", sent.Load())
		}
	}
}

// model is what is known of one flow from outside: the round that it waits for, and whether that was sent.
type model struct {
	call    flow.Call
	next    *wire.Next // nil once it waits for none
	sending bool
	ended   bool
}

func TestLawARoundIsPartOfACallThatLeftAndIsSentOnce(t *testing.T) {
	t.Parallel()
	calls := []flow.Call{pay, {Owner: bob, Action: pay.Action}, {Owner: ann, Action: "pay 5000"}}
	nexts := []wire.Next{asked, {State: "s2", HasState: true}, {Asks: []string{"confirm"}}}
	rounds := []wire.Round{{State: "s1", HasState: true}, {State: "s2", HasState: true}, {Answers: []string{"confirm"}}, {State: "s1", HasState: true, Answers: []string{"other"}}}
	rapid.Check(t, func(t *rapid.T) {
		var b flow.Book[int]
		known := map[*flow.Flow[int]]*model{}
		var order []*flow.Flow[int]
		pickOne := func(t *rapid.T) *flow.Flow[int] {
			if len(order) == 0 {
				t.Skip("no flow yet")
			}
			return rapid.SampledFrom(order).Draw(t, "flow")
		}
		t.Repeat(map[string]func(*rapid.T){
			"a call leaves and is asked for more": func(t *rapid.T) {
				f := open(rapid.SampledFrom(calls).Draw(t, "call"))
				next := rapid.SampledFrom(nexts).Draw(t, "next")
				b.Keep(f, next, noon)
				known[f] = &model{call: f.Call, next: &next}
				order = append(order, f)
			},
			"a message comes": func(t *rapid.T) {
				call, round := rapid.SampledFrom(calls).Draw(t, "call"), rapid.SampledFrom(rounds).Draw(t, "round")
				f, why := b.Take(call, round, noon)
				if (f != nil) != (why == flow.Taken) {
					t.Fatalf("taken %t, refused with %q", f != nil, why)
				}
				if f == nil {
					return
				}
				m := known[f]
				if m == nil || m.ended || m.sending || m.next == nil || m.call != call || m.next.HasState != round.HasState || m.next.State != round.State {
					t.Fatalf("%+v went on with %+v", round, m)
				}
				for _, name := range round.Answers {
					if !slices.Contains(m.next.Asks, name) {
						t.Fatalf("%q was never asked", name)
					}
				}
				m.sending = true
			},
			"nothing of it was sent": func(t *rapid.T) {
				f := pickOne(t)
				b.Release(f)
				known[f].sending = false
			},
			"the server asks for more": func(t *rapid.T) {
				f := pickOne(t)
				if m := known[f]; m.sending && !m.ended {
					next := rapid.SampledFrom(nexts).Draw(t, "next")
					b.Keep(f, next, noon)
					m.next, m.sending = &next, false
				}
			},
			"it ends": func(t *rapid.T) {
				f := pickOne(t)
				b.End(f)
				known[f].ended, known[f].sending = true, false
			},
			"time goes by": func(t *rapid.T) {
				for _, o := range b.Overdue(noon.Add(time.Hour)) {
					m := known[o.Flow]
					if m.ended || m.sending {
						t.Fatalf("%+v ended by the time that went by", m)
					}
					m.ended = true
				}
			},
		})
	})
}

func TestTheZeroBookKnowsNothing(t *testing.T) {
	t.Parallel()
	var b flow.Book[int]
	if f, ending := b.Hear(wire.TaskState{ID: "t", Status: "completed"}, noon); f != nil || ending != flow.Open {
		t.Error("a task is known")
	}
	if f, ending := b.HearResult("t", wire.Answer{Complete: true}); f != nil || ending != flow.Open {
		t.Error("the result of a task is known")
	}
	if diff := cmp.Diff(0, len(b.Overdue(noon))); diff != "" {
		t.Error(diff)
	}
}
