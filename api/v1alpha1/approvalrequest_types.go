// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ApprovalRequestSpec is the action that a person is asked about. It never changes.
type ApprovalRequestSpec struct {
	// serverRef is the GovernedServer that the call goes to.
	// +required
	ServerRef ServerReference `json:"serverRef,omitzero"`

	// endpointDigest is the digest of the server's endpoint when the call was made.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=71
	EndpointDigest string `json:"endpointDigest,omitempty"`

	// tool is the name of the tool that is called.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Tool string `json:"tool,omitempty"`

	// toolDigest is the digest of the tool's definition when the call was made.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=71
	ToolDigest string `json:"toolDigest,omitempty"`

	// arguments of the call as JSON for a person to read, at most 8 KiB: values under secret-looking keys and
	// strings over 256 bytes are replaced by their length and digest.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Arguments string `json:"arguments,omitempty"`

	// argumentsSize is the size of the arguments in their canonical form, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ArgumentsSize int64 `json:"argumentsSize"`

	// actionHash is SHA-256 over everything that gives the call its meaning, the requester included.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=71
	ActionHash string `json:"actionHash,omitempty"`

	// blastRadius says how far the call reaches, as far as its arguments tell.
	// +required
	BlastRadius BlastRadius `json:"blastRadius,omitzero"`

	// requester is who calls.
	// +required
	Requester Requester `json:"requester,omitzero"`

	// tier of the tool when the call was made.
	// +required
	Tier Tier `json:"tier,omitempty"`

	// gatedBy says what asks for approval: tier, or the policy and its entry.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	GatedBy string `json:"gatedBy,omitempty"`

	// requiredApprovals is how many persons must approve.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	RequiredApprovals int32 `json:"requiredApprovals,omitempty"`

	// approveVerbs are the verbs on governedservers/authority that a vote needs, all of them: the tier's, and those of
	// the rules that ask for approval.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^approve(-[a-z0-9-]+)?$`
	ApproveVerbs []string `json:"approveVerbs,omitempty"`

	// message is what the rule that asks for approval has to say to the person who decides.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	// inputResponses is Allow where a rule lets the caller answer what the server asks in the middle of the call: with
	// what nobody sees, and this approval covers. Default: such answers are refused.
	// +optional
	InputResponses InputRule `json:"inputResponses,omitempty"`

	// preview is what the server itself says of what the call would affect.
	// +optional
	Preview *Preview `json:"preview,omitempty"`

	// policyRevision is the revision of the policy that decided, for the record.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	PolicyRevision string `json:"policyRevision,omitempty"`

	// ttlSeconds after its creation the request expires, from 60 to 86400; an approval that was not used by then
	// is void.
	// +required
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	TTLSeconds int32 `json:"ttlSeconds,omitempty"`

	// attempt is how often the same action was asked before this request, plus one; more than 1 means that it may
	// have run before.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Attempt int32 `json:"attempt,omitempty"`
}

// Preview is the answer of a Read tool of the same server, asked when approval was needed, about what the call would
// affect.
type Preview struct {
	// tool that was called.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Tool string `json:"tool,omitempty"`

	// result is the text of its answer, at most 2 KiB; what is longer is cut, and ends with a mark that says so.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Result string `json:"result,omitempty"`

	// resultDigest is SHA-256 over the whole answer; none where there is no answer.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	ResultDigest string `json:"resultDigest,omitempty"`

	// failure says why there is no answer.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Failure string `json:"failure,omitempty"`

	// recheck tells that the tool is asked again just before the call is sent: with another answer the request is
	// cancelled.
	// +optional
	Recheck bool `json:"recheck,omitempty"`
}

// ServerReference names one GovernedServer object, not a later one of the same name.
type ServerReference struct {
	// name of the GovernedServer, in this namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// uid of the GovernedServer.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=36
	UID string `json:"uid,omitempty"`
}

// BlastScope sums up how far a call reaches.
//
// +kubebuilder:validation:Enum=Single;Bulk;Unbounded;Unknown
type BlastScope string

const (
	// BlastSingle: the arguments name what is affected.
	BlastSingle BlastScope = "Single"
	// BlastBulk: the arguments name several things that are affected.
	BlastBulk BlastScope = "Bulk"
	// BlastUnbounded: the arguments widen the call to everything the tool can reach.
	BlastUnbounded BlastScope = "Unbounded"
	// BlastUnknown: the arguments do not tell, or part of them is not shown.
	BlastUnknown BlastScope = "Unknown"
)

// BlastRadius says how far a call reaches, as far as its arguments tell.
type BlastRadius struct {
	// scope is Single, Bulk, Unbounded or Unknown.
	// +required
	Scope BlastScope `json:"scope,omitempty"`

	// summary is one sentence for the person who decides.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Summary string `json:"summary,omitempty"`

	// evidence are the arguments that the scope was read from.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	Evidence []string `json:"evidence,omitempty"`
}

// Requester is who calls.
type Requester struct {
	// username as the Kubernetes API knows it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Username string `json:"username,omitempty"`

	// actsFor is the username of the user that the requester acts for, where its token says so; empty for none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	ActsFor string `json:"actsFor,omitempty"`

	// groups of the requester, for the record.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	Groups []string `json:"groups,omitempty"`

	// pod that the call came from, for the record.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
}

// Decision is what a person says to a request.
//
// +kubebuilder:validation:Enum=Approved;Denied;Dismissed
type Decision string

const (
	// DecisionApproved lets the action run once.
	DecisionApproved Decision = "Approved"
	// DecisionDenied refuses the action and takes autonomy from the tool for good.
	DecisionDenied Decision = "Denied"
	// DecisionDismissed refuses the action for now, without prejudice.
	DecisionDismissed Decision = "Dismissed"
)

// Phase is the state of a request.
//
// +kubebuilder:validation:Enum=Pending;Approved;Denied;Dismissed;Expired;Cancelled;Executing;Succeeded;Failed;Ambiguous
// +kubebuilder:validation:MaxLength=16
type Phase string

// The states of a request:
//
//	Pending ──▶ Approved ──▶ Executing ──▶ Succeeded | Failed
//	   │           │             └───────▶ Ambiguous ──▶ Succeeded | Failed
//	   └───────────┴──▶ Denied | Expired | Cancelled      (Dismissed from Pending only)
const (
	// PhasePending waits for a person.
	PhasePending Phase = "Pending"
	// PhaseApproved may be used once, until it expires.
	PhaseApproved Phase = "Approved"
	// PhaseDenied answers the same action until the request expires.
	PhaseDenied Phase = "Denied"
	// PhaseDismissed: not now; the same action may be asked again.
	PhaseDismissed Phase = "Dismissed"
	// PhaseExpired: nobody decided, or nobody used the approval, in time.
	PhaseExpired Phase = "Expired"
	// PhaseCancelled: what was asked is no longer what would run; cancellation has the reason.
	PhaseCancelled Phase = "Cancelled"
	// PhaseExecuting: a gateway has claimed the approval and sends the call.
	PhaseExecuting Phase = "Executing"
	// PhaseSucceeded: the call ran.
	PhaseSucceeded Phase = "Succeeded"
	// PhaseFailed: the call did not take effect, or the tool answered with an error.
	PhaseFailed Phase = "Failed"
	// PhaseAmbiguous: nobody knows whether the call took effect; the same action is refused until a person says.
	PhaseAmbiguous Phase = "Ambiguous"
)

// ApprovalRequestStatus is the fate of the request.
type ApprovalRequestStatus struct {
	// conditions has Accounted (the request is counted in the server's records).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase is the state of the request.
	// +optional
	// +kubebuilder:default=Pending
	Phase Phase `json:"phase,omitempty"`

	// decision is what a person patches: Approved, Denied or Dismissed. It becomes an entry of votes, and is empty
	// again while more persons must approve. An Approved request can still be Denied until it is executed.
	// +optional
	Decision Decision `json:"decision,omitempty"`

	// reason is why, in the person's words; written together with decision.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// votes are what each person said, stamped and signed as the API server authenticated them. They only grow, and
	// nobody writes them: a person writes decision.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Votes []Vote `json:"votes,omitempty"`

	// execution is what the gateway says of the one call that used the approval.
	// +optional
	Execution *Execution `json:"execution,omitempty"`

	// resolution is what a person found out about an Ambiguous request.
	// +optional
	Resolution *Resolution `json:"resolution,omitempty"`

	// cancellation says why the request can no longer be used.
	// +optional
	Cancellation *Cancellation `json:"cancellation,omitempty"`
}

// Vote is what one person said, as the API server authenticated them.
type Vote struct {
	// username of the person.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Username string `json:"username,omitempty"`

	// uid of the person, where the authenticator has one.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	UID string `json:"uid,omitempty"`

	// decision of the person.
	// +required
	Decision Decision `json:"decision,omitempty"`

	// reason in the person's words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// time of the vote.
	// +required
	Time metav1.Time `json:"time,omitempty,omitzero"`

	// keyID names the voting key of the signature, a key of the ConfigMap tidewaiter-voting-keys.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KeyID string `json:"keyID,omitempty"`

	// specDigest is SHA-256 over the canonical spec that the person saw.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	SpecDigest string `json:"specDigest,omitempty"`

	// signature over the vote and what it was given for, in base64.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Signature string `json:"signature,omitempty"`
}

// ExecutionOutcome is how the one call of a request ended.
//
// +kubebuilder:validation:Enum=Succeeded;ToolError;NotSent;Rejected;Unclear
type ExecutionOutcome string

const (
	// OutcomeSucceeded: the tool answered without an error.
	OutcomeSucceeded ExecutionOutcome = "Succeeded"
	// OutcomeToolError: the tool answered with isError.
	OutcomeToolError ExecutionOutcome = "ToolError"
	// OutcomeNotSent: it is proved that no byte reached the server.
	OutcomeNotSent ExecutionOutcome = "NotSent"
	// OutcomeRejected: the server refused the call before it dispatched it.
	OutcomeRejected ExecutionOutcome = "Rejected"
	// OutcomeUnclear: the answer does not tell whether the call took effect, or there was none.
	OutcomeUnclear ExecutionOutcome = "Unclear"
)

// Execution is what a gateway says of the one call that used the approval.
type Execution struct {
	// gateway that made the call.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Gateway string `json:"gateway,omitempty"`

	// claim is a random value by which the gateway knows its own update again.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Claim string `json:"claim,omitempty"`

	// startedAt is when the approval was claimed.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`

	// deadline is startedAt plus the server's callTimeout; without an outcome by then the request is Ambiguous.
	// +optional
	Deadline *metav1.MicroTime `json:"deadline,omitempty"`

	// finishedAt is when the outcome was known.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`

	// outcome of the call.
	// +optional
	Outcome ExecutionOutcome `json:"outcome,omitempty"`

	// message says why nothing was sent, in the gateway's words; only with the outcome NotSent.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	// resultDigest is SHA-256 over the answer as it was received.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	ResultDigest string `json:"resultDigest,omitempty"`
}

// ResolutionOutcome is what a person found out about an Ambiguous request.
//
// +kubebuilder:validation:Enum=Committed;NotExecuted
type ResolutionOutcome string

const (
	// ResolutionCommitted: the call took effect.
	ResolutionCommitted ResolutionOutcome = "Committed"
	// ResolutionNotExecuted: the call did not take effect; the action may be asked again.
	ResolutionNotExecuted ResolutionOutcome = "NotExecuted"
)

// Resolution settles an Ambiguous request.
type Resolution struct {
	// outcome is Committed or NotExecuted.
	// +required
	Outcome ResolutionOutcome `json:"outcome,omitempty"`

	// reason says how the person knows.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`\S`
	Reason string `json:"reason,omitempty"`

	// by is the username of the writer, stamped as the API server authenticated them.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	By string `json:"by,omitempty"`

	// time of the resolution, stamped.
	// +required
	Time metav1.Time `json:"time,omitempty,omitzero"`
}

// CancellationReason says why a request can no longer be used.
//
// +kubebuilder:validation:Enum=ToolChanged;PolicyChanged;StateChanged;Withdrawn;ServerGone;VotesVoid
type CancellationReason string

const (
	// CancelToolChanged: the tool's definition or the server's endpoint is not the one that was asked about.
	CancelToolChanged CancellationReason = "ToolChanged"
	// CancelPolicyChanged: the policy now refuses the action, or asks for more.
	CancelPolicyChanged CancellationReason = "PolicyChanged"
	// CancelStateChanged: what the action would affect has changed.
	CancelStateChanged CancellationReason = "StateChanged"
	// CancelWithdrawn: nobody waits for the action any more.
	CancelWithdrawn CancellationReason = "Withdrawn"
	// CancelServerGone: the GovernedServer was deleted.
	CancelServerGone CancellationReason = "ServerGone"
	// CancelVotesVoid: the request is Approved, and its votes are not valid: they were not given for it, or their
	// voting key was removed.
	CancelVotesVoid CancellationReason = "VotesVoid"
)

// Cancellation says why a request can no longer be used.
type Cancellation struct {
	// reason is one word.
	// +required
	Reason CancellationReason `json:"reason,omitempty"`
}

// ApprovalRequest is one gated action and its fate. A gateway creates it; people decide by patching
// status.decision, or with kubectl approve and kubectl deny.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=areq,categories=tidewaiter
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.spec.serverRef.name`
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.serverRef.name`
// +kubebuilder:printcolumn:name="Tool",type=string,JSONPath=`.spec.tool`
// +kubebuilder:printcolumn:name="Tier",type=string,JSONPath=`.spec.tier`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Blast radius",type=string,JSONPath=`.spec.blastRadius.summary`
// +kubebuilder:printcolumn:name="Requester",type=string,JSONPath=`.spec.requester.username`,priority=1
// +kubebuilder:printcolumn:name="Arguments",type=string,JSONPath=`.spec.arguments`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="spec never changes; a person decides with status.decision",reason=FieldValueForbidden,fieldPath=.spec
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(self.status) || oldSelf.status.phase == self.status.phase || (oldSelf.status.phase + '>' + self.status.phase) in ['Pending>Approved', 'Pending>Denied', 'Pending>Dismissed', 'Pending>Expired', 'Pending>Cancelled', 'Approved>Denied', 'Approved>Expired', 'Approved>Cancelled', 'Approved>Executing', 'Executing>Succeeded', 'Executing>Failed', 'Executing>Ambiguous', 'Ambiguous>Succeeded', 'Ambiguous>Failed']",message="phase may not move that way",messageExpression="'phase may not go from ' + oldSelf.status.phase + ' to ' + self.status.phase"
type ApprovalRequest struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the action that a person is asked about.
	// +required
	Spec ApprovalRequestSpec `json:"spec,omitzero"`

	// status is the fate of the request.
	// +optional
	// +kubebuilder:default={phase: Pending}
	Status ApprovalRequestStatus `json:"status,omitempty,omitzero"`
}

// ExpiresAt returns the instant after which the request can be neither decided nor used.
func (r *ApprovalRequest) ExpiresAt() time.Time {
	return r.CreationTimestamp.Add(time.Duration(r.Spec.TTLSeconds) * time.Second)
}

// CurrentPhase returns the phase; no phase reads as Pending.
func (r *ApprovalRequest) CurrentPhase() Phase {
	if r.Status.Phase == "" {
		return PhasePending
	}
	return r.Status.Phase
}

// LastVote returns when the last vote for a decision was given; zero without one. It checks no signature.
func (r *ApprovalRequest) LastVote(decision Decision) time.Time {
	var last time.Time
	for _, v := range r.Status.Votes {
		if v.Decision == decision && v.Time.After(last) {
			last = v.Time.Time
		}
	}
	return last
}

// IsClean tells whether as many persons as were needed approved the action, nobody said otherwise, it ran, and it
// succeeded without anybody having to find that out: what counts for the tool's record. It checks no signature. The
// gateway did before the action ran; whoever may approve and serve, and whom the webhook does not stop, can write both.
func (r *ApprovalRequest) IsClean() bool {
	persons := map[string]bool{}
	for _, v := range r.Status.Votes {
		if v.Decision != DecisionApproved {
			return false
		}
		persons[v.Username] = true
	}
	s := r.Status
	return len(persons) >= max(int(r.Spec.RequiredApprovals), 1) && r.CurrentPhase() == PhaseSucceeded &&
		s.Resolution == nil && s.Execution != nil && s.Execution.Outcome == OutcomeSucceeded
}

// ApprovalRequestList is a list of ApprovalRequests.
//
// +kubebuilder:object:root=true
type ApprovalRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ApprovalRequest `json:"items"`
}
