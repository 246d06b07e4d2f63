// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// hostileWorld is a cluster in which every text that is not a name says the same.
func hostileWorld(t *testing.T, text string, phase v1alpha1.Phase) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	quoted, err := json.Marshal(map[string]any{text: text, "list": []string{text}})
	if err != nil {
		t.Fatal(err)
	}
	fill := func(r *v1alpha1.ApprovalRequest) {
		r.Spec.Tool, r.Spec.GatedBy, r.Spec.Tier = text, text, v1alpha1.Tier(text)
		r.Spec.Requester = v1alpha1.Requester{Username: text, ActsFor: text, Pod: text}
		r.Spec.BlastRadius = v1alpha1.BlastRadius{Scope: v1alpha1.BlastScope(text), Summary: text, Evidence: []string{text, text}}
		r.Spec.ApproveVerbs, r.Spec.Arguments, r.Spec.RequiredApprovals = []string{text}, string(quoted), 2
		votes("ben"+text, "Approved")(r)
		r.Status.Votes[0].Reason, r.Status.Reason, r.Status.Phase = text, text, phase
	}
	request := newRequest(fill)
	earlier := newRequest(fill, func(r *v1alpha1.ApprovalRequest) {
		r.Name, r.UID, r.Spec.Arguments, r.Spec.Requester.Username = "cranes-0000-1", "v", text, "x"+text
		r.Status.Phase = v1alpha1.PhaseSucceeded
		r.Status.Resolution = &v1alpha1.Resolution{Outcome: v1alpha1.ResolutionCommitted, By: text, Reason: text}
	})
	server := fixture.GovernedServer("harbour", "cranes")
	server.UID = "s"
	server.Status = v1alpha1.GovernedServerStatus{
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Stale", Message: text}},
		Tools:      []v1alpha1.ToolStatus{{Name: text, Tier: v1alpha1.Tier(text), ClassifiedTier: v1alpha1.TierReversible, Source: v1alpha1.TierSource(text), Reason: text, Digest: text}},
		Records:    []v1alpha1.ToolRecord{{Tool: text, Digest: text, Autonomy: v1alpha1.Autonomy(text)}},
	}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(request, earlier, &server).WithStatusSubresource(request).
		WithIndex(&v1alpha1.ApprovalRequest{}, "spec.serverRef.name", func(o client.Object) []string {
			return []string{o.(*v1alpha1.ApprovalRequest).Spec.ServerRef.Name}
		}).Build()
	return interceptor.NewClient(stored, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if review, ok := o.(*authenticationv1.SelfSubjectReview); ok {
				review.Status.UserInfo = authenticationv1.UserInfo{
					Username: text, UID: text, Groups: []string{text}, Extra: map[string]authenticationv1.ExtraValue{text: {text}},
				}
			}
			return nil
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			r := o.(*v1alpha1.ApprovalRequest)
			r.Status.Phase, r.Status.Reason = v1alpha1.PhaseDenied, text
			return nil
		},
	})
}

// runIn runs a verb in a world, and returns all that it prints, for people and for their errors.
func runIn(t *testing.T, world client.WithWatch, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	s := &session{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out},
		clock:     clocktesting.NewFakePassiveClock(made.Add(time.Minute)), client: world, namespace: "harbour",
	}
	cmd := newProgram("kubectl-tidewaiter", s)
	cmd.SetArgs(args)
	execute(t.Context(), cmd, s.IOStreams)
	return out.String()
}

// verbsForPeople are all verbs that print what others wrote, in each of their forms for people.
var verbsForPeople = [][]string{
	{"pending"}, {"pending", "-A", "-o", "wide"}, {"describe", "cranes-0123-1"}, {"approve", "cranes-0123-1", "--wait", "1ms"},
	{"deny", "cranes-0123-1"}, {"dismiss", "cranes-0123-1"}, {"resolve", "cranes-0123-1", "--committed", "--reason", "seen"},
	{"whoami"}, {"whoami", "-A", "-o", "wide"}, {"tools", "cranes"}, {"tools", "cranes", "-o", "wide"}, {"trust"}, {"trust", "cranes", "-o", "wide"},
}

// What an agent or a server wrote reaches the terminal as letters, whatever it is.
func TestNothingHiddenReachesTheTerminalByAnyVerb(t *testing.T) {
	t.Parallel()
	const pieces = "aZ9 \x00\x07\x1b[2J\r\n\t\x7f\u0085\u009b\u00ad\u061c\u200b\u200d\u200e\u2028\u202e\u2066\u2800\u3164\ufe0f\ufeff\U000e0041оκ٣אa\u0338\\\"'%"
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(
			rapid.StringOf(rapid.SampledFrom([]rune(pieces))),
			rapid.String(),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		).Draw(rt, "text")
		phase := rapid.SampledFrom([]v1alpha1.Phase{v1alpha1.PhasePending, v1alpha1.PhaseApproved, v1alpha1.PhaseAmbiguous, v1alpha1.PhaseDenied, v1alpha1.Phase(text)}).Draw(rt, "phase")
		verb := rapid.SampledFrom(verbsForPeople).Draw(rt, "verb")
		out := runIn(t, hostileWorld(t, text, phase), verb...)
		for _, r := range out {
			if r != '\n' && (r == unicode.ReplacementChar && !strings.ContainsRune(text, r) || !unicode.IsPrint(r) || unicode.In(r, unicode.Cf, unicode.Bidi_Control, unicode.Hebrew, unicode.Arabic, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == '\u2800') {
				rt.Errorf("%U of %+q reaches the terminal by %v:\n%+q", r, text, verb, out)
			}
		}
	})
}

// A text never begins a line of its own, where it would pass for what the plugin says.
func TestNoTextBeginsALineByAnyVerb(t *testing.T) {
	t.Parallel()
	for _, verb := range verbsForPeople {
		for _, phase := range []v1alpha1.Phase{v1alpha1.PhasePending, v1alpha1.PhaseAmbiguous} {
			plain := runIn(t, hostileWorld(t, "x n y", phase), verb...)
			hostile := runIn(t, hostileWorld(t, "x\ny", phase), verb...)
			if got, want := strings.Count(hostile, "\n"), strings.Count(plain, "\n"); got != want {
				t.Errorf("%v, %s: %d lines, want %d:\n%s", verb, phase, got, want, hostile)
			}
			if !strings.Contains(plain, "x n y") && (verb[0] != "pending" || phase == v1alpha1.PhasePending) {
				t.Errorf("%v, %s: the control says nothing of the text:\n%s", verb, phase, plain)
			}
		}
	}
}
