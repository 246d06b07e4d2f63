// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tidewaiter/tidewaiter/internal/gateway"
)

// limitOptions are the limits as flags have them; gateway.Limits says what each is.
type limitOptions struct {
	message, header, answer, event resource.QuantityValue
	gateway.Limits
	// receive bounds the time that a request takes to arrive, idle that of a connection without one.
	receive, idle time.Duration
}

func (l *limitOptions) addFlags(flags *pflag.FlagSet) {
	l.Limits = gateway.DefaultLimits()
	bytes := func(value *resource.QuantityValue, name string, size int64, usage string) {
		value.Quantity = *resource.NewQuantity(size, resource.BinarySI)
		flags.Var(value, name, usage)
	}
	bytes(&l.message, "max-message", l.Message, "largest message of an agent, in bytes")
	bytes(&l.header, "max-header", 64<<10, "largest headers of a request, in bytes")
	bytes(&l.answer, "max-answer", l.Answer, "largest answer of a server that is passed on as it comes, in bytes")
	bytes(&l.event, "max-event", l.Event, "largest event of a server, and largest answer that has to be read whole before it is passed on: a list of tools, the answer to a call with effects; in bytes")
	flags.IntVar(&l.Calls, "max-calls", l.Calls, "requests that may be under way, of all callers")
	flags.IntVar(&l.CallerCalls, "max-calls-per-caller", l.CallerCalls, "requests that may be under way of one caller; at most half of --max-calls")
	flags.IntVar(&l.CallerRate, "max-rate-per-caller", l.CallerRate, "messages that one caller may send a second, after as many at once; 0 for any number")
	flags.IntVar(&l.Streams, "max-streams", l.Streams, "streams that agents may listen on, of all callers")
	flags.IntVar(&l.CallerStreams, "max-streams-per-caller", l.CallerStreams, "streams that one caller may listen on; at most half of --max-streams")
	flags.IntVar(&l.Sessions, "max-sessions", l.Sessions, "MCP sessions of a server whose owners are remembered; the one that was used longest ago is forgotten")
	flags.DurationVar(&l.receive, "receive-timeout", time.Minute, "how long a request may take to arrive")
	flags.DurationVar(&l.idle, "idle-timeout", 2*time.Minute, "how long a connection may be open without a request")
	flags.DurationVar(&l.ClientStall, "client-stall", l.ClientStall, "how long a client may read nothing of what it is sent")
	flags.DurationVar(&l.StreamIdle, "stream-idle", l.StreamIdle, "how long nothing may pass on a stream that an agent listens on")
	flags.IntVar(&l.Failures, "breaker-failures", l.Failures, "failures in a row of a server, after which it is left alone")
	flags.DurationVar(&l.Rest, "breaker-rest", l.Rest, "how long a server that failed is left alone before it is tried again")
}

// check returns the limits, or which flag is out of its range.
func (l *limitOptions) check() (gateway.Limits, error) {
	limits := l.Limits
	var header int64
	for _, b := range []struct {
		flag       string
		value      *resource.QuantityValue
		into       *int64
		least, top string
	}{
		{"max-message", &l.message, &limits.Message, "1Ki", "64Mi"},
		{"max-header", &l.header, &header, "4Ki", "1Mi"},
		{"max-answer", &l.answer, &limits.Answer, "64Ki", "4Gi"},
		{"max-event", &l.event, &limits.Event, "64Ki", "256Mi"},
	} {
		if b.value.Cmp(resource.MustParse(b.least)) < 0 || b.value.Cmp(resource.MustParse(b.top)) > 0 {
			return limits, outOfRange(b.flag, b.value.String(), b.least, b.top)
		}
		*b.into = b.value.Value()
	}
	for _, n := range []struct {
		flag              string
		value, least, top int
	}{
		{"max-calls", l.Calls, 2, 100_000},
		{"max-calls-per-caller", l.CallerCalls, 1, l.Calls / 2},
		{"max-rate-per-caller", l.CallerRate, 0, 1_000_000},
		{"max-streams", l.Streams, 2, 100_000},
		{"max-streams-per-caller", l.CallerStreams, 1, l.Streams / 2},
		{"max-sessions", l.Sessions, 1, 1_000_000},
		{"breaker-failures", l.Failures, 1, 1000},
	} {
		if n.value < n.least || n.value > n.top {
			return limits, outOfRange(n.flag, n.value, n.least, n.top)
		}
	}
	for _, d := range []struct {
		flag              string
		value, least, top time.Duration
	}{
		{"receive-timeout", l.receive, time.Second, 10 * time.Minute},
		{"idle-timeout", l.idle, time.Second, time.Hour},
		{"client-stall", l.ClientStall, time.Second, 10 * time.Minute},
		{"stream-idle", l.StreamIdle, time.Minute, 24 * time.Hour},
		{"breaker-rest", l.Rest, time.Second, 10 * time.Minute},
	} {
		if d.value < d.least || d.value > d.top {
			return limits, outOfRange(d.flag, d.value, d.least, d.top)
		}
	}
	return limits, nil
}

func outOfRange(flag string, value, least, top any) error {
	return fmt.Errorf("--%s: %v is not from %v to %v", flag, value, least, top)
}
