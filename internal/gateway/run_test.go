// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// noWatch is a cache that can be started and watches nothing.
type noWatch struct {
	cache.Cache
	t *testing.T
}

var errNoWatch = errors.New("no such kind")

func (n noWatch) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, errNoWatch
}

func (n noWatch) Start(ctx context.Context) error {
	n.t.Error("the cache was started, and nobody waits for its end")
	return ctx.Err()
}

func TestWhatCannotWatchLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*testing.T) func(context.Context) error{
		"the voting keys": func(t *testing.T) func(context.Context) error {
			return (&Keyring{Cache: noWatch{t: t}, Metrics: newMetrics(t)}).Run
		},
		"the servers": func(t *testing.T) func(context.Context) error {
			return (&Watcher{Cache: noWatch{t: t}, Metrics: newMetrics(t)}).Run
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if err := run(t)(t.Context()); !errors.Is(err, errNoWatch) {
					t.Errorf("%v, want %v", err, errNoWatch)
				}
				synctest.Wait() // until whatever was left has run
			})
		})
	}
}
