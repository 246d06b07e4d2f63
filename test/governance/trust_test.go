// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// openQuietDoor opens a door on a server without a tool that reads.
func (w *world) openQuietDoor(name string, options ...doorOption) *door {
	w.t.Helper()
	return w.open(name, func(*door) error { return nil }, options...)
}

// earn writes the record that the manager keeps of a tool.
func (w *world) earn(tool string, edit func(*v1alpha1.ToolRecord)) {
	w.t.Helper()
	server := w.governed()
	record := v1alpha1.ToolRecord{Tool: tool, Digest: w.digest(tool), EndpointDigest: server.Status.EndpointDigest, Approved: 3, Autonomy: v1alpha1.AutonomyEligible}
	edit(&record)
	w.status(func(s *v1alpha1.GovernedServerStatus) { s.Records = []v1alpha1.ToolRecord{record} })
}

// promote promotes tools as the person.
func (w *world) promote(tools ...string) *v1alpha1.ToolPolicy {
	w.t.Helper()
	return w.policy("promote", func(s *v1alpha1.ToolPolicySpec) {
		for _, tool := range tools {
			s.Autonomy = append(s.Autonomy, v1alpha1.AutonomyRule{Tool: tool, Digest: w.digest(tool), Mode: v1alpha1.ModeUnattended})
		}
	})
}

// runs waits until a tool runs without a person.
func (d *door) runs(tool, arguments string) {
	d.w.t.Helper()
	d.w.eventually(tool+" runs unattended", func() error { return wantServerAnswer(d.call(tool, arguments)) })
}

func TestTrustIsEarnedPromotedAndRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	for i := range 3 {
		arguments := fmt.Sprintf(`{"invoiceId":"a","note":"%d"}`, i)
		d.call("update_invoice", arguments)
		w.approve()
		d.used("update_invoice", arguments)
	}
	w.executions("update_invoice", 3)
	// Applied to an empty record, a promotion gates as before.
	promotion := w.promote("update_invoice", "delete_account")
	w.eventually("the status says why", func() error {
		current := &v1alpha1.ToolPolicy{}
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(promotion), current); err != nil {
			return err
		}
		if len(current.Status.NotInForce) != 2 {
			return fmt.Errorf("notInForce %v", current.Status.NotInForce)
		}
		return nil
	})
	if got := d.call("update_invoice", note); got.code() != "ApprovalPending" {
		t.Errorf("promoted without a record: %s", got.raw)
	}
	w.executions("update_invoice", 3)

	w.earn("update_invoice", func(*v1alpha1.ToolRecord) {})
	d.runs("update_invoice", note)
	if n := w.billing.Executions()["update_invoice"]; n != 4 {
		t.Errorf("executed %d times", n)
	}
	if r := w.requests(); r[len(r)-1].CurrentPhase() == v1alpha1.PhasePending {
		t.Error("people are still asked about what has run")
	}
	if got := d.call("delete_account", `{"force":true}`); got.code() != "ApprovalPending" {
		t.Errorf("an Irreversible tool, promoted: %s", got.raw)
	}
	w.executions("delete_account", 0)

	if err := w.person.Delete(t.Context(), promotion); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	before := 0
	w.eventually("gated again", func() error {
		before = w.billing.Executions()["update_invoice"]
		if got := d.call("update_invoice", note); got.code() != "ApprovalPending" {
			return errorString(got.raw)
		}
		return nil
	})
	// One second from the event; the rest is for the event itself on a busy machine.
	if took := time.Since(revoked); took > 3*time.Second {
		t.Errorf("the revocation acted after %v", took)
	}
	w.executions("update_invoice", before)

	d.stop()
	report := d.wantReceipts("correct horse")
	text := readFile(t, d.path)
	// A revocation that overtakes a call on its way leaves a verdict and the outcome NotSent: nothing was executed.
	decisions, outcomes := 0, 0
	for line := range strings.Lines(text) {
		var r struct{ Kind, Verdict, Tool, Outcome string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Kind == "Decision" && r.Verdict == "Allow" && r.Tool == "update_invoice":
			decisions++
		case r.Kind == "Outcome" && r.Outcome == "NotSent":
			decisions--
		case r.Kind == "Outcome":
			outcomes++
		}
	}
	if n := w.billing.Executions()["update_invoice"]; decisions != n || outcomes != n {
		t.Errorf("%d receipts, %d decisions and %d outcomes for %d executions", report.Receipts, decisions, outcomes, n)
	}
}

func TestADenialEndsTrustAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	w.earn("update_invoice", func(*v1alpha1.ToolRecord) {})
	asked := w.request(d.call("update_invoice", note).request())
	w.promote("update_invoice")
	d.runs("update_invoice", `{"invoiceId":"b","note":"n"}`)
	before := w.billing.Executions()["update_invoice"]
	w.decide(asked.Name, v1alpha1.DecisionDenied) // the manager's record does not say so yet
	d.sees(asked, v1alpha1.PhaseDenied)
	// The record does not say so yet, but nothing runs unattended any more: a person would be asked, and not so soon.
	if got := d.call("update_invoice", `{"invoiceId":"c","note":"n"}`); got.code() != "BackingOff" {
		t.Errorf("after a denial: %s", got.raw)
	}
	w.executions("update_invoice", before)
}

func TestAutonomyHoldsOnlyForACleanRecordOfThisDefinition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	w.promote("update_invoice")
	for name, edit := range map[string]func(*v1alpha1.ToolRecord){
		"too few":          func(r *v1alpha1.ToolRecord) { r.Approved = 2 },
		"a denial":         func(r *v1alpha1.ToolRecord) { r.Denied = 1 },
		"an unclear one":   func(r *v1alpha1.ToolRecord) { r.Ambiguous = 1 },
		"another digest":   func(r *v1alpha1.ToolRecord) { r.Digest = "sha256:" + strings.Repeat("0", 64) },
		"another endpoint": func(r *v1alpha1.ToolRecord) { r.EndpointDigest = "sha256:" + strings.Repeat("0", 64) },
	} {
		w.earn("update_invoice", func(*v1alpha1.ToolRecord) {})
		d.runs("update_invoice", note)
		w.earn("update_invoice", edit)
		w.eventually(name+" is seen", func() error { return d.wantBehaviour("update_invoice", "RequiresApproval") })
		before := w.billing.Executions()["update_invoice"]
		if got := d.call("update_invoice", note); got.code() != "ApprovalPending" {
			t.Errorf("%s: %s", name, got.raw)
		}
		w.executions("update_invoice", before)
	}
}

func (d *door) wantBehaviour(tool, behaviour string) error {
	got := d.post(d.w.t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).raw
	_, after, _ := strings.Cut(got, `"name":"`+tool+`"`)
	_, after, _ = strings.Cut(after, `"tidewaiter.dev/behaviour":"`)
	if !strings.HasPrefix(after, behaviour) {
		return fmt.Errorf("%s is listed as %.20s", tool, after)
	}
	return nil
}

func TestAnOverrideIsForTheDefinitionItNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	w.policy("lower", func(s *v1alpha1.ToolPolicySpec) {
		s.Tiers = []v1alpha1.TierOverride{{Tool: "update_invoice", Digest: w.digest("update_invoice"), Tier: v1alpha1.TierRead, Reason: "notes are harmless"}}
	})
	d := w.openDoor("gw")
	w.eventually("lowered", func() error { return wantServerAnswer(d.call("update_invoice", note)) })
	w.executions("update_invoice", 1)
	w.billing.Redescribe("update_invoice", "Change the note of an invoice. And pay it.")
	w.discover()
	w.eventually("the gateway knows", func() error { return d.wantBehaviour("update_invoice", "RequiresApproval") })
	// A call may meet the manager's word of the change while people are being asked.
	d.becomes("update_invoice", note, "ApprovalPending")
	w.executions("update_invoice", 1)
}

func TestAMinimumTierGatesEvenWhatTheNameCallsARead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce, func(s *v1alpha1.GovernedServer) { s.Spec.Classification.MinimumTier = v1alpha1.TierReversible })
	d := w.openQuietDoor("gw")
	got := d.call("get_invoice", `{"invoiceId":"a"}`)
	if got.code() != "ApprovalPending" || w.request(got.request()).Spec.GatedBy != "minimumTier" {
		t.Errorf("got %s", got.raw)
	}
	w.executions("get_invoice", 0)
}

func TestAWatchThatIsStuckStopsEffectsBeforeReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	w.earn("update_invoice", func(*v1alpha1.ToolRecord) {})
	promotion := w.promote("update_invoice")
	now := testclock.NewFakeClock(time.Now())
	w.pulse = func() { now.Step(100 * time.Millisecond) }
	network := &network{}
	d := w.openDoor("gw", withClock(now), throughAPI(network.wrap))
	d.runs("update_invoice", note)
	gated := `{"accountId":"a"}`
	if got := d.call("delete_account", gated); got.code() != "ApprovalPending" {
		t.Fatalf("got %s", got.raw)
	}

	network.cut.Store(true) // half-open: nothing answers, nothing is closed
	w.pulse = nil
	cutAt := now.Now()
	if err := w.person.Delete(t.Context(), promotion); err != nil {
		t.Fatal(err)
	}
	before := w.billing.Executions()
	now.SetTime(cutAt.Add(91 * time.Second))
	for tool, arguments := range map[string]string{"update_invoice": note, "delete_account": gated} {
		if got := d.call(tool, arguments); got.code() != "PolicyStale" {
			t.Errorf("%s after 91 s: %s", tool, got.raw)
		}
	}
	w.executions("update_invoice", before["update_invoice"])
	if err := wantServerAnswer(d.call("get_invoice", `{"invoiceId":"a"}`)); err != nil {
		t.Errorf("a read after 91 s: %v", err)
	}
	now.SetTime(cutAt.Add(5*time.Minute + time.Second))
	reads := w.billing.Executions()["get_invoice"]
	if got := d.call("get_invoice", `{"invoiceId":"a"}`); got.code() != "PolicyStale" {
		t.Errorf("a read after five minutes: %s", got.raw)
	}
	w.executions("get_invoice", reads)
}

// network is what lies between a gateway and the Kubernetes API. Once cut, it is silent.
type network struct{ cut atomic.Bool }

func (n *network) wrap(inner http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if n.cut.Load() {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		resp, err := inner.RoundTrip(r)
		if err == nil {
			resp.Body = &cable{ReadCloser: resp.Body, network: n, gone: r.Context().Done()}
		}
		return resp, err
	})
}

type cable struct {
	io.ReadCloser
	network *network
	gone    <-chan struct{}
}

func (c *cable) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.network.cut.Load() {
		<-c.gone
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}
