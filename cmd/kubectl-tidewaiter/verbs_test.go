// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func shown(name string) string {
	return `Request:       ` + name + ` in namespace NAMESPACE
Server:        cranes
Tool:          lift_box
Tier:          Reversible, gated by tier
Blast radius:  Single: scoped to box="7"
Requester:     crew
Asked:         Ns ago, expires in Nm, at THEN
Arguments:     11 bytes
  {
    "box": "7"
  }

`
}

func expectOutput(t *testing.T, want, got output) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(output{})); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestPeopleDecideWithKubectl(t *testing.T) {
	t.Parallel()
	s := newScene(t)

	s.ask(t, "cranes-1")
	const approved = "cranes-1 is Approved by ana-NAMESPACE (checked): it runs once, if the agent waits or sends the call again by THEN"
	expectOutput(t, output{stdout: shown("cranes-1") + approved + "\n"}, s.kubectl(t, s.anaFile, "approve", "cranes-1", "--reason", "checked"))
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1, stderr: "error: nothing was changed: " + approved + "\n",
	}, s.kubectl(t, s.benFile, "tidewaiter", "approve", "cranes-1"))
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1, stderr: "error: nothing was changed: " + approved + "; an approval is taken back by kubectl deny\n",
	}, s.kubectl(t, s.anaFile, "tidewaiter", "dismiss", "cranes-1"))
	// Taken back without a word: the reason of the yes does not stay beside the no.
	const denied = "cranes-1 is Denied by ben-NAMESPACE, after the approval by ana-NAMESPACE: the same action is refused until THEN"
	expectOutput(t, output{stdout: shown("cranes-1") + denied + "\n"}, s.kubectl(t, s.benFile, "deny", "cranes-1"))
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1, stderr: "error: nothing was changed: " + denied + "\n",
	}, s.kubectl(t, s.anaFile, "approve", "areq/cranes-1"))

	s.ask(t, "cranes-2")
	expectOutput(t, output{
		stdout: shown("cranes-2") + "cranes-2 is Dismissed by ana-NAMESPACE (not today): the agent may ask again\n",
	}, s.kubectl(t, s.anaFile, "tidewaiter", "dismiss", "cranes-2", "--reason", "not today"))

	expectOutput(t, output{
		exit: 1, stderr: "error: there is no ApprovalRequest cranes-9 in namespace NAMESPACE; if it is in another one, name that with -n; those that wait: kubectl tidewaiter pending -A\n",
	}, s.kubectl(t, s.anaFile, "approve", "cranes-9"))
	expectOutput(t, output{
		exit: 2, stderr: "error: give the name of an ApprovalRequest, or several; none was given\nSee 'kubectl approve --help'.\n",
	}, s.kubectl(t, s.anaFile, "approve"))
	expectOutput(t, output{
		exit: 2, stderr: "error: \"pod/cranes-1\" is no name of an ApprovalRequest: give NAME or areq/NAME\nSee 'kubectl deny --help'.\n",
	}, s.kubectl(t, s.anaFile, "deny", "pod/cranes-1"))
}

func TestOfSeveralNamesEachIsTried(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	s.ask(t, "cranes-2")
	expectOutput(t, output{
		stdout: shown("cranes-1") + "cranes-1 is Denied by ana-NAMESPACE (no): the same action is refused until THEN\n" +
			shown("cranes-2") + "cranes-2 is Denied by ana-NAMESPACE (no): the same action is refused until THEN\n",
		stderr: "error: cranes-8: there is no ApprovalRequest cranes-8 in namespace NAMESPACE; if it is in another one, name that with -n; those that wait: kubectl tidewaiter pending -A\n" +
			"error: cranes-9: there is no ApprovalRequest cranes-9 in namespace NAMESPACE; if it is in another one, name that with -n; those that wait: kubectl tidewaiter pending -A\n",
		exit: 1,
	}, s.run(t, s.anaFile, nil, "kubectl-deny", "cranes-8", "cranes-1", "cranes-9", "areq/cranes-2", "cranes-1", "--reason", "no"))
}

func TestWhereTwoMustApproveEachIsOneOfTwo(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1", func(r *v1alpha1.ApprovalRequest) { r.Spec.RequiredApprovals = 2 })
	votes := func(line string) string {
		return strings.Replace(shown("cranes-1"), "Arguments: ", "Approvals:     "+line+"\nArguments: ", 1)
	}
	const one = "cranes-1 has 1 of 2 approvals, given by ana-NAMESPACE: it needs 1 more by THEN\n"
	expectOutput(t, output{stdout: votes("0 of 2") + one}, s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1", "--reason", "fine"))
	expectOutput(t, output{
		stdout: votes("1 of 2 by ana-NAMESPACE"), exit: 1,
		stderr: "error: ana-NAMESPACE has approved this request already and counts once; somebody else has to approve it, or deny it to take the yes back\n",
	}, s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1"))
	expectOutput(t, output{
		stdout: votes("1 of 2 by ana-NAMESPACE") +
			"cranes-1 is Approved by ana-NAMESPACE and ben-NAMESPACE (me too): it runs once, if the agent waits or sends the call again by THEN\n",
	}, s.run(t, s.benFile, nil, "kubectl-approve", "cranes-1", "--reason", "me too"))
	var reasons []string
	for _, v := range s.read(t, "cranes-1").Status.Votes {
		reasons = append(reasons, v.Reason)
	}
	if diff := cmp.Diff([]string{"fine", "me too"}, reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	expectOutput(t, output{
		stdout: shown("cranes-1") +
			"cranes-1 is Approved by ana-NAMESPACE (perhaps): it runs once, if the agent waits or sends the call again by THEN (server dry run)\n",
	}, s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1", "--dry-run=server", "--reason", "perhaps"))
	if got := s.read(t, "cranes-1").Status; got.Decision != "" || len(got.Votes) > 0 {
		t.Errorf("stored: %+v", got)
	}
	if got := s.run(t, s.eliFile, nil, "kubectl-approve", "cranes-1", "--dry-run=server"); got.exit != 1 {
		t.Errorf("a dry run of who may not: exit %d", got.exit)
	}
	expectOutput(t, output{
		exit: 2, stderr: "error: invalid argument \"client\" for \"--dry-run\" flag: it is one of none, server\nSee 'kubectl approve --help'.\n",
	}, s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1", "--dry-run=client"))
}

func TestADecisionCanBePrintedAsData(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	expectOutput(t, output{stdout: "approvalrequest.tidewaiter.dev/cranes-1\n"}, s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1", "-o", "name"))
	got := s.run(t, s.anaFile, nil, "kubectl-deny", "cranes-1", "-o", "json")
	var stored v1alpha1.ApprovalRequest
	if err := json.Unmarshal([]byte(strings.ReplaceAll(got.stdout, "THEN", "2031-02-03T04:05:06Z")), &stored); err != nil {
		t.Fatalf("%v in %s", err, got.stdout)
	}
	if stored.Kind != "ApprovalRequest" || stored.Status.Phase != v1alpha1.PhaseDenied || len(stored.Status.Votes) != 2 || got.stderr != "" {
		t.Errorf("got %+v", got)
	}
	expectOutput(t, output{
		exit: 2, stderr: "error: the output \"csv\" is none of page, json, yaml, kyaml, name, go-template, go-template-file, template, templatefile, jsonpath, jsonpath-as-json, jsonpath-file\n" +
			"See 'kubectl deny --help'.\n",
	}, s.run(t, s.anaFile, nil, "kubectl-deny", "cranes-1", "-o", "csv"))
}

// Who may act as another decides as that one, as far as the API server tells anybody.
func TestWhoActsAsAnotherVotesAsThatOne(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	adminFile := plane.Kubeconfig(t, plane.Admin)
	if got := s.run(t, s.eliFile, nil, "kubectl-approve", "cranes-1", "--as", "ana-"+s.namespace); got.exit != 1 ||
		!strings.Contains(got.stderr, "cannot impersonate") {
		t.Errorf("without the right: exit %d, %s", got.exit, got.stderr)
	}
	if got := s.run(t, adminFile, nil, "kubectl-approve", "cranes-1", "--as", "ana-"+s.namespace); got.exit != 0 {
		t.Fatalf("exit %d, %s", got.exit, got.stderr)
	}
	if got := s.read(t, "cranes-1").Status.Votes; len(got) != 1 || got[0].Username != "ana-"+s.namespace {
		t.Errorf("votes %+v", got)
	}
}

// What kubectl drops without a word it says, and what it says helps.
func TestWhoEditsTheStatusWithoutTheSubresourceIsToldWhatToDo(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	plane.Grant(t, s.namespace, s.ana, fixture.Rule("approvalrequests", "patch"))
	got := s.kubectl(t, s.anaFile, "patch", "areq", "cranes-1", "--type=merge", "-p", `{"status":{"decision":"Approved"}}`)
	if !strings.Contains(got.stderr, "kubectl approve cranes-1") {
		t.Errorf("kubectl says %q", got.stderr)
	}
	if stored := s.read(t, "cranes-1"); stored.CurrentPhase() != v1alpha1.PhasePending || len(stored.Status.Votes) > 0 {
		t.Errorf("stored: %+v", stored.Status)
	}
	if got := s.kubectl(t, s.anaFile, "approve", "cranes-1"); got.exit != 0 || s.read(t, "cranes-1").CurrentPhase() != v1alpha1.PhaseApproved {
		t.Errorf("the advice: exit %d, %s", got.exit, got.stderr)
	}
}

func TestOthersAreToldWhatTheyLack(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1,
		stderr: "error: to decide this request eli-NAMESPACE needs the verb approve on governedservers/authority, resourceNames [cranes], in namespace NAMESPACE; " +
			"whoever manages Roles there can give it; check with: kubectl auth can-i approve governedservers/cranes --subresource=authority -n NAMESPACE\n",
	}, s.run(t, s.eliFile, nil, "kubectl-approve", "cranes-1"))
	// Who may not even write a status gets that from RBAC, and the questions to ask.
	guest := plane.User(t, "guest-"+s.namespace)
	plane.Grant(t, s.namespace, guest, fixture.Rule("approvalrequests", "get"))
	got := s.run(t, plane.Kubeconfig(t, guest), nil, "kubectl-approve", "cranes-1")
	want := `It takes all of these, and not to be the requester; the answers are yours:
  kubectl auth can-i patch approvalrequests.tidewaiter.dev --subresource=status -n NAMESPACE
  kubectl auth can-i approve governedservers.tidewaiter.dev/cranes --subresource=authority -n NAMESPACE
`
	if got.exit != 1 || !strings.HasSuffix(got.stderr, want) {
		t.Errorf("exit %d, stderr %q, want it to end with %q", got.exit, got.stderr, want)
	}
	if stored := s.read(t, "cranes-1").Status; stored.Decision != "" || len(stored.Votes) > 0 {
		t.Errorf("stored: %+v", stored)
	}
	// The advice is right: it answers no for who may not, and yes for who may.
	canI := []string{"auth", "can-i", "approve", "governedservers.tidewaiter.dev/cranes", "--subresource=authority"}
	if got := s.kubectl(t, s.eliFile, canI...); strings.TrimSpace(got.stdout) != "no" {
		t.Errorf("eli: %q, want no", got.stdout)
	}
	if got := s.kubectl(t, s.anaFile, canI...); strings.TrimSpace(got.stdout) != "yes" {
		t.Errorf("ana: %q, want yes", got.stdout)
	}
}

func TestNobodyDecidesTheirOwnRequest(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1", func(r *v1alpha1.ApprovalRequest) { r.Spec.Requester.Username = "ana-" + s.namespace })
	if got := s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1"); got.exit != 1 ||
		got.stderr != "error: ana-NAMESPACE asks for this action, or it is asked for them: somebody else decides it\n" {
		t.Errorf("own request: exit %d, %s", got.exit, got.stderr)
	}
	if votes := s.read(t, "cranes-1").Status.Votes; len(votes) > 0 {
		t.Errorf("stored: %+v", votes)
	}
	if got := s.run(t, s.benFile, nil, "kubectl-approve", "cranes-1"); got.exit != 0 {
		t.Errorf("another person: exit %d, %s", got.exit, got.stderr)
	}
}

func TestResolveSettlesWhatIsAmbiguous(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.startManager(t, clock.RealClock{})
	s.ask(t, "cranes-1")
	resolve := func(flags ...string) output {
		return s.run(t, s.anaFile, nil, append([]string{"kubectl-tidewaiter", "resolve", "cranes-1"}, flags...)...)
	}
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1, stderr: "error: there is nothing to settle: cranes-1 is Pending until THEN\n",
	}, resolve("--committed", "--reason", "seen"))
	if got := s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1"); got.exit != 0 {
		t.Fatal(got.stderr)
	}
	s.claim(t, "cranes-1", time.Millisecond)
	s.expect(t, "cranes-1", v1alpha1.PhaseAmbiguous)

	for _, flags := range [][]string{
		{"--not-executed"}, {"--not-executed", "--reason", ""}, {"--not-executed", "--reason", " \t\n"},
		{"--reason", "seen"}, {"--committed", "--not-executed", "--reason", "seen"},
	} {
		if got := resolve(flags...); got.exit != 2 || got.stdout != "" {
			t.Errorf("resolve %q: exit %d, stdout %q; want 2 and nothing", flags, got.exit, got.stdout)
		}
	}
	if got := s.run(t, s.eliFile, nil, "kubectl-tidewaiter", "resolve", "cranes-1", "--committed", "--reason", "seen"); got.exit != 1 ||
		!strings.Contains(got.stderr, "kubectl auth can-i resolve governedservers/cranes --subresource=authority") {
		t.Errorf("without the verb: exit %d, %s", got.exit, got.stderr)
	}
	if s.read(t, "cranes-1").Status.Resolution != nil {
		t.Fatal("a refused resolution was written")
	}
	if got := resolve("--not-executed", "--reason", "no box moved", "--dry-run=server"); got.exit != 0 || s.read(t, "cranes-1").Status.Resolution != nil {
		t.Errorf("a dry run: exit %d, %s", got.exit, got.stderr)
	}
	const settled = "cranes-1 is Failed: the approval by ana-NAMESPACE was used, and the call did not take effect or the tool reported an error; " +
		"so said ana-NAMESPACE (no box moved)"
	expectOutput(t, output{stdout: shown("cranes-1") + settled + "\n"}, resolve("--not-executed", "--reason", "no box moved"))
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1, stderr: "error: there is nothing to settle: " + settled + "\n",
	}, resolve("--committed", "--reason", "I saw it move"))
	stored := s.read(t, "cranes-1").Status.Resolution
	if stored.Time.IsZero() {
		t.Error("the time is not stamped")
	}
	stored.Time = metav1.Time{}
	want := &v1alpha1.Resolution{Outcome: v1alpha1.ResolutionNotExecuted, Reason: "no box moved", By: "ana-" + s.namespace}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("resolution (-want +got):\n%s", diff)
	}
}

// A person reads A; before the decision is written another request has its name.
func TestADecisionIsForTheRequestThatWasShown(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.ask(t, "cranes-1")
	got := s.run(t, s.anaFile, func() {
		if err := s.manager.Delete(t.Context(), a); err != nil {
			t.Error(err)
		}
		s.ask(t, "cranes-1", func(r *v1alpha1.ApprovalRequest) { r.Spec.Arguments = `{"box":"all"}` })
	}, "kubectl-approve", "cranes-1")
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1,
		stderr: "error: cranes-1 is another request now than the one shown above; look at it again, nothing was written\n",
	}, got)
	if decision := s.read(t, "cranes-1").Status.Decision; decision != "" {
		t.Errorf("the other request was decided: %s", decision)
	}
}

func TestADecisionSurvivesWhatDoesNotConcernIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	request := s.ask(t, "cranes-1")
	got := s.run(t, s.anaFile, func() {
		annotate := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"note":"x"}}}`))
		if err := s.admin.Patch(t.Context(), request, annotate); err != nil {
			t.Error(err)
		}
	}, "kubectl-approve", "cranes-1")
	if got.exit != 0 {
		t.Errorf("exit %d: %s", got.exit, got.stderr)
	}
}

func TestWhoComesTooLateIsToldTheState(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	got := s.run(t, s.anaFile, func() {
		if denied := s.run(t, s.benFile, nil, "kubectl-deny", "cranes-1", "--reason", "no"); denied.exit != 0 {
			t.Error(denied.stderr)
		}
	}, "kubectl-approve", "cranes-1")
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1,
		stderr: "error: nothing was changed: cranes-1 is Denied by ben-NAMESPACE (no): the same action is refused until THEN\n",
	}, got)

	s.ask(t, "cranes-2")
	if got := s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-2"); got.exit != 0 {
		t.Fatal(got.stderr)
	}
	s.claim(t, "cranes-2", time.Hour)
	expectOutput(t, output{
		stdout: shown("cranes-2"), exit: 1,
		stderr: "error: nothing was changed: cranes-2 is Executing: the approval by ana-NAMESPACE was used, and the call was sent\n",
	}, s.run(t, s.benFile, nil, "kubectl-deny", "cranes-2"))
}

// An agent that waits has the approval used at once, and the person sees it.
func TestAnApprovalLooksOnForAWhile(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	done := make(chan output, 1)
	go func() { done <- s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1", "--wait", "1m") }()
	s.expect(t, "cranes-1", v1alpha1.PhaseApproved)
	s.claim(t, "cranes-1", time.Hour)
	expectOutput(t, output{
		stdout: shown("cranes-1") + "cranes-1 is Executing: the approval by ana-NAMESPACE was used, and the call was sent\n",
	}, <-done)
}

func TestAYesAfterTheExpiryIsNoYes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	s.startManager(t, clocktesting.NewFakePassiveClock(time.Now().Add(time.Hour+time.Minute)))
	s.expect(t, "cranes-1", v1alpha1.PhaseExpired)
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1, stderr: "error: nothing was changed: cranes-1 is Expired since THEN: the agent has to ask again\n",
	}, s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1"))
}

// Of a yes and a no at once the no stands, as nothing is used here; both have read the request before either writes. Each
// person is told who decided what, and who said yes did not get their way.
func TestApproveAndDenyRace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const rounds, atOnce = 100, 5
	names := make(chan string)
	var group sync.WaitGroup
	var overtaken atomic.Int64
	for range atOnce {
		group.Go(func() {
			for name := range names {
				if s.race(t, name) {
					overtaken.Add(1)
				}
			}
		})
	}
	for i := range rounds {
		name := fmt.Sprintf("cranes-%d", i)
		s.ask(t, name)
		names <- name
	}
	close(names)
	group.Wait()
	t.Logf("of %d rounds the yes came first, and was taken back, in %d", rounds, overtaken.Load())
}

// race lets ana approve and ben deny at once, and tells whether the yes came first.
func (s *scene) race(t *testing.T, name string) (yesFirst bool) {
	var ready, pair sync.WaitGroup
	ready.Add(2)
	together := func() { ready.Done(); ready.Wait() }
	var approve, deny output
	// She looks on until the request is decided for good, so that she is told what stands.
	pair.Go(func() { approve = s.run(t, s.anaFile, together, "kubectl-approve", name, "--wait", "1m") })
	pair.Go(func() { deny = s.run(t, s.benFile, together, "kubectl-deny", name, "--reason", "stop") })
	pair.Wait()
	stored := s.read(t, name)
	yesFirst = len(stored.Status.Votes) == 2
	between := ""
	if yesFirst {
		between = ", after the approval by ana-NAMESPACE"
	}
	if stored.CurrentPhase() != v1alpha1.PhaseDenied || deny.exit != 0 || approve.exit != 1 {
		t.Errorf("%s is %s; deny exited %d: %s; approve exited %d: %s", name, stored.CurrentPhase(), deny.exit, deny.stderr, approve.exit, approve.stderr)
	}
	want := fmt.Sprintf("%s is Denied by ben-NAMESPACE (stop)%s: the same action is refused until THEN\n", name, between)
	if !strings.HasSuffix(deny.stdout, want) || !strings.HasSuffix(approve.stderr, want) {
		t.Errorf("deny says %q, approve says %q; want both to say %q", deny.stdout, approve.stderr, want)
	}
	return yesFirst
}

// Two persons of whom one is enough: who comes second is told who was first, and has approved nothing.
func TestTwoYesesRaceAndOneIsEnough(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for i := range 10 {
		name := fmt.Sprintf("cranes-%d", i)
		s.ask(t, name)
		var ready, pair sync.WaitGroup
		ready.Add(2)
		together := func() { ready.Done(); ready.Wait() }
		outputs := map[string]*output{"ana-NAMESPACE": {}, "ben-NAMESPACE": {}}
		for person, file := range map[string]string{"ana-NAMESPACE": s.anaFile, "ben-NAMESPACE": s.benFile} {
			pair.Go(func() { *outputs[person] = s.run(t, file, together, "kubectl-approve", name, "--wait", "1ms") })
		}
		pair.Wait()
		votes := s.read(t, name).Status.Votes
		if len(votes) != 1 {
			t.Fatalf("%d votes, want 1", len(votes))
		}
		winner := s.stable(votes[0].Username)
		for person, got := range outputs {
			says, wantExit := got.stdout, 0
			if person != winner {
				says, wantExit = got.stderr, 1
			}
			if got.exit != wantExit || !strings.Contains(says, name+" is Approved by "+winner+": ") {
				t.Errorf("%s, where %s was first: exit %d, %q", person, winner, got.exit, says)
			}
		}
	}
}
