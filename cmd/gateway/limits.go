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
