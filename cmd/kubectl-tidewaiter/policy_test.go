// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/controllers"
	"github.com/tidewaiter/tidewaiter/internal/cli"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/survey"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// office is a namespace with a server whose tools have records, and with those who set policy there.
type office struct {
	namespace      string
	admin, manager client.Client
	// owner may govern and promote, governor may only govern, and editor may promote what others govern; all of them may
	// write the kinds.
	owner, governor, editor *rest.Config
}

func newOffice(t *testing.T, edits ...func(*v1alpha1.GovernedServer)) *office {
	t.Helper()
	o := &office{namespace: plane.Namespace(t), admin: plane.Client(t, plane.Admin), manager: plane.Client(t, plane.Manager(t))}
	o.addServer(t, "billing", edits...)
	user := func(name string, verbs ...string) *rest.Config {
		cfg := plane.User(t, name+"-"+o.namespace)
		plane.Grant(t, o.namespace, cfg, fixture.Rule("toolpolicies", "get", "list", "watch", "create", "update", "patch", "delete"),
			fixture.Rule("governedservers", "get", "list", "watch"), fixture.Rule("approvalrequests", "get", "list", "watch"))
		plane.Grant(t, o.namespace, cfg, fixture.Authority("billing", verbs...))
		plane.Grant(t, fixture.SystemNamespace, cfg, fixture.Rule("toolpolicies", "list"))
		return cfg
	}
	o.owner = user("owner", v1alpha1.VerbGovern, v1alpha1.VerbPromote)
	o.governor = user("governor", v1alpha1.VerbGovern)
	o.editor = user("editor", v1alpha1.VerbPromote)
	return o
}

// addServer adds a server that the manager has listed.
func (o *office) addServer(t *testing.T, name string, edits ...func(*v1alpha1.GovernedServer)) {
	t.Helper()
	server := fixture.GovernedServer(o.namespace, name)
	if err := o.admin.Create(t.Context(), &server); err != nil {
		t.Fatal(err)
	}
	endpoint, err := tool.EndpointDigest(server.Spec.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	listed := func(name, digit string, tier v1alpha1.Tier, reason string) v1alpha1.ToolStatus {
		return v1alpha1.ToolStatus{Name: name, ClassifiedTier: tier, Tier: tier, Source: v1alpha1.TierSourceName, Reason: reason, Digest: fixture.Digest(digit)}
	}
	before := server.DeepCopy()
	server.Status = v1alpha1.GovernedServerStatus{
		EndpointDigest:  endpoint,
		NamespaceLabels: map[string]string{corev1.LabelMetadataName: o.namespace},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: "Ready", LastTransitionTime: metav1.Now(),
		}},
		Tools: []v1alpha1.ToolStatus{
			listed("get_invoice", "1", v1alpha1.TierRead, `the verb "get" reads`),
			listed("refund_invoice", "2", v1alpha1.TierReversible, `the verb "refund" can be undone`),
			listed("send_invoice", "3", v1alpha1.TierIrreversible, `the verb "send" cannot be undone`),
			listed("update_invoice", "4", v1alpha1.TierReversible, `the verb "update" can be undone`),
			listed("void_invoice", "5", v1alpha1.TierReversible, `the verb "void" can be undone`),
		},
		Records: []v1alpha1.ToolRecord{
			{Tool: "refund_invoice", Digest: fixture.Digest("2"), EndpointDigest: endpoint, Approved: 4, Failed: 1, Autonomy: v1alpha1.AutonomyEligible},
			{Tool: "update_invoice", Digest: fixture.Digest("4"), EndpointDigest: endpoint, Approved: 2, Autonomy: v1alpha1.AutonomyNone},
			{Tool: "void_invoice", Digest: fixture.Digest("5"), EndpointDigest: endpoint, Approved: 9, Denied: 1, Autonomy: v1alpha1.AutonomyDisqualified},
		},
	}
	for _, edit := range edits {
		edit(&server)
	}
	if err := o.manager.Status().Patch(t.Context(), &server, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// result is what a verb printed, and its exit code.
type result struct {
	Stdout, Stderr string
	Exit           int
}

// run runs a verb as a person.
func (o *office) run(t *testing.T, as *rest.Config, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	args = append([]string{"kubectl-tidewaiter"}, args...)
	args = append(args, "--kubeconfig", plane.Kubeconfig(t, as), "-n", o.namespace)
	exit := cli.Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	return result{Stdout: o.stable(out.String()), Stderr: o.stable(errOut.String()), Exit: exit}
}

func (o *office) stable(text string) string {
	for _, digit := range []string{"1", "2", "3", "4", "5"} {
		text = strings.ReplaceAll(text, strings.Repeat(digit, 64), digit+"*64")
	}
	return strings.ReplaceAll(text, o.namespace, "NAMESPACE")
}

func (o *office) expect(t *testing.T, want result, as *rest.Config, args ...string) {
	t.Helper()
	if diff := cmp.Diff(want, o.run(t, as, args...)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", strings.Join(args, " "), diff)
	}
}

// apply applies a manifest with kubectl as a person.
func (o *office) apply(t *testing.T, as *rest.Config, manifest string, flags ...string) {
	t.Helper()
	args := append([]string{"apply", "-n", o.namespace, "-f", "-"}, flags...)
	if _, stderr, exit := plane.Kubectl(t, as, manifest, args...); exit != 0 {
		t.Fatalf("kubectl apply: %s", stderr)
	}
}

// spec returns what is stored of a policy.
func (o *office) spec(t *testing.T, name string) v1alpha1.ToolPolicySpec {
	t.Helper()
	var p v1alpha1.ToolPolicy
	if err := o.admin.Get(t.Context(), client.ObjectKey{Namespace: o.namespace, Name: name}, &p); err != nil {
		t.Fatal(err)
	}
	return p.Spec
}

func (o *office) expectSpec(t *testing.T, name string, want v1alpha1.ToolPolicySpec) {
	t.Helper()
	if diff := cmp.Diff(want, o.spec(t, name)); diff != "" {
		t.Errorf("ToolPolicy %s (-want +got):\n%s", name, diff)
	}
}

// expectNone checks that nothing was written.
func (o *office) expectNone(t *testing.T) {
	t.Helper()
	var all v1alpha1.ToolPolicyList
	if err := o.admin.List(t.Context(), &all, client.InNamespace(o.namespace)); err != nil {
		t.Fatal(err)
	}
	if len(all.Items) > 0 {
		t.Errorf("%d policies were written, the first with %+v", len(all.Items), all.Items[0].Spec)
	}
}

// judge lets the manager look at every policy once.
func (o *office) judge(t *testing.T) {
	t.Helper()
	var all v1alpha1.ToolPolicyList
	if err := o.admin.List(t.Context(), &all, client.InNamespace(o.namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		if _, err := (&controllers.ToolPolicyReconciler{
			Client: o.manager, OperatorNamespace: fixture.SystemNamespace,
			Survey: survey.New(o.manager, o.manager, policy.NewLibrary(), fixture.SystemNamespace),
		}).Reconcile(t.Context(), &all.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func unattended(tool, digit string) v1alpha1.AutonomyRule {
	return v1alpha1.AutonomyRule{Tool: tool, Digest: fixture.Digest(digit), Mode: v1alpha1.ModeUnattended}
}

func attended(tool string) v1alpha1.AutonomyRule {
	return v1alpha1.AutonomyRule{Tool: tool, Mode: v1alpha1.ModeAttended}
}

const earnedRefund = `Tool:        refund_invoice of billing, Reversible
Definition:  sha256:2*64
Record:      4 clean approvals (3 needed), 1 failed, 0 denied
Stored:      none of these calls

`

func TestAPromotionIsWrittenByWhoMayPromote(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	added := earnedRefund + `ToolPolicy billing:
  spec.autonomy[0] is added:
    digest: sha256:2*64
    mode: Unattended
    tool: refund_invoice

`
	promote := []string{"promote", "billing", "refund_invoice", "--policy", "billing"}
	o.expect(t, result{Stdout: added, Exit: 1, Stderr: "error: nothing was changed: to create, delete or change a ToolPolicy editor-NAMESPACE needs the verb govern on " +
		"governedservers/authority for every server that it targets or targeted, and lacks it for resourceNames [billing] in namespace NAMESPACE; " +
		"whoever manages Roles there can give it\n"}, o.editor, promote...)
	o.expect(t, result{Stdout: added, Exit: 1, Stderr: "error: nothing was changed: to let a tool run Unattended governor-NAMESPACE needs the verb promote on " +
		"governedservers/authority for every server that the policy targets, and lacks it for resourceNames [billing] in namespace NAMESPACE; " +
		"whoever manages Roles there can give it\n"}, o.governor, promote...)
	o.expect(t, result{Stdout: added, Exit: 1, Stderr: "error: nothing was changed: to let a tool run Unattended governor-NAMESPACE needs the verb promote on " +
		"governedservers/authority for every server that the policy targets, and lacks it for resourceNames [billing] in namespace NAMESPACE; " +
		"whoever manages Roles there can give it\n"}, o.governor, append(promote, "--dry-run=server")...)
	o.expect(t, result{Stdout: added + "toolpolicy.tidewaiter.dev/billing created (server dry run)\n"}, o.owner, append(promote, "--dry-run=server")...)
	o.expect(t, result{Stdout: added + "toolpolicy.tidewaiter.dev/billing created (dry run)\n"}, o.owner, append(promote, "--dry-run=client")...)
	o.expectNone(t)

	o.expect(t, result{Stdout: added + `toolpolicy.tidewaiter.dev/billing created
Calls of refund_invoice on billing run without a person as soon as its gateways see it. To take it back: kubectl tidewaiter revoke billing refund_invoice --policy billing -n NAMESPACE
`}, o.owner, promote...)
	want := v1alpha1.ToolPolicySpec{Targets: []string{"billing"}, Autonomy: []v1alpha1.AutonomyRule{unattended("refund_invoice", "2")}}
	o.expectSpec(t, "billing", want)

	o.expect(t, result{Stdout: earnedRefund + "toolpolicy.tidewaiter.dev/billing unchanged\n"}, o.owner, promote...)
	o.expectSpec(t, "billing", want)
}

func TestAPromotionThatWouldNotHoldIsRefusedBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for name, tc := range map[string]struct{ tool, want string }{
		"of an Irreversible tool": {"send_invoice", "send_invoice would not run unattended on billing: send_invoice is Irreversible: every call needs approval, whatever its record (Irreversible)"},
		"of a Read tool":          {"get_invoice", "get_invoice would not run unattended on billing: get_invoice is Read: its calls run without approval anyway (Read)"},
		"of a short record":       {"update_invoice", "update_invoice would not run unattended on billing: update_invoice has 2 of 3 clean approvals for this definition and endpoint (RecordNotClean)"},
		"after a denial":          {"void_invoice", "void_invoice would not run unattended on billing: a person denied a call of void_invoice; it never runs unattended (RecordNotClean)"},
		"of an unknown tool":      {"refund", "billing lists no tool refund; those it lists: kubectl tidewaiter tools billing -n NAMESPACE"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, flags := range [][]string{nil, {"--dry-run=server"}, {"--dry-run=client", "-o", "yaml"}} {
				o.expect(t, result{Exit: 1, Stderr: "error: nothing was changed: " + tc.want + "\n"},
					o.owner, append([]string{"promote", "billing", tc.tool, "--policy", "billing"}, flags...)...)
			}
		})
	}
	o.expectNone(t)
}

func TestPromotionNeverTouchesOtherEntries(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.addServer(t, "ledger")
	o.apply(t, plane.Admin, `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: alone, labels: {team: finance}}
spec:
  targets: [billing]
  tiers: [{tools: ["export_*"], tier: Irreversible, reason: an export leaves our systems}]
  autonomy:
  - {tool: update_invoice, mode: Attended}
  - {tool: refund_invoice, mode: Unattended, digest: "`+fixture.Digest("9")+`"}
  - {tool: void_invoice, mode: Attended}
---
apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: shared}
spec:
  targets: [billing, ledger]
  autonomy:
  - {tool: refund_invoice, mode: Unattended, digest: "`+fixture.Digest("9")+`"}
---
apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: elsewhere}
spec: {targets: [ledger]}
`, "--server-side", "--field-manager=git")
	plane.Grant(t, o.namespace, o.owner, fixture.Authority("ledger", v1alpha1.VerbGovern, v1alpha1.VerbPromote))

	alone := o.spec(t, "alone")
	if got := o.run(t, o.owner, "promote", "billing", "refund_invoice", "--policy", "alone"); got.Exit != 0 {
		t.Fatal(got.Stderr)
	}
	// In the policy of one server the entry for an older definition means nothing to anybody.
	alone.Autonomy = []v1alpha1.AutonomyRule{attended("update_invoice"), unattended("refund_invoice", "2"), attended("void_invoice")}
	o.expectSpec(t, "alone", alone)

	shared := o.spec(t, "shared")
	if got := o.run(t, o.owner, "promote", "billing", "refund_invoice", "--policy", "shared"); got.Exit != 0 ||
		!strings.Contains(got.Stdout, "The entry reaches every target of the policy: billing, ledger.") {
		t.Fatalf("exit %d: %s%s", got.Exit, got.Stdout, got.Stderr)
	}
	shared.Autonomy = append(shared.Autonomy, unattended("refund_invoice", "2"))
	o.expectSpec(t, "shared", shared)

	o.expect(t, result{Exit: 1, Stderr: "error: nothing was changed: ToolPolicy elsewhere does not target billing, and all its entries would reach billing if it did; " +
		"name another policy (one that does not exist is made), or add billing to its spec.targets first\n"},
		o.owner, "promote", "billing", "refund_invoice", "--policy", "elsewhere")
}

// What a person promotes directly does not break what is applied from Git, and the person is told where it belongs.
func TestAPolicyFromGitIsNotBroken(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	fromGit := `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: billing}
spec:
  targets: [billing]
  tiers: [{tools: ["export_*"], tier: Irreversible, reason: an export leaves our systems}]
`
	for name, flags := range map[string][]string{"kubectl apply": nil, "flux": {"--server-side", "--field-manager=flux"}} {
		t.Run(name, func(t *testing.T) {
			o.apply(t, o.owner, fromGit, flags...)
			want := o.spec(t, "billing")
			got := o.run(t, o.owner, "promote", "billing", "refund_invoice", "--policy", "billing")
			if warning := "Warning: ToolPolicy billing is applied from elsewhere, by " + name + ": the next time may undo this. " +
				"Put it there too: --dry-run=client -o yaml prints it\n"; got.Exit != 0 || !strings.HasSuffix(got.Stderr, warning) { // the API server may have warned too
				t.Fatalf("exit %d: %s", got.Exit, got.Stderr)
			}
			want.Autonomy = []v1alpha1.AutonomyRule{unattended("refund_invoice", "2")}
			o.expectSpec(t, "billing", want)
			o.apply(t, o.owner, fromGit, flags...)
			o.expectSpec(t, "billing", want)
			if err := o.admin.Delete(t.Context(), &v1alpha1.ToolPolicy{ObjectMeta: fixture.ToolPolicy(o.namespace, "billing").ObjectMeta}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWhatGoesToGitIsWhatWouldBeWritten(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"promote":           {"promote", "billing", "refund_invoice"},
		"revoke":            {"revoke", "billing", "refund_invoice"},
		"lowering set-tier": {"set-tier", "billing", "send_invoice", "Reversible", "--reason", "it can be voided: # yes"},
		"raising set-tier":  {"set-tier", "billing", "get_invoice", "irreversible", "--reason", "it \"costs\" money"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, stored := range []string{"", `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: billing, labels: {team: finance}, annotations: {note: kept}}
spec:
  targets: [billing]
  autonomy: [{tool: void_invoice, mode: Attended}]
`} {
				direct, git := newOffice(t), newOffice(t)
				for _, o := range []*office{direct, git} {
					if stored != "" {
						o.apply(t, o.owner, stored)
					}
				}
				args := append(args, "--policy", "billing")
				if got := direct.run(t, direct.owner, args...); got.Exit != 0 {
					t.Fatal(got.Stderr)
				}
				printed := git.run(t, git.owner, append(args, "--dry-run=client", "-o", "yaml")...)
				if printed.Exit != 0 || strings.Contains(printed.Stdout, "resourceVersion") || strings.Contains(printed.Stdout, "last-applied") {
					t.Fatalf("exit %d: %s%s", printed.Exit, printed.Stdout, printed.Stderr)
				}
				manifest := strings.ReplaceAll(printed.Stdout, "NAMESPACE", git.namespace)
				for _, digit := range []string{"1", "2", "3", "4", "5"} {
					manifest = strings.ReplaceAll(manifest, digit+"*64", strings.Repeat(digit, 64))
				}
				git.apply(t, git.owner, manifest)
				git.expectSpec(t, "billing", direct.spec(t, "billing"))
			}
		})
	}
}

func TestTheManifestForGitIsWholeAndAlone(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.expect(t, result{Stdout: `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata:
  name: billing
  namespace: NAMESPACE
spec:
  autonomy:
  - digest: sha256:2*64
    mode: Unattended
    tool: refund_invoice
  targets:
  - billing
`, Stderr: earnedRefund + `ToolPolicy billing:
  spec.autonomy[0] is added:
    digest: sha256:2*64
    mode: Unattended
    tool: refund_invoice

`}, o.owner, "promote", "billing", "refund_invoice", "--policy", "billing", "--dry-run=client", "-o", "yaml")
	o.expectNone(t)
}

func TestRevokingKeepsAToolAttended(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for _, policy := range []string{"billing", "other"} {
		if got := o.run(t, o.owner, "promote", "billing", "refund_invoice", "--policy", policy); got.Exit != 0 {
			t.Fatal(got.Stderr)
		}
	}
	after := `Every call of refund_invoice on billing needs approval, whatever another policy says: at each gateway within a second of the change reaching it,
and within 90 seconds at one that is cut off from the API server. Calls that were sent already are not called back.
`
	// To revoke takes no right to promote.
	o.expect(t, result{Stdout: `ToolPolicy billing:
  spec.autonomy[0] is changed from:
    digest: sha256:2*64
    mode: Unattended
    tool: refund_invoice
  spec.autonomy[0] is changed to:
    mode: Attended
    tool: refund_invoice

toolpolicy.tidewaiter.dev/billing configured
` + after}, o.governor, "revoke", "billing", "refund_invoice", "--policy", "billing")
	o.expectSpec(t, "billing", v1alpha1.ToolPolicySpec{Targets: []string{"billing"}, Autonomy: []v1alpha1.AutonomyRule{attended("refund_invoice")}})
	o.expect(t, result{Stdout: "toolpolicy.tidewaiter.dev/billing unchanged\n"}, o.governor, "revoke", "billing", "refund_invoice", "--policy", "billing")

	// The promotion of the other policy is still there, and no longer in force.
	o.judge(t)
	got := o.run(t, o.owner, "trust", "billing", "refund_invoice")
	want := earnedRefund + `Autonomy:  Eligible, with 4 clean approvals of 3 that it needs
Promoted:  by ToolPolicy other, spec.autonomy[0], for sha256:2*64
           not in force: ToolPolicy/billing spec.autonomy[0] keeps refund_invoice attended (Attended)
Next:      ToolPolicy/billing spec.autonomy[0] keeps refund_invoice attended
`
	if diff := cmp.Diff(want, got.Stdout); diff != "" {
		t.Errorf("trust (-want +got):\n%s", diff)
	}
	o.expect(t, result{Exit: 1, Stderr: "error: nothing was changed: refund_invoice would not run unattended on billing: " +
		"ToolPolicy/billing spec.autonomy[0] keeps refund_invoice attended (Attended)\n"}, o.owner, "promote", "billing", "refund_invoice", "--policy", "third")
	// The policy that keeps it attended is the one that lets it go.
	if got := o.run(t, o.owner, "promote", "billing", "refund_invoice", "--policy", "billing"); got.Exit != 0 {
		t.Fatal(got.Stderr)
	}
	o.judge(t)
	if got := o.run(t, o.owner, "trust", "billing", "refund_invoice"); !strings.Contains(got.Stdout, "Autonomy:  Unattended") {
		t.Error(got.Stdout)
	}

	o.expect(t, result{Exit: 1, Stderr: "error: nothing was changed: get_invoice is Read on billing, so its calls run without a person whatever its autonomy; " +
		"kubectl tidewaiter set-tier puts one before them\n"}, o.governor, "revoke", "billing", "get_invoice", "--policy", "billing")
	o.expect(t, result{Exit: 1, Stderr: "error: nothing was changed: billing lists no tool refund_invoce; those it lists: kubectl tidewaiter tools billing -n NAMESPACE\n"},
		o.governor, "revoke", "billing", "refund_invoce", "--policy", "billing")
	if got := o.run(t, o.editor, "revoke", "billing", "refund_invoice", "--policy", "billing"); got.Exit != 1 || !strings.Contains(got.Stderr, "needs the verb govern") {
		t.Errorf("without govern: exit %d, %s", got.Exit, got.Stderr)
	}
}

func TestATierIsSetAsTheAPIWantsIt(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	setTier := func(tool, tier string, flags ...string) []string {
		return append([]string{"set-tier", "billing", tool, tier, "--policy", "billing", "--reason", "because"}, flags...)
	}
	// Below the classified tier the override is about one definition.
	o.expect(t, result{Stdout: `Tool:     send_invoice
Now:      Irreversible, by Name: the verb "send" cannot be undone
Will be:  Reversible: a call needs approval, until the tool has earned autonomy and is promoted

ToolPolicy billing:
  spec.tiers[0] is added:
    digest: sha256:3*64
    reason: because
    tier: Reversible
    tool: send_invoice

toolpolicy.tidewaiter.dev/billing created
`}, o.governor, setTier("send_invoice", "reversible")...)
	// Above it, about all of them.
	o.expect(t, result{Stdout: `Tool:     get_invoice
Now:      Read, by Name: the verb "get" reads
Will be:  Irreversible: every call needs approval, for ever

ToolPolicy billing:
  spec.tiers[1] is added:
    reason: because
    tier: Irreversible
    tools: [get_invoice]

toolpolicy.tidewaiter.dev/billing configured
`}, o.governor, setTier("get_invoice", "Irreversible")...)
	// Another word on the same tool takes the place of the first.
	o.expect(t, result{Stdout: `Tool:     get_invoice
Now:      Irreversible, by Override: because
Will be:  Reversible: a call needs approval, until the tool has earned autonomy and is promoted

ToolPolicy billing:
  spec.tiers[1] is changed from:
    reason: because
    tier: Irreversible
    tools: [get_invoice]
  spec.tiers[1] is changed to:
    reason: because
    tier: Reversible
    tools: [get_invoice]

toolpolicy.tidewaiter.dev/billing configured
`}, o.governor, setTier("get_invoice", "Reversible")...)
	want := v1alpha1.ToolPolicySpec{Targets: []string{"billing"}, Tiers: []v1alpha1.TierOverride{
		{Tool: "send_invoice", Digest: fixture.Digest("3"), Tier: v1alpha1.TierReversible, Reason: "because"},
		{Tools: []string{"get_invoice"}, Tier: v1alpha1.TierReversible, Reason: "because"},
	}}
	o.expectSpec(t, "billing", want)

	// What a stricter word overrules is refused, and so is who may not govern.
	o.apply(t, o.owner, `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: strict}
spec:
  targets: [billing]
  tiers: [{tools: ["void_*"], tier: Irreversible, reason: never}]
`)
	o.expect(t, result{Exit: 1, Stderr: "error: nothing was changed: void_invoice would not become Read on billing: void_invoice is Irreversible by ToolPolicy/strict spec.tiers[0] (StricterHolds)\n"},
		o.governor, setTier("void_invoice", "Read")...)
	if got := o.run(t, o.editor, setTier("update_invoice", "Read")...); got.Exit != 1 || !strings.Contains(got.Stderr, "needs the verb govern") {
		t.Errorf("without govern: exit %d, %s", got.Exit, got.Stderr)
	}
	o.expectSpec(t, "billing", want)
}

func TestWhatIsNotUnderstoodIsSaid(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for want, args := range map[string][]string{
		"error: name the ToolPolicy to write: --policy NAME; one that does not exist is made\nSee 'kubectl tidewaiter promote --help'.\n": {"promote", "billing", "refund_invoice"},
		"error: give the name of a GovernedServer and of one of its tools; 1 name was given\nSee 'kubectl tidewaiter revoke --help'.\n":   {"revoke", "billing", "--policy", "p"},
		"error: the tier \"Safe\" is none of Read, Reversible and Irreversible\nSee 'kubectl tidewaiter set-tier --help'.\n":              {"set-tier", "billing", "get_invoice", "Safe", "--policy", "p", "--reason", "r"},
		"error: say why, for those who read the policy later: --reason TEXT\nSee 'kubectl tidewaiter set-tier --help'.\n":                 {"set-tier", "billing", "get_invoice", "Read", "--policy", "p", "--reason", " "},
		"error: --watch goes with a table: give -o table or -o wide\nSee 'kubectl tidewaiter tools --help'.\n":                            {"tools", "billing", "-w", "-o", "json"},
		"error: give the name of one GovernedServer; none was given\nSee 'kubectl tidewaiter tools --help'.\n":                            {"tools"},
	} {
		o.expect(t, result{Exit: 2, Stderr: want}, o.owner, args...)
	}
	o.expect(t, result{Exit: 1, Stderr: "error: there is no GovernedServer bills in namespace NAMESPACE; those that are there: kubectl get gsrv -n NAMESPACE\n"}, o.owner, "tools", "bills")
}

func TestToolsShowsTiersEvidenceAndRecords(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.expect(t, result{Stdout: `TOOL             TIER           SOURCE   AUTONOMY       APPROVED   FAILED   DENIED   AMBIGUOUS   REASON
get_invoice      Read           Name     None           0          0        0        0           the verb "get" reads
refund_invoice   Reversible     Name     Eligible       4          1        0        0           the verb "refund" can be undone
send_invoice     Irreversible   Name     Forbidden      0          0        0        0           the verb "send" cannot be undone
update_invoice   Reversible     Name     None           2          0        0        0           the verb "update" can be undone
void_invoice     Reversible     Name     Disqualified   9          0        1        0           the verb "void" can be undone
`}, o.owner, "tools", "billing")
	o.expect(t, result{Stdout: "get_invoice\nrefund_invoice\nsend_invoice\nupdate_invoice\nvoid_invoice\n"}, o.owner, "tools", "billing", "-o", "name")
	var list struct {
		APIVersion, Kind string
		Items            []map[string]any
	}
	if err := json.Unmarshal([]byte(o.run(t, o.owner, "tools", "billing", "-o", "json").Stdout), &list); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"server": "billing", "tool": "refund_invoice", "tier": "Reversible", "classifiedTier": "Reversible", "source": "Name",
		"reason": `the verb "refund" can be undone`, "autonomy": "Eligible", "approved": 4.0, "failed": 1.0, "denied": 0.0, "ambiguous": 0.0,
		"digest": "sha256:2*64",
	}
	if diff := cmp.Diff(want, list.Items[1]); diff != "" || list.Kind != "ToolList" || list.APIVersion != "cli.tidewaiter.dev/v1alpha1" || len(list.Items) != 5 {
		t.Errorf("%s %s with %d items (-want +got):\n%s", list.APIVersion, list.Kind, len(list.Items), diff)
	}
}

func TestTrustSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	if got := o.run(t, o.owner, "promote", "billing", "refund_invoice", "--policy", "billing"); got.Exit != 0 {
		t.Fatal(got.Stderr)
	}
	o.judge(t)
	o.expect(t, result{Stdout: `SERVER    TOOL             TIER           AUTONOMY       CLEAN   PROMOTED BY   NEXT
billing   refund_invoice   Reversible     Unattended     4/3     billing       runs without a person; to take it back: kubectl tidewaiter revoke billing refund_invoice --policy billing -n NAMESPACE
billing   send_invoice     Irreversible   Forbidden      0/3     -             send_invoice is Irreversible: every call needs approval, whatever its record
billing   update_invoice   Reversible     None           2/3     -             update_invoice has 2 of 3 clean approvals for this definition and endpoint
billing   void_invoice     Reversible     Disqualified   9/3     -             a person denied a call of it: it never runs unattended
`}, o.owner, "trust", "-o", "wide")
	o.expect(t, result{Stdout: `apiVersion: cli.tidewaiter.dev/v1alpha1
items:
- autonomy: Unattended
  clean: 4
  needed: 3
  promotions:
  - digest: sha256:2*64
    field: spec.autonomy[0]
    inForce: true
    policy: billing
  server: billing
  tier: Reversible
  tool: refund_invoice
kind: TrustList
`}, o.owner, "trust", "billing", "refund_invoice", "-o", "yaml")
	o.expect(t, result{Stdout: "billing/refund_invoice\nbilling/send_invoice\nbilling/update_invoice\nbilling/void_invoice\n"}, o.owner, "trust", "billing", "-o", "name")
	o.expect(t, result{Exit: 1, Stderr: "error: get_invoice is Read on billing: its calls run without a person, and there is nothing to earn\n"},
		o.owner, "trust", "billing", "get_invoice")

	o.expect(t, result{Exit: 1, Stderr: "error: billing lists no tool nope; those it lists: kubectl tidewaiter tools billing -n NAMESPACE\n"},
		o.owner, "trust", "billing", "nope")
	if got := o.run(t, o.owner, "trust", "billing", "void_invoice"); !strings.Contains(got.Stdout, "Autonomy:  Disqualified: a person denied a call of it: it never runs unattended\n") {
		t.Error(got.Stdout)
	}

	// What the manager has not looked at is not in force as far as anybody knows.
	if got := o.run(t, o.owner, "set-tier", "billing", "update_invoice", "Irreversible", "--policy", "billing", "--reason", "r"); got.Exit != 0 {
		t.Fatal(got.Stderr)
	}
	if got := o.run(t, o.owner, "trust", "billing", "refund_invoice"); !strings.Contains(got.Stdout, "the manager has not judged this version of the policy yet") {
		t.Error(got.Stdout)
	}
}

func TestWhatMayBeOldIsSaid(t *testing.T) {
	t.Parallel()
	unready := func(s *v1alpha1.GovernedServer) {
		s.Status.Conditions[0].Status, s.Status.Conditions[0].Reason = metav1.ConditionFalse, v1alpha1.ReasonUnreachable
		s.Status.Conditions[0].Message = "Nobody answers\x1b[2J"
	}
	o := newOffice(t, unready)
	want := "Warning: billing is not ready (Unreachable): Nobody answers\\u001b[2J\n"
	for _, args := range [][]string{
		{"tools", "billing"}, {"trust"}, {"promote", "billing", "refund_invoice", "--policy", "p"}, {"revoke", "billing", "refund_invoice", "--policy", "p"},
	} {
		if got := o.run(t, o.owner, args...); got.Exit != 0 || got.Stderr != want {
			t.Errorf("%s: exit %d, %s", args[0], got.Exit, got.Stderr)
		}
	}
}

func TestToolsOfAnEarlierEndpointCannotBeJudged(t *testing.T) {
	t.Parallel()
	o := newOffice(t, func(s *v1alpha1.GovernedServer) { s.Status.EndpointDigest = fixture.Digest("6") })
	for _, args := range [][]string{
		{"promote", "billing", "refund_invoice"}, {"revoke", "billing", "refund_invoice"}, {"set-tier", "billing", "get_invoice", "Irreversible", "--reason", "r"},
	} {
		o.expect(t, result{Exit: 1, Stderr: "error: nothing was changed: billing was not listed yet at the endpoint that it has now; " +
			"kubectl describe gsrv billing -n NAMESPACE says why\n"}, o.owner, append(args, "--policy", "billing")...)
	}
	o.expectNone(t)
}

// Many people set policy at once: nobody's entry is lost.
func TestEntriesWrittenAtOnceAreAllKept(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	tools := []string{"refund_invoice", "send_invoice", "update_invoice", "void_invoice"}
	for round := range 5 {
		policy := fmt.Sprintf("p%d", round)
		var group sync.WaitGroup
		exits := make([]result, len(tools))
		for i, tool := range tools {
			group.Go(func() { exits[i] = o.run(t, o.owner, "revoke", "billing", tool, "--policy", policy) })
		}
		group.Wait()
		kept := map[string]bool{}
		for _, a := range o.spec(t, policy).Autonomy {
			kept[a.Tool] = true
		}
		for i, tool := range tools {
			if done := exits[i].Exit == 0; done != kept[tool] || !done {
				t.Errorf("%s of %s: exit %d, kept %v: %s", tool, policy, exits[i].Exit, kept[tool], exits[i].Stderr)
			}
		}
	}
}

func TestWatchingShowsToolsThatChange(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- cli.Run(ctx, []string{"kubectl-tidewaiter", "tools", "billing", "-w", "--kubeconfig", plane.Kubeconfig(t, o.owner), "-n", o.namespace},
			genericiooptions.IOStreams{In: strings.NewReader(""), Out: writer, ErrOut: io.Discard})
		writer.Close()
	}()
	lines := make(chan string, 64)
	go func() {
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			lines <- scanner.Text()
		}
		close(lines)
	}()
	for range 6 {
		<-lines
	}
	var server v1alpha1.GovernedServer
	if err := o.manager.Get(t.Context(), client.ObjectKey{Namespace: o.namespace, Name: "billing"}, &server); err != nil {
		t.Fatal(err)
	}
	before := server.DeepCopy()
	server.Status.Records[1].Approved = 3
	server.Status.Records[1].Autonomy = v1alpha1.AutonomyEligible
	if err := o.manager.Status().Patch(t.Context(), &server, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if line := strings.Fields(<-lines); len(line) < 5 || strings.Join(line[:5], " ") != "update_invoice Reversible Name Eligible 3" {
		t.Errorf("changed tool: %q", line)
	}
	stop()
	if exit := <-done; exit != 0 {
		t.Errorf("exit %d after it was stopped", exit)
	}
}

// The calls that earned a promotion are shown as people approved them, from their votes to their arguments.
func TestPromotionShowsWhatEarnedIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	endpoint, err := tool.EndpointDigest(s.server.Spec.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	before := s.server.DeepCopy()
	s.server.Status = v1alpha1.GovernedServerStatus{
		EndpointDigest: endpoint,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: "Ready", LastTransitionTime: metav1.Now(),
		}},
		Tools: []v1alpha1.ToolStatus{{
			Name: "lift_box", ClassifiedTier: v1alpha1.TierReversible, Tier: v1alpha1.TierReversible, Source: v1alpha1.TierSourceName, Digest: fixture.Digest("0"),
		}},
		Records: []v1alpha1.ToolRecord{{Tool: "lift_box", Digest: fixture.Digest("0"), EndpointDigest: endpoint, Approved: 3, Autonomy: v1alpha1.AutonomyEligible}},
	}
	if err := s.manager.Status().Patch(t.Context(), s.server, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	for i, arguments := range []string{`{"box":"7","kg":40}`, `{"box":"9","kg":12.5}`, `{"box":"7","kg":90}`, `{"box":"7","kg":9000}`} {
		name := fmt.Sprintf("cranes-%d", i)
		s.ask(t, name, func(r *v1alpha1.ApprovalRequest) { r.Spec.Arguments, r.Spec.EndpointDigest = arguments, endpoint })
		if got := s.run(t, s.anaFile, nil, "kubectl-approve", name); got.exit != 0 {
			t.Fatal(got.stderr)
		}
		if i == 3 {
			continue // approved, and not executed: it earned nothing yet
		}
		s.claim(t, name, time.Minute)
		var request v1alpha1.ApprovalRequest
		if err := s.gateway.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, &request); err != nil {
			t.Fatal(err)
		}
		now := metav1.NowMicro()
		request.Status.Phase, request.Status.Execution.Outcome, request.Status.Execution.FinishedAt = v1alpha1.PhaseSucceeded, v1alpha1.OutcomeSucceeded, &now
		if err := s.gateway.Status().Update(t.Context(), &request); err != nil {
			t.Fatal(err)
		}
	}
	owner := plane.User(t, "owner-"+s.namespace)
	plane.Grant(t, s.namespace, owner, fixture.Rule("toolpolicies", "get", "list", "create"), fixture.Rule("governedservers", "get"),
		fixture.Authority("cranes", v1alpha1.VerbGovern, v1alpha1.VerbPromote))
	promote := []string{"kubectl-tidewaiter", "promote", "cranes", "lift_box", "--policy", "cranes", "--dry-run=server"}
	// Without the right to read baselines and requests the promotion works, and the person is told what is left out.
	blind := s.run(t, plane.Kubeconfig(t, owner), nil, promote...)
	for _, warning := range []string{
		"Warning: baselines are not counted: toolpolicies.tidewaiter.dev is forbidden: ",
		"Warning: the calls that earned it cannot be shown: approvalrequests.tidewaiter.dev is forbidden: ",
	} {
		if blind.exit != 0 || strings.Count(blind.stderr, warning) != 1 {
			t.Errorf("exit %d, no %q in: %s", blind.exit, warning, blind.stderr)
		}
	}
	plane.Grant(t, s.namespace, owner, fixture.Rule("approvalrequests", "list"))
	plane.Grant(t, fixture.SystemNamespace, owner, fixture.Rule("toolpolicies", "list"))
	got := s.run(t, plane.Kubeconfig(t, owner), nil, promote...)
	want := output{stdout: `Tool:         lift_box of cranes, Reversible
Definition:   ` + fixture.Digest("0") + `
Record:       3 clean approvals (3 needed), 0 failed, 0 denied
Stored:       3 of these calls, from THEN to THEN
Approved by:  ana-NAMESPACE (3)
What was said yes to; the promotion is not bound to it:
  ARGUMENT   CALLS   VALUES
  box        3       2 different
  kg         3       12.5 to 90

ToolPolicy cranes:
  spec.autonomy[0] is added:
    digest: ` + fixture.Digest("0") + `
    mode: Unattended
    tool: lift_box

toolpolicy.tidewaiter.dev/cranes created (server dry run)
`}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(output{})); diff != "" {
		t.Errorf("promote (-want +got):\n%s", diff)
	}

	// A denial that the record does not hold yet counts at once.
	s.ask(t, "cranes-9", func(r *v1alpha1.ApprovalRequest) { r.Spec.EndpointDigest = endpoint })
	if got := s.run(t, s.anaFile, nil, "kubectl-deny", "cranes-9"); got.exit != 0 {
		t.Fatal(got.stderr)
	}
	if got := s.run(t, plane.Kubeconfig(t, owner), nil, promote...); got.exit != 1 || !strings.Contains(got.stderr, "a person denied a call of lift_box") {
		t.Errorf("after a denial: exit %d, %s", got.exit, got.stderr)
	}
}

// What a baseline says counts in every verb that judges; a person who cannot read baselines is told so, and a baseline is
// never edited.
func TestBaselinesCountInEveryVerb(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	baseline := v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: fixture.SystemNamespace, Name: "money-" + o.namespace},
		Spec: v1alpha1.ToolPolicySpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: o.namespace}},
			Tiers:             []v1alpha1.TierOverride{{Tools: []string{"refund_*"}, Tier: v1alpha1.TierIrreversible, Reason: "money is gone"}},
		},
	}
	if err := o.admin.Create(t.Context(), &baseline); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.admin.Delete(context.WithoutCancel(t.Context()), &baseline); err != nil {
			t.Error(err)
		}
	})
	const trust = `SERVER    TOOL             TIER           AUTONOMY       CLEAN   PROMOTED BY   NEXT
billing   refund_invoice   Irreversible   Forbidden      4/3     -             refund_invoice is Irreversible: every call needs approval, whatever its record
`
	got := o.run(t, o.owner, "trust", "billing")
	if lines := strings.SplitAfterN(got.Stdout, "\n", 3); got.Exit != 0 || got.Stderr != "" || len(lines) < 3 || lines[0]+lines[1] != trust {
		t.Errorf("trust: exit %d, %s\n%s", got.Exit, got.Stderr, got.Stdout)
	}
	o.expect(t, result{
		Exit:   1,
		Stderr: "error: nothing was changed: refund_invoice would not run unattended on billing: refund_invoice is Irreversible: every call needs approval, whatever its record (Irreversible)\n",
	}, o.owner, "promote", "billing", "refund_invoice", "--policy", "billing")
	got = o.run(t, o.owner, "set-tier", "billing", "refund_invoice", "Reversible", "--policy", "billing", "--reason", "it can be charged again")
	if got.Exit != 1 || !strings.Contains(got.Stderr, "refund_invoice would not become Reversible on billing") {
		t.Errorf("set-tier: exit %d, %s", got.Exit, got.Stderr)
	}
	o.expectNone(t)

	// Who may not read the operator's namespace is told what the answer leaves out.
	blind := plane.User(t, "blind-"+o.namespace)
	plane.Grant(t, o.namespace, blind, fixture.Rule("governedservers", "get"), fixture.Rule("toolpolicies", "list"))
	got = o.run(t, blind, "trust", "billing")
	warning := fmt.Sprintf("Warning: baselines are not counted: toolpolicies.tidewaiter.dev is forbidden: User %q cannot list resource %q in API group %q "+
		"in the namespace %q; what is in force can be stricter than what follows\n", "blind-NAMESPACE", "toolpolicies", "tidewaiter.dev", fixture.SystemNamespace)
	if got.Exit != 0 || got.Stderr != warning || !strings.Contains(got.Stdout, "refund_invoice   Reversible") {
		t.Errorf("who is blind: exit %d, %s\n%s", got.Exit, got.Stderr, got.Stdout)
	}
}
