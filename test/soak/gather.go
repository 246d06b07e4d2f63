// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/action"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// gather ends the programs in order and reads what they left.
func (s *stage) gather(ctx context.Context, said []told) (e evidence, err error) {
	e = evidence{told: said, receipts: map[string][]receipt.Receipt{}, keys: map[string]string{}}
	servers, err := s.servers(ctx)
	if err != nil {
		return e, err
	}
	var requests v1alpha1.ApprovalRequestList
	if err := s.admin.List(ctx, &requests, client.InNamespace(namespace)); err != nil {
		return e, err
	}
	e.requests = requests.Items
	if e.records, err = s.records(ctx); err != nil {
		return e, err
	}
	if err := nameActions(e.keys, said, servers); err != nil {
		return e, err
	}
	children := slices.Concat(s.gateways, []*child{s.server, s.manager})
	for _, c := range children {
		c.stop()
		for _, exit := range c.exits {
			// A manager gives up when the API server is away for long, and is started again.
			if c != s.manager || !strings.HasPrefix(exit, "ended by itself") {
				e.faults = append(e.faults, c.name+" "+exit)
			}
		}
		if n := c.panics(); n > 0 {
			e.faults = append(e.faults, fmt.Sprintf("%s panicked %d times", c.name, n))
		}
	}
	if e.executions, err = s.executions(); err != nil {
		return e, err
	}
	for _, c := range s.gateways {
		chain, problems, err := readReceipts(s.receipts(c.name))
		if err != nil {
			return e, err
		}
		e.receipts[c.name] = chain
		for _, problem := range problems {
			e.faults = append(e.faults, fmt.Sprintf("the chain of %s: %s", c.name, problem))
		}
	}
	return e, nil
}

// nameActions works out the hash of every action that agents sent.
func nameActions(keys map[string]string, said []told, servers map[string]*v1alpha1.GovernedServer) error {
	for _, t := range said {
		server := servers[t.Site]
		endpoint, err := tool.EndpointDigest(server.Spec.Endpoint)
		if err != nil {
			return err
		}
		listed := server.Status.Tool(t.Tool)
		if listed == nil {
			return fmt.Errorf("%s has no tool %s any more", t.Site, t.Tool)
		}
		hash, err := action.Hash(action.Input{
			ServerUID: string(server.UID), EndpointDigest: endpoint, ToolDigest: listed.Digest, Tool: t.Tool, Params: []byte(t.Params),
			Requester: "system:serviceaccount:" + namespace + ":" + t.Requester,
		})
		if err != nil {
			return err
		}
		keys[hash] = t.Key
	}
	return nil
}

// readReceipts reads and verifies a chain.
func readReceipts(path string) (chain []receipt.Receipt, problems []receipt.Problem, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	report, err := receipt.Verify(bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	for line := range bytes.Lines(text) {
		var r receipt.Receipt
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, nil, err
		}
		chain = append(chain, r)
	}
	return chain, report.Problems, nil
}

// report prints what came out.
func (s *stage) report(w io.Writer, e evidence, a *accounts) {
	calls, ways, answers, phases, ran := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, t := range e.told {
		calls[t.Kind]++
		ways[t.Site]++
		answers[t.Code]++
	}
	for i := range e.requests {
		phase := string(e.requests[i].CurrentPhase())
		if x := e.requests[i].Status.Execution; x != nil && x.Outcome != "" {
			phase += "(" + string(x.Outcome) + ")"
		}
		if found := e.requests[i].Status.Resolution; found != nil {
			phase += "(person: " + string(found.Outcome) + ")"
		}
		phases[phase]++
	}
	for _, x := range e.executions {
		ran[x.Tool]++
	}
	kills := maps.Clone(s.crashes)
	for _, c := range s.children() {
		for cause, n := range c.kills {
			kills[c.name+" "+cause] += n
		}
		if len(c.exits) > 0 {
			kills[c.name+" ended by itself"] = len(c.exits)
		}
	}
	lines := map[string]int{}
	for gateway, chain := range e.receipts {
		for _, r := range chain {
			lines[gateway+" "+string(r.Kind)]++
		}
	}
	fmt.Fprintf(w, "\nsoak: %s, seed %d\n", s.o.duration, s.o.seed)
	for _, table := range []struct {
		title string
		rows  map[string]int
	}{
		{"messages by kind", calls}, {"messages by site", ways}, {"what agents were told", answers}, {"kills", kills}, {"requests by phase", phases},
		{"executions, by the server's own count", ran}, {"receipts", lines},
		{"checks", map[string]int{
			"dispatches on a request": len(a.dispatches), "dispatches without one": len(flat(a.unattended)), "dispatches that a kill left without an outcome": a.unended,
			"reads whose receipt died in a batch": a.lostReads, "mismatches": len(a.mismatches),
		}},
	} {
		fmt.Fprintf(w, "%s\n", table.title)
		for _, name := range slices.Sorted(maps.Keys(table.rows)) {
			fmt.Fprintf(w, "  %-52s %6d\n", name, table.rows[name])
		}
	}
	for _, m := range a.mismatches {
		fmt.Fprintln(w, "MISMATCH", m)
	}
}

func flat(all map[string][]dispatch) []dispatch {
	return slices.Concat(slices.Collect(maps.Values(all))...)
}
