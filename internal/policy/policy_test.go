// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	endpoint = "sha256:e0"
	digestA  = "sha256:aa"
	digestB  = "sha256:bb"
)

// server returns a server with one tool of each tier, a clean record for the Reversible one.
func server(edits ...func(*v1alpha1.GovernedServer)) *v1alpha1.GovernedServer {
	s := &v1alpha1.GovernedServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "billing", UID: "u-1", Generation: 1},
		Spec:       v1alpha1.GovernedServerSpec{Autonomy: v1alpha1.AutonomySpec{CleanApprovals: 3}},
		Status: v1alpha1.GovernedServerStatus{
			EndpointDigest: endpoint,
			Tools: []v1alpha1.ToolStatus{
				{Name: "get_invoice", ClassifiedTier: v1alpha1.TierRead, Digest: digestA},
				{Name: "update_invoice", ClassifiedTier: v1alpha1.TierReversible, Digest: digestA},
				{Name: "wipe_ledger", ClassifiedTier: v1alpha1.TierIrreversible, Digest: digestA},
			},
			Records: []v1alpha1.ToolRecord{
				{Tool: "update_invoice", Digest: digestA, EndpointDigest: endpoint, Approved: 3},
				{Tool: "wipe_ledger", Digest: digestA, EndpointDigest: endpoint, Approved: 10},
			},
		},
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func policyOf(name string, spec v1alpha1.ToolPolicySpec) v1alpha1.ToolPolicy {
	if spec.Targets == nil {
		spec.Targets = []string{"billing"}
	}
	return v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("p-" + name), Generation: 1}, Spec: spec,
	}
}

func promote(tool, digest string) v1alpha1.ToolPolicySpec {
	return v1alpha1.ToolPolicySpec{Autonomy: []v1alpha1.AutonomyRule{{Tool: tool, Digest: digest, Mode: v1alpha1.ModeUnattended}}}
}

func tier(o v1alpha1.TierOverride) v1alpha1.ToolPolicySpec {
	o.Reason = "reviewed"
	return v1alpha1.ToolPolicySpec{Tiers: []v1alpha1.TierOverride{o}}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	attended := v1alpha1.ToolPolicySpec{Autonomy: []v1alpha1.AutonomyRule{{Tool: "update_invoice", Mode: v1alpha1.ModeAttended}}}
	record := func(r v1alpha1.ToolRecord) func(*v1alpha1.GovernedServer) {
		return func(s *v1alpha1.GovernedServer) { r.Tool = "update_invoice"; s.Status.Records[0] = r }
	}
	tests := map[string]struct {
		edit     func(*v1alpha1.GovernedServer)
		policies []v1alpha1.ToolPolicySpec
		facts    Facts
		endpoint string
		call     Call
		want     Effect
		reason   Reason
		verbs    []string
	}{
		"a Read tool runs at once":                         {call: Call{Tool: "get_invoice", Freshness: Fresh}, want: Allow, reason: ReasonReadTool},
		"a Read tool runs on an unproven snapshot":         {call: Call{Tool: "get_invoice", Freshness: Unproven}, want: Allow, reason: ReasonReadTool},
		"a Read tool is refused on a stale snapshot":       {call: Call{Tool: "get_invoice", Freshness: Stale}, want: Deny, reason: ReasonPolicyStale},
		"a Reversible tool needs approval":                 {call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"an Irreversible tool needs its own verb":          {call: Call{Tool: "wipe_ledger", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve-irreversible"}},
		"a tool that discovery does not know is refused":   {call: Call{Tool: "get_secret", Freshness: Fresh}, want: Deny, reason: ReasonToolUnknown},
		"the zero call is refused":                         {call: Call{}, want: Deny, reason: ReasonToolUnknown},
		"tools of another endpoint are unknown":            {endpoint: "sha256:e1", call: Call{Tool: "get_invoice", Freshness: Fresh}, want: Deny, reason: ReasonToolUnknown},
		"a promotion with a clean record runs unattended":  {policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA)}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: Allow, reason: ReasonUnattended},
		"a gated call needs a proof of freshness":          {call: Call{Tool: "update_invoice", Freshness: Unproven}, want: Deny, reason: ReasonPolicyStale},
		"an unattended effect needs a proof of freshness":  {policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA)}, call: Call{Tool: "update_invoice", Freshness: Unproven}, want: Deny, reason: ReasonPolicyStale},
		"a promotion of another digest does nothing":       {policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestB)}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"the ceiling: a promoted Irreversible tool waits":  {policies: []v1alpha1.ToolPolicySpec{promote("wipe_ledger", digestA)}, call: Call{Tool: "wipe_ledger", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve-irreversible"}},
		"Attended beats Unattended":                        {policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA), attended}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"a denial that the gateway saw disqualifies":       {policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA)}, facts: Facts{Denied: map[string]bool{"update_invoice": true}}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"an open Ambiguous request suspends autonomy":      {policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA)}, facts: Facts{Ambiguous: map[string]bool{"update_invoice": true}}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"an old denial outweighs any number of approvals":  {edit: record(v1alpha1.ToolRecord{Digest: digestA, EndpointDigest: endpoint, Approved: 30, Denied: 1}), policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA)}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"a record of another digest is not clean":          {edit: record(v1alpha1.ToolRecord{Digest: digestB, EndpointDigest: endpoint, Approved: 30}), policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA)}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"a record of another endpoint is not clean":        {edit: record(v1alpha1.ToolRecord{Digest: digestA, EndpointDigest: "sha256:e9", Approved: 30}), policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA)}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"an empty record is not clean":                     {edit: func(s *v1alpha1.GovernedServer) { s.Status.Records = nil }, policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA)}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"zero cleanApprovals still means one":              {edit: func(s *v1alpha1.GovernedServer) { s.Spec.Autonomy.CleanApprovals = 0; s.Status.Records[0].Approved = 0 }, policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA)}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"minimumTier gates a tool that is named as a read": {edit: func(s *v1alpha1.GovernedServer) { s.Spec.Classification.MinimumTier = v1alpha1.TierReversible }, call: Call{Tool: "get_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"a glob raises":                                 {policies: []v1alpha1.ToolPolicySpec{tier(v1alpha1.TierOverride{Tools: []string{"get_*"}, Tier: v1alpha1.TierIrreversible})}, call: Call{Tool: "get_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve-irreversible"}},
		"a glob does not lower":                         {policies: []v1alpha1.ToolPolicySpec{tier(v1alpha1.TierOverride{Tools: []string{"*"}, Tier: v1alpha1.TierRead})}, call: Call{Tool: "wipe_ledger", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve-irreversible"}},
		"tool and digest lower":                         {policies: []v1alpha1.ToolPolicySpec{tier(v1alpha1.TierOverride{Tool: "wipe_ledger", Digest: digestA, Tier: v1alpha1.TierReversible})}, call: Call{Tool: "wipe_ledger", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"an override of another digest does not lower":  {policies: []v1alpha1.ToolPolicySpec{tier(v1alpha1.TierOverride{Tool: "wipe_ledger", Digest: digestB, Tier: v1alpha1.TierReversible})}, call: Call{Tool: "wipe_ledger", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve-irreversible"}},
		"an override of another digest still raises":    {policies: []v1alpha1.ToolPolicySpec{tier(v1alpha1.TierOverride{Tool: "get_invoice", Digest: digestB, Tier: v1alpha1.TierReversible})}, call: Call{Tool: "get_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
		"of two overrides the strictest holds":          {policies: []v1alpha1.ToolPolicySpec{tier(v1alpha1.TierOverride{Tool: "wipe_ledger", Digest: digestA, Tier: v1alpha1.TierRead}), tier(v1alpha1.TierOverride{Tools: []string{"wipe*"}, Tier: v1alpha1.TierIrreversible})}, call: Call{Tool: "wipe_ledger", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve-irreversible"}},
		"a tier word that nobody knows is Irreversible": {edit: func(s *v1alpha1.GovernedServer) { s.Status.Tools[0].ClassifiedTier = "Harmless" }, call: Call{Tool: "get_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve-irreversible"}},
		"a drifted Read tool is as strict as can be":    {facts: Facts{Drifted: map[string]bool{"get_invoice": true}}, call: Call{Tool: "get_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve-irreversible"}},
		"drift takes autonomy":                          {policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA)}, facts: Facts{Drifted: map[string]bool{"update_invoice": true}}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve-irreversible"}},
		"a policy of another server takes no part":      {policies: []v1alpha1.ToolPolicySpec{{Targets: []string{"other"}, Autonomy: promote("update_invoice", digestA).Autonomy}}, call: Call{Tool: "update_invoice", Freshness: Fresh}, want: RequireApproval, reason: ReasonApprovalRequired, verbs: []string{"approve"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server()
			if tc.edit != nil {
				tc.edit(s)
			}
			var policies []v1alpha1.ToolPolicy
			for i, spec := range tc.policies {
				policies = append(policies, policyOf(fmt.Sprint("p", i), spec))
			}
			at := endpoint
			if tc.endpoint != "" {
				at = tc.endpoint
			}
			got := compile(s, policies, at, tc.facts).Decide(tc.call)
			if got.Effect != tc.want || got.Reason != tc.reason {
				t.Errorf("Decide: got %v because %s, want %v because %s", got.Effect, got.Reason, tc.want, tc.reason)
			}
			if diff := cmp.Diff(tc.verbs, got.Verbs); diff != "" {
				t.Errorf("verbs (-want +got):\n%s", diff)
			}
			if (got.Effect == RequireApproval) != (got.RequiredApprovals == 1) {
				t.Errorf("requiredApprovals: got %d with %v", got.RequiredApprovals, got.Effect)
			}
		})
	}
}

// Merit keeps an Irreversible tool from being promoted; this is the second lock behind it.
func TestTheCeilingHoldsForAPromotionThatShouldNotBe(t *testing.T) {
	t.Parallel()
	for tier, want := range map[v1alpha1.Tier]Effect{
		v1alpha1.TierReversible: Allow, v1alpha1.TierIrreversible: RequireApproval, "": RequireApproval, "Odd": RequireApproval,
	} {
		s := compile(server(), nil, endpoint, Facts{})
		c := s.tools["wipe_ledger"]
		c.standing.tier, c.standing.promoted = tier, []*autonomy{{at: "ToolPolicy/p spec.autonomy[0]"}}
		c.decision = byTier(c.tool, &c.standing, v1alpha1.RequiredApprovals{})
		if got := s.Decide(Call{Tool: "wipe_ledger", Freshness: Fresh}); got.Effect != want {
			t.Errorf("a promoted tool of tier %q: got %v, want %v", tier, got.Effect, want)
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		glob, name string
		want       bool
	}{
		{"*", "", true}, {"*", "repo/delete.v2", true}, {"repo/*", "repo/delete.v2", true}, {"repo/*", "repos/x", false},
		{"Delete_*", "delete_x", false}, {"delete_*", "delete_x", true}, {"delete_?", "delete_x", true},
		{"delete_?", "delete_", false}, {"delete_?", "delete_xy", false}, {"?", "é", true}, {"a*b*c", "axxbyyc", true},
		{"a*b*c", "axxbyy", false}, {"*_invoice", "send_invoice", true}, {"", "", true}, {"", "a", false},
		{"get_[ab]", "get_a", false}, {"**", "x", true}, {"*a", "aaa", true}, {"a*a", "a", false},
		{"*??", "é", false}, {"*?é*", "xéy", true}, {"?*?", "éé", true}, {strings.Repeat("a?", 64), strings.Repeat("aé", 64), true},
		{strings.Repeat("a?", 64), strings.Repeat("aé", 63), false}, {strings.Repeat("x", 200), strings.Repeat("x", 200), true},
		{strings.Repeat("x", 200), strings.Repeat("x", 199), false},
	}
	for _, tc := range tests {
		if got := compileGlob(tc.glob).match(tc.name); got != tc.want {
			t.Errorf("match(%q, %q): got %v, want %v", tc.glob, tc.name, got, tc.want)
		}
	}
}

// matchSlowly says what a glob means, in as few words as can be.
func matchSlowly(glob, name []rune) bool {
	if len(glob) == 0 {
		return len(name) == 0
	}
	if glob[0] == '*' {
		return matchSlowly(glob[1:], name) || len(name) > 0 && matchSlowly(glob, name[1:])
	}
	return len(name) > 0 && (glob[0] == '?' || glob[0] == name[0]) && matchSlowly(glob[1:], name[1:])
}

func TestNoGlobIsSlow(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("a", 128)
	// The least time of a few rounds, in which nothing else came between.
	cost := func(pattern string) time.Duration {
		g, least := compileGlob(pattern), time.Hour
		for range 20 {
			start := time.Now()
			for range 200 {
				g.match(name)
			}
			least = min(least, time.Since(start))
		}
		return least
	}
	plain := cost(name)
	for _, worst := range []string{strings.Repeat("a*", 40) + strings.Repeat("a", 40) + "b", "*" + strings.Repeat("?a", 60) + "b"} {
		if c := cost(worst); c > 8*plain {
			t.Errorf("%q takes %s, a name without wildcards %s: a policy of such globs keeps every server of the cluster waiting", worst, c, plain)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("a*b?c", "aXbYc")
	f.Fuzz(func(t *testing.T, glob, name string) {
		if !compileGlob(name).match(name) && !slices.Contains([]byte(name), '*') && !slices.Contains([]byte(name), '?') {
			t.Errorf("a name without wildcards does not match itself: %q", name)
		}
		if len(glob)+len(name) > 40 || !utf8.ValidString(glob+name) {
			return // the schema and the scanner let no other text through, and matchSlowly is slow
		}
		if got, want := compileGlob(glob).match(name), matchSlowly([]rune(glob), []rune(name)); got != want {
			t.Errorf("%q names %q: got %v, want %v", glob, name, got, want)
		}
		if compileGlob(glob).match(name) && !compileGlob("*"+glob).match(name) {
			t.Errorf("widening %q lost %q", glob, name)
		}
	})
}

func TestHowManyPersonsATierNeeds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		required v1alpha1.RequiredApprovals
		// by a Reversible tool, an Irreversible one, and one of a tier that is none
		want [3]int32
	}{
		"nothing said":               {v1alpha1.RequiredApprovals{}, [3]int32{1, 1, 1}},
		"two for what is final":      {v1alpha1.RequiredApprovals{Reversible: 1, Irreversible: 2}, [3]int32{1, 2, 2}},
		"never fewer when stricter":  {v1alpha1.RequiredApprovals{Reversible: 3, Irreversible: 1}, [3]int32{3, 3, 3}},
		"no number below one counts": {v1alpha1.RequiredApprovals{Reversible: -1, Irreversible: -1}, [3]int32{1, 1, 1}},
	} {
		for i, tier := range []v1alpha1.Tier{v1alpha1.TierReversible, v1alpha1.TierIrreversible, "Odd"} {
			s := server(func(s *v1alpha1.GovernedServer) {
				s.Spec.Approvals.Required = tc.required
				s.Status.Tools[1].ClassifiedTier = tier
			})
			if got := compile(s, nil, endpoint, Facts{}).Decide(Call{Tool: "update_invoice", Freshness: Fresh}).RequiredApprovals; got != tc.want[i] {
				t.Errorf("%s, %s: %d persons, want %d", name, tier, got, tc.want[i])
			}
		}
		s := server(func(s *v1alpha1.GovernedServer) { s.Spec.Approvals.Required = tc.required })
		compiled := compile(s, []v1alpha1.ToolPolicy{policyOf("p", promote("update_invoice", digestA))}, endpoint, Facts{})
		unattended := compiled.Decide(Call{Tool: "update_invoice", Freshness: Fresh})
		if got := compiled.Attended(unattended, "doubt"); unattended.Effect != Allow || got.Effect != RequireApproval || got.RequiredApprovals != tc.want[0] || got.GatedBy != "doubt" {
			t.Errorf("%s, a promoted tool put before persons: %+v", name, got)
		}
	}
}

func TestNotInForceSaysWhy(t *testing.T) {
	t.Parallel()
	p := policyOf("p", v1alpha1.ToolPolicySpec{
		Tiers: []v1alpha1.TierOverride{
			{Tools: []string{"get_*"}, Tier: v1alpha1.TierReversible, Reason: "r"},
			{Tools: []string{"wipe*"}, Tier: v1alpha1.TierRead, Reason: "r"},
			{Tool: "wipe_ledger", Digest: digestB, Tier: v1alpha1.TierReversible, Reason: "r"},
			{Tool: "no_such", Digest: digestB, Tier: v1alpha1.TierReversible, Reason: "r"},
		},
		Autonomy: []v1alpha1.AutonomyRule{
			{Tool: "update_invoice", Digest: digestA, Mode: v1alpha1.ModeUnattended},
			{Tool: "wipe_ledger", Digest: digestA, Mode: v1alpha1.ModeUnattended},
			{Tool: "update_invoice", Digest: digestB, Mode: v1alpha1.ModeUnattended},
			{Tool: "no_such", Digest: digestB, Mode: v1alpha1.ModeUnattended},
		},
	})
	var got []string
	for _, line := range compile(server(), []v1alpha1.ToolPolicy{p}, endpoint, Facts{}).NotInForce(&p) {
		got = append(got, line.Field+" "+line.Reason)
	}
	want := []string{
		"spec.tiers[1] NeedsDigest", "spec.tiers[2] DigestDiffers", "spec.tiers[3] ToolUnknown",
		"spec.autonomy[1] Irreversible", "spec.autonomy[2] DigestDiffers", "spec.autonomy[3] ToolUnknown",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestRevisionFollowsWhatTakesPart(t *testing.T) {
	t.Parallel()
	p, other := policyOf("p", promote("update_invoice", digestA)), policyOf("o", v1alpha1.ToolPolicySpec{Targets: []string{"other"}})
	base := compile(server(), []v1alpha1.ToolPolicy{p}, endpoint, Facts{}).Revision
	if got := compile(server(), []v1alpha1.ToolPolicy{other, p}, endpoint, Facts{}).Revision; got != base {
		t.Error("a policy of another server changed the revision")
	}
	denied := server(func(s *v1alpha1.GovernedServer) { s.Status.Records[0].Denied = 1 })
	if got := compile(denied, []v1alpha1.ToolPolicy{p}, endpoint, Facts{}).Revision; got == base {
		t.Error("a denial that ends a promotion did not change the revision")
	}
	p.Generation++
	if got := compile(server(), []v1alpha1.ToolPolicy{p}, endpoint, Facts{}).Revision; got == base {
		t.Error("a new generation of a policy did not change the revision")
	}
}

// compile joins a server with policies of its namespace.
func compile(server *v1alpha1.GovernedServer, objects []v1alpha1.ToolPolicy, endpointDigest string, facts Facts) *Server {
	in := Inputs{Server: server, EndpointDigest: endpointDigest, Facts: facts, OperatorNamespace: "tidewaiter-system"}
	for i := range objects {
		in.Policies = append(in.Policies, Parse(&objects[i]))
	}
	return Compile(in)
}
