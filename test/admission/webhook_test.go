// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// configurations returns the webhook configurations as they are stored.
func configurations(t *testing.T) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	named := client.ObjectKey{Name: v1alpha1.WebhookConfiguration}
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	must(t, admin(t).Get(t.Context(), named, mutating))
	must(t, admin(t).Get(t.Context(), named, validating))
	return mutating, validating
}

// What gateways and the manager write waits for no webhook. It counts the calls of all, so it does not run beside other
// tests.
func TestOutcomesMakeNoCallOfTheWebhook(t *testing.T) {
	c := newCast(t)
	yes, no := c.request(t, approved), c.request(t, pending)
	before := votes.Calls()
	for _, step := range []write{{"gateway", claim}, {"gateway", unclear}, {"gateway", succeed}, {"manager", counted}} {
		taken(t, step.patch, c.write(t, yes, step))
	}
	taken(t, "the gateway cancels", c.write(t, no, write{"gateway", cancel}))
	late, expired := c.request(t, pending), c.request(t, pending)
	taken(t, "the manager lets it expire", c.write(t, expired, write{"manager", expire}))
	taken(t, "somebody writes a label", c.editor.Patch(t.Context(), late.DeepCopy(), merge(`{"metadata":{"labels":{"team":"finance"}}}`)))
	taken(t, "the manager removes it", c.manager.Delete(t.Context(), late.DeepCopy()))
	if made := votes.Calls() - before; made != 0 {
		t.Errorf("these writes made %d calls, want none", made)
	}
	taken(t, "a vote", c.write(t, c.request(t, pending), write{"approver", approve}))
	if made := votes.Calls() - before; made != 2 {
		t.Errorf("a vote made %d calls, want 2: one to make it and one to check it", made)
	}
}

// It points the webhook at nothing, for everybody, so it does not run beside other tests.
func TestADeadWebhookStopsVotesAndNothingElse(t *testing.T) {
	c := newCast(t)
	ctx := t.Context()
	open, yes, unclear := c.request(t, pending), c.request(t, approved), c.request(t, ambiguous)
	mutating, _ := configurations(t)
	dead := mutating.DeepCopy()
	for i := range dead.Webhooks {
		dead.Webhooks[i].ClientConfig.URL = new("https://127.0.0.1:1/mutate")
	}
	must(t, admin(t).Update(ctx, dead))
	vote := func(ctx context.Context) error {
		return c.approver.Status().Patch(ctx, open.DeepCopy(), merge(`{"status":`+approve+`}`), client.DryRunAll)
	}
	isDead := func(err error) bool {
		return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
	}
	until(t, "the webhook is dead", func(ctx context.Context) bool { return isDead(vote(ctx)) })
	for name, err := range map[string]error{
		"a vote":       c.write(t, open, write{"approver", approve}),
		"a junk vote":  c.write(t, open, write{"approver", junkVote}),
		"a denial":     c.write(t, yes, write{"approver", deny}),
		"a resolution": c.write(t, unclear, write{"resolver", settle("Committed", "")}),
	} {
		if !isDead(err) {
			t.Errorf("%s: %v, want it to fail with the webhook", name, err)
		}
	}
	for _, step := range []write{{"gateway", claim}, {"gateway", succeed}, {"manager", counted}} {
		taken(t, step.patch, c.write(t, yes, step))
	}
	taken(t, "the gateway cancels", c.write(t, open, write{"gateway", cancel}))
	taken(t, "the gateway's late answer", c.write(t, unclear, write{"gateway", succeed}))
	taken(t, "a status without its subresource, which nobody can warn about now", c.editor.Patch(ctx, yes.DeepCopy(), merge(`{"status":`+deny+`}`)))

	open = c.request(t, pending)
	mutating.ResourceVersion = dead.ResourceVersion
	must(t, admin(t).Update(ctx, mutating))
	until(t, "the webhook is back", func(ctx context.Context) bool { return vote(ctx) == nil })
}

// It deletes the configurations, for everybody, so it does not run beside other tests.
func TestWithoutTheConfigurationsNobodyDecides(t *testing.T) {
	c := newCast(t)
	ctx := t.Context()
	request := c.request(t, pending)
	mutating, validating := configurations(t)
	vote := func(ctx context.Context) error {
		return c.approver.Status().Patch(ctx, request.DeepCopy(), merge(`{"status":`+approve+`}`), client.DryRunAll)
	}
	must(t, admin(t).Delete(ctx, mutating))
	until(t, "decisions are no longer made votes", func(ctx context.Context) bool { return vote(ctx) != nil })
	refused(t, "a decision", requestsStatusPolicy, c.write(t, request, write{"approver", approve}))
	// The validating half still knows an unsigned vote when it sees one.
	declined(t, "a vote of one's own without a signature", c.write(t, request, write{"approver", c.vote("approver", "Approved", "Approved")}), "not signed")
	must(t, admin(t).Delete(ctx, validating))
	until(t, "votes are no longer checked", func(ctx context.Context) bool {
		return c.approver.Status().Patch(ctx, request.DeepCopy(), merge(`{"status":`+c.vote("approver", "Approved", "Approved")+`}`), client.DryRunAll) == nil
	})
	refused(t, "a decision without both", requestsStatusPolicy, c.write(t, request, write{"approver", approve}))
	refused(t, "a phase without both", requestsStatusPolicy, c.write(t, request, write{"approver", to("Approved")}))
	taken(t, "a vote of one's own without a signature", c.write(t, request, write{"approver", c.vote("approver", "Approved", "Approved")}))
	if tally := c.tally(t, request); tally.Approved(1) || len(tally.Void) != 1 {
		t.Errorf("the unsigned vote comes to %+v, want it void for gateways", tally)
	}

	mutating.ResourceVersion, validating.ResourceVersion = "", ""
	must(t, admin(t).Create(ctx, mutating))
	must(t, admin(t).Create(ctx, validating))
	request = c.request(t, pending)
	checked := votes.Calls()
	until(t, "the webhook is back", func(ctx context.Context) bool { return vote(ctx) == nil && votes.Calls() >= checked+2 })
}

func TestADryRunIsStampedAndNotSigned(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	request := c.request(t, pending)
	tried := request.DeepCopy()
	taken(t, "a dry run", c.approver.Status().Patch(t.Context(), tried, merge(`{"status":`+approve+`}`), client.DryRunAll))
	if len(tried.Status.Votes) != 1 || tried.Status.Phase != v1alpha1.PhaseApproved {
		t.Fatalf("a dry run answers %s with %d votes, want what would be stored", tried.Status.Phase, len(tried.Status.Votes))
	}
	if given := tried.Status.Votes[0]; given.Username != c.username("approver") || given.Signature != "" || given.KeyID != "" {
		t.Errorf("a dry run answers %+v, want it stamped and not signed", given)
	}
	declined(t, "a dry run of one who may not", c.editor.Status().Patch(t.Context(), request.DeepCopy(), merge(`{"status":`+approve+`}`), client.DryRunAll))
	if stored := c.stored(t, request); len(stored.Status.Votes) != 0 {
		t.Errorf("a dry run stored %v", stored.Status.Votes)
	}
	taken(t, "the real thing", c.approver.Status().Patch(t.Context(), &request, merge(`{"status":`+approve+`}`)))
	if request.Status.Votes[0].Signature == "" {
		t.Error("the real thing is not signed")
	}
}

// Two writers with the same version: the second is told to read again, not that its view of the votes is a forgery.
func TestAStaleWriteIsAConflict(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	seen := c.stored(t, c.request(t, pending, twoOfTwo))
	taken(t, "the first vote", c.write(t, seen, write{"approver", approve}))
	stale := seen.DeepCopy()
	stale.Status.Decision = v1alpha1.DecisionApproved
	if err := c.second.Status().Update(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("an update with the version before the vote: %v, want a conflict", err)
	}
	patch := `{"metadata":{"resourceVersion":"` + seen.ResourceVersion + `"},"status":{"decision":"Denied"}}`
	if err := c.second.Status().Patch(t.Context(), seen.DeepCopy(), merge(patch)); !apierrors.IsConflict(err) {
		t.Errorf("a patch with the version before the vote: %v, want a conflict", err)
	}
	fresh := c.stored(t, seen)
	fresh.Status.Decision = v1alpha1.DecisionApproved
	taken(t, "an update of what is stored", c.second.Status().Update(t.Context(), &fresh))
	if fresh.Status.Phase != v1alpha1.PhaseApproved {
		t.Errorf("after two of two the request is %s", fresh.Status.Phase)
	}
}

// Whatever the shape, there is an answer that is not the webhook's failure, and no vote.
func TestOddShapesOfPatchesAreAnswered(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	long := strings.Repeat("x", 200_000)
	for name, tc := range map[string]struct {
		kind  types.PatchType
		patch string
	}{
		"the status is null":          {types.MergePatchType, `{"status":null}`},
		"the status is empty":         {types.MergePatchType, `{"status":{"phase":null,"decision":null,"votes":null}}`},
		"the status is a list":        {types.MergePatchType, `{"status":[]}`},
		"votes is a string":           {types.MergePatchType, `{"status":{"decision":"Denied","votes":"Denied"}}`},
		"a vote is null":              {types.MergePatchType, `{"status":{"decision":"Denied","votes":[null]}}`},
		"a vote is a number":          {types.MergePatchType, `{"status":{"decision":"Denied","votes":[1]}}`},
		"an empty vote":               {types.MergePatchType, `{"status":{"decision":"Denied","votes":[{}]}}`},
		"a decision is an object":     {types.MergePatchType, `{"status":{"decision":{"Approved":true}}}`},
		"a reason is a number":        {types.MergePatchType, `{"status":{"decision":"Approved","reason":5}}`},
		"a huge reason":               {types.MergePatchType, `{"status":{"decision":"Approved","reason":"` + long + `"}}`},
		"many votes":                  {types.MergePatchType, `{"status":{"votes":[` + strings.Repeat(`{"username":"a","decision":"Approved","time":"2026-01-02T03:04:05Z"},`, 5000) + `{}]}}`},
		"a time that is none":         {types.MergePatchType, `{"status":{"decision":"Denied","votes":[{"username":"a","decision":"Denied","time":"soon"}]}}`},
		"the vote is taken away":      {types.JSONPatchType, `[{"op":"remove","path":"/status/votes/0"}]`},
		"a vote is put in front":      {types.JSONPatchType, `[{"op":"add","path":"/status/votes/0","value":{"username":"a","decision":"Denied","time":"2026-01-02T03:04:05Z"}}]`},
		"the status is replaced":      {types.JSONPatchType, `[{"op":"replace","path":"/status","value":{"decision":"Approved"}}]`},
		"the vote's decision changes": {types.JSONPatchType, `[{"op":"replace","path":"/status/votes/0/decision","value":"Denied"}]`},
		"a resolution is a list":      {types.MergePatchType, `{"status":{"resolution":[]}}`},
		"a resolution is empty":       {types.MergePatchType, `{"status":{"resolution":{}}}`},
	} {
		request := c.request(t, []write{{"second", approve}}, twoOfTwo)
		err := c.approver.Status().Patch(t.Context(), request.DeepCopy(), client.RawPatch(tc.kind, []byte(tc.patch)))
		if err == nil || apierrors.IsInternalError(err) || strings.Contains(err.Error(), "failed calling webhook") {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
		expect(t, name, words{Phase: "Pending", Votes: []string{"second Approved checked with finance"}}, c.words(t, request))
	}
}

func TestTheWaysOfKubectl(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	in := func(args ...string) []string { return append(args, "-n", c.namespace) }
	becomes := func(request v1alpha1.ApprovalRequest, want words) {
		t.Helper()
		expect(t, request.Name, want, c.words(t, request))
	}
	yes := words{Phase: "Approved", Decision: "Approved", Votes: []string{"approver Approved "}}

	request := c.request(t, pending, twoOfTwo)
	says(t, c.approver.cfg, "", 0, []string{"patched", "Warning: 1 of 2 approvals; 1 more needed"},
		in("patch", "areq", request.Name, "--subresource=status", "--type=merge", "-p", `{"status":{"decision":"Approved"}}`)...)
	becomes(request, words{Phase: "Pending", Votes: []string{"approver Approved "}})

	request = c.request(t, pending)
	says(t, c.approver.cfg, "", 0, []string{"patched"},
		in("patch", "areq", request.Name, "--subresource=status", "--type=json", "-p", `[{"op":"add","path":"/status/decision","value":"Approved"}]`)...)
	becomes(request, yes)

	request = c.request(t, pending)
	applied := fmt.Sprintf("apiVersion: tidewaiter.dev/v1alpha1\nkind: ApprovalRequest\nmetadata: {name: %s}\nstatus: {decision: Approved}\n", request.Name)
	says(t, c.approver.cfg, applied, 0, []string{"serverside-applied"}, in("apply", "--server-side", "--subresource=status", "-f", "-")...)
	becomes(request, yes)

	request = c.request(t, pending)
	stdout, _, _ := plane.Kubectl(t, c.approver.cfg, "", in("get", "areq", request.Name, "-o", "json")...)
	replaced := strings.Replace(stdout, `"phase": "Pending"`, `"phase": "Pending", "decision": "Approved"`, 1)
	says(t, c.approver.cfg, replaced, 0, []string{"replaced"}, in("replace", "--subresource=status", "-f", "-")...)
	becomes(request, yes)

	request = c.request(t, pending)
	t.Run("edit", func(t *testing.T) {
		edit := func(words []string, more ...string) {
			t.Helper()
			cmd := plane.KubectlCommand(t.Context(), plane.Kubeconfig(t, c.approver.cfg), in(append([]string{"edit", "areq", request.Name}, more...)...)...)
			cmd.Env = append(cmd.Env, `KUBE_EDITOR=sed -i 's/^  phase: Pending/  phase: Pending\n  decision: Approved/'`)
			out, err := cmd.CombinedOutput()
			for _, word := range words {
				if err != nil || !strings.Contains(string(out), word) {
					t.Errorf("kubectl edit %v does not say %q (%v):\n%s", more, word, err, out)
				}
			}
		}
		edit([]string{"edited", "Warning: status is not changed this way: kubectl approve " + request.Name, "--subresource=status"})
		becomes(request, words{Phase: "Pending"})
		edit([]string{"edited"}, "--subresource=status")
		becomes(request, yes)
	})

	says(t, c.second.cfg, "", 1, []string{"Error from server (Forbidden)", "Approved", "can be Denied"},
		in("patch", "areq", request.Name, "--subresource=status", "--type=merge", "-p", `{"status":{"decision":"Dismissed"}}`)...)
	says(t, c.second.cfg, "", 0, []string{"patched (no change)"},
		in("patch", "areq", request.Name, "--subresource=status", "--type=merge", "-p", `{"status":{"decision":"Approved"}}`)...)
	becomes(request, yes)
}

// A review that did not come from the API server's own write is answered without a signature: it must agree with what
// is stored, in the version that is stored.
func TestAForgedReviewGetsNoSignature(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	mutating, _ := configurations(t)
	address := *mutating.Webhooks[0].ClientConfig.URL
	post := func(address string, stored v1alpha1.ApprovalRequest) (int, string) {
		sent := stored.DeepCopy()
		sent.Status.Decision = v1alpha1.DecisionApproved
		review := admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Update, SubResource: "status", Name: stored.Name, Namespace: stored.Namespace,
			Resource: metav1.GroupVersionResource{Group: "tidewaiter.dev", Version: "v1alpha1", Resource: "approvalrequests"},
			UserInfo: whoIs(t, c.approver), DryRun: new(false),
		}}
		review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
		var err error
		review.Request.OldObject.Raw, err = json.Marshal(stored)
		must(t, err)
		review.Request.Object.Raw, err = json.Marshal(sent)
		must(t, err)
		return votes.Post(t, address, review)
	}
	stored := c.stored(t, c.request(t, pending))
	for name, edit := range map[string]func(*v1alpha1.ApprovalRequest){
		"a request that is not there":  func(r *v1alpha1.ApprovalRequest) { r.Name = "billing-made-up" },
		"another object of this name":  func(r *v1alpha1.ApprovalRequest) { r.UID = "another" },
		"another spec":                 func(r *v1alpha1.ApprovalRequest) { r.Spec.Arguments = "{}" },
		"another verb":                 func(r *v1alpha1.ApprovalRequest) { r.Spec.ApproveVerbs = []string{"approve-nothing"} },
		"another version":              func(r *v1alpha1.ApprovalRequest) { r.ResourceVersion = "1" },
		"another status":               func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = "Approved" },
		"another status, the last one": func(r *v1alpha1.ApprovalRequest) { r.Status.Reason = "x" },
	} {
		forged := stored.DeepCopy()
		edit(forged)
		if code, body := post(address, *forged); code != http.StatusOK || strings.Contains(body, `"allowed":true`) || strings.Contains(body, `"patch"`) {
			t.Errorf("%s: %d %s, want a refusal without a patch", name, code, body)
		}
	}
	if code, body := post(strings.Replace(address, "/mutate", "0/mutate", 1), stored); code != http.StatusNotFound {
		t.Errorf("with another path: %d %s, want 404", code, body)
	}
	// The twin: who knows the path and forges everything rightly is answered, and cannot write what they got: the
	// policies take a vote from its writer alone. It is said in docs/threat-model.md.
	if code, body := post(address, stored); code != http.StatusOK || !strings.Contains(body, `"allowed":true`) {
		t.Errorf("a review that agrees in everything: %d %s, want it answered", code, body)
	}
	if got := c.stored(t, stored); got.Status.Phase != v1alpha1.PhasePending || len(got.Status.Votes) != 0 {
		t.Errorf("a review alone has changed the request: %+v", got.Status)
	}
}
