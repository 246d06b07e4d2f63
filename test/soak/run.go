// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// promote grants autonomy for one tool; agents and persons earn it.
func (s *stage) promote(ctx context.Context) error {
	var servers map[string]*v1alpha1.GovernedServer
	if err := until(ctx, "the tools", func(ctx context.Context) (err error) {
		servers, err = s.servers(ctx)
		for _, server := range servers {
			if len(server.Status.Tools) != 4 {
				return fmt.Errorf("%s has %d tools: %w", server.Name, len(server.Status.Tools), err)
			}
		}
		return err
	}); err != nil {
		return err
	}
	for name, tier := range map[string]v1alpha1.Tier{
		toolRead: v1alpha1.TierRead, toolUnattended: v1alpha1.TierReversible, toolGated: v1alpha1.TierReversible, toolLasting: v1alpha1.TierIrreversible,
	} {
		if got := servers[depot].Status.Tool(name); got == nil || got.Tier != tier {
			return fmt.Errorf("%s is not %s", name, tier)
		}
	}
	policy := fixture.ToolPolicy(namespace, "promotion", sites...)
	policy.Spec.Tiers = nil
	policy.Spec.Autonomy = []v1alpha1.AutonomyRule{{Tool: toolUnattended, Digest: servers[depot].Status.Tool(toolUnattended).Digest, Mode: v1alpha1.ModeUnattended}}
	return s.admin.Create(ctx, &policy)
}

// run lets agents call and persons decide while everything is killed again and again, and returns what agents were told.
func (s *stage) run(ctx context.Context) []told {
	working, stop := context.WithTimeout(ctx, s.o.duration)
	defer stop()
	deciding, rest := context.WithCancel(ctx)
	var persons, killers, calling sync.WaitGroup
	for _, p := range s.persons {
		persons.Go(func() { p.work(deciding) })
	}
	killers.Go(func() { s.killPrograms(working, s.o.chance(1)) })
	killers.Go(func() { s.killPlane(working, s.o.chance(2)) })
	var agents []*agent
	for i, token := range s.tokens {
		a := &agent{
			name: fmt.Sprintf("agent-%d", i), token: token, gateways: s.urls, chance: s.o.chance(1000 + uint64(i)), over: working.Done(),
			http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
		}
		agents = append(agents, a)
		calling.Go(func() { a.work(working) })
	}
	killers.Wait()
	calling.Wait()
	rest()
	persons.Wait()
	var all []told
	for _, a := range agents {
		all = append(all, a.told...)
	}
	return all
}

// killPrograms kills the project's programs and the MCP server.
func (s *stage) killPrograms(ctx context.Context, chance *rand.Rand) {
	targets := []*child{s.gateways[0], s.gateways[0], s.gateways[1], s.gateways[1], s.server, s.manager}
	for _, c := range s.children() {
		c.renew(true)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(1000+chance.IntN(5000)) * time.Millisecond):
			c := targets[chance.IntN(len(targets))]
			s.tell("kill -9 %s", c.name)
			c.kill()
		}
	}
}

// killPlane kills the API server and its database.
func (s *stage) killPlane(ctx context.Context, chance *rand.Rand) {
	every := min(s.o.duration/3, 30*time.Second)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every/2 + time.Duration(chance.Int64N(int64(every)))):
			process := []string{fixture.APIServer, fixture.APIServer, fixture.Etcd}[chance.IntN(3)]
			s.tell("kill -9 %s", process)
			s.crashes[process]++
			if err := s.plane.Crash(process, time.Duration(chance.IntN(2000))*time.Millisecond); err != nil {
				fmt.Fprintln(os.Stderr, "soak:", err)
				return
			}
		}
	}
}

// quiet lets everything that was begun come to its end: open requests are denied, claims meet their deadline, and all is
// counted.
func (s *stage) quiet(ctx context.Context) error {
	for _, c := range s.children() {
		c.renew(false)
	}
	if err := s.untilReady(ctx); err != nil {
		return err
	}
	return until(ctx, "all requests to end and be counted", func(ctx context.Context) error {
		var all v1alpha1.ApprovalRequestList
		if err := s.admin.List(ctx, &all, client.InNamespace(namespace)); err != nil {
			return err
		}
		var errs []error
		for i := range all.Items {
			r := &all.Items[i]
			switch r.CurrentPhase() {
			case v1alpha1.PhasePending, v1alpha1.PhaseApproved:
				errs = append(errs, errors.New("a request is open"), s.persons[0].decide(ctx, r, v1alpha1.DecisionDenied))
			case v1alpha1.PhaseExecuting:
				errs = append(errs, errors.New("a request executes"))
			case v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed, v1alpha1.PhaseDenied:
				if !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionAccounted) {
					errs = append(errs, errors.New("a request is not counted"))
				}
			default:
			}
		}
		records, err := s.records(ctx)
		now := accounts{evidence: evidence{requests: all.Items, records: records}}
		now.checkRecords()
		for _, mismatch := range now.mismatches {
			errs = append(errs, errors.New(mismatch))
		}
		return errors.Join(err, errors.Join(errs...))
	})
}

// records returns those of each site.
func (s *stage) records(ctx context.Context) (map[string][]v1alpha1.ToolRecord, error) {
	servers, err := s.servers(ctx)
	all := map[string][]v1alpha1.ToolRecord{}
	for site, server := range servers {
		all[site] = server.Status.Records
	}
	return all, err
}

// servers returns the GovernedServer of each site.
func (s *stage) servers(ctx context.Context) (map[string]*v1alpha1.GovernedServer, error) {
	all := map[string]*v1alpha1.GovernedServer{}
	for _, site := range sites {
		server := &v1alpha1.GovernedServer{}
		if err := s.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: site}, server); err != nil {
			return nil, err
		}
		all[site] = server
	}
	return all, nil
}

// executions reads the server's own count.
func (s *stage) executions() ([]execution, error) {
	text, err := os.ReadFile(filepath.Join(s.o.dir, "executions.jsonl"))
	if err != nil {
		return nil, err
	}
	var all []execution
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the server writes it right now
		}
		var e execution
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read the count: %w", err)
		}
		all = append(all, e)
	}
	return all, nil
}
