// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// maxIdleCallers bounds how many callers are remembered that have nothing under way.
const maxIdleCallers = 4096

// place is what a caller takes up while it lasts.
type place int

const (
	// reading: a message arrives.
	reading place = iota
	// awaiting: a request waits for its answer.
	awaiting
	// listening: a stream is open.
	listening
	// telling: the server is told what has no answer. It has places of its own, since it may be what a request waits for, or
	// what ends one.
	telling
	places
)

// callers count what is under way, for each caller and in all. Who calls is the authenticated user, whomever it acts
// for: a caller does not get more by naming more people. The zero value knows none.
type callers struct {
	mu   sync.Mutex
	by   map[string]*load
	busy int // callers with something under way
	all  [places]int
	held [weighed]int64
}

// load is what one caller has under way.
type load struct {
	taken [places]int
	sum   int
	held  [weighed]int64
	rate  *rate.Limiter // nil before the first message that is counted
}

// enter takes a place for a caller, if fewer than mine are taken by it and fewer than all by everybody; a code says
// which are not.
func (c *callers) enter(name string, p place, mine, all int) (l *load, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l = c.of(name)
	switch {
	case l.taken[p] >= mine:
		return nil, tooMany[p]
	case c.all[p] >= all:
		return nil, codeBusy
	}
	if l.sum == 0 {
		c.busy++
	}
	l.taken[p]++
	l.sum++
	c.all[p]++
	return l, ""
}

// leave gives a place back.
func (c *callers) leave(l *load, p place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.taken[p]--
	l.sum--
	c.all[p]--
	if l.sum == 0 {
		c.busy--
	}
}

// tooMany are the codes for a caller that has taken all its places.
var tooMany = [places]string{reading: codeTooManyCalls, awaiting: codeTooManyCalls, listening: codeTooManyStreams, telling: codeTooManyCalls}

// of returns what a caller has under way; who calls it holds mu.
func (c *callers) of(name string) *load {
	if l := c.by[name]; l != nil {
		return l
	}
	if c.by == nil {
		c.by = map[string]*load{}
	}
	if len(c.by)-c.busy >= maxIdleCallers {
		c.forget()
	}
	l := &load{}
	c.by[name] = l
	return l
}

// forget makes room for half of the callers that have nothing under way, in no order. One who comes back may send anew
// as many messages at once as anybody.
func (c *callers) forget() {
	for name, l := range c.by {
		if len(c.by)-c.busy <= maxIdleCallers/2 {
			return
		}
		if l.sum == 0 {
			delete(c.by, name)
		}
	}
}

// pace counts a message of a caller, of at most perSecond, and returns how long it would have to wait; 0 lets it pass.
func (c *callers) pace(name string, perSecond int, now time.Time) time.Duration {
	if perSecond == 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.of(name)
	if l.rate == nil {
		l.rate = rate.NewLimiter(rate.Limit(perSecond), perSecond)
	}
	r := l.rate.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now) // what is refused does not count
	}
	return wait
}

// taken is a place that is to be given back.
type taken struct {
	g    *Gateway
	load *load
	p    place
}

func (t taken) leave() {
	t.g.callers.leave(t.load, t.p)
	t.g.Metrics.underWay[t.p].Dec()
}

// takePlace counts what a caller has under way until it leaves, or refuses it.
func (g *Gateway) takePlace(w http.ResponseWriter, server *Server, who caller, p place, id []byte) (t taken, ok bool) {
	mine, all := g.Limits.CallerCalls, g.Limits.Calls
	if p == listening {
		mine, all = g.Limits.CallerStreams, g.Limits.Streams
	}
	l, code := g.callers.enter(who.requester.Username, p, mine, all)
	if code != "" {
		g.refuseLoad(w, server, id, code, time.Second) // nobody knows when something ends
		return taken{}, false
	}
	g.Metrics.underWay[p].Inc()
	return taken{g, l, p}, true
}

// keepsPace counts a message of a caller, or refuses it for coming too soon.
func (g *Gateway) keepsPace(w http.ResponseWriter, server *Server, who caller, id []byte) bool {
	wait := g.callers.pace(who.requester.Username, g.Limits.CallerRate, g.Clock.Now())
	if wait > 0 {
		g.refuseLoad(w, server, id, codeRateLimited, wait)
	}
	return wait == 0
}

// overload words a refusal for a limit.
var overload = map[string]string{
	codeTooManyCalls:   "you have as many calls under way as one caller may. Nothing was passed on. Wait for some to end, then send the message again.",
	codeTooManyStreams: "you listen on as many streams as one caller may. End one first, or share one.",
	codeBusy:           "the gateway has as much under way as it can. Nothing was passed on. Send the message again later.",
	codeRateLimited:    "you send more messages a second than one caller may. Nothing was passed on. Send the message again later.",
}

// refuseLoad refuses a message for a limit, before anything is decided.
func (g *Gateway) refuseLoad(w http.ResponseWriter, server *Server, id []byte, code string, wait time.Duration) {
	refusal := wire.Refusal{Status: http.StatusTooManyRequests, Code: codeByPolicy, Message: speaker + overload[code]}
	if code == codeBusy {
		refusal.Status = http.StatusServiceUnavailable
	}
	refusal.Data = retryLater(w.Header(), code, wait)
	g.refuseMessage(w, server, code, refusal.For(id))
}
