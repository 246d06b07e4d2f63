// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kyaml "sigs.k8s.io/yaml"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

func TestAnExplanationShowsEveryStep(t *testing.T) {
	t.Parallel()
	var p v1alpha1.ToolPolicy
	if err := kyaml.Unmarshal([]byte(proposedPolicy), &p); err != nil {
		t.Fatal(err)
	}
	p.Namespace = "shop"
	baseline := v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tidewaiter-system", Name: "floor"},
		Spec: v1alpha1.ToolPolicySpec{
			NamespaceSelector: &metav1.LabelSelector{},
			Rules:             []v1alpha1.Rule{{Name: "watched", Tools: []string{"move\u202e"}, Decision: v1alpha1.EffectRequireApproval, Message: "\x1b[2Jread the book"}},
		},
	}
	p.Spec.Rules[4].Tools = []string{"move*"}
	set := policySet{operatorNamespace: "tidewaiter-system", objects: []v1alpha1.ToolPolicy{p, baseline}}
	server := listing("move\u202e", "1")
	server.Spec.Mode, server.Status.Tools[0].Reason = v1alpha1.ModeObserve, `the verb "move" can be undone`
	compiled := set.compileAt(server, server.Status.EndpointDigest, policy.Facts{})
	e := explain(compiled, policy.Call{
		Tool: "move\u202e", Principal: namedPrincipal("agents/crew", nil), Arguments: expr.NewArguments([]byte(`{"amount":"much"}`)), Freshness: policy.Fresh,
	}, "billing")
	var out bytes.Buffer
	page := newPage(false)
	e.write(page)
	if err := page.print(&out); err != nil {
		t.Fatal(err)
	}
	want := `Call:          move\u202e on billing, by system:serviceaccount:agents:crew
Groups:        system:serviceaccounts, system:serviceaccounts:agents, system:authenticated
Verdict:       RequireApproval (ApprovalRequired)
Tier:          Reversible: the verb "move" can be undone
Decided by:    ToolPolicy/tidewaiter-system/floor rule watched
Message:       \u001b[2Jread the book
To do:         1 approval with approve on governedservers/billing: kubectl approve NAME, once it is asked
Policy:        REVISION
Steps:         7, in the order in which they are made
   1. tool: move\u202e, definition DIGEST
   2. tier: the tier is Reversible: the verb "move" can be undone
   3. ToolPolicy/tidewaiter-system/floor rule watched: RequireApproval
   4. ToolPolicy/payments rule big: Deny, or what follows without it: it cannot be evaluated: 1:13: an operand of > has a type that this does not work with
   5. spec.mode of the server: the mode is Observe: instead of Deny the call meets what baselines alone say
   6. ToolPolicy/tidewaiter-system/floor rule watched: RequireApproval
   7. verdict: RequireApproval: ApprovalRequired

`
	if diff := cmp.Diff(want, strings.NewReplacer(e.Revision, "REVISION", fixture.Digest("1"), "DIGEST").Replace(out.String())); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
}

func TestWhoseCallItIs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		as     string
		groups []string
		want   expr.Principal
	}{
		"a user": {as: "ana", want: expr.Principal{Username: "ana", Groups: []string{"system:authenticated"}}},
		"a user with groups has these and no others": {
			as: "ana", groups: []string{"finance"}, want: expr.Principal{Username: "ana", Groups: []string{"finance"}},
		},
		"a ServiceAccount, in short": {
			as: "agents/crew", want: expr.Principal{
				Username: "system:serviceaccount:agents:crew", Namespace: "agents", ServiceAccount: "crew",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:agents", "system:authenticated"},
			},
		},
		"a name with more than a slash is no ServiceAccount": {
			as: "https://issuer/ana", want: expr.Principal{Username: "https://issuer/ana", Groups: []string{"system:authenticated"}},
		},
		"half a ServiceAccount is none": {
			as: "system:serviceaccount:agents", want: expr.Principal{Username: "system:serviceaccount:agents", Groups: []string{"system:authenticated"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, namedPrincipal(tc.as, tc.groups)); diff != "" {
				t.Errorf("principal (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is given, a name is that of one ServiceAccount or of none, and arguments are an object that every reader reads
// alike, or refused.
func FuzzExplainedCall(f *testing.F) {
	f.Add("agents/crew", []byte(`{"amount":1}`))
	f.Add("system:serviceaccount:a:b:c", []byte("{\"a\":1,\"a\":2}"))
	f.Add("", []byte(" {}\n"))
	f.Fuzz(func(t *testing.T, as string, text []byte) {
		p := namedPrincipal(as, nil)
		if account := accountPrefix + p.Namespace + ":" + p.ServiceAccount; (p.ServiceAccount != "" || p.Namespace != "") && p.Username != account {
			t.Errorf("%q is %q and %q", as, p.Username, account)
		}
		if _, err := parseArguments(text); err == nil {
			var object map[string]any
			if err := json.Unmarshal(text, &object); err != nil || object == nil {
				t.Errorf("%q was taken for an object: %v", text, err)
			}
		}
	})
}
