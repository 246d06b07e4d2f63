// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command soak runs agents, persons, two gateways, the manager and an MCP server of their own process for a while, kills
// them at random and at the worst instants, and then accounts for every call: what was told, what was recorded, and what
// the server itself counted. It exits with 1 when they disagree.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	serving := flag.String("serve", "", "be the MCP server at this address, for the soak that started it")
	var o options
	flag.DurationVar(&o.duration, "duration", 10*time.Minute, "how long agents call and processes are killed")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "what chance begins with")
	flag.StringVar(&o.programs, "programs", "bin/soak", "folder of manager and gateway, built with the tag failpoints")
	flag.StringVar(&o.dir, "dir", ".soak", "folder for logs, receipts and the server's count; emptied first")
	flag.IntVar(&o.agents, "agents", 16, "how many agents call at a time")
	flag.BoolVar(&o.verbose, "verbose", false, "tell of every kill")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if *serving != "" {
		err = serve(ctx, *serving, os.Getenv(countVariable))
	} else {
		err = soak(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	duration      time.Duration
	seed          uint64
	programs, dir string
	agents        int
	verbose       bool
}

// soak sets everything up, lets it run and be killed, waits until it is quiet, and accounts for it.
func soak(ctx context.Context, o options) (err error) {
	fmt.Printf("soak: %s with seed %d\n", o.duration, o.seed)
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if err := os.RemoveAll(o.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	s, err := setStage(ctx, o)
	if err != nil {
		return err
	}
	defer s.clear()
	if err := s.promote(ctx); err != nil {
		return err
	}
	told := s.run(ctx)
	fmt.Println("soak: no more calls; waiting until all is quiet")
	restless := s.quiet(ctx)
	evidence, err := s.gather(ctx, told)
	if err != nil {
		return errors.Join(restless, err)
	}
	if restless != nil {
		evidence.faults = append(evidence.faults, restless.Error())
	}
	a := account(evidence)
	s.report(os.Stdout, evidence, a)
	if len(a.mismatches) > 0 {
		return fmt.Errorf("%d mismatches; logs, receipts and the count are in %s", len(a.mismatches), o.dir)
	}
	return nil
}

// chance returns a source of chance of its own for each part, so that what one part does changes nothing for another.
func (o options) chance(part uint64) *rand.Rand { return rand.New(rand.NewPCG(o.seed, part)) }
