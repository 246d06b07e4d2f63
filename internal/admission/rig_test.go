// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

var (
	born    = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	private = ed25519.NewKeyFromSeed([]byte(strings.Repeat("v", ed25519.SeedSize)))
	key     = vote.Key{ID: vote.KeyID(private.Public().(ed25519.PublicKey)), Private: private}
)

// polling is the webhook with everything that it reads, which a test may change.
type polling struct {
	live   *v1alpha1.ApprovalRequest
	server *v1alpha1.GovernedServer
	// held are the verbs that everybody holds.
	held []string
	// asked are the reviews that were made.
	asked []authorizationv1.SubjectAccessReviewSpec
	keys  vote.Keys
	// What fails.
	read, review, sign, publish error

	clock   *clocktesting.FakePassiveClock
	metrics *prometheus.Registry
	hooks   *Votes
}

// newPolling serves a Pending request of the server billing that needs so many approvals.
func newPolling(t testing.TB, required int32) *polling {
	t.Helper()
	p := &polling{
		server:  new(fixture.GovernedServer("team-a", "billing")),
		live:    new(fixture.ApprovalRequest("team-a", "billing", 1)),
		held:    []string{v1alpha1.VerbApprove, v1alpha1.VerbResolve},
		keys:    vote.Keys{key.ID: {Public: private.Public().(ed25519.PublicKey)}},
		clock:   clocktesting.NewFakePassiveClock(born.Add(time.Minute)),
		metrics: prometheus.NewRegistry(),
	}
	p.server.UID, p.live.UID, p.live.ResourceVersion = "s-1", "r-1", "7"
	p.live.Spec.ServerRef.UID, p.live.Spec.RequiredApprovals = "s-1", required
	p.live.CreationTimestamp, p.live.Status.Phase = metav1.NewTime(born), v1alpha1.PhasePending
	metrics, err := NewMetrics(p.metrics)
	if err != nil {
		t.Fatal(err)
	}
	p.hooks = &Votes{
		Client: interceptor.NewClient(fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build(), interceptor.Funcs{Get: p.get, Create: p.create}),
		Clock:  p.clock, Metrics: metrics,
		Key:  func(context.Context) (vote.Key, error) { return key, p.sign },
		Keys: func(context.Context) (vote.Keys, error) { return p.keys, p.publish },
	}
	return p
}

func (p *polling) get(_ context.Context, _ client.WithWatch, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *v1alpha1.ApprovalRequest:
		if p.live != nil && p.read == nil {
			p.live.DeepCopyInto(into)
			return nil
		}
	case *v1alpha1.GovernedServer:
		if p.server != nil && p.read == nil {
			p.server.DeepCopyInto(into)
			return nil
		}
	}
	if p.read != nil {
		return p.read
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, "gone")
}

func (p *polling) create(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
	review := object.(*authorizationv1.SubjectAccessReview)
	p.asked = append(p.asked, review.Spec)
	review.Status.Allowed = slices.Contains(p.held, review.Spec.ResourceAttributes.Verb)
	return p.review
}

// ask has somebody write a status in place of the stored one, and returns the answer and what would be stored.
func (p *polling) ask(t testing.TB, who string, dryRun bool, edit func(*v1alpha1.ApprovalRequestStatus)) (admission.Response, *v1alpha1.ApprovalRequest) {
	t.Helper()
	sent := p.live.DeepCopy()
	edit(&sent.Status)
	req := reviewOf(t, who, p.live, sent)
	req.DryRun = &dryRun
	answer := p.hooks.mutate(t.Context(), req)
	if !answer.Allowed {
		return answer, nil
	}
	return answer, patched(t, sent, answer.Patch)
}

// check asks the validating half about what would be stored.
func (p *polling) check(t testing.TB, who string, final *v1alpha1.ApprovalRequest) admission.Response {
	t.Helper()
	return p.hooks.validate(t.Context(), reviewOf(t, who, p.live, final))
}

func reviewOf(t testing.TB, who string, stored, sent *v1alpha1.ApprovalRequest) admission.Request {
	t.Helper()
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "review", Operation: admissionv1.Update, SubResource: "status", DryRun: new(false),
		Resource: metav1.GroupVersionResource{Group: "tidewaiter.dev", Version: "v1alpha1", Resource: "approvalrequests"},
		UserInfo: authenticationv1.UserInfo{Username: who, UID: "id of " + who, Groups: []string{"finance"},
			Extra: map[string]authenticationv1.ExtraValue{"scopes": {"all"}}},
	}}
	var err error
	if req.OldObject.Raw, err = json.Marshal(stored); err != nil {
		t.Fatal(err)
	}
	if req.Object.Raw, err = json.Marshal(sent); err != nil {
		t.Fatal(err)
	}
	return req
}

// patched applies a patch as the webhook makes them: one operation that puts a whole status.
func patched(t testing.TB, sent *v1alpha1.ApprovalRequest, patch []byte) *v1alpha1.ApprovalRequest {
	t.Helper()
	after := sent.DeepCopy()
	if len(patch) == 0 {
		return after
	}
	var operations []struct {
		Op, Path string
		Value    v1alpha1.ApprovalRequestStatus
	}
	if err := json.Unmarshal(patch, &operations); err != nil || len(operations) != 1 || operations[0].Op != "add" || operations[0].Path != "/status" {
		t.Fatalf("the patch is %s (%v), want one that puts the status", patch, err)
	}
	after.Status = operations[0].Value
	return after
}

func decide(decision v1alpha1.Decision) func(*v1alpha1.ApprovalRequestStatus) {
	return func(s *v1alpha1.ApprovalRequestStatus) { s.Decision, s.Reason = decision, "because" }
}
