// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// told is one message of an agent, and what it was told.
type told struct {
	Trace, Kind, Site, Tool, Key, Requester string
	Params                                  string
	// Answer is what the agent learned.
	Answer answer
	// Code is that of the gateway, or words on what came instead of an answer.
	Code string
	// Task is the id of the task that the call runs as, "" without one.
	Task string
}

// answer says what an agent knows of the execution of its message.
type answer int

const (
	// nothing: the connection broke, or the answer says nothing. It may have run once.
	nothing answer = iota
	// executed: the server's own result came.
	executed
	// refused: the gateway said that nothing was executed.
	refused
)

// agent is one requester.
type agent struct {
	name, token string
	gateways    []string
	chance      *rand.Rand
	// over is closed when no more is to be called.
	over <-chan struct{}
	http *http.Client

	mu   sync.Mutex
	told []told
	n    int
}

// kinds of what an agent does, with how often in a hundred.
var kinds = []struct {
	name   string
	weight int
	do     func(*agent, context.Context)
}{
	{"read", 24, func(a *agent, ctx context.Context) { a.send(ctx, a.call("read", toolRead, sites), a.pick()) }},
	{"unattended", 20, func(a *agent, ctx context.Context) { a.until(ctx, a.call("unattended", toolUnattended, sites), "") }},
	{"gated", 14, func(a *agent, ctx context.Context) { a.until(ctx, a.call("gated", toolGated, sites), "") }},
	{"lasting", 10, func(a *agent, ctx context.Context) { a.until(ctx, a.call("lasting", toolLasting, sites), "") }},
	{"task", 14, (*agent).task},
	{"duplicate", 8, (*agent).duplicate},
	{"cancel", 4, (*agent).cancel},
	{"disconnect", 6, (*agent).disconnect},
}

// work calls until the context ends.
func (a *agent) work(ctx context.Context) {
	for ctx.Err() == nil {
		dice := a.chance.IntN(100)
		for _, kind := range kinds {
			if dice -= kind.weight; dice < 0 {
				kind.do(a, context.WithoutCancel(ctx))
				break
			}
		}
		a.rest(ctx, 150*time.Millisecond)
	}
}

func (a *agent) rest(ctx context.Context, most time.Duration) {
	a.mu.Lock()
	pause := time.Duration(a.chance.Int64N(int64(most)))
	a.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

func (a *agent) pick() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gateways[a.chance.IntN(len(a.gateways))]
}

// call makes a new action at one of the sites, with a key that no other has.
func (a *agent) call(kind, tool string, at []string) told {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	key := fmt.Sprintf("%s-%d", a.name, a.n)
	if tool != toolRead && a.chance.IntN(12) == 0 {
		key = "fail-" + key
	}
	return told{
		Kind: kind, Site: at[a.chance.IntN(len(at))], Tool: tool, Key: key, Requester: a.name,
		Params: fmt.Sprintf(`{"name":%q,"arguments":{"key":%q}}`, tool, key),
	}
}

// until sends the same call again and again until it is decided: by the gateway, or by either without one.
func (a *agent) until(ctx context.Context, call told, gateway string) (t told) {
	for range 25 {
		t = a.send(ctx, call, cmp.Or(gateway, a.pick()))
		select {
		case <-a.over:
			return t
		default:
		}
		switch {
		case t.Answer == executed, t.Task != "":
			return t
		case t.Answer == nothing, again[t.Code]:
			a.rest(ctx, 2*time.Second)
		default:
			return t
		}
	}
	return t
}

// again are the codes after which an agent sends the same call again.
var again = map[string]bool{
	"ApprovalPending": true, "ApprovalUnavailable": true, "VotesNotVerified": true, "DefinitionUnavailable": true, "PolicyStale": true,
	"HTTP 503": true, "HTTP 502": true, "PolicyChanged": true, "ApprovalExpired": true, noStream: true,
}

// task has a call run as a task. Then it asks for its result, cancels it, or forgets it.
func (a *agent) task(ctx context.Context) {
	call := a.call("task", []string{toolGated, toolUnattended, toolLasting}[a.n%3], []string{depot, vault})
	call.Params = strings.TrimSuffix(call.Params, "}") + `,"task":{"ttl":5000}}`
	gateway := a.pick() // the other one would not know whose task it is
	t := a.until(ctx, call, gateway)
	method := []string{"tasks/result", "tasks/result", "tasks/result", "tasks/get", "tasks/cancel", ""}[a.roll(6)]
	if t.Task == "" || method == "" {
		return
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":8,"method":%q,"params":{"taskId":%q}}`, method, t.Task)
	if answer, code, _ := a.exchange(ctx, t, gateway, body); method == "tasks/result" {
		a.learn(t, answer, code)
	}
}

// learn notes what came later of a call whose answer was a task. A refusal of the question says nothing of the call.
func (a *agent) learn(t told, answer answer, code string) {
	if answer != executed {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.told {
		if a.told[i].Trace == t.Trace {
			a.told[i].Answer, a.told[i].Code = answer, "task, "+code
		}
	}
}

// duplicate sends one call by both gateways at once, twice.
func (a *agent) duplicate(ctx context.Context) {
	call := a.call("duplicate", []string{toolGated, toolLasting, toolUnattended}[a.n%3], sites)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() { a.send(ctx, call, a.gateways[i%len(a.gateways)]) })
	}
	all.Wait()
	a.until(ctx, call, "")
}

// cancel takes a call back while it waits for a person or for the server, as only HTTP+SSE can: by a message.
func (a *agent) cancel(ctx context.Context) {
	call := a.call("cancel", []string{toolGated, toolUnattended}[a.n%2], []string{annex})
	a.send(ctx, call, a.pick())
}

// disconnect goes away while the call is under way.
func (a *agent) disconnect(ctx context.Context) {
	call := a.call("disconnect", []string{toolGated, toolUnattended}[a.n%2], sites)
	a.send(ctx, call, a.pick())
	short, cancel := context.WithTimeout(ctx, time.Duration(5+a.roll(500))*time.Millisecond)
	defer cancel()
	a.send(short, call, a.pick())
}

func (a *agent) roll(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.chance.IntN(n)
}

// send sends one message and notes what comes of it.
func (a *agent) send(ctx context.Context, t told, gateway string) told {
	id := make([]byte, 16)
	a.mu.Lock()
	for i := range id {
		id[i] = byte(a.chance.Uint32())
	}
	progress := a.chance.IntN(2) == 0
	a.mu.Unlock()
	t.Trace = hex.EncodeToString(id)
	params := t.Params
	if progress {
		params = strings.TrimSuffix(params, "}") + `,"_meta":{"progressToken":1}}`
	}
	t.Answer, t.Code, t.Task = a.exchange(ctx, t, gateway, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+params+"}")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = append(a.told, t)
	return t
}
