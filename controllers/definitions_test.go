// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// quay is a server whose listings and policies a test makes up; nothing of it is an API.
type quay struct {
	t      tester
	server *v1alpha1.GovernedServer
	facts  facts
}

func newQuay(t tester, pinning v1alpha1.Pinning) *quay {
	s := cranes(func(s *v1alpha1.GovernedServer) { s.Spec.Pinning = pinning })
	return &quay{t: t, server: s, facts: facts{endpointDigest: endpointOf(t, s), operatorNamespace: fixture.SystemNamespace, now: made}}
}

// list has the server list tools, written as name=digest or name=digest/tier, and checks that nothing changes by looking
// twice, or by a restart.
func (q *quay) list(tools ...string) {
	q.t.Helper()
	var all []v1alpha1.ToolStatus
	for _, spelled := range tools {
		name, rest, _ := strings.Cut(spelled, "=")
		digest, tier, _ := strings.Cut(rest, "/")
		all = append(all, liftBox(func(s *v1alpha1.ToolStatus) {
			s.Name, s.Digest = name, fixture.Digest(digest)
			if tier != "" {
				s.ClassifiedTier, s.Tier = v1alpha1.Tier(tier), v1alpha1.Tier(tier)
			}
		}))
	}
	slices.SortFunc(all, byToolName)
	q.facts.seen = listed(all...)
	q.look()
}

func (q *quay) look() {
	q.t.Helper()
	observe(q.server, q.facts)
	once := q.server.DeepCopy()
	observe(q.server, q.facts)
	same(q.t, "looking twice changed it", once, q.server)
	restarted := q.facts
	restarted.seen = seen{}
	observe(q.server, restarted)
	for i := range once.Status.Tools { // the words are the classifier's, which a restart forgets
		once.Status.Tools[i].Reason, once.Status.Tools[i].Source = q.server.Status.Tools[i].Reason, q.server.Status.Tools[i].Source
	}
	same(q.t, "a restart changed it", once, q.server)
	observe(q.server, q.facts)
}

func same(t tester, what string, a, b *v1alpha1.GovernedServer) {
	t.Helper()
	if diff := cmp.Diff(a.Status, b.Status); diff != "" {
		t.Fatal(what + ":\n" + diff)
	}
}

// pin gives the server one policy for each list of pins, written as name=digest.
func (q *quay) pin(policies ...[]string) {
	q.t.Helper()
	q.facts.policies = nil
	for i, pins := range policies {
		p := &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: fmt.Sprint("pins-", i)}}
		p.Spec.Targets = []string{"cranes"}
		for _, spelled := range pins {
			name, digest, _ := strings.Cut(spelled, "=")
			p.Spec.Pins = append(p.Spec.Pins, v1alpha1.Pin{Tool: name, Digest: fixture.Digest(digest)})
		}
		q.facts.policies = append(q.facts.policies, policy.Parse(p))
	}
	q.look()
}

func (q *quay) standing(name string) policy.Standing {
	q.t.Helper()
	s, known := q.facts.compile(q.server).Standing(name)
	if !known {
		q.t.Fatal("unknown: " + name)
	}
	return s
}

// is checks how a tool stands and what status says of it.
func (q *quay) is(name string, accepted bool, tier v1alpha1.Tier) {
	q.t.Helper()
	s, shown := q.standing(name), q.server.Status.Tool(name)
	if s.Accepted != accepted || s.Tier != tier || shown.Tier != tier {
		q.t.Fatal(fmt.Sprintf("%s stands as %+v and shows as %s, want accepted %t and %s", name, s, shown.Tier, accepted, tier))
	}
}

const (
	read         = v1alpha1.TierRead
	reversible   = v1alpha1.TierReversible
	irreversible = v1alpha1.TierIrreversible
)

func TestADefinitionIsAcceptedByFirstContactAndByPinsOnly(t *testing.T) {
	t.Parallel()
	q := newQuay(t, v1alpha1.PinningReport)
	q.list("a=1/Reversible", "b=1/Read")
	q.is("a", true, reversible)
	if q.server.Status.Accepted != nil || states(q.server)["PinsMatch"] != "True/Pinned" {
		t.Errorf("at first contact: %+v, %v", q.server.Status.Accepted, states(q.server))
	}
	q.list("a=2/Read", "b=1/Read")
	q.is("a", false, reversible)
	q.is("b", true, read)
	if s := q.standing("a"); s.Source != v1alpha1.TierSourceRatchet || s.AcceptedDigest != fixture.Digest("1") || !strings.Contains(s.Reason, "Reversible") {
		t.Errorf("stands as %+v", s)
	}
	if s := states(q.server); s["PinsMatch"] != "False/Drifted" || s["Ready"] != "True/Ready" {
		t.Errorf("conditions are %v", s)
	}
	q.list("a=3/Irreversible", "b=1/Read")
	q.list("a=4/Read", "b=1/Read")
	q.is("a", false, irreversible) // it rises by itself, and never falls
	q.list("b=1/Read")
	q.list("a=4/Read", "b=1/Read")
	q.is("a", false, irreversible)
	q.list("a=1/Reversible", "b=1/Read") // it is as it was
	q.is("a", true, reversible)
	if q.server.Status.Accepted != nil {
		t.Errorf("left: %+v", q.server.Status.Accepted)
	}
	q.list("a=2/Read", "b=1/Read")
	q.is("a", false, reversible)
	q.pin([]string{"a=2"})
	q.is("a", true, read)
	q.pin()
	q.is("a", true, read) // accepted is accepted, also once the pin is gone
	q.list("a=1/Reversible", "b=1/Read")
	q.is("a", false, reversible) // the old one is another one now
}

func TestPinsInGitOrder(t *testing.T) {
	t.Parallel()
	q := newQuay(t, v1alpha1.PinningReport)
	q.pin([]string{"a=1", "b=1"}) // applied to an empty cluster
	q.list("a=1", "b=1")
	q.is("a", true, reversible)
	q.list("a=2", "b=1")
	q.is("a", false, reversible)
	q.pin() // the pins are taken away, and put back
	q.is("a", false, reversible)
	q.pin([]string{"a=1", "b=1"})
	q.is("a", false, reversible)
	q.pin([]string{"a=2", "b=1"}) // the pull request is merged
	q.is("a", true, reversible)
	q.pin([]string{"a=1", "b=1"}) // and reverted
	q.is("a", false, reversible)
	q.pin([]string{"a=1", "a=2", "b=1"}) // both releases during a rollout
	q.is("a", true, reversible)
	q.list("a=1", "b=1")
	q.is("a", true, reversible)
	q.pin([]string{"a=1"}, []string{"a=2"}) // two that disagree
	q.is("a", false, reversible)
	q.pin([]string{"a=1"}, []string{"a=2", "a=1"})
	q.is("a", true, reversible)
	q.pin([]string{"a=2"}) // ahead of the release
	q.is("a", false, reversible)
	q.list("a=2", "b=1")
	q.is("a", true, reversible)
}

func TestWhatAppearsUnderEnforceWaitsForItsPin(t *testing.T) {
	t.Parallel()
	q := newQuay(t, v1alpha1.PinningEnforce)
	q.list("a=1")
	q.is("a", true, reversible)
	q.list("a=1", "b=1/Read")
	q.is("b", false, read)
	want := []v1alpha1.AcceptedTool{{Tool: "b", Tier: read}}
	if diff := cmp.Diff(want, q.server.Status.Accepted); diff != "" {
		t.Errorf("accepted (-want +got):\n%s", diff)
	}
	if s := states(q.server); s["PinsMatch"] != "False/Drifted" || s["Ready"] != "False/Drifted" {
		t.Errorf("conditions are %v", s)
	}
	if d := q.facts.compile(q.server).Decide(policy.Call{Tool: "b", Freshness: policy.Fresh}); d.Effect != policy.Deny {
		t.Errorf("the verdict is %+v", d)
	}
	q.list("a=1", "b=2/Reversible")
	q.is("b", false, reversible)
	q.server.Spec.Pinning = v1alpha1.PinningReport // which forgives nothing
	q.look()
	q.is("b", false, reversible)
	q.pin([]string{"b=2"})
	q.is("b", true, reversible)
	q.list("a=1", "b=2", "c=1/Read") // under Report a new tool is but classified
	q.is("c", true, read)
	if s := states(q.server); s["PinsMatch"] != "True/Pinned" || s["Ready"] != "True/Ready" {
		t.Errorf("conditions are %v", s)
	}
}

func TestOffForgivesAndAnotherEndpointStartsAnew(t *testing.T) {
	t.Parallel()
	q := newQuay(t, v1alpha1.PinningReport)
	q.list("a=1/Irreversible")
	q.list("a=2/Read")
	q.is("a", false, irreversible)
	q.server.Spec.Pinning = v1alpha1.PinningOff
	q.look()
	q.is("a", true, read)
	if _, there := states(q.server)["PinsMatch"]; there || q.server.Status.Accepted != nil {
		t.Errorf("left: %+v, %v", q.server.Status.Accepted, states(q.server))
	}
	q.list("a=3/Reversible")
	q.list("a=2/Read")
	q.is("a", true, read)

	q = newQuay(t, v1alpha1.PinningReport)
	q.list("a=1/Irreversible")
	q.list("a=2/Read")
	before := q.server.DeepCopy()
	q.server.Spec.Endpoint.URL = "https://staging.example/mcp"
	q.facts.endpointDigest, q.facts.seen = endpointOf(t, q.server), seen{}
	q.look()
	if s := q.server.Status; s.Accepted != nil || s.Tools != nil || s.Server != nil || states(q.server)["PinsMatch"] != "" {
		t.Errorf("left: %+v", s)
	}
	between := q.server.DeepCopy()
	q.list("a=2/Read")
	q.is("a", true, read)
	for _, old := range []*v1alpha1.GovernedServer{before, between} {
		if n := noticesOf(old, q.server, nil); len(n) == 0 || n[0].reason != v1alpha1.ReasonFirstContact {
			t.Errorf("told %v", n)
		}
	}
}

// A server lists what it likes, as often as it likes: a model that remembers everything agrees.
func TestNothingThatAServerListsForgivesAnything(t *testing.T) {
	t.Parallel()
	tiers := []v1alpha1.Tier{read, reversible, irreversible}
	rapid.Check(t, func(t *rapid.T) {
		pinning := rapid.SampledFrom([]v1alpha1.Pinning{v1alpha1.PinningReport, v1alpha1.PinningEnforce}).Draw(t, "pinning")
		q := newQuay(t, pinning)
		accepted, since := map[string]string{}, map[string]v1alpha1.Tier{}
		for step := range rapid.IntRange(2, 8).Draw(t, "steps") {
			var spelled []string
			now := map[string]int{}
			for _, name := range []string{"a", "b", "c"} {
				if d := rapid.IntRange(0, 3).Draw(t, name); d > 0 {
					now[name] = d
					spelled = append(spelled, fmt.Sprintf("%s=%d/%s", name, d, tiers[d-1]))
				}
			}
			q.list(spelled...)
			for name, d := range now {
				tier, digest := tiers[d-1], fmt.Sprint(d)
				if _, known := accepted[name]; !known {
					accepted[name] = digest
					if step > 0 && pinning == v1alpha1.PinningEnforce {
						accepted[name] = "none"
					}
					since[name] = tier
				}
				since[name] = strictest(since[name], tier)
				if digest == accepted[name] {
					since[name] = tier
				}
				q.is(name, digest == accepted[name], since[name])
			}
			if rapid.Bool().Draw(t, "pin one") && len(now) > 0 {
				name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "which")
				if d := now[name]; d > 0 {
					q.pin([]string{fmt.Sprintf("%s=%d", name, d)})
					q.pin()
					accepted[name], since[name] = fmt.Sprint(d), tiers[d-1]
					q.is(name, true, tiers[d-1])
				}
			}
		}
	})
}

func TestAFullStatusForgetsNothing(t *testing.T) {
	t.Parallel()
	var flood []string
	for i := range 999 {
		flood = append(flood, fmt.Sprintf("flood_%04d=1", i))
	}
	q := newQuay(t, v1alpha1.PinningReport)
	q.list(append(flood, "a=1/Irreversible")...)
	if s := states(q.server)["Classified"]; s != "True/Classified" {
		t.Fatalf("a thousand tools: %s", s)
	}
	q.list("a=1/Irreversible") // 999 are gone,
	q.list("a=1/Irreversible", "more=1")
	q.list("a=1/Irreversible") // and one more: it is full
	if n := len(q.server.Status.Accepted); n != maxAccepted || states(q.server)["Classified"] != "True/Classified" {
		t.Fatalf("%d entries, %v", n, states(q.server))
	}
	q.list("a=2/Read", "b=1/Read")
	if shown := q.server.Status.Tool("a"); shown.Digest != fixture.Digest("1") || shown.Tier != irreversible {
		t.Errorf("a changed tool without an entry shows as %+v", shown)
	}
	if q.server.Status.Tool("b") != nil || states(q.server)["Classified"] != "False/Truncated" {
		t.Errorf("a new tool comes in: %v", states(q.server))
	}
	q.list("b=1/Read")
	if shown := q.server.Status.Tool("a"); shown == nil || shown.Digest != fixture.Digest("1") {
		t.Errorf("a tool that is gone without an entry shows as %+v", shown)
	}
	q.list(append(flood[:2:2], "a=2/Read")...) // two are back as they were, so there is room
	q.is("a", false, irreversible)
	q.server.Spec.Pinning = v1alpha1.PinningOff
	q.list("a=2/Read", "b=1/Read")
	q.is("b", true, read)
}

func TestAListThatIsTooLongForStatusForgetsNothing(t *testing.T) {
	t.Parallel()
	var long []string
	for i := range 998 {
		long = append(long, fmt.Sprintf("%04d%s=1", i, strings.Repeat("\"", 124)))
	}
	q := newQuay(t, v1alpha1.PinningReport)
	q.list("z=1/Irreversible")
	var all []v1alpha1.ToolStatus
	q.list(append(long, "z=1/Irreversible")...)
	q.is("z", true, irreversible)
	for _, s := range q.facts.seen.last.tools {
		s.Reason = strings.Repeat("r", 512)
		all = append(all, s)
	}
	q.facts.seen = listed(all...)
	q.look()
	size := 0
	for i := range q.server.Status.Tools {
		size += jsonSize(q.server.Status.Tools[i])
	}
	if size > maxToolBytes || len(q.server.Status.Tools) != 999 {
		t.Errorf("%d tools of %d bytes", len(q.server.Status.Tools), size)
	}
	q.list(append(long, "z=2/Read")...)
	q.is("z", false, irreversible)
}
