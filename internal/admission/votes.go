// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission turns what a person writes into ApprovalRequests into votes: it stamps and signs them as the API
// server authenticated the writer, or refuses them with a sentence that says what to do instead; and it tells whoever
// writes a ToolPolicy what in it cannot be meant so; and it puts the gateway into pods. It writes nothing to the API server itself; who may write what else
// is a matter of the ValidatingAdmissionPolicies.
package admission

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// wildcardVerb is a verb that nobody is given: who may it holds a wildcard.
const wildcardVerb = "tidewaiter-wildcard"

// Votes is the webhook of votes. Everything that a vote depends on is read live, once for each vote.
type Votes struct {
	// Client reads past any cache, and asks with SubjectAccessReviews.
	Client client.Client
	Clock  clock.PassiveClock
	// Key returns the voting key that signs now.
	Key func(context.Context) (vote.Key, error)
	// Keys returns the published voting keys, against which votes are verified.
	Keys    func(context.Context) (vote.Keys, error)
	Metrics *Metrics
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers;approvalrequests,verbs=get
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Handler serves POST /mutate (a decision becomes a vote), /validate (what is stored is what was signed), /hint (a person
// who forgets the subresource, or whose policy cannot be meant as it is written, is told) and /govern (a pod gets its
// gateway).
func Handler(v *Votes, p *Policies, pods *Pods) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /govern", &admission.Webhook{Handler: admission.HandlerFunc(pods.govern)})
	mux.Handle("POST /mutate", &admission.Webhook{Handler: admission.HandlerFunc(v.mutate)})
	mux.Handle("POST /validate", &admission.Webhook{Handler: admission.HandlerFunc(v.validate)})
	mux.Handle("POST /hint", &admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		if req.Resource.Resource == "toolpolicies" {
			return p.hint(ctx, req)
		}
		return hint(ctx, req)
	})})
	return mux
}

// mutate answers the write of a status before it is checked: it turns a decision into a vote and a resolution into the
// end of the request.
func (v *Votes) mutate(ctx context.Context, req admission.Request) admission.Response {
	w, err := readWrite(req, "status")
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	wanted, no := w.wish()
	if no == nil && wanted == (wish{}) {
		return admission.Allowed("")
	}
	var f facts
	if no == nil {
		if f, err = v.gather(ctx, w, wanted); err != nil {
			return admission.Errored(http.StatusInternalServerError, fmt.Errorf("this cannot be decided now, try again: %w", err))
		}
		no = judge(w, wanted, f)
	}
	if no != nil {
		return v.refuse(ctx, w, no)
	}
	o, err := v.enact(ctx, w, wanted, f)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("the vote cannot be signed now, try again: %w", err))
	}
	return accept(w, o)
}

func (v *Votes) refuse(ctx context.Context, w write, no *refusal) admission.Response {
	log.FromContext(ctx).Info("vote refused", "server", w.stored.Spec.ServerRef.Name, "reason", no.word)
	if !w.dryRun {
		v.Metrics.refused(w.stored, no.word)
	}
	return no.response()
}

// facts is what a vote depends on besides the write itself.
type facts struct {
	// live is the request as it is stored now; nil if there is none.
	live *v1alpha1.ApprovalRequest
	// server is the GovernedServer of that name; nil if there is none.
	server *v1alpha1.GovernedServer
	// lacks are the verbs that the writer needs and does not hold.
	lacks []string
	// wildcard tells that the writer holds even a verb that nobody is given.
	wildcard bool
	// tally is what the stored votes come to.
	tally vote.Tally
	// at is when the vote is given.
	at metav1.Time
}

// gather reads what the judgement needs. It goes no further than the stored request if that is not the one that the
// write is about.
func (v *Votes) gather(ctx context.Context, w write, wanted wish) (facts, error) {
	f := facts{at: w.instant(v.Clock.Now())}
	var err error
	if f.live, err = read(ctx, v.Client, w.stored.Namespace, w.stored.Name, &v1alpha1.ApprovalRequest{}); err != nil {
		return facts{}, err
	}
	if disagrees(w.stored, f.live) != nil {
		return f, nil
	}
	if f.server, err = read(ctx, v.Client, w.stored.Namespace, w.stored.Spec.ServerRef.Name, &v1alpha1.GovernedServer{}); err != nil {
		return facts{}, err
	}
	for _, verb := range wanted.verbs(f.live) {
		held, err := v.may(ctx, w, verb)
		if err != nil {
			return facts{}, err
		}
		if !held {
			f.lacks = append(f.lacks, verb)
		}
	}
	if isServiceAccount(w.user.Username) {
		if f.wildcard, err = v.may(ctx, w, wildcardVerb); err != nil {
			return facts{}, err
		}
	}
	keys, err := v.Keys(ctx)
	if err != nil {
		return facts{}, fmt.Errorf("read the voting keys: %w", err)
	}
	f.tally = keys.Count(f.live)
	return f, nil
}

// read returns a stored object, or nil if there is none.
func read[T any, P interface {
	*T
	client.Object
}](ctx context.Context, from client.Reader, namespace, name string, into P) (P, error) {
	if err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return into, nil
}

// may asks whether the writer holds a verb over the server of the request.
func (v *Votes) may(ctx context.Context, w write, verb string) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: w.user.Username, UID: w.user.UID, Groups: w.user.Groups, Extra: extra(w.user),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: w.stored.Namespace, Verb: verb, Group: v1alpha1.GroupVersion.Group,
			Resource: "governedservers", Subresource: v1alpha1.AuthoritySubresource, Name: w.stored.Spec.ServerRef.Name,
		},
	}}
	if err := v.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask for the verb %s of %s: %w", verb, w.user.Username, err)
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

func extra(user authenticationv1.UserInfo) map[string]authorizationv1.ExtraValue {
	all := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		all[key] = slices.Clone([]string(values))
	}
	return all
}

// enact returns what a write comes to. Only a vote that will be stored is signed.
func (v *Votes) enact(ctx context.Context, w write, wanted wish, f facts) (outcome, error) {
	if wanted.resolution != nil {
		return settled(f.live.Status, w.stamped(*wanted.resolution, f.at)), nil
	}
	given := w.vote(wanted.decision, f.at)
	if !w.dryRun {
		key, err := v.Key(ctx)
		if err != nil {
			return outcome{}, err
		}
		// The key may have come into use a moment ago: no vote under it is older.
		given.Time = w.instant(v.Clock.Now())
		if given, err = key.Sign(f.live, given); err != nil {
			return outcome{}, err
		}
	}
	return voted(f.live, given, f.tally), nil
}

// validate answers the write of a status as it will be stored. Another webhook may have written in between, and the
// mutating one may not have run at all.
func (v *Votes) validate(ctx context.Context, req admission.Request) admission.Response {
	w, err := readWrite(req, "status")
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if !w.concernsVotes() {
		return admission.Allowed("")
	}
	keys, err := v.Keys(ctx)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("this vote cannot be verified now, try again: read the voting keys: %w", err))
	}
	at := w.instant(v.Clock.Now())
	if no := verify(w, keys, at); no != nil {
		return v.refuse(ctx, w, no)
	}
	if !w.dryRun {
		v.note(ctx, w)
	}
	return admission.Allowed("")
}

// note counts and logs what is about to be stored.
func (v *Votes) note(ctx context.Context, w write) {
	logger := log.FromContext(ctx).WithValues("server", w.stored.Spec.ServerRef.Name)
	if given, ok := w.added(); ok {
		logger.Info("vote given", "decision", given.Decision)
		v.Metrics.given(w.stored, given, w.phaseChanged())
		return
	}
	if r := w.sent.Status.Resolution; r != nil {
		logger.Info("request resolved", "decision", r.Outcome)
		v.Metrics.resolved(w.stored, r.Outcome)
	}
}

// hint tells a person who writes status without the subresource that the API server drops it; it refuses nothing.
func hint(_ context.Context, req admission.Request) admission.Response {
	answer := admission.Allowed("")
	w, err := readWrite(req, "")
	if err != nil || !w.losesStatus() {
		return answer
	}
	return answer.WithWarnings("status is not changed this way: kubectl approve " + w.stored.Name +
		" or kubectl deny " + w.stored.Name + ", or add --subresource=status")
}
