// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

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
	"github.com/tidewaiter/tidewaiter/internal/manifest"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// pins returns a policy of billing that pins those definitions; pairs are a tool, "" for the instructions, and the digit
// of its digest.
func pins(name string, pairs ...string) v1alpha1.ToolPolicy {
	p := v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1alpha1.ToolPolicySpec{Targets: []string{"billing"}}}
	for pair := range slices.Chunk(pairs, 2) {
		p.Spec.Pins = append(p.Spec.Pins, v1alpha1.Pin{Tool: pair[0], Digest: fixture.Digest(pair[1])})
	}
	return p
}

// listing returns a server that lists tools; pairs are a tool and the digit of its digest.
func listing(pairs ...string) *v1alpha1.GovernedServer {
	server := fixture.GovernedServer("shop", "billing")
	server.Status.EndpointDigest = fixture.Digest("e")
	server.Status.NamespaceLabels = map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		server.Status.Tools = append(server.Status.Tools, v1alpha1.ToolStatus{
			Name: pair[0], Digest: fixture.Digest(pair[1]), Tier: v1alpha1.TierReversible, ClassifiedTier: v1alpha1.TierReversible,
		})
	}
	return &server
}

func TestPinsAreComparedWithWhatTheServerSays(t *testing.T) {
	t.Parallel()
	server := listing("move", "3", "pay", "1", "send", "2", "split", "5", "void", "6")
	server.Status.Server = &v1alpha1.ServerInfo{InstructionsDigest: fixture.Digest("8"), AcceptedInstructionsDigest: fixture.Digest("7")}
	server.Status.Accepted = []v1alpha1.AcceptedTool{
		{Tool: "send", Digest: fixture.Digest("9"), Tier: v1alpha1.TierReversible},
		{Tool: "split", Tier: v1alpha1.TierReversible},
		{Tool: "ghost", Digest: fixture.Digest("4"), Tier: v1alpha1.TierReversible},
	}
	baseline := pins("floor", "void", "6")
	baseline.Namespace, baseline.Spec.Targets, baseline.Spec.NamespaceSelector = "tidewaiter-system", nil, &metav1.LabelSelector{}
	elsewhere := *baseline.DeepCopy()
	elsewhere.Namespace, elsewhere.Spec.Pins[0].Digest = "shop", fixture.Digest("0") // counts for nothing there
	set := policySet{operatorNamespace: "tidewaiter-system", objects: []v1alpha1.ToolPolicy{
		pins("a", "pay", "1", "pay", "0"), pins("b", "pay", "1", "void", "0", "left", "0"), baseline, elsewhere,
	}}
	d := fixture.Digest
	want := []pinView{
		{State: stateDrifted, Accepted: []string{d("7")}, Current: d("8")},
		{Tool: "ghost", State: stateGone, Accepted: []string{d("4")}},
		{Tool: "left", State: stateGone, Accepted: []string{d("0")}, Policies: []string{"b"}},
		{Tool: "move", State: stateAccepted, Accepted: []string{d("3")}, Current: d("3")},
		{Tool: "pay", State: statePinned, Accepted: []string{d("0"), d("1")}, Current: d("1"), Policies: []string{"a", "b"}},
		{Tool: "send", State: stateDrifted, Accepted: []string{d("9")}, Current: d("2")},
		{Tool: "split", State: stateNew, Current: d("5")},
		{Tool: "void", State: stateDrifted, Accepted: []string{d("0"), d("6")}, Current: d("6"), Policies: []string{"b", "tidewaiter-system/floor"}},
	}
	got := set.viewPins(server)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("views (-want +got):\n%s", diff)
	}
	var drifted []string
	for _, v := range got {
		if v.drifted() {
			drifted = append(drifted, v.name())
		}
	}
	if diff := cmp.Diff([]string{"(instructions)", "left", "send", "split", "void"}, drifted); diff != "" {
		t.Errorf("drifted (-want +got):\n%s", diff)
	}
}

// What pin calls drift among the listed tools is what gateways and PinsMatch do.
func TestPinAgreesWithThePolicyEngine(t *testing.T) {
	t.Parallel()
	digit := rapid.SampledFrom([]string{"1", "2", "3"})
	tool := rapid.SampledFrom([]string{"a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		server := listing("a", digit.Draw(t, "a"), "b", digit.Draw(t, "b"))
		if rapid.Bool().Draw(t, "instructions") {
			server.Status.Server = &v1alpha1.ServerInfo{InstructionsDigest: fixture.Digest(digit.Draw(t, "instructions"))}
			if accepted := digit.Draw(t, "accepted"); rapid.Bool().Draw(t, "other") {
				server.Status.Server.AcceptedInstructionsDigest = fixture.Digest(accepted)
			}
		}
		for _, name := range rapid.SliceOfNDistinct(tool, 0, 3, rapid.ID[string]).Draw(t, "remembered") {
			entry := v1alpha1.AcceptedTool{Tool: name, Tier: v1alpha1.TierReversible}
			if rapid.Bool().Draw(t, "was accepted") {
				entry.Digest = fixture.Digest(digit.Draw(t, "digest"))
			}
			server.Status.Accepted = append(server.Status.Accepted, entry)
		}
		set := policySet{operatorNamespace: "tidewaiter-system"}
		for i := range rapid.IntRange(0, 3).Draw(t, "policies") {
			var pairs []string
			for range rapid.IntRange(0, 3).Draw(t, "pins") {
				name := tool.Draw(t, "tool")
				if name == "c" && server.Status.Server != nil {
					name = ""
				}
				pairs = append(pairs, name, digit.Draw(t, "pin"))
			}
			set.objects = append(set.objects, pins(fmt.Sprint("p", i), pairs...))
		}
		var want, got []string
		for _, drift := range set.compileAt(server, server.Status.EndpointDigest, policy.Facts{}).Drift() {
			want = append(want, drift.Tool)
		}
		for _, v := range set.viewPins(server) {
			if v.State == stateDrifted || v.State == stateNew {
				got = append(got, v.Tool)
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("drift (-engine +pin):\n%s", diff)
		}
	})
}

const pinnedFile = `# What billing may be.
apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata:
  name: billing-pins
  namespace: shop
spec:
  targets: [billing]
  pins: # reviewed by ana
    - tool: void # taken back in March
      digest: "sha256:OOO" # void
    # the next one moves money
    - digest: sha256:ONE # pay
      tool: pay

    - digest: sha256:TWO
  rules: [] # none yet
---
# Another document stays as it is.
kind: Other
apiVersion: v1
`

func withDigests(text string) string {
	for word, digit := range map[string]string{"OOO": "0", "ONE": "1", "TWO": "2", "3!!": "3", "4!!": "4", "5!!": "5"} {
		text = strings.ReplaceAll(text, "sha256:"+word, fixture.Digest(digit))
	}
	return text
}

// readPolicy reads the first policy of a text.
func readPolicy(t testing.TB, text string) linted {
	t.Helper()
	kinds, err := manifest.LoadKinds()
	if err != nil {
		t.Fatal(err)
	}
	l := &linter{kinds: kinds}
	l.read(t.Context(), sourceFile{path: "pins.yaml", data: []byte(text)})
	if len(l.policies) == 0 || !l.policies[0].sound {
		t.Fatalf("no policy in\n%s\n%v", text, l.findings)
	}
	return l.policies[0]
}

func TestPinsAreBroughtUpToDateAndNothingElse(t *testing.T) {
	t.Parallel()
	bare := strings.ReplaceAll(pinnedFile[:strings.Index(pinnedFile, "  pins:")], "[billing]", "\n    - billing")
	for name, tc := range map[string]struct {
		text, want, wantErr string
		tools               []string // and the digits of their digests; "" stands for the instructions
	}{
		"digests change where they stand, what is gone goes, what is new comes last": {
			text: pinnedFile, tools: []string{"", "3", "pay", "4", "send now", "5", "y", "5"},
			want: `# What billing may be.
apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata:
  name: billing-pins
  namespace: shop
spec:
  targets: [billing]
  pins: # reviewed by ana
    # the next one moves money
    - digest: sha256:4!! # pay
      tool: pay

    - digest: sha256:3!!
    - digest: sha256:5!!
      tool: "send now"
    - digest: sha256:5!!
      tool: "y"
  rules: [] # none yet
---
# Another document stays as it is.
kind: Other
apiVersion: v1
`,
		},
		"what is up to date stays as it is": {text: pinnedFile, tools: []string{"", "2", "pay", "1", "void", "0"}, want: pinnedFile},
		"a policy without pins gets them first": {
			text: bare, tools: []string{"pay", "4"},
			want: strings.Replace(bare, "spec:\n", "spec:\n  pins:\n  - digest: sha256:4!!\n    tool: pay\n", 1),
		},
		"a digest that stands there twice for one tool stays once": {
			text: strings.Replace(pinnedFile, "tool: void", "tool: pay", 1), tools: []string{"", "2", "pay", "1"},
			want: strings.NewReplacer("tool: void", "tool: pay", "sha256:OOO", "sha256:ONE").Replace(pinnedFile[:strings.Index(pinnedFile, "    - digest: sha256:ONE")]) +
				"\n    - digest: sha256:TWO\n" + pinnedFile[strings.Index(pinnedFile, "  rules:"):],
		},
		"a flow list is not taken apart": {
			text:  strings.Replace(bare, "spec:\n", "spec:\n  pins: [{tool: gone, digest: sha256:ONE}]\n", 1),
			tools: []string{"pay", "4"}, wantErr: "line 8: the pin does not stand on a line of its own",
		},
		"an empty list is not filled": {
			text:  strings.Replace(bare, "spec:\n", "spec:\n  pins: []\n", 1),
			tools: []string{"pay", "4"}, wantErr: "line 8: an empty list of pins stands there",
		},
		"a folded digest is not taken apart": {
			text:  strings.Replace(bare, "spec:\n", "spec:\n  pins:\n  - tool: pay\n    digest: >-\n      sha256:ONE\n", 1),
			tools: []string{"pay", "4"}, wantErr: "line 10: the digest is not written in one piece",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := withDigests(tc.text)
			p := readPolicy(t, text)
			wanted := currentPins(listing(tc.tools...))
			got, err := editPins(text, p, wanted)
			if tc.wantErr != "" {
				if err == nil || err.Error() != tc.wantErr {
					t.Fatalf("error %v, want %s, got\n%s", err, tc.wantErr, got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(withDigests(tc.want), got); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			if err := proveEdit(got, sourceFile{path: "pins.yaml", data: []byte(text)}, p, wanted); err != nil {
				t.Error(err)
			}
		})
	}
}

// An edit that does not say what it should, or changed anything else, is not printed.
func TestAnEditThatWentWrongIsNotPrinted(t *testing.T) {
	t.Parallel()
	text := withDigests(pinnedFile)
	p := readPolicy(t, text)
	wanted := currentPins(listing("", "2", "pay", "1", "void", "0"))
	file := sourceFile{path: "pins.yaml", data: []byte(text)}
	for name, edited := range map[string]string{
		"a pin is missing":         strings.Replace(text, "    - digest: "+fixture.Digest("2")+"\n", "", 1),
		"a target was changed":     strings.Replace(text, "[billing]", "[ledger]", 1),
		"another document changed": strings.Replace(text, "apiVersion: v1\n", "apiVersion: v2\n", 1),
		"it is no YAML any more":   text + "\t{",
		"a document is missing":    text[:strings.Index(text, "---")],
	} {
		if err := proveEdit(edited, file, p, wanted); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	if err := proveEdit(text, file, p, wanted); err != nil {
		t.Errorf("as it should be: %v", err)
	}
}

// Whatever the file and the names of the tools: an edit says what it should and changes nothing else, or it is refused.
func FuzzEditPins(f *testing.F) {
	f.Add(withDigests(pinnedFile), "send now")
	f.Add("apiVersion: tidewaiter.dev/v1alpha1\nkind: ToolPolicy\nmetadata: {name: a}\nspec:\n  targets: [b]\n  mode: x", "\u202eevil: [\n")
	kinds, err := manifest.LoadKinds()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, tool string) {
		l := &linter{kinds: kinds}
		l.read(t.Context(), sourceFile{path: "pins.yaml", data: []byte(text)})
		if len(l.policies) != 1 || !l.policies[0].sound || tool == "" {
			return
		}
		wanted := []v1alpha1.Pin{{Digest: fixture.Digest("8")}, {Tool: tool, Digest: fixture.Digest("9")}}
		edited, err := editPins(text, l.policies[0], wanted)
		if err != nil {
			return
		}
		// What is proved is what is printed: it must not panic, whatever came of the edit.
		_ = proveEdit(edited, sourceFile{path: "pins.yaml", data: []byte(text)}, l.policies[0], wanted)
	})
}
