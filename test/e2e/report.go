// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// step is one thing that is done and looked at. What it returns is what was seen; an error says that it was not what has to
// be seen.
type step struct {
	what string
	do   func(ctx context.Context) (seen string, err error)
}

const (
	// limit is how long a step may take, whatever it waits for.
	limit = 4 * time.Minute
	// building is how long one may take that builds programs: the first time on a machine Kubernetes is among them.
	building = 45 * time.Minute
)

// report writes down steps, by chapters, as they are done.
type report struct {
	out              io.Writer
	started          time.Time
	chapters, passed int
	failures         int
	failed           []string
}

func newReport(out io.Writer) *report { return &report{out: out, started: time.Now()} }

func (r *report) sayf(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// chapter does steps, one after the other, until one fails or takes longer than a limit, and tells whether none did.
func (r *report) chapter(ctx context.Context, title string, limit time.Duration, steps []step) bool {
	r.chapters++
	r.sayf("\n%d. %s", r.chapters, title)
	for i, s := range steps {
		if !r.step(ctx, fmt.Sprintf("%d.%d", r.chapters, i+1), limit, s) {
			if left := len(steps) - i - 1; left > 0 {
				r.sayf("     the other %d steps of this chapter were not done", left)
			}
			return false
		}
	}
	return true
}

// step does one.
func (r *report) step(ctx context.Context, number string, limit time.Duration, s step) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	started := time.Now()
	seen, err := s.do(ctx)
	took := time.Since(started).Round(100 * time.Millisecond)
	verdict := "ok"
	if err != nil {
		verdict = "FAILED"
		r.failures++
		r.failed = append(r.failed, number+" "+s.what)
	} else {
		r.passed++
	}
	r.sayf("%s %-6s %6s  %s", number, verdict, took, s.what)
	r.show(seen)
	if err != nil {
		r.show("FAILED: " + err.Error())
	}
	return err == nil
}

// show prints what was seen, with an indent.
func (r *report) show(text string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		fmt.Fprint(r.out, "       | ", line)
	}
	if strings.TrimSpace(text) != "" {
		fmt.Fprintln(r.out)
	}
}

// summary says how it went.
func (r *report) summary() {
	r.sayf("\nSummary: %d steps passed, %d failed, in %s", r.passed, r.failures, time.Since(r.started).Round(time.Second))
	for _, step := range r.failed {
		r.sayf("  FAILED %s", step)
	}
	verdict := "passed"
	if r.failures > 0 {
		verdict = "FAILED"
	}
	r.sayf("e2e: %s", verdict)
}
