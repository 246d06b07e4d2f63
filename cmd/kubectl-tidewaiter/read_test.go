// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/cli"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// table makes ages and the width of columns stable.
func (o output) table() output {
	o.stdout = regexp.MustCompile(`\b\d+[ms](\d+s)?\b`).ReplaceAllString(o.stdout, "T")
	o.stdout = regexp.MustCompile(` {2,}`).ReplaceAllString(o.stdout, "  ")
	return o
}

func TestPendingListsWhatWaits(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	expectOutput(t, output{stderr: "Nothing waits for a decision in namespace NAMESPACE; -A looks in all.\n"}, s.run(t, s.anaFile, nil, "kubectl-tidewaiter", "pending"))
	s.ask(t, "cranes-b", func(r *v1alpha1.ApprovalRequest) { r.Spec.RequiredApprovals, r.Spec.Requester.ActsFor = 2, "olga" })
	s.ask(t, "cranes-a", func(r *v1alpha1.ApprovalRequest) {
		r.Spec.Tool, r.Labels = "lift_b\u043ex\x1b[2K", map[string]string{v1alpha1.ServerLabel: "cranes"}
	})
	s.ask(t, "cranes-0")
	for _, args := range [][]string{{"kubectl-approve", "cranes-b"}, {"kubectl-deny", "cranes-0"}} {
		if got := s.run(t, s.anaFile, nil, args...); got.exit != 0 {
			t.Fatal(got.stderr)
		}
	}
	list := func(args ...string) output {
		return s.run(t, s.benFile, nil, append([]string{"kubectl-tidewaiter", "pending"}, args...)...).table()
	}
	order := []string{"cranes-b", "cranes-a"}
	if s.read(t, "cranes-a").CreationTimestamp.Equal(&s.read(t, "cranes-b").CreationTimestamp) {
		order = []string{"cranes-a", "cranes-b"} // of one second
	}
	rows := map[string]string{
		"cranes-b": "cranes-b  cranes  lift_box  Reversible  1/2  T  T  crew\n",
		"cranes-a": `cranes-a  cranes  lift_b\u043ex\u001b[2K  Reversible  0/1  T  T  crew` + "\n",
	}
	const header = "NAME  SERVER  TOOL  TIER  VOTES  AGE  EXPIRES  REQUESTER\n"
	expectOutput(t, output{stdout: header + rows[order[0]] + rows[order[1]]}, list())
	expectOutput(t, output{stdout: header + rows["cranes-a"]}, list("-l", "tidewaiter.dev/server=cranes"))
	wide := list("-o", "wide", "-l", "!tidewaiter.dev/server")
	expectOutput(t, output{
		stdout: "NAME  SERVER  TOOL  TIER  VOTES  AGE  EXPIRES  REQUESTER  ACTS FOR  VERBS  BLAST RADIUS  ARGUMENTS\n" +
			`cranes-b  cranes  lift_box  Reversible  1/2  T  T  crew  olga  approve  Single: scoped to box="7"  {"box":"7"}` + "\n",
	}, wide)
	expectOutput(t, output{
		stdout: "approvalrequest.tidewaiter.dev/" + order[0] + "\napprovalrequest.tidewaiter.dev/" + order[1] + "\n",
	}, list("-o", "name"))
	for _, format := range []string{"json", "yaml"} {
		var data v1alpha1.ApprovalRequestList
		got := s.run(t, s.benFile, nil, "kubectl-tidewaiter", "pending", "-o", format)
		text := strings.ReplaceAll(got.stdout, "THEN", "2031-02-03T04:05:06Z")
		if err := yaml.Unmarshal([]byte(text), &data); err != nil || data.Kind != "List" || len(data.Items) != 2 || data.Items[0].Kind != "ApprovalRequest" {
			t.Errorf("%s: %v in\n%s", format, err, text)
		}
	}
	got := s.run(t, s.benFile, nil, "kubectl-tidewaiter", "pending", "-A")
	if got.exit != 1 || !strings.Contains(got.stderr, "You need the verb list: kubectl auth can-i list approvalrequests.tidewaiter.dev -A\n") {
		t.Errorf("in all namespaces: exit %d, %s", got.exit, got.stderr)
	}
	got = s.run(t, s.benFile, nil, "kubectl-tidewaiter", "pending", "--as", "bob")
	if got.exit != 1 || !strings.HasSuffix(got.stderr, "\nWith --as you act as bob: you need the verb impersonate on that user\n") {
		t.Errorf("as somebody else: exit %d, %s", got.exit, got.stderr)
	}
	all := s.run(t, plane.Kubeconfig(t, plane.Admin), nil, "kubectl-tidewaiter", "pending", "-A").table()
	if !strings.HasPrefix(all.stdout, "NAMESPACE  NAME  SERVER") || !strings.Contains(all.stdout, "NAMESPACE  "+rows["cranes-b"]) {
		t.Errorf("an administrator sees\n%s%s", all.stdout, all.stderr)
	}
	if got := list("-l", "a in"); got.exit != 2 || !strings.HasPrefix(got.stderr, "error: read the selector \"a in\": ") {
		t.Errorf("a wrong selector: exit %d, %s", got.exit, got.stderr)
	}
}

// With -w the list goes on: what comes, each vote, and the end, once each.
func TestPendingFollowsWhatComes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	done := make(chan int, 1)
	go func() {
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: writer, ErrOut: writer}
		done <- cli.Run(ctx, []string{"kubectl-tidewaiter", "pending", "-w", "--kubeconfig", s.anaFile, "-n", s.namespace}, streams)
		writer.Close()
	}()
	lines := make(chan string)
	go func() {
		defer close(lines)
		var text bytes.Buffer
		buffer := make([]byte, 4096)
		for {
			n, err := reader.Read(buffer)
			text.Write(buffer[:n])
			for {
				line, rest, found := bytes.Cut(text.Bytes(), []byte("\n"))
				if !found {
					break
				}
				lines <- output{stdout: string(line)}.table().stdout
				text = *bytes.NewBuffer(bytes.Clone(rest))
			}
			if err != nil {
				return
			}
		}
	}()
	expect := func(want string) {
		t.Helper()
		if got := strings.TrimSpace(<-lines); got != want {
			t.Fatalf("line %q, want %q", got, want)
		}
	}
	s.ask(t, "cranes-1", func(r *v1alpha1.ApprovalRequest) { r.Spec.RequiredApprovals = 2 })
	expect("NAME  SERVER  TOOL  TIER  PHASE  VOTES  AGE  EXPIRES  REQUESTER")
	expect("cranes-1  cranes  lift_box  Reversible  Pending  0/2  T  T  crew")
	if got := s.run(t, s.benFile, nil, "kubectl-approve", "cranes-1"); got.exit != 0 {
		t.Fatal(got.stderr)
	}
	expect("cranes-1  cranes  lift_box  Reversible  Pending  1/2  T  T  crew")
	if got := s.run(t, s.anaFile, nil, "kubectl-deny", "cranes-1"); got.exit != 0 {
		t.Fatal(got.stderr)
	}
	expect("cranes-1  cranes  lift_box  Reversible  Denied  1/2  T  T  crew")
	s.ask(t, "cranes-2")
	expect("cranes-2  cranes  lift_box  Reversible  Pending  0/1  T  T  crew")
	cancel()
	for line := range lines {
		t.Errorf("another line: %q", line)
	}
	if code := <-done; code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestDescribeBriefsWhoDecides(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	digest := "sha256:" + strings.Repeat("0", 64)
	endpoint, err := tool.EndpointDigest(s.server.Spec.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	before := s.server.DeepCopy()
	s.server.Status = v1alpha1.GovernedServerStatus{
		EndpointDigest: endpoint,
		Tools: []v1alpha1.ToolStatus{{
			Name: "lift_box", ClassifiedTier: v1alpha1.TierReversible, Tier: v1alpha1.TierReversible, Source: v1alpha1.TierSourceName,
			Reason: `the verb "lift" has an effect`, Digest: digest,
		}},
		Records: []v1alpha1.ToolRecord{{Tool: "lift_box", Digest: digest, EndpointDigest: endpoint, Approved: 2, Autonomy: v1alpha1.AutonomyNone}},
	}
	if err := s.manager.Status().Patch(t.Context(), s.server, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "pledge"},
		Spec: v1alpha1.ToolPolicySpec{
			Targets:  []string{"cranes"},
			Autonomy: []v1alpha1.AutonomyRule{{Tool: "lift_box", Digest: digest, Mode: v1alpha1.ModeUnattended}},
		},
	}
	if err := s.admin.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	s.ask(t, "cranes-1")
	if got := s.run(t, s.benFile, nil, "kubectl-approve", "cranes-1", "--reason", "fine"); got.exit != 0 {
		t.Fatal(got.stderr)
	}
	s.ask(t, "cranes-2", func(r *v1alpha1.ApprovalRequest) { r.Spec.Arguments = `{"box":9007199254740993}` })
	const want = `Request:       cranes-2 in namespace NAMESPACE
Server:        cranes
Tool:          lift_box
Tier:          Reversible, gated by tier
Blast radius:  Single: scoped to box="7"
Requester:     crew
Why:           the verb "lift" has an effect (Name)
Asked:         Ns ago, expires in Nm, at THEN
State:         cranes-2 is Pending until THEN
Takes:         approve on governedservers/cranes
You:           ana-NAMESPACE; you may decide
Record:        2 approved and succeeded, 0 failed, 0 denied, 0 of unknown outcome; autonomy None
A yes:         the call runs once, if the agent waits or sends it again by THEN
               if it succeeds, this is the third clean approval of 3: ToolPolicy/pledge spec.autonomy[0] then lets lift_box run unattended, and nobody is asked any more
A no:          deny refuses the same action until THEN, and takes autonomy from lift_box for good
               dismiss refuses it this time: the agent may ask again, and the tool keeps its record
Last time:     cranes-1, Ns ago, approved by ben-NAMESPACE, Approved
Difference:    ~ other, + new, - gone
  ~ /box: "7" -> 9007199254740993   <- a double reads 9.007199254740992e+15
Arguments:     11 bytes
  {
    "box": 9007199254740993   <- a double reads 9.007199254740992e+15
  }
Decide:        kubectl approve cranes-2 -n NAMESPACE --reason TEXT
               kubectl deny cranes-2 -n NAMESPACE --reason TEXT

`
	expectOutput(t, output{stdout: want}, s.run(t, s.anaFile, nil, "kubectl-tidewaiter", "describe", "cranes-2"))

	got := s.run(t, s.eliFile, nil, "kubectl-tidewaiter", "describe", "cranes-2")
	for _, line := range []string{
		"You:           eli-NAMESPACE; you may not decide: you lack approve\n",
		"Not read:      the server (governedservers.tidewaiter.dev \"cranes\" is forbidden: ",
		"               the policies (toolpolicies.tidewaiter.dev is forbidden: ",
	} {
		if !strings.Contains(got.stdout, line) {
			t.Errorf("eli is not told %q in\n%s", line, got.stdout)
		}
	}
	expectOutput(t, output{stdout: "approvalrequest.tidewaiter.dev/cranes-2\n"}, s.run(t, s.eliFile, nil, "kubectl-tidewaiter", "describe", "cranes-2", "-o", "name"))
	expectOutput(t, output{
		stdout: `{"box":9007199254740993}`,
	}, s.run(t, s.eliFile, nil, "kubectl-tidewaiter", "describe", "areq/cranes-2", "-o", "jsonpath={.spec.arguments}"))
}

func TestWhoamiTellsWhatAPersonMayDecide(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	plane.Grant(t, s.namespace, s.ben, fixture.Authority("winches", v1alpha1.VerbApproveIrreversible, v1alpha1.VerbPromote))
	winches := fixture.GovernedServer(s.namespace, "winches")
	if err := s.admin.Create(t.Context(), &winches); err != nil {
		t.Fatal(err)
	}
	who := func(file string, args ...string) output {
		got := s.run(t, file, nil, append([]string{"kubectl-tidewaiter", "whoami"}, args...)...).table()
		// A client certificate has an id of its own.
		got.stdout = regexp.MustCompile(`(?m)^authentication.kubernetes.io/.*\n`).ReplaceAllString(got.stdout, "")
		return got
	}
	const header = "SERVER  VOTE  APPROVE  APPROVE-IRREVERSIBLE  RESOLVE  GOVERN  PROMOTE\n"
	expectOutput(t, output{
		stdout: "User:  ben-NAMESPACE\nGroups:  system:authenticated\n\n" + header +
			"cranes  yes  yes  no  no  no  no\nwinches  yes  no  yes  no  no  yes\n",
	}, who(s.benFile))
	expectOutput(t, output{
		stdout: "User:  ana-NAMESPACE\nGroups:  system:authenticated\n\n" + header + "cranes  yes  yes  no  yes  no  no\n",
	}, who(s.anaFile, "cranes"))
	expectOutput(t, output{exit: 1, stderr: "error: there is no GovernedServer nope in namespace NAMESPACE; those that are there: kubectl get gsrv -n NAMESPACE\n"},
		who(s.anaFile, "nope"))
	expectOutput(t, output{stdout: "ana-NAMESPACE\n"}, who(s.anaFile, "-o", "name"))
	got := who(s.eliFile)
	if got.exit != 0 || !strings.HasSuffix(got.stderr, "name the servers to ask for: kubectl tidewaiter whoami SERVER\n") {
		t.Errorf("who may not list servers: exit %d, %s", got.exit, got.stderr)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal([]byte(who(s.anaFile, "-o", "json", "cranes").stdout), &list); err != nil || len(list.Items) != 7 {
		t.Errorf("%v; %d items", err, len(list.Items))
	}
}

// A ServiceAccount may hold every right and still have no vote.
func TestWhoamiTellsAServiceAccountWhetherItMayVote(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	winches := fixture.GovernedServer(s.namespace, "winches")
	winches.Spec.Approvals.AllowServiceAccounts = true
	if err := s.admin.Create(t.Context(), &winches); err != nil {
		t.Fatal(err)
	}
	const header = "SERVER  VOTE  APPROVE  APPROVE-IRREVERSIBLE  RESOLVE  GOVERN  PROMOTE\n"
	for namespace, want := range map[string]string{
		plane.Namespace(t): "cranes  no (ServiceAccount)  yes  no  no  no  no\nwinches  yes  yes  no  no  no  no\n",
		s.namespace:        "cranes  no (own namespace)  yes  no  no  no  no\nwinches  no (own namespace)  yes  no  no  no  no\n",
	} {
		account := plane.ServiceAccount(t, namespace, "clerk")
		plane.Grant(t, s.namespace, account, fixture.Authority("cranes", v1alpha1.VerbApprove), fixture.Authority("winches", v1alpha1.VerbApprove),
			fixture.Rule("approvalrequests/status", "patch"), fixture.Rule("governedservers", "get", "list"))
		got := s.run(t, plane.Kubeconfig(t, account), nil, "kubectl-tidewaiter", "whoami").table()
		if !strings.HasSuffix(got.stdout, "\n"+header+want) {
			t.Errorf("in %s: %s%s; want\n%s", s.stable(namespace), got.stdout, got.stderr, want)
		}
	}
}

func TestKubectlCompletesNames(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	s.ask(t, "cranes-2")
	if got := s.run(t, s.anaFile, nil, "kubectl-deny", "cranes-2"); got.exit != 0 {
		t.Fatal(got.stderr)
	}
	complete := func(program string, args ...string) output {
		streams := &output{}
		var out, errOut bytes.Buffer
		args = append([]string{program, "--kubeconfig", s.anaFile, "-n", s.namespace}, args...)
		streams.exit = cli.Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
		streams.stdout = out.String()
		return *streams
	}
	expectOutput(t, output{stdout: "cranes-1\tlift_box\n:4\n"}, complete("kubectl_complete-approve", ""))
	expectOutput(t, output{stdout: "cranes-1\tlift_box\ncranes-2\tlift_box\n:4\n"}, complete("kubectl_complete-tidewaiter", "describe", ""))
	expectOutput(t, output{stdout: "cranes\n:4\n"}, complete("kubectl_complete-tidewaiter", "whoami", ""))
}

func TestVersionTellsWhichBuildAndAPI(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	code := cli.Run(t.Context(), []string{"kubectl-tidewaiter", "version"}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	if want := regexp.MustCompile(`^Plugin version: \S+\nGit commit: \S+\nBuilt with: go\S+.*\nAPI: tidewaiter.dev/v1alpha1\n$`); code != 0 || !want.MatchString(out.String()) {
		t.Errorf("exit %d, %q", code, out.String())
	}
}
