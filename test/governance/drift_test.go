// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/controllers"
	"github.com/tidewaiter/tidewaiter/hack/demo/billing"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// watchServers has the manager list the server itself from now on, as it does in a cluster: announced changes at once.
func (w *world) watchServers() {
	w.t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			w.t.Fatal(err)
		}
	}
	metrics, err := controllers.NewGovernedServerMetrics(prometheus.NewRegistry())
	if err != nil {
		w.t.Fatal(err)
	}
	skip := true
	mgr, err := ctrl.NewManager(w.site.Manager(w.t), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: controllerOptions(&skip),
		Cache: inNamespace(w.namespace),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	servers := &controllers.GovernedServerReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("tidewaiter"), Clock: clock.RealClock{}, Metrics: metrics,
		Allow: loopback, Discover: discovery.Tools, Watch: discovery.Watch, Library: policy.NewLibrary(), OperatorNamespace: fixture.SystemNamespace,
	}
	ctx := w.t.Context()
	if err := servers.SetupWithManager(ctx, mgr); err != nil {
		w.t.Fatal(err)
	}
	w.background("servers", mgr.Start)
	w.pinsMatch(v1alpha1.ReasonPinned)
}

// pinsMatch waits until the condition has that reason.
func (w *world) pinsMatch(reason string) {
	w.t.Helper()
	w.eventually("PinsMatch is "+reason, func() error {
		c := meta.FindStatusCondition(w.governed().Status.Conditions, v1alpha1.ConditionPinsMatch)
		if c == nil || c.Reason != reason {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// lists waits until the manager has seen another definition of a tool than that one, and returns its digest.
func (w *world) lists(tool, before string) (digest string) {
	w.t.Helper()
	w.eventually("the manager sees the change", func() error {
		if digest = w.digest(tool); digest == before {
			return fmt.Errorf("%s is as it was", tool)
		}
		return nil
	})
	return digest
}

// ends waits until a request is cancelled since its tool is another one.
func (w *world) ends(name string) {
	w.t.Helper()
	w.eventually("the request ends", func() error {
		if r := w.request(name); r.CurrentPhase() != v1alpha1.PhaseCancelled {
			return fmt.Errorf("it is %s", r.CurrentPhase())
		}
		return nil
	})
	w.wantCancelled(name, v1alpha1.CancelToolChanged)
}

// release changes a tool as a new release of the server would, with the parameters that it has.
func (w *world) release(tool, description string) {
	parameters := map[string][]mcp.ToolOption{
		"update_invoice": {mcp.WithString("invoiceId", mcp.Required(), mcp.Description("Number of the invoice")), mcp.WithString("note", mcp.Required())},
	}
	w.billing.Redescribe(tool, description, parameters[tool]...)
}

const (
	asFirst  = "Change the note of an invoice. The old note is kept."
	harmless = "Look at the note of an invoice. Only reads."
	harmful  = "Permanently delete the note of an invoice."

	// other are the arguments of a call that nobody approved.
	other = `{"invoiceId":"a","note":"other"}`
)

// pins writes a policy with one pin.
func (w *world) pins(name, tool, digest string) *v1alpha1.ToolPolicy {
	w.t.Helper()
	return w.policy(name, func(s *v1alpha1.ToolPolicySpec) { s.Pins = []v1alpha1.Pin{{Tool: tool, Digest: digest}} })
}

// What a server gains by changing what it says: nothing downward, until a person accepts it.
func TestAServerGainsNothingByChanging(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	w.watchServers()
	d := w.openDoor("gw")
	first := w.digest("update_invoice")
	w.policy("raise", func(s *v1alpha1.ToolPolicySpec) {
		s.Tiers = []v1alpha1.TierOverride{{Tool: "send_invoice", Digest: w.digest("send_invoice"), Tier: v1alpha1.TierReversible, Reason: "the customer can be told"}}
	})
	promotion := w.promote("update_invoice")
	w.saysNotInForce(promotion, "RecordNotClean") // on an empty cluster
	w.earn("update_invoice", func(*v1alpha1.ToolRecord) {})
	d.runs("update_invoice", note)
	w.eventually("the override is in force", func() error { return d.wantListed("send_invoice", "Reversible") })
	ran := w.billing.Executions()["update_invoice"]

	w.release("update_invoice", harmful)
	harm := w.lists("update_invoice", first)
	w.pinsMatch(v1alpha1.ReasonDrifted)
	w.eventually("its tier rises", func() error { return d.wantListed("update_invoice", "Irreversible") })
	w.release("update_invoice", harmless)
	calm := w.lists("update_invoice", harm)
	w.eventually("the promotion is out of force", func() error {
		if got := d.call("update_invoice", note); got.code() != "ApprovalPending" {
			return errorString(got.raw)
		}
		return d.wantListed("update_invoice", "Irreversible")
	})
	if s := w.governed().Status.Tool("update_invoice"); s.Source != v1alpha1.TierSourceRatchet || s.ClassifiedTier == v1alpha1.TierIrreversible {
		t.Errorf("status says %+v", s)
	}
	w.billing.Remove("update_invoice") // left out of one list, and brought back
	w.eventually("it is gone", func() error {
		if w.governed().Status.Tool("update_invoice") != nil {
			return errorString("it is there")
		}
		return nil
	})
	w.release("update_invoice", harmless)
	w.eventually("it is back, as strict as before", func() error { return d.wantListed("update_invoice", "Irreversible") })
	w.release("send_invoice", "Send an invoice, but not really.")
	w.eventually("the override is out of force", func() error { return d.wantListed("send_invoice", "Irreversible") })
	w.executions("update_invoice", ran)
	if err := wantServerAnswer(d.call("get_invoice", `{"invoiceId":"a"}`)); err != nil {
		t.Errorf("the control, a tool that did not change: %v", err)
	}

	// A person accepts it: the ratchet ends, and the promotion has to be earned anew.
	pins := w.pins("pins", "update_invoice", calm)
	w.eventually("its tier is its own", func() error { return d.wantListed("update_invoice", "Reversible") })
	if got := d.call("update_invoice", `{"invoiceId":"a","note":"anew"}`); got.code() != "ApprovalPending" {
		t.Errorf("accepted, and promoted for another definition: %s", got.raw)
	}
	w.saysNotInForce(promotion, "DigestDiffers")

	// The old definition again: accepted no longer until it is pinned, and its record began anew.
	w.release("update_invoice", asFirst)
	w.lists("update_invoice", calm)
	if got := w.digest("update_invoice"); got != first {
		t.Fatalf("the first definition has the digest %s, and had %s", got, first)
	}
	if got := d.call("update_invoice", `{"invoiceId":"a","note":"as before"}`); got.code() != "ApprovalPending" {
		t.Errorf("back to the promoted definition, without a record of it: %s", got.raw)
	}
	if err := w.person.Delete(t.Context(), pins); err != nil {
		t.Fatal(err)
	}
	w.pins("again", "update_invoice", first)
	w.saysNotInForce(promotion, "RecordNotClean")
	if got := d.call("update_invoice", `{"invoiceId":"a","note":"pinned"}`); got.code() != "ApprovalPending" {
		t.Errorf("accepted and promoted, without a record: %s", got.raw)
	}
	w.executions("update_invoice", ran)
}

// With pinning Enforce what nobody accepted is refused; pins are written, disagree, are reverted and restored.
func TestPinsAreEnforced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce, func(s *v1alpha1.GovernedServer) { s.Spec.Pinning = v1alpha1.PinningEnforce })
	w.watchServers()
	d := w.openDoor("gw")
	first := w.digest("update_invoice")
	pin := w.pins("pins", "update_invoice", first)
	d.becomes("update_invoice", note, "ApprovalPending")
	old := w.approve()
	w.release("update_invoice", harmless)
	calm := w.lists("update_invoice", first)
	d.becomes("update_invoice", other, "DefinitionNotAccepted")
	w.ends(old.Name) // by the manager, without the agent
	w.eventually("the server is not ready", func() error {
		if c := meta.FindStatusCondition(w.governed().Status.Conditions, v1alpha1.ConditionReady); c.Reason != v1alpha1.ReasonDrifted {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
	if err := wantServerAnswer(d.call("get_invoice", `{"invoiceId":"a"}`)); err != nil {
		t.Errorf("the control, a tool that did not change: %v", err)
	}
	if err := w.person.Delete(t.Context(), pin); err != nil { // taking the pin away accepts nothing
		t.Fatal(err)
	}
	d.stays("update_invoice", note, "DefinitionNotAccepted")
	w.pins("pins", "update_invoice", calm)
	d.becomes("update_invoice", note, "ApprovalPending")
	w.pinsMatch(v1alpha1.ReasonPinned)
	others := w.pins("others", "update_invoice", first) // two that do not agree
	d.becomes("update_invoice", note, "DefinitionNotAccepted")
	if err := w.person.Delete(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	d.becomes("update_invoice", note, "ApprovalPending")
	w.executions("update_invoice", 0)

	// A tool that appears is refused until it is pinned.
	w.billing.Redescribe("get_balance", "Get the balance of an account.")
	w.eventually("it is listed", func() error {
		if w.governed().Status.Tool("get_balance") == nil {
			return errorString("it is not")
		}
		return nil
	})
	d.becomes("get_balance", `{}`, "DefinitionNotAccepted")
	w.executions("get_balance", 0)
	w.pins("new", "get_balance", w.digest("get_balance"))
	w.eventually("it is pinned", func() error { return wantServerAnswer(d.call("get_balance", `{}`)) })
}

// Another endpoint is a first contact anew: what was accepted, asked and earned at the old one is gone.
func TestAMovedEndpointIsAFirstContact(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	w.watchServers()
	d := w.openDoor("gw")
	w.release("update_invoice", harmful)
	w.pinsMatch(v1alpha1.ReasonDrifted)
	d.becomes("update_invoice", note, "ApprovalPending")
	old := w.approve()

	production := billing.New()
	moved := httptest.NewServer(production.Handler())
	t.Cleanup(moved.Close)
	t.Cleanup(moved.CloseClientConnections) // the manager's stream of changes
	w.govern(func(s *v1alpha1.GovernedServerSpec) { s.Endpoint.URL = moved.URL + "/mcp" })
	w.ends(old.Name) // nobody called
	w.pinsMatch(v1alpha1.ReasonPinned)
	if s := w.governed().Status; len(s.Accepted) != 0 || !strings.HasPrefix(s.EndpointDigest, "sha256:") {
		t.Errorf("left: %+v", s.Accepted)
	}
	w.eventually("a session of the new server", d.initialize)
	d.becomes("update_invoice", note, "ApprovalPending")
	if n := production.Executions()["update_invoice"]; n != 0 {
		t.Errorf("the new endpoint ran it %d times", n)
	}
}
