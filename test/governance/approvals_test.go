// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/hack/demo/billing"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

const note = `{"invoiceId":"a","note":"n"}`

// approve has the one pending request approved and returns it.
func (w *world) approve() *v1alpha1.ApprovalRequest {
	w.t.Helper()
	r := w.theRequest(v1alpha1.PhasePending)
	w.decide(r.Name, v1alpha1.DecisionApproved)
	w.eventually("the request is approved", func() error { return wantPhase(w.request(r.Name), v1alpha1.PhaseApproved) })
	return r
}

func wantPhase(r *v1alpha1.ApprovalRequest, want v1alpha1.Phase) error {
	if got := r.CurrentPhase(); got != want {
		return fmt.Errorf("request %s is %s, want %s", r.Name, got, want)
	}
	return nil
}

// used sends an approved call until the gateway has seen the yes.
func (d *door) used(name, arguments string) {
	d.w.t.Helper()
	d.w.eventually("the approved call runs", func() error {
		got := d.call(name, arguments)
		if got.Error != nil {
			d.w.t.Errorf("the approved call: %s", got.raw)
		}
		return wantServerAnswer(got)
	})
}

// sees waits until the gateway shows a phase of the request of an action.
func (d *door) sees(r *v1alpha1.ApprovalRequest, phase v1alpha1.Phase) {
	d.w.t.Helper()
	d.w.eventually(d.name+" sees "+string(phase), func() error {
		seen := d.server.Snapshot().Request(r.Spec.ActionHash, string(r.UID))
		if seen == nil {
			return errors.New("not seen")
		}
		return wantPhase(seen, phase)
	})
}

func (w *world) wantCancelled(name string, reason v1alpha1.CancellationReason) {
	w.t.Helper()
	r := w.request(name)
	if r.CurrentPhase() != v1alpha1.PhaseCancelled || r.Status.Cancellation.Reason != reason {
		w.t.Errorf("request %s is %s %+v, want Cancelled for %s", name, r.CurrentPhase(), r.Status.Cancellation, reason)
	}
}

func TestTheServerGetsTheBytesThatWereApproved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	body := func(n string) string {
		return `{"jsonrpc":"2.0", "id":"x\u00e9", "method":"tools/call","params":{"name":"update_invoice","arguments":{"invoiceId":"a","note":"n","n":` + n + `}}}`
	}
	if got := d.post(t.Context(), body("9007199254740993")); got.code() != "ApprovalPending" || string(got.ID) != `"x\u00e9"` {
		t.Fatalf("got %s", got.raw)
	}
	w.approve()
	if got := d.post(t.Context(), body("9007199254740992")); got.code() != "ApprovalPending" {
		t.Errorf("a number next to the approved one: %s", got.raw)
	}
	w.executions("update_invoice", 0)
	w.eventually("the approved call runs", func() error {
		return wantServerAnswer(d.post(t.Context(), body("9007199254740993"), "X-Tenant", "other", "Authorization", "Bearer a", "Cookie", "c"))
	})
	last := w.lastCall()
	if last.body != body("9007199254740993") || last.query != "" {
		t.Errorf("the server got %s, query %q", last.body, last.query)
	}
	for _, name := range []string{"X-Tenant", "Authorization", "Cookie"} {
		if last.header.Get(name) != "" {
			t.Errorf("the server got %s", name)
		}
	}
	if last.header.Get("Mcp-Session-Id") != d.session {
		t.Error("the session was not passed")
	}
	w.executions("update_invoice", 1)
}

func TestAnythingMoreInTheCallIsAnotherAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	call := func(rest string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"update_invoice","arguments":` + note + rest + `}}`
	}
	first := d.post(t.Context(), call("")).request()
	w.decide(first, v1alpha1.DecisionApproved)
	w.eventually("approved", func() error { return wantPhase(w.request(first), v1alpha1.PhaseApproved) })
	d.sees(w.request(first), v1alpha1.PhaseApproved)
	for _, rest := range []string{`,"dryRun":false`, `,"_meta":{"tenant":"b"}`} {
		if got := d.post(t.Context(), call(rest)); got.code() != "ApprovalPending" || got.request() == first {
			t.Errorf("%s: %s", rest, got.raw)
		}
	}
	w.executions("update_invoice", 0)
	if err := wantServerAnswer(d.post(t.Context(), call(`,"_meta":{"progressToken":"p","traceparent":"00-1"}`))); err != nil {
		t.Errorf("with a token and a trace: %v", err)
	}
	w.executions("update_invoice", 1)
}

func TestAChangedToolEndsItsApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	d.call("update_invoice", note)
	old := w.approve()
	d.sees(old, v1alpha1.PhaseApproved)

	// The server gives every client another definition; the manager has not looked yet.
	w.billing.Redescribe("update_invoice", "Change the note of an invoice. Everything is different.")
	if got := d.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); !strings.Contains(got.raw, `"tidewaiter.dev/tier":"Irreversible"`) {
		t.Errorf("the list does not show the drift as the strictest tier: %s", got.raw)
	}
	got := d.call("update_invoice", note)
	if got.code() != "ApprovalPending" || got.request() == old.Name || !strings.Contains(got.raw, old.Name+" was cancelled") {
		t.Errorf("after the change: %s", got.raw)
	}
	w.wantCancelled(old.Name, v1alpha1.CancelToolChanged)
	if r := w.request(got.request()); r.Spec.Tier != v1alpha1.TierIrreversible || r.Spec.ApproveVerbs[0] != v1alpha1.VerbApproveIrreversible {
		t.Errorf("a drifted tool is asked as %s, %v", r.Spec.Tier, r.Spec.ApproveVerbs)
	}
	w.executions("update_invoice", 0)

	// Once discovered and approved anew, it runs.
	w.discover()
	w.decide(got.request(), v1alpha1.DecisionApproved)
	d.used("update_invoice", note)
	w.executions("update_invoice", 1)
}

func TestAToolThatChangedBeforeItsFirstCallIsStrict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	w.billing.Redescribe("update_invoice", "Not what was classified.")
	d := w.openDoor("gw")
	got := d.call("update_invoice", note)
	if got.code() != "ApprovalPending" || w.request(got.request()).Spec.Tier != v1alpha1.TierIrreversible {
		t.Errorf("got %s", got.raw)
	}
	w.executions("update_invoice", 0)
	if got := d.call("send_invoice", `{"invoiceId":"a"}`); w.request(got.request()).Spec.Tier != v1alpha1.TierIrreversible {
		t.Errorf("the control: %s", got.raw)
	}
}

func TestAMovedEndpointEndsItsApprovals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	d.call("update_invoice", note)
	old := w.approve()
	d.sees(old, v1alpha1.PhaseApproved)

	production := billing.New()
	moved := httptest.NewServer(production.Handler())
	t.Cleanup(moved.Close)
	server := w.governed()
	server.Spec.Endpoint.URL = moved.URL + "/mcp"
	if err := w.person.Update(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	w.eventually("the gateway knows", func() error {
		if got := d.call("get_invoice", `{"invoiceId":"a"}`); got.code() != "ToolUnknown" {
			return errorString(got.raw)
		}
		return nil
	})
	if got := d.call("update_invoice", note); got.code() != "ToolUnknown" {
		t.Errorf("before the new endpoint was discovered: %s", got.raw)
	}
	w.wantCancelled(old.Name, v1alpha1.CancelToolChanged)
	w.discover()
	var got answer
	w.eventually("people are asked anew", func() error {
		if got = d.call("update_invoice", note); got.code() != "ApprovalPending" {
			return errorString(got.raw)
		}
		return nil
	})
	if got.request() == old.Name || w.request(got.request()).Spec.EndpointDigest == old.Spec.EndpointDigest {
		t.Errorf("asked as before: %s", got.raw)
	}
	w.executions("update_invoice", 0)
	if n := production.Executions()["update_invoice"]; n != 0 {
		t.Errorf("the new endpoint ran it %d times", n)
	}
	w.eventually("a session of the new server", d.initialize)
	w.decide(got.request(), v1alpha1.DecisionApproved)
	d.used("update_invoice", note)
	if n := production.Executions()["update_invoice"]; n != 1 {
		t.Errorf("the new endpoint ran it %d times, want 1", n)
	}
}

func TestAPolicyThatAsksForMoreEndsTheApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	d.call("update_invoice", note)
	old := w.approve()
	d.sees(old, v1alpha1.PhaseApproved)
	raise := w.policy("raise", func(s *v1alpha1.ToolPolicySpec) {
		s.Tiers = []v1alpha1.TierOverride{{Tools: []string{"update_*"}, Tier: v1alpha1.TierIrreversible, Reason: "auditors read notes"}}
	})
	w.eventually("the gateway knows the policy", func() error { return d.wantListed("update_invoice", "Irreversible") })
	got := d.call("update_invoice", note)
	if got.code() != "ApprovalPending" || !strings.Contains(got.raw, old.Name+" was cancelled") {
		t.Errorf("got %s", got.raw)
	}
	w.wantCancelled(old.Name, v1alpha1.CancelPolicyChanged)
	r := w.request(got.request())
	if r.Spec.GatedBy != "ToolPolicy/raise spec.tiers[0]" || r.Spec.Tier != v1alpha1.TierIrreversible {
		t.Errorf("asked by %s as %s", r.Spec.GatedBy, r.Spec.Tier)
	}
	w.executions("update_invoice", 0)

	// The way back ends nothing: the stricter yes still counts.
	w.decide(r.Name, v1alpha1.DecisionApproved)
	if err := w.person.Delete(t.Context(), raise); err != nil {
		t.Fatal(err)
	}
	w.eventually("the gateway knows", func() error { return d.wantListed("update_invoice", "Reversible") })
	d.used("update_invoice", note)
	w.executions("update_invoice", 1)
}

// wantListed checks the tier that a list shows.
func (d *door) wantListed(tool, tier string) error {
	got := d.post(d.w.t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).raw
	_, after, _ := strings.Cut(got, `"name":"`+tool+`"`)
	entry, _, _ := strings.Cut(after, `"tidewaiter.dev/behaviour"`)
	if !strings.Contains(entry, `"tidewaiter.dev/tier":"`+tier+`"`) {
		return fmt.Errorf("%s is listed as %s", tool, entry)
	}
	return nil
}

// policy writes a ToolPolicy for the server as the person.
func (w *world) policy(name string, edit func(*v1alpha1.ToolPolicySpec)) *v1alpha1.ToolPolicy {
	w.t.Helper()
	p := &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	p.Spec.Targets = []string{"billing"}
	edit(&p.Spec)
	if err := w.person.Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func TestAnApprovalIsVoidAfterItsExpiry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce, func(s *v1alpha1.GovernedServer) { s.Spec.Approvals.TTL.Duration = 10 * time.Minute })
	now := testclock.NewFakeClock(time.Now())
	w.pulse = func() { now.Step(100 * time.Millisecond) }
	d := w.openDoor("gw", withClock(now))
	d.call("update_invoice", note)
	used := w.approve()
	d.sees(used, v1alpha1.PhaseApproved)
	if err := wantServerAnswer(d.call("update_invoice", note)); err != nil {
		t.Errorf("in time: %v", err)
	}
	w.executions("update_invoice", 1)

	d.call("update_invoice", `{"invoiceId":"b","note":"n"}`)
	late := w.approve()
	d.sees(late, v1alpha1.PhaseApproved)
	now.SetTime(late.ExpiresAt())
	d.server.Prove(now.Now())
	if got := d.call("update_invoice", `{"invoiceId":"b","note":"n"}`); got.code() != "ApprovalExpired" || got.request() != late.Name {
		t.Errorf("at its expiry: %s", got.raw)
	}
	w.executions("update_invoice", 1)
}

func TestARequestIsBornPending(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	first := w.request(d.call("update_invoice", note).request())
	forged := &v1alpha1.ApprovalRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: first.Name + "x"}, Spec: *first.Spec.DeepCopy()}
	forged.Spec.Attempt = 2
	forged.Status = v1alpha1.ApprovalRequestStatus{Phase: v1alpha1.PhaseApproved, Decision: v1alpha1.DecisionApproved}
	if err := w.gateway.Create(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	if got := w.request(forged.Name); got.CurrentPhase() != v1alpha1.PhasePending || got.Status.Decision != "" {
		t.Errorf("created as %s, %s", got.CurrentPhase(), got.Status.Decision)
	}
	d.sees(forged, v1alpha1.PhasePending)
	if got := d.call("update_invoice", note); got.code() != "ApprovalPending" {
		t.Errorf("got %s", got.raw)
	}
	w.executions("update_invoice", 0)
}

func TestARequestThatShowsSomethingElseIsNotUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	honest := w.request(d.call("delete_account", `{"force":true}`).request())
	w.decide(honest.Name, v1alpha1.DecisionDismissed)
	d.sees(honest, v1alpha1.PhaseDismissed)

	// A holder of serve asks for the same action under a harmless display.
	forged := &v1alpha1.ApprovalRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: strings.TrimSuffix(honest.Name, "1") + "2"}, Spec: *honest.Spec.DeepCopy()}
	forged.Spec.Attempt, forged.Spec.Arguments = 2, `{"accountId":"test"}`
	if err := w.gateway.Create(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	w.approve()
	d.sees(forged, v1alpha1.PhaseApproved)
	if got := d.call("delete_account", `{"force":true}`); got.code() != "RequestMismatch" {
		t.Errorf("got %s", got.raw)
	}
	w.executions("delete_account", 0)
}

func TestAnHonestApprovalSurvivesItsGatewayAndUnrelatedPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.openDoor("gw-a")
	ctx, die := context.WithCancel(t.Context())
	gone := make(chan answer, 1)
	go func() {
		gone <- first.post(ctx, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_account","arguments":{"accountId":"a"}}}`)
	}()
	r := w.theRequest(v1alpha1.PhasePending)
	die()
	<-gone
	first.stop()
	w.decide(r.Name, v1alpha1.DecisionApproved)
	w.eventually("approved", func() error { return wantPhase(w.request(r.Name), v1alpha1.PhaseApproved) })
	w.executions("delete_account", 0)
	w.policy("unrelated", func(s *v1alpha1.ToolPolicySpec) {
		s.Tiers = []v1alpha1.TierOverride{{Tools: []string{"get_*"}, Tier: v1alpha1.TierReversible, Reason: "r"}}
	})
	second := w.openQuietDoor("gw-b")
	second.sees(r, v1alpha1.PhaseApproved)
	second.used("delete_account", `{"accountId":"a"}`)
	w.executions("delete_account", 1)
	if got := w.request(r.Name).Status.Execution.Gateway; got != "gw-b" {
		t.Errorf("executed by %s", got)
	}
}

func TestPendingRequestsOfARequesterAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce, func(s *v1alpha1.GovernedServer) { s.Spec.Approvals.MaxPending = 5 })
	d := w.openDoor("gw")
	codes := map[string]int{}
	var mu sync.Mutex
	var calls sync.WaitGroup
	for worker := range 16 {
		calls.Go(func() {
			for i := worker; i < 1000; i += 16 {
				got := d.call("update_invoice", fmt.Sprintf(`{"invoiceId":"a","note":"n","dummy":%d}`, i))
				mu.Lock()
				codes[got.code()]++
				mu.Unlock()
				if got.code() == "TooManyPending" && !strings.Contains(got.raw, "retryAfterSeconds") {
					t.Errorf("no advice: %s", got.raw)
				}
			}
		})
	}
	calls.Wait()
	if n := len(w.requests()); n != 5 || codes["ApprovalPending"] != 5 || codes["TooManyPending"] != 995 {
		t.Errorf("%d requests, answers by code %v", n, codes)
	}
	w.executions("update_invoice", 0)
	if err := wantServerAnswer(d.call("get_invoice", `{"invoiceId":"a"}`)); err != nil {
		t.Errorf("a read meanwhile: %v", err)
	}
}

func TestAYesThroughOneGatewayFreesTheCallOnAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.openDoor("gw-a"), w.openDoor("gw-b")
	answers := make(chan answer, 1)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		answers <- a.post(ctx, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"update_invoice","arguments":`+note+`}}`)
	}()
	r := w.theRequest(v1alpha1.PhasePending)
	leave()
	<-answers
	w.decide(r.Name, v1alpha1.DecisionApproved)
	b.sees(r, v1alpha1.PhaseApproved)
	a.sees(r, v1alpha1.PhaseApproved)
	w.executions("update_invoice", 0) // the client has gone: nothing runs for it
	go func() { answers <- b.call("update_invoice", note) }()
	if err := wantServerAnswer(<-answers); err != nil {
		t.Error(err)
	}
	w.executions("update_invoice", 1)
}

func TestACallOfADeadGatewayIsUnclearUntilAPersonSettlesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce, func(s *v1alpha1.GovernedServer) { s.Spec.CallTimeout.Duration = time.Second })
	d := w.openDoor("gw")
	d.call("update_invoice", note)
	r := w.approve()
	// A gateway that dies between its claim and its call.
	dead := &approval.Store{Client: w.gateway, Clock: clock.RealClock{}, Gateway: "dead", NewClaim: uuid.NewString}
	if _, err := dead.Claim(t.Context(), w.request(r.Name), time.Second); err != nil {
		t.Fatal(err)
	}
	w.eventually("unclear", func() error { return wantPhase(w.request(r.Name), v1alpha1.PhaseAmbiguous) })
	d.sees(r, v1alpha1.PhaseAmbiguous)
	if got := d.call("update_invoice", note); got.code() != "OutcomeUnknown" || got.request() != r.Name {
		t.Errorf("sent again: %s", got.raw)
	}
	settle := func(reason string) error {
		current := w.request(r.Name)
		patch := client.MergeFrom(current.DeepCopy())
		current.Status.Resolution = &v1alpha1.Resolution{Outcome: v1alpha1.ResolutionNotExecuted, Reason: reason, By: "approver-" + w.namespace, Time: metav1.Now()}
		return w.person.Status().Patch(t.Context(), current, patch)
	}
	if err := settle(" "); err == nil {
		t.Error("settled without a reason")
	}
	if err := settle("the server's log shows no call"); err != nil {
		t.Fatal(err)
	}
	d.sees(r, v1alpha1.PhaseFailed)
	got := d.call("update_invoice", note)
	if got.code() != "ApprovalPending" || got.request() == r.Name || !strings.Contains(got.raw, "asked before") {
		t.Errorf("after it was settled: %s", got.raw)
	}
	w.executions("update_invoice", 0)
}

func TestADeletedRequestIsNotUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	d.call("update_invoice", note)
	r := w.approve()
	if err := w.person.Delete(t.Context(), w.request(r.Name)); !apierrors.IsForbidden(err) {
		t.Errorf("deleted by a person: %v", err)
	}
	if err := w.gateway.Delete(t.Context(), w.request(r.Name)); !apierrors.IsForbidden(err) {
		t.Errorf("deleted by a gateway: %v", err)
	}
	if err := w.manager.Delete(t.Context(), w.request(r.Name)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"RequestGone", "ApprovalPending"} {
		if got := d.call("update_invoice", note); got.code() != "RequestGone" && got.code() != "ApprovalPending" {
			t.Errorf("got %s, want %s", got.raw, want)
		}
	}
	w.executions("update_invoice", 0)
}

func TestSecretsAreShownNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	arguments := `{"invoiceId":"a","note":"n","password":"correct horse battery"}`
	got := d.call("update_invoice", arguments)
	r := w.request(got.request())
	if strings.Contains(r.Spec.Arguments, "horse") || !strings.Contains(r.Spec.Arguments, "password") || !strings.Contains(r.Spec.Arguments, `"n"`) {
		t.Errorf("shown: %s", r.Spec.Arguments)
	}
	w.decide(r.Name, v1alpha1.DecisionApproved)
	d.used("update_invoice", arguments)
	if !strings.Contains(w.lastCall().body, "correct horse battery") {
		t.Error("the server did not get what was sent")
	}
	d.stop()
	d.wantReceipts("horse")
	var events eventsv1.EventList
	if err := w.admin.List(t.Context(), &events, client.InNamespace(w.namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range events.Items {
		if strings.Contains(events.Items[i].String(), "horse") {
			t.Errorf("an Event shows it: %s", events.Items[i].Note)
		}
	}
}

func TestWhatIsHiddenIsSaidAndTakesTheStricterVerb(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	filler := make([]string, 200)
	for i := range filler {
		filler[i] = fmt.Sprintf(`"f%03d":"%s"`, i, strings.Repeat("x", 100))
	}
	r := w.request(d.call("update_invoice", `{`+strings.Join(filler, ",")+`,"invoiceId":"a","note":"n","everything":true}`).request())
	if r.Spec.BlastRadius.Scope != v1alpha1.BlastUnknown || len(r.Spec.ApproveVerbs) != 1 || r.Spec.ApproveVerbs[0] != v1alpha1.VerbApproveIrreversible {
		t.Errorf("radius %+v, verbs %v", r.Spec.BlastRadius, r.Spec.ApproveVerbs)
	}
	control := w.request(d.call("update_invoice", note).request())
	if control.Spec.ApproveVerbs[0] != v1alpha1.VerbApprove {
		t.Errorf("the control: verbs %v", control.Spec.ApproveVerbs)
	}
}

func TestANameThatIsTakenGivesWayToTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	honest := w.request(d.call("update_invoice", note).request())
	w.decide(honest.Name, v1alpha1.DecisionDismissed)
	d.sees(honest, v1alpha1.PhaseDismissed)
	// The name that the next attempt would get is taken by another action.
	squatter := &v1alpha1.ApprovalRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: strings.TrimSuffix(honest.Name, "1") + "2"}, Spec: *honest.Spec.DeepCopy()}
	squatter.Spec.ActionHash, squatter.Spec.Arguments = "sha256:"+strings.Repeat("0", 64), `{"harmless":true}`
	if err := w.gateway.Create(t.Context(), squatter); err != nil {
		t.Fatal(err)
	}
	got := d.call("update_invoice", note)
	if got.code() != "ApprovalPending" || got.request() == squatter.Name || w.request(got.request()).Spec.ActionHash != honest.Spec.ActionHash {
		t.Errorf("got %s", got.raw)
	}
}

func TestAClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	faults := &claimFaults{}
	d := w.openDoor("gw", throughAPI(faults.wrap))
	for i, tc := range []struct {
		fault func(*http.Request, http.RoundTripper) (*http.Response, error)
		want  string
		runs  int
	}{
		{func(r *http.Request, next http.RoundTripper) (*http.Response, error) { // won, but nobody hears of it
			resp, err := next.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
			}
			return nil, errors.New("connection reset by peer")
		}, "", 1},
		{func(*http.Request, http.RoundTripper) (*http.Response, error) { // lost on its way
			return nil, errors.New("connection reset by peer")
		}, "ApprovalUnavailable", 1},
	} {
		arguments := fmt.Sprintf(`{"invoiceId":"a","note":"n%d"}`, i)
		d.call("update_invoice", arguments)
		r := w.approve()
		d.sees(r, v1alpha1.PhaseApproved)
		faults.once(tc.fault)
		got := d.call("update_invoice", arguments)
		if got.code() != tc.want {
			t.Errorf("%d: code %q, want %q: %s", i, got.code(), tc.want, got.raw)
		}
		w.executions("update_invoice", tc.runs)
		if tc.want != "" { // the approval is still good for one use
			d.used("update_invoice", arguments)
			w.executions("update_invoice", tc.runs+1)
		}
	}
}

// claimFaults stands between a gateway and the API and does something else with the next write of a status.
type claimFaults struct {
	mu   sync.Mutex
	next func(*http.Request, http.RoundTripper) (*http.Response, error)
}

func (f *claimFaults) once(fault func(*http.Request, http.RoundTripper) (*http.Response, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = fault
}

func (f *claimFaults) wrap(inner http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/status") {
			f.mu.Lock()
			fault := f.next
			f.next = nil
			f.mu.Unlock()
			if fault != nil {
				return fault(r, inner)
			}
		}
		return inner.RoundTrip(r)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// wantReceipts checks the chain of a stopped gateway, and that it does not hold a secret.
func (d *door) wantReceipts(secret string) receipt.Report {
	d.w.t.Helper()
	text := readFile(d.w.t, d.path)
	report, err := receipt.Verify(strings.NewReader(text))
	if err != nil || len(report.Problems) > 0 {
		d.w.t.Errorf("receipts of %s: %v %v", d.name, err, report.Problems)
	}
	if strings.Contains(text, secret) {
		d.w.t.Errorf("receipts of %s hold a secret", d.name)
	}
	return report
}
