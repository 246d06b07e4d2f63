// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/breaker"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// restingError: the server failed so often that it is left alone for a while.
type restingError struct{ wait time.Duration }

// Error says for how long.
func (e restingError) Error() string { return fmt.Sprintf("MCP server left alone for %s", e.wait) }

// health is what is known of whether the server works. The zero value takes it for working.
type health struct {
	once  sync.Once
	is    breaker.Breaker
	shown atomic.Int32 // the state that the metric has, plus one
}

// breaker returns the server's circuit breaker.
func (h *health) breaker(l Limits) *breaker.Breaker {
	h.once.Do(func() { h.is.Failures, h.is.Rest = l.Failures, l.Rest })
	return &h.is
}

// outcomeFor is what an exchange with the server says of it. An agent that has gone, or that sent what could not be written,
// and a tool that takes its time, say nothing; neither does a server that does not offer what was asked for.
func outcomeFor(ctx context.Context, resp *http.Response, err error, unwritten bool) breaker.Outcome {
	switch {
	case err != nil && (unwritten || ctx.Err() != nil || errors.Is(err, errNoUpstream)):
		return breaker.Unknown
	case err != nil:
		return breaker.Failed
	case resp.StatusCode < http.StatusInternalServerError:
		return breaker.Worked
	case resp.StatusCode == http.StatusNotImplemented || resp.Request.Method != http.MethodPost:
		return breaker.Unknown
	default:
		return breaker.Failed
	}
}

// rests tells how long the server is to be left alone, 0 when it may be asked.
func (g *Gateway) rests(server *Server) time.Duration {
	_, wait := server.health.breaker(g.Limits).State(g.Clock.Now())
	return wait
}

// reaches tells how long a call with effects has to wait, 0 when it may leave. It is never the one to find out whether
// the server works again: the gateway asks for the tools first.
func (g *Gateway) reaches(ctx context.Context, server *Server) time.Duration {
	b := server.health.breaker(g.Limits)
	if state, _ := b.State(g.Clock.Now()); state == breaker.Closed {
		return 0
	}
	pass, wait, ok := b.Admit(g.Clock.Now())
	if !ok {
		return wait
	}
	outcome := breaker.Unknown
	if up := server.upstream.Load(); up != nil {
		within, cancel := context.WithTimeout(ctx, min(listWithin, g.Limits.Rest))
		defer cancel()
		switch _, err := server.List(within, up.own()); {
		case err == nil:
			outcome = breaker.Worked
		case ctx.Err() == nil:
			outcome = breaker.Failed
		}
	}
	g.healthy(server, pass, outcome)
	if outcome == breaker.Worked {
		return 0
	}
	return max(g.rests(server), time.Second)
}

// leftAlone refuses the call while its server is left alone.
func (g *gated) leftAlone() bool {
	wait := g.reaches(g.request.Context(), g.server)
	if wait > 0 {
		g.refuse(g.judged, g.known, resting(wait))
	}
	return wait > 0
}

// healthy tells the breaker, and the metric, what an exchange says of the server.
func (g *Gateway) healthy(server *Server, pass breaker.Pass, outcome breaker.Outcome) {
	b := server.health.breaker(g.Limits)
	b.Done(pass, g.Clock.Now(), outcome)
	state, _ := b.State(g.Clock.Now())
	if server.health.shown.Swap(int32(state)+1) != int32(state)+1 {
		g.Metrics.breaks(server.Key, state)
	}
}

// resting tells an agent that the server is left alone.
func resting(wait time.Duration) notice {
	return notice{code: codeResting, retryAfter: secondsOf(wait),
		text: "the MCP server failed several times in a row and is left alone for a while. Nothing was executed. Send the call again later."}
}

// secondsOf rounds up: who comes too early is refused again.
func secondsOf(wait time.Duration) int { return max(int(math.Ceil(wait.Seconds())), 1) }

// retryLater says in a header, and in the data of an error, when to come again.
func retryLater(h http.Header, code string, wait time.Duration) []byte {
	seconds := strconv.Itoa(secondsOf(wait))
	h.Set("Retry-After", seconds)
	data := strictjson.AppendString([]byte(`{"code":`), code)
	return append(data, `,"retryAfterSeconds":`+seconds+"}"...)
}
