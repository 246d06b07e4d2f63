// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// TestTheSchemaKnowsTheLanguage sets what the API server takes beside what it refuses: cases 17, 19, 21 and 124. No word
// that it does not know becomes a default.
func TestTheSchemaKnowsTheLanguage(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]struct {
		takes, refuses []string
		says           string
	}{
		"a policy has targets or is a baseline": {
			[]string{"  targets: [a]"},
			[]string{"  {}", "  rules: [{name: a, tools: ['*'], decision: Deny}]", "  targets: [a]\n  namespaceSelector: {}"}, "spec"},
		"only a baseline has a mode": {
			[]string{"  targets: [a]"}, []string{"  targets: [a]\n  mode: Stopped"}, "mode belongs to a baseline"},
		"a rule says what it decides": {
			[]string{rules("{name: a, tools: ['*'], decision: Allow}"), rules("{name: a, tools: ['*'], decision: RequireApproval}"), rules("{name: a, tools: ['*'], decision: Deny}")},
			[]string{rules("{name: a, tools: ['*']}"), rules("{name: a, tools: ['*'], decision: allow}"), rules("{name: a, tools: ['*'], decision: Ask}")}, "decision"},
		"a rule names its tools": {
			[]string{rules("{name: a, tools: ['*'], decision: Allow}")},
			[]string{rules("{name: a, decision: Allow}"), rules("{name: a, tools: [], decision: Allow}"), rules("{name: a, tools: ['get_['], decision: Allow}")}, "tools"},
		"every rule has a name of its own": {
			[]string{rules("{name: a, tools: [x], decision: Deny}, {name: b, tools: [x], decision: Deny}")},
			[]string{rules("{name: a, tools: [x], decision: Deny}, {name: a, tools: [z], decision: Deny}"), rules("{tools: [x], decision: Deny}"), rules("{name: 'A b', tools: [x], decision: Deny}")}, "name"},
		"a verb of a rule begins with approve-": {
			[]string{approving("{verb: approve-finance}"), approving("{required: 2}"), approving("{required: 8, verb: approve-irreversible}")},
			[]string{approving("{verb: get}"), approving("{verb: approve}"), approving("{verb: approve-}"), approving("{verb: '*'}"), approving("{verb: Approve-x}")}, "verb"},
		"a rule asks for one to eight persons": {
			[]string{approving("{required: 1}")}, []string{approving("{required: 9}"), approving("{required: -1}"), approving("{}")}, "approvals"},
		"approvals go with RequireApproval": {
			[]string{approving("{required: 2}")}, []string{rules("{name: a, tools: [x], decision: Allow, approvals: {required: 2}}")}, "goes with the decision RequireApproval"},
		"subjects are as in RBAC": {
			[]string{callers("{kind: User, name: ana}"), callers("{kind: Group, name: 'system:authenticated'}"), callers("{kind: ServiceAccount, namespace: agents, name: bookkeeper}")},
			[]string{callers("{kind: user, name: ana}"), callers("{kind: User}"), callers("{kind: ServiceAccount, name: bookkeeper}"), callers("{kind: User, namespace: agents, name: ana}")}, "callers"},
		"an empty list of callers is no list": {
			[]string{callers("{kind: User, name: ana}")}, []string{"  targets: [a]\n  callers: []"}, "callers"},
		"pins name digests": {
			[]string{pins("{tool: a, digest: '" + digest + "'}"), pins("{digest: '" + digest + "'}")},
			[]string{pins("{tool: a}"), pins("{tool: a, digest: latest}"), pins("{tool: a, digest: ''}")}, "digest"},
		"a preview names the tool that it calls": {
			[]string{previews("{tools: [x], call: {tool: count}}"), previews("{tools: [x], call: {tool: count, args: '{}'}, recheck: true}")},
			[]string{previews("{tools: [x], call: {args: '{}'}}"), previews("{tools: [x]}"), previews("{call: {tool: count}}")}, "preview"},
		"a condition is no empty text": {
			[]string{rules("{name: a, tools: [x], decision: Deny, when: 'true'}")}, []string{rules("{name: a, tools: [x], decision: Deny, when: ''}")}, "when"},
		"controls are words": {
			[]string{rules("{name: a, tools: [x], decision: Deny, controls: [SOC2-CC6.1, 'ISO27001:A.9']}")}, []string{rules("{name: a, tools: [x], decision: Deny, controls: ['a b']}")}, "controls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := plane.Namespace(t)
			for i, spec := range rule.takes {
				if err := fixture.Create(t.Context(), plane.Admin, namespace, fmt.Sprintf(policyHead, fmt.Sprintf("ok-%d", i))+spec); err != nil {
					t.Errorf("refused, want taken: %s\n%v", spec, err)
				}
			}
			for _, spec := range rule.refuses {
				err := fixture.Create(t.Context(), plane.Admin, namespace, fmt.Sprintf(policyHead, "bad")+spec)
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), rule.says) {
					t.Errorf("%v, want it invalid with the words %q: %s", err, rule.says, spec)
				}
			}
		})
	}
}

func TestRulesAreBounded(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	many := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("{name: rule-%d, tools: ['a*', 'b*', 'c*', 'd%d'], decision: Deny}", i, i)
		}
		return rules(strings.Join(all, ", "))
	}
	if err := fixture.Create(t.Context(), plane.Admin, namespace, fmt.Sprintf(policyHead, "full")+many(128)); err != nil {
		t.Errorf("128 rules with 512 globs: %v, want them taken", err)
	}
	if err := fixture.Create(t.Context(), plane.Admin, namespace, fmt.Sprintf(policyHead, "more")+many(129)); !apierrors.IsInvalid(err) {
		t.Errorf("129 rules: %v, want them invalid", err)
	}
}

func TestModesOfAServerAreTheFour(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	for i, mode := range []string{"Enforce", "Observe", "ReadOnly", "Stopped"} {
		if err := fixture.Create(t.Context(), plane.Admin, namespace, fmt.Sprintf(serverHead, fmt.Sprintf("s-%d", i))+url+"\n  mode: "+mode); err != nil {
			t.Errorf("%s: %v, want it taken", mode, err)
		}
	}
	for _, field := range []string{"mode: enforce", "mode: Off", "mode: ''", "pinning: Warn", "otherMethods: Allow"} {
		if err := fixture.Create(t.Context(), plane.Admin, namespace, fmt.Sprintf(serverHead, "bad")+url+"\n  "+field); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want it invalid", field, err)
		}
	}
}

// digest is one of no definition.
var digest = fixture.Digest("d")

func rules(list string) string    { return "  targets: [a]\n  rules: [" + list + "]" }
func callers(list string) string  { return "  targets: [a]\n  callers: [" + list + "]" }
func pins(list string) string     { return "  targets: [a]\n  pins: [" + list + "]" }
func previews(list string) string { return "  targets: [a]\n  preview: [" + list + "]" }
func approving(approvals string) string {
	return rules("{name: a, tools: [x], decision: RequireApproval, approvals: " + approvals + "}")
}
