// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
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
	s.startManager(t, clock.RealClock{})

	s.ask(t, "cranes-1")
	expectOutput(t, output{
		stdout: shown("cranes-1") + "cranes-1 is Approved (checked): it runs once, if the agent waits or sends the call again by THEN\n",
	}, s.kubectl(t, s.anaFile, "approve", "cranes-1", "--reason", "checked"))
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1,
		stderr: "error: nothing was changed: cranes-1 is Approved (checked): it runs once, if the agent waits or sends the call again by THEN\n",
	}, s.kubectl(t, s.anaFile, "tidewaiter", "approve", "cranes-1"))
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1,
		stderr: "error: nothing was changed: cranes-1 is Approved (checked): it runs once, if the agent waits or sends the call again by THEN; " +
			"an approval is taken back by deny without --without-prejudice\n",
	}, s.kubectl(t, s.anaFile, "deny", "cranes-1", "--without-prejudice"))
	// Taken back without a word: the reason of the yes does not stay beside the no.
	expectOutput(t, output{
		stdout: shown("cranes-1") + "cranes-1 is Denied: the same action is refused until THEN\n",
	}, s.kubectl(t, s.anaFile, "deny", "cranes-1"))
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1,
		stderr: "error: nothing was changed: cranes-1 is Denied: the same action is refused until THEN\n",
	}, s.kubectl(t, s.anaFile, "approve", "cranes-1"))

	s.ask(t, "cranes-2")
	expectOutput(t, output{
		stdout: shown("cranes-2") + "cranes-2 is Dismissed (not today): the agent may ask again\n",
	}, s.kubectl(t, s.anaFile, "tidewaiter", "deny", "cranes-2", "--without-prejudice", "--reason", "not today"))

	expectOutput(t, output{
		exit: 1,
		stderr: "error: there is no ApprovalRequest cranes-9 in namespace NAMESPACE; those that wait there: " +
			"kubectl get areq -n NAMESPACE --field-selector status.phase=Pending\n",
	}, s.kubectl(t, s.anaFile, "approve", "cranes-9"))
	expectOutput(t, output{
		exit: 2, stderr: "error: give the name of one ApprovalRequest; 0 were given\nSee 'kubectl approve --help'.\n",
	}, s.kubectl(t, s.anaFile, "approve"))
	expectOutput(t, output{
		exit: 2, stderr: "error: give the name alone, without the kind and the slash before it\nSee 'kubectl deny --help'.\n",
	}, s.kubectl(t, s.anaFile, "deny", "areq/cranes-1"))
}

func TestOthersAreToldWhatTheyLack(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.startManager(t, clock.RealClock{})
	s.ask(t, "cranes-1")
	got := s.run(t, s.eliFile, nil, "kubectl-approve", "cranes-1")
	if got.exit != 1 || got.stdout != shown("cranes-1") {
		t.Errorf("exit %d, stdout %q", got.exit, got.stdout)
	}
	want := `It takes all of these, and not to be the requester; the answers are yours:
  kubectl auth can-i patch approvalrequests.tidewaiter.dev --subresource=status -n NAMESPACE
  kubectl auth can-i approve governedservers.tidewaiter.dev/cranes --subresource=authority -n NAMESPACE
`
	if !strings.HasSuffix(got.stderr, want) {
		t.Errorf("stderr %q, want it to end with %q", got.stderr, want)
	}
	if decision := s.read(t, "cranes-1").Status.Decision; decision != "" {
		t.Errorf("decision %q was written", decision)
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
	s.startManager(t, clock.RealClock{})
	s.ask(t, "cranes-1", func(r *v1alpha1.ApprovalRequest) { r.Spec.Requester.Username = "ana-" + s.namespace })
	if got := s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1"); got.exit != 1 || !strings.Contains(got.stderr, "not to be the requester") {
		t.Errorf("own request: exit %d, %s", got.exit, got.stderr)
	}
	if decision := s.read(t, "cranes-1").Status.Decision; decision != "" {
		t.Errorf("decision %q was written", decision)
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
		!strings.Contains(got.stderr, "kubectl auth can-i resolve governedservers.tidewaiter.dev/cranes --subresource=authority") {
		t.Errorf("without the verb: exit %d, %s", got.exit, got.stderr)
	}
	if s.read(t, "cranes-1").Status.Resolution != nil {
		t.Fatal("a refused resolution was written")
	}
	expectOutput(t, output{
		stdout: shown("cranes-1") + "cranes-1 is Failed: the approval was used, and the call did not take effect or the tool reported an error\n",
	}, resolve("--not-executed", "--reason", "no box moved"))
	stored := s.read(t, "cranes-1").Status.Resolution
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
	s.startManager(t, clock.RealClock{})
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
	s.startManager(t, clock.RealClock{})
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
	s.startManager(t, clock.RealClock{})
	s.ask(t, "cranes-1")
	got := s.run(t, s.anaFile, func() {
		if denied := s.run(t, s.anaFile, nil, "kubectl-deny", "cranes-1", "--reason", "no"); denied.exit != 0 {
			t.Error(denied.stderr)
		}
	}, "kubectl-approve", "cranes-1")
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1, stderr: "error: nothing was changed: cranes-1 is Denied (no): the same action is refused until THEN\n",
	}, got)

	s.ask(t, "cranes-2")
	if got := s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-2"); got.exit != 0 {
		t.Fatal(got.stderr)
	}
	s.claim(t, "cranes-2", time.Hour)
	expectOutput(t, output{
		stdout: shown("cranes-2"), exit: 1, stderr: "error: nothing was changed: cranes-2 is Executing: the approval was used, and the call was sent\n",
	}, s.run(t, s.anaFile, nil, "kubectl-deny", "cranes-2"))
}

func TestAYesAfterTheExpiryIsNoYes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	s.startManager(t, clocktesting.NewFakePassiveClock(time.Now().Add(time.Hour+time.Minute)))
	got := s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1")
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1, stderr: "error: cranes-1 is Expired since THEN: the agent has to ask again\n",
	}, got)
}

func TestWithoutAManagerNothingIsPromised(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ask(t, "cranes-1")
	got := s.run(t, s.anaFile, nil, "kubectl-approve", "cranes-1", "--timeout", "300ms")
	expectOutput(t, output{
		stdout: shown("cranes-1"), exit: 1,
		stderr: "error: it was recorded, but the manager has not acted on it in 300ms; look again with: kubectl get areq cranes-1 -n NAMESPACE\n",
	}, got)
}

// Of a yes and a no at once one stands, and each person is told which. Nothing is used here, so the no always can.
func TestApproveAndDenyRace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.startManager(t, clock.RealClock{})
	const rounds, atOnce = 100, 10
	names := make(chan string)
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for name := range names {
				var approve, deny output
				var pair sync.WaitGroup
				pair.Go(func() { approve = s.run(t, s.anaFile, nil, "kubectl-approve", name, "--timeout", "1m") })
				pair.Go(func() { deny = s.run(t, s.anaFile, nil, "kubectl-deny", name, "--timeout", "1m") })
				pair.Wait()
				if phase := s.read(t, name).CurrentPhase(); phase != v1alpha1.PhaseDenied || deny.exit != 0 {
					t.Errorf("%s is %s, deny exited %d: %s", name, phase, deny.exit, deny.stderr)
				}
				// The yes may have stood for a moment; if it was refused, the person was told of the no.
				if approve.exit != 0 && !strings.Contains(approve.stderr, "Denied") {
					t.Errorf("%s: approve exited %d: %s", name, approve.exit, approve.stderr)
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
}
