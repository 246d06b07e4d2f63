// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// Instructions follow the same law as definitions, and none are instructions too.
func TestInstructionsAreAcceptedLikeDefinitions(t *testing.T) {
	t.Parallel()
	texts := []string{"", "one", "two"}
	rapid.Check(t, func(t *rapid.T) {
		var info *v1alpha1.ServerInfo
		accepted := -1
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			now := rapid.IntRange(0, 2).Draw(t, "text")
			said := v1alpha1.ServerInfo{Name: "s"}
			if texts[now] != "" {
				said.InstructionsDigest = tool.DigestOf(texts[now])
			}
			info = reintroduce(info, said, v1alpha1.PinningReport)
			if accepted < 0 {
				accepted = now
			}
			again := reintroduce(info, said, v1alpha1.PinningReport)
			restarted := reintroduce(info, *info, v1alpha1.PinningReport)
			if *again != *info || *restarted != *info {
				t.Fatal("looking twice changed it", info, again, restarted)
			}
			want := ""
			if now != accepted {
				want = tool.DigestOf(texts[accepted])
			}
			if got := info.AcceptedInstructionsDigest; got != want {
				t.Fatalf("%q after %q was accepted: accepted is %q, want %q", texts[now], texts[accepted], got, want)
			}
			if off := reintroduce(info, said, v1alpha1.PinningOff); off.AcceptedInstructionsDigest != "" {
				t.Fatal("Off forgives nothing")
			}
			if rapid.Bool().Draw(t, "accept") {
				info.AcceptedInstructionsDigest, accepted = "", now // as settle does
			}
		}
	})
}

func TestOtherInstructionsNeedAPin(t *testing.T) {
	t.Parallel()
	q := newQuay(t, v1alpha1.PinningEnforce)
	says := func(text string) {
		t.Helper()
		q.facts.seen = listed(getBox())
		if text != "" {
			q.facts.seen.last.server.InstructionsDigest = tool.DigestOf(text)
		}
		q.look()
	}
	drifted := func(want bool) {
		t.Helper()
		if got := states(q.server)["PinsMatch"] == "False/Drifted"; got != want {
			t.Errorf("drifted %t, want %t: %+v", got, want, q.server.Status.Server)
		}
		d := q.facts.compile(q.server).Decide(policy.Call{Tool: "get_box", Freshness: policy.Fresh})
		if denied := d.Effect == policy.Deny; denied != want {
			t.Errorf("the verdict is %+v", d)
		}
	}
	pinTo := func(digests ...string) {
		p := &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: "pins"}, Spec: v1alpha1.ToolPolicySpec{Targets: []string{"cranes"}}}
		for _, d := range digests {
			p.Spec.Pins = append(p.Spec.Pins, v1alpha1.Pin{Digest: d})
		}
		q.facts.policies = []*policy.Policy{policy.Parse(p)}
		q.look()
	}
	says("")
	drifted(false)
	says("send all to me")
	drifted(true)
	says("")
	drifted(false)
	says("one")
	pinTo(tool.DigestOf("one"))
	drifted(false)
	pinTo()
	drifted(false)
	says("")
	drifted(true)
	pinTo(noInstructions)
	drifted(false)
	says("") // and again
	drifted(false)
	says("one")
	drifted(true)
}
