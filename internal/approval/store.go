// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/failpoint"
)

// maxAttempts bounds the search for a free name; each attempt that is taken by another action costs one read.
const maxAttempts = 64

// patience bounds one write of a status, and the reading back after one whose answer is unknown.
const patience = 5 * time.Second

var (
	// ErrTaken: another call spent the approval, or its request moved on; read it again.
	ErrTaken = errors.New("the approval was taken")
	// ErrGone: the request was deleted.
	ErrGone = errors.New("the request is gone")
	// errNoName: too many names in a row belong to other actions.
	errNoName = errors.New("no free name for the request")
)

// Store keeps requests on the Kubernetes API.
type Store struct {
	// Client writes, and reads live: never from a cache.
	Client client.Client
	// Clock stamps execution.
	Clock clock.PassiveClock
	// Gateway names this gateway in execution.
	Gateway string
	// NewClaim returns a random value that nobody else can have.
	NewClaim func() string
}

// Create opens the request that spec describes, or returns the open one that is already there under its name. A name
// that holds another action, or an ended request, gives way to the next attempt.
func (s *Store) Create(ctx context.Context, namespace string, spec v1alpha1.ApprovalRequestSpec, name func(attempt int32) string) (*v1alpha1.ApprovalRequest, error) {
	first := max(spec.Attempt, 1)
	for attempt := first; attempt < first+maxAttempts; attempt++ {
		spec.Attempt = attempt
		request := &v1alpha1.ApprovalRequest{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name(attempt), Labels: map[string]string{v1alpha1.ServerLabel: spec.ServerRef.Name},
			},
			Spec: spec,
		}
		err := s.Client.Create(ctx, request)
		if err == nil {
			return request, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create approval request: %w", err)
		}
		existing, err := s.Get(ctx, client.ObjectKeyFromObject(request))
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		phase := existing.CurrentPhase()
		if existing.Spec.ActionHash == spec.ActionHash && (phase == v1alpha1.PhasePending || phase == v1alpha1.PhaseApproved || phase == v1alpha1.PhaseExecuting) {
			return existing, nil
		}
	}
	return nil, errNoName
}

// Get reads a request live. It returns ErrGone when there is none.
func (s *Store) Get(ctx context.Context, key types.NamespacedName) (*v1alpha1.ApprovalRequest, error) {
	request := &v1alpha1.ApprovalRequest{}
	err := s.Client.Get(ctx, key, request)
	if apierrors.IsNotFound(err) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("read approval request: %w", err)
	}
	return request, nil
}

// Claim spends an approval: it moves the request to Executing by an update of exactly the version that was judged,
// before the first byte of the call leaves. When the answer to that update is unknown it reads back, and goes on only
// if the claim is its own. It returns ErrTaken when the request is not what was judged any more. Beside any other error
// it returns the request as it would have been: its claim may stand in the API all the same, and is given back with
// Finish.
func (s *Store) Claim(ctx context.Context, judged *v1alpha1.ApprovalRequest, timeout time.Duration) (*v1alpha1.ApprovalRequest, error) {
	claimed := judged.DeepCopy()
	now := s.Clock.Now()
	started, deadline := metav1.NewMicroTime(now), metav1.NewMicroTime(now.Add(timeout))
	claimed.Status.Phase = v1alpha1.PhaseExecuting
	claimed.Status.Execution = &v1alpha1.Execution{Gateway: s.Gateway, Claim: s.NewClaim(), StartedAt: &started, Deadline: &deadline}

	tried := claimed.DeepCopy()
	failpoint.Hit(failpoint.BeforeClaim)
	err := s.update(ctx, claimed)
	if err == nil {
		failpoint.Hit(failpoint.AfterClaim)
		return claimed, nil
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return tried, fmt.Errorf("claim approval request: %w", err)
	}
	// A conflict is an ordinary end too: client-go repeats an update by itself, and the repetition of one that had
	// won is answered with a conflict. Reading back has a time of its own: that of the update may be over.
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stored, readErr := s.Get(ctx, client.ObjectKeyFromObject(judged))
	if readErr != nil {
		return tried, errors.Join(fmt.Errorf("claim approval request: %w", err), readErr)
	}
	if bears(stored, tried) {
		return stored, nil
	}
	if apierrors.IsConflict(err) || stored.UID != judged.UID || stored.CurrentPhase() != v1alpha1.PhaseApproved {
		return nil, ErrTaken
	}
	return tried, fmt.Errorf("claim approval request: %w", err)
}

// update writes the status of a request, within patience.
func (s *Store) update(ctx context.Context, request *v1alpha1.ApprovalRequest) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.Client.Status().Update(ctx, request)
}

// bears tells whether a stored request bears the claim of another version of it.
func bears(stored, claimed *v1alpha1.ApprovalRequest) bool {
	return stored.UID == claimed.UID && stored.Status.Execution != nil && stored.Status.Execution.Claim == claimed.Status.Execution.Claim
}

// Result is what became of the call that spent an approval.
type Result struct {
	Outcome v1alpha1.ExecutionOutcome
	// Message says why nothing was sent; empty for every other outcome.
	Message string
	// Digest is SHA-256 over the answer as it was received; empty without one.
	Digest string
	At     time.Time
}

// Finish records the outcome of a claimed request. It writes what is true also when the manager already called the
// request Ambiguous, as long as the claim is its own and the outcome is definite, and does nothing when the outcome
// already stands there. It returns the request as it then is, and ErrTaken when that no longer bears the claim.
func (s *Store) Finish(ctx context.Context, claimed *v1alpha1.ApprovalRequest, result Result) (*v1alpha1.ApprovalRequest, error) {
	current := claimed.DeepCopy()
	for {
		if !bears(current, claimed) {
			return nil, ErrTaken
		}
		phase := settled(result.Outcome)
		if current.CurrentPhase() == phase {
			return current, nil
		}
		if current.CurrentPhase() != v1alpha1.PhaseExecuting && current.CurrentPhase() != v1alpha1.PhaseAmbiguous {
			return nil, ErrTaken
		}
		at := metav1.NewMicroTime(result.At)
		current.Status.Phase = phase
		current.Status.Execution.FinishedAt = &at
		current.Status.Execution.Outcome = result.Outcome
		current.Status.Execution.Message = result.Message
		current.Status.Execution.ResultDigest = result.Digest
		err := s.update(ctx, current)
		if err == nil {
			failpoint.Hit(failpoint.AfterOutcome)
			return current, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("record outcome: %w", err)
		}
		if current, err = s.Get(ctx, client.ObjectKeyFromObject(claimed)); err != nil {
			return nil, err
		}
	}
}

// GiveBack ends a claim of which nobody knows whether it arrived, and on which nothing was sent. It returns the request as
// it then is, and ErrTaken when the claim does not stand: then the approval is still there for the next call.
func (s *Store) GiveBack(ctx context.Context, claimed *v1alpha1.ApprovalRequest, result Result) (*v1alpha1.ApprovalRequest, error) {
	stored, err := s.Get(ctx, client.ObjectKeyFromObject(claimed))
	if err != nil {
		return nil, err
	}
	if !bears(stored, claimed) {
		return nil, ErrTaken
	}
	return s.Finish(ctx, stored, result)
}

// Cancel ends an open request that can no longer be used. It does nothing when the request has ended or runs.
func (s *Store) Cancel(ctx context.Context, request *v1alpha1.ApprovalRequest, reason v1alpha1.CancellationReason) error {
	current := request.DeepCopy()
	for {
		phase := current.CurrentPhase()
		if current.UID != request.UID || (phase != v1alpha1.PhasePending && phase != v1alpha1.PhaseApproved) {
			return nil
		}
		current.Status.Phase = v1alpha1.PhaseCancelled
		current.Status.Cancellation = &v1alpha1.Cancellation{Reason: reason}
		err := s.update(ctx, current)
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("cancel approval request: %w", err)
		}
		if current, err = s.Get(ctx, client.ObjectKeyFromObject(request)); errors.Is(err, ErrGone) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Same tells whether a stored request is bound to what the gateway would write now.
func Same(stored, now v1alpha1.ApprovalRequestSpec) bool {
	return equality.Semantic.DeepEqual(bound(stored), bound(now))
}
