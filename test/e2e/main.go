// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command e2e installs Tidewaiter into a real cluster, runs real pods, and proves what can only be proved with them, each
// beside its control. Its output is a report.
//
// The cluster is a node that it starts on this machine, and removes again (hack/node: Linux, root, a few Debian packages);
// or the one that KUBECONFIG leads to; or one of kind. It has to be empty of Tidewaiter, and is so again afterwards.
//
// Exit codes: 0 passed, 1 failed, 3 not supported here, with what is missing. `go run` and make hide them: build it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Exit codes.
const (
	failed      = 1
	unsupported = 3
)

// errFailed says that a step has failed; the report says which.
var errFailed = errors.New("failed")

// options are the flags.
type options struct {
	cluster string
	install bool
	keep    bool
	only    *regexp.Regexp
}

func main() {
	var o options
	flag.StringVar(&o.cluster, "cluster", "", "where the cluster comes from: node, kubeconfig or kind; default: kubeconfig where KUBECONFIG is set, else node")
	flag.BoolVar(&o.install, "install", false, "install the Debian packages that the node needs")
	flag.BoolVar(&o.keep, "keep", false, "leave the cluster, and what is in it, as it is at the end")
	only := flag.String("run", "", "only the scenarios whose name matches; the first one, which installs, is always run")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if o.only, err = regexp.Compile(*only); err == nil {
		err = run(ctx, o)
	}
	stop()
	if err == nil {
		return
	}
	if lack, ok := errors.AsType[*unsupportedError](err); ok {
		fmt.Fprintln(os.Stderr, "e2e:", lack)
		os.Exit(unsupported)
	}
	fmt.Fprintln(os.Stderr, "e2e:", err)
	os.Exit(failed)
}

// run gets a cluster, goes through the scenarios, and gives the cluster back, however that went.
func run(ctx context.Context, o options) (err error) {
	r := newReport(os.Stdout)
	e := &e2e{report: r, install: o.install}
	if err := e.prepare(ctx, o.cluster); err != nil {
		return err
	}
	defer func() {
		if o.keep {
			r.sayf("\nThe cluster was left as it is, because of -keep. Its kubeconfig is %s", e.kubeconfig)
		} else {
			err = errors.Join(err, e.giveBack(context.WithoutCancel(ctx)))
		}
		r.summary()
		if err == nil && r.failures > 0 {
			err = errFailed
		}
	}()
	if !r.chapter(ctx, "The cluster, and what is brought into it", building, e.bringUp()) {
		return errFailed // an empty report says nothing of the rest
	}
	for i, s := range scenarios {
		if i > 0 && !o.only.MatchString(s.name) {
			continue
		}
		if passed := r.chapter(ctx, s.name+": "+s.about, limit, s.steps(e)); !passed && i == 0 {
			return errFailed // the others build on it
		}
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
	}
	return nil
}
