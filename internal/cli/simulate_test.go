// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kyaml "sigs.k8s.io/yaml"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// record writes receipts as a gateway does, a minute between them, and returns their file.
func record(t testing.TB, receipts ...receipt.Receipt) string {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(made)
	path := filepath.Join(t.TempDir(), "receipts.jsonl")
	w, err := receipt.Open(receipt.Options{Path: path, Gateway: "gateway-0", Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range receipts {
		clock.SetTime(clock.Now().Add(time.Minute))
		if _, err := w.Append(r, receipt.Sync); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// decided is a receipt of a decision on a call of a tool of shop/billing.
func decided(tool, digit string, verdict receipt.Verdict, code, by string, edits ...func(*receipt.Receipt)) receipt.Receipt {
	return *fixture.With(receipt.Receipt{
		Kind: receipt.KindDecision, CallID: "c", Namespace: "shop", Server: "billing", EndpointDigest: fixture.Digest("e"), Tool: tool,
		ToolDigest: fixture.Digest(digit), Tier: "Reversible", Verdict: verdict, Code: code, GatedBy: by, Requester: "crew", Groups: []string{"night"},
	}, edits...)
}

func asked(uid string) func(*receipt.Receipt) {
	return func(r *receipt.Receipt) { r.Request, r.RequestUID = "billing-"+uid, uid }
}

const inForcePolicy = `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: payments, namespace: shop}
spec:
  targets: [billing]
  rules:
  - {name: cheap, tools: [pay], when: args.amount < 100, decision: Allow}
  - {name: voids, tools: ["void_*"], decision: Allow}
  - {name: halt, tools: [stop], decision: Deny, message: not now}
`

const proposedPolicy = `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: payments}
spec:
  targets: [billing]
  rules:
  - {name: no-voids, tools: ["void_*"], decision: Deny}
  - {name: cheap, tools: [pay], when: args.amount < 100, decision: Allow}
  - {name: finance, tools: [send], subjects: [{kind: Group, name: finance}], decision: Deny}
  - {name: two-eyes, tools: [refund], decision: RequireApproval, approvals: {required: 2, verb: approve-finance}}
  - {name: big, tools: [move], when: args.amount > 10, decision: Deny}
  - {name: halt, tools: [stop], decision: Deny, message: never again}
`

// simulation runs simulate over a cluster with one server and the policy in force.
func simulation(t *testing.T, edit func(*simulateOptions), receipts ...string) (stdout, stderr string, err error) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var inForce v1alpha1.ToolPolicy
	if err := kyaml.Unmarshal([]byte(inForcePolicy), &inForce); err != nil {
		t.Fatal(err)
	}
	server := listing("pay", "1")
	server.Spec.Mode = v1alpha1.ModeStopped // says nothing about policies
	path := filepath.Join(t.TempDir(), "payments.yaml")
	if err := os.WriteFile(path, []byte(proposedPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	s := &session{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, namespace: "shop", operatorNamespace: "tidewaiter-system",
		client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(server, &inForce).WithStatusSubresource(server).Build(),
	}
	o := &simulateOptions{session: s, files: []string{path}, receipts: receipts, output: "text"}
	if edit != nil {
		edit(o)
	}
	err = o.run(t.Context())
	for i, file := range receipts {
		name := fmt.Sprintf("FILE%d", i)
		out, errOut = *bytes.NewBufferString(strings.ReplaceAll(out.String(), file, name)), *bytes.NewBufferString(strings.ReplaceAll(errOut.String(), file, name))
	}
	return out.String(), errOut.String(), err
}

func TestSimulateListsWhatWouldHaveBeenDecidedOtherwise(t *testing.T) {
	t.Parallel()
	irreversible := func(r *receipt.Receipt) { r.Tier = "Irreversible" }
	file := record(t,
		decided("void_invoice", "2", receipt.VerdictAllow, "RuleAllowed", "ToolPolicy/payments rule voids"),
		decided("pay", "1", receipt.VerdictAllow, "RuleAllowed", "ToolPolicy/payments rule cheap"),
		decided("refund", "3", receipt.VerdictRequireApproval, "ApprovalPending", "tier", asked("u1")),
		decided("refund", "3", receipt.VerdictRequireApproval, "ApprovalPending", "tier", asked("u1")),
		decided("refund", "3", receipt.VerdictAllow, "Approved", "tier", asked("u1")),
		receipt.Receipt{Kind: receipt.KindOutcome, CallID: "c", Outcome: "Succeeded"},
		decided("move", "4", receipt.VerdictDeny, "ApprovalDenied", "tier", asked("u2")),
		decided("send", "5", receipt.VerdictRequireApproval, "ApprovalPending", "tier", asked("u3"), irreversible),
		decided("send", "5", receipt.VerdictRequireApproval, "ApprovalPending", "tier", asked("u4"), irreversible, func(r *receipt.Receipt) { r.Groups = nil }),
		decided("void_invoice", "2", receipt.VerdictAllow, "Observed", "", func(r *receipt.Receipt) {
			r.Observed = &receipt.Observed{Verdict: receipt.VerdictRequireApproval, Code: "ApprovalRequired", GatedBy: "tier"}
			r.ActsFor = "ana\x1b[2J"
		}),
		decided("stop", "6", receipt.VerdictAllow, "Unattended", "ToolPolicy/old spec.autonomy[0]"),
		decided("pay", "1", receipt.VerdictDeny, "PolicyStale", "tier"),
		decided("pay", "1", receipt.VerdictDeny, "ServerStopped", "spec.mode of the server"),
		decided("ghost", "7", receipt.VerdictDeny, "ToolUnknown", "", func(r *receipt.Receipt) { r.Tier, r.ToolDigest = "", "" }),
		decided("pay", "1", receipt.VerdictAllow, "ReadTool", "tier", func(r *receipt.Receipt) { r.Server = "ledger" }),
		decided("", "", receipt.VerdictDeny, "MethodDenied", "", func(r *receipt.Receipt) { r.Method = "resources/read" }),
	)
	stdout, stderr, err := simulation(t, nil, file)
	want := `2031-02-03T04:06:06Z shop/billing void_invoice by crew: Allow (ToolPolicy/payments rule voids) -> Deny (ToolPolicy/payments rule no-voids)
2031-02-03T04:08:06Z shop/billing refund by crew: RequireApproval (tier) -> RequireApproval (ToolPolicy/payments rule two-eyes), 2 approvals with approve and approve-finance
2031-02-03T04:12:06Z shop/billing move by crew: RequireApproval (tier) -> cannot tell, from RequireApproval to Deny: ToolPolicy/payments rule big: depends on arguments that are not known
2031-02-03T04:14:06Z shop/billing send by crew: RequireApproval (tier) -> cannot tell, from RequireApproval to RequireApproval: a policy looks at groups, and the receipt does not have all of the requester's
2031-02-03T04:15:06Z shop/billing void_invoice by crew for ana\u001b[2J: RequireApproval (tier) -> Deny (ToolPolicy/payments rule no-voids)

Would have denied 2, asked for 1, let through 0, of 15 decisions on record.
     2  cannot tell: it depends on what the receipts do not keep
     1  would have been decided as they were
     1  the policies in force now decide otherwise already, as the proposed ones would
     1  of tools of which the proposed policies say what those in force say
     2  sent again: a call that people were asked about counts once
     1  left out, since no policy decided them: NoToolCall
     1  left out, since no policy decided them: PolicyStale
     1  left out, since no policy decided them: ServerNotKnown
     1  left out, since no policy decided them: ServerStopped
     1  left out, since no policy decided them: ToolUnknown
Not taken into account:
  modes of servers do not count; minimumTier, pinning, instructions and the labels of namespaces are those of now
  what had been accepted of a definition, and whether a gateway was cut off, is not on record: such refusals are left out
`
	if diff := cmp.Diff(want, stdout); diff != "" || stderr != "" || err != nil {
		t.Errorf("%v, %s(-want +got):\n%s", err, stderr, diff)
	}

	stdout, _, err = simulation(t, func(o *simulateOptions) { o.output = "json" }, file)
	var document struct {
		APIVersion, Kind string
		Changes          []change
		Summary          summary
	}
	if wrong := json.Unmarshal([]byte(stdout), &document); wrong != nil || err != nil {
		t.Fatalf("%v, %v in\n%s", wrong, err, stdout)
	}
	wantFirst := change{
		Time: made.Add(time.Minute), Namespace: "shop", Server: "billing", Tool: "void_invoice", Requester: "crew", Was: "Allow", WasBy: "ToolPolicy/payments rule voids",
		WouldBe: "Deny", WouldBeBy: "ToolPolicy/payments rule no-voids", File: "FILE0", Seq: 2,
	}
	if diff := cmp.Diff(wantFirst, document.Changes[0]); diff != "" || len(document.Changes) != 5 || document.Summary.Denied != 2 || document.Kind != "Simulation" {
		t.Errorf("%d changes, %+v, the first (-want +got):\n%s", len(document.Changes), document.Summary, diff)
	}
}

// What a person wrote over, or cut out of, a file is told before anything is said about its calls.
func TestSimulateReplaysNoBrokenChain(t *testing.T) {
	t.Parallel()
	whole := record(t, decided("void_invoice", "2", receipt.VerdictAllow, "RuleAllowed", "tier"), decided("void_invoice", "2", receipt.VerdictDeny, "RuleDenied", "tier"))
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken.jsonl")
	if err := os.WriteFile(broken, append(bytes.Replace(text, []byte(`"requester":"crew"`), []byte(`"requester":"eve"`), 1), "no receipt\n{\"torn"...), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := simulation(t, nil, whole, broken)
	if stdout != "" || stderr != "" || exitCode(unasked(err)) != 1 ||
		!strings.Contains(err.Error(), "IS BROKEN: 3 faults, the first in line 2: Altered: receipt 2 does not fit its own hash\n") {
		t.Errorf("a broken chain: %v\n%s%s", err, stderr, stdout)
	}
	stdout, stderr, err = simulation(t, func(o *simulateOptions) { o.acceptBroken = true }, whole, broken)
	const warning = "Warning: THE CHAIN OF FILE1 IS BROKEN: 3 faults, the first in line 2: Altered: receipt 2 does not fit its own hash; what can be read of it is replayed, and proves nothing\n"
	if err != nil || stderr != warning || !strings.Contains(stdout, "void_invoice by eve: Allow") || !strings.Contains(stdout, "1  lines are no receipts\n") {
		t.Errorf("accepted: %v\n%s%s", err, stderr, stdout)
	}
	if _, _, err := simulation(t, nil, whole, filepath.Join(t.TempDir(), "absent")); exitCode(unasked(err)) != 2 {
		t.Errorf("a file that is not there: %v", err)
	}
}

// Without a cluster the files are all there is, and a dump of the tools says what receipts do not keep.
func TestSimulateOfflineJudgesByTheFilesAlone(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	server := write("server.yaml", "apiVersion: tidewaiter.dev/v1alpha1\nkind: GovernedServer\nmetadata: {name: billing, namespace: shop}\nspec:\n  endpoint: {url: https://billing.example/mcp}\n")
	policies := write("policy.yaml", `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: payments, namespace: shop}
spec:
  targets: [billing]
  rules:
  - {name: destroyers, tools: ["*"], when: has(tool.annotations.destructiveHint) && tool.annotations.destructiveHint, decision: Deny}
  autonomy:
  - {tool: list_files, mode: Unattended, digest: "`+fixture.Digest("1")+`"}
`)
	dump := write("tools.json", `{"tools":[{"name":"list_files","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}}]}`)
	o := &simulateOptions{session: &session{}, tools: dump}
	known, err := o.readTools()
	if err != nil || len(known) != 1 {
		t.Fatal(err, known)
	}
	digest := ""
	for key := range known {
		digest = key[1]
	}
	file := record(t,
		decided("list_files", "", receipt.VerdictAllow, "ReadTool", "tier", func(r *receipt.Receipt) { r.Tier, r.ToolDigest = "Read", digest }),
		decided("list_files", "1", receipt.VerdictAllow, "Unattended", "ToolPolicy/payments spec.autonomy[0]"),
		decided("list_files", "1", receipt.VerdictAllow, "ReadTool", "tier", func(r *receipt.Receipt) { r.Namespace = "elsewhere" }),
	)
	var out, errOut bytes.Buffer
	code := Run(t.Context(), []string{
		"kubectl-tidewaiter", "simulate", "--offline", "-f", server, "-f", policies, "--receipts", file, "--tools", dump, "--kubeconfig", write("none", ""),
	}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	const want = `2031-02-03T04:06:06Z shop/billing list_files by crew: Allow (tier) -> Deny (ToolPolicy/payments rule destroyers)
2031-02-03T04:07:06Z shop/billing list_files by crew: Allow (ToolPolicy/payments spec.autonomy[0]) -> cannot tell, from Allow to Allow: a policy looks at the annotations of the tool, and its definition of then is not known; give it with --tools

Would have denied 1, asked for 0, let through 0, of 3 decisions on record.
     1  cannot tell: it depends on what the receipts do not keep
     1  left out, since no policy decided them: ServerNotKnown
Not taken into account:
  modes of servers do not count; minimumTier, pinning, instructions and the labels of namespaces are those of now
  what had been accepted of a definition, and whether a gateway was cut off, is not on record: such refusals are left out
  records of tools are not those of now: a promotion counts for calls that ran unattended then, and for no other
  policies and baselines that are not in the files do not count
`
	if diff := cmp.Diff(want, out.String()); diff != "" || code != 0 {
		t.Errorf("exit %d, %s(-want +got):\n%s", code, errOut.String(), diff)
	}
}

// However long the files are, what is remembered of a line is at most eight bytes, and of a tool its verdict.
func TestSimulateRemembersLittle(t *testing.T) {
	t.Parallel()
	r := newReplay(manifests{}, nil, &world{session: &session{}, offline: true}, &textReport{out: &bytes.Buffer{}})
	for i := range 2 * maxJudges {
		line := decided(fmt.Sprint("tool", i), "1", receipt.VerdictAllow, "ReadTool", "tier")
		g := governed{object: listing()}
		r.world.servers = map[client.ObjectKey]*governed{{Namespace: "shop", Name: "billing"}: &g}
		if err := r.take(t.Context(), recorded{Receipt: line}); err != nil {
			t.Fatal(err)
		}
	}
	if r.judges.Len() != maxJudges || r.summary.Decisions != 2*maxJudges {
		t.Errorf("%d judges after %d decisions", r.judges.Len(), r.summary.Decisions)
	}
	if len(r.asked) != 0 {
		t.Errorf("%d requests are remembered, and none was asked about", len(r.asked))
	}
}

// Whatever stands in a file, each line is replayed, counted or refused; nothing panics.
func TestSimulateIsNotStoppedByWhatStrangersWrote(t *testing.T) {
	t.Parallel()
	w := &world{session: &session{client: strict(t)}}
	r := newReplay(manifests{}, nil, w, &textReport{out: &bytes.Buffer{}})
	for _, key := range []client.ObjectKey{{Namespace: "shop", Name: "../secrets"}, {Namespace: "a/b", Name: "billing"}, {Namespace: "shop"}, {Name: "billing"}} {
		line := decided("pay", "1", receipt.VerdictAllow, "ReadTool", "tier", func(r *receipt.Receipt) { r.Namespace, r.Server = key.Namespace, key.Name })
		if err := r.take(t.Context(), recorded{Receipt: line}); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	if n := r.summary.LeftOut["ServerNotKnown"]; n != 4 {
		t.Errorf("%d of 4 servers are not known", n)
	}
	for i := range 3 * maxCodes {
		line := decided("pay", "", receipt.VerdictDeny, fmt.Sprint(i, strings.Repeat("x", 1000)), "")
		line.ToolDigest = ""
		if err := r.take(t.Context(), recorded{Receipt: line}); err != nil {
			t.Fatal(err)
		}
	}
	for code := range r.summary.LeftOut {
		if len(code) > 64 {
			t.Errorf("a code of %d bytes is remembered", len(code))
		}
	}
	if n := len(r.summary.LeftOut); n > maxCodes+1 || r.summary.Decisions != 4+3*maxCodes {
		t.Errorf("%d codes are remembered of %d decisions", n, r.summary.Decisions)
	}
}

// strict is a client that refuses names as the real one does, before it asks.
func strict(t *testing.T) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("GovernedServer"), meta.RESTScopeNamespace)
	c, err := client.NewWithWatch(&rest.Config{Host: "http://127.0.0.1:1"}, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func FuzzReplay(f *testing.F) {
	text, err := os.ReadFile(record(f, decided("void_invoice", "2", receipt.VerdictAllow, "RuleAllowed", "tier"), decided("refund", "3", receipt.VerdictDeny, "RuleDenied", "x", asked("u"))))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("{}\nnull\n[\n\xff\n"))
	var p v1alpha1.ToolPolicy
	if err := kyaml.Unmarshal([]byte(inForcePolicy), &p); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w := &world{session: &session{}, offline: true, servers: map[client.ObjectKey]*governed{}}
		set := policySet{objects: []v1alpha1.ToolPolicy{p}}
		w.servers[client.ObjectKey{Namespace: "shop", Name: "billing"}] = &governed{object: listing(), proposed: set, compiledProposed: parse(set.objects)}
		r := newReplay(manifests{}, nil, w, &jsonReport{out: &bytes.Buffer{}})
		lines := 0
		err := readRecords(bytes.NewReader(text), "receipts", func(line recorded) error {
			lines++
			return r.take(t.Context(), line)
		})
		if err != nil && !errors.Is(err, errLongLine) {
			t.Fatal(err)
		}
		if err := r.finish(); err != nil {
			t.Fatal(err)
		}
		s, left := r.summary, 0
		for _, n := range s.LeftOut {
			left += n
		}
		if sum := s.Denied + s.Asked + s.Allowed + s.CannotTell + s.Unchanged + s.Already + s.Untouched + s.Repeated + left; sum != s.Decisions || lines > bytes.Count(text, []byte("\n")) {
			t.Errorf("%d decisions, %d accounted for, %d lines", s.Decisions, sum, lines)
		}
	})
}
