// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// Effect is what a verdict does with a call, from most to least restrictive. The zero value denies.
type Effect int

const (
	// Deny refuses the call.
	Deny Effect = iota
	// RequireApproval lets the call run once a person approved it.
	RequireApproval
	// Allow lets the call run at once.
	Allow
)

// String returns the word that receipts use.
func (e Effect) String() string {
	switch e {
	case Allow:
		return "Allow"
	case RequireApproval:
		return "RequireApproval"
	default:
		return "Deny"
	}
}

// Reason says in one word why a verdict is what it is; docs/errors.md lists those that callers see.
type Reason string

const (
	// ReasonToolUnknown: discovery does not know the tool, or what it knows came from another endpoint.
	ReasonToolUnknown Reason = "ToolUnknown"
	// ReasonPolicyStale: the policy is older than may be acted on.
	ReasonPolicyStale Reason = "PolicyStale"
	// ReasonReadTool: the tool only reads.
	ReasonReadTool Reason = "ReadTool"
	// ReasonUnattended: a promotion is in force.
	ReasonUnattended Reason = "Unattended"
	// ReasonApprovalRequired: the tier, or a rule, asks for a person.
	ReasonApprovalRequired Reason = "ApprovalRequired"
	// ReasonRuleAllowed: a rule lets the call run.
	ReasonRuleAllowed Reason = "RuleAllowed"
	// ReasonRuleDenied: a rule refuses the call.
	ReasonRuleDenied Reason = "RuleDenied"
	// ReasonRuleUncertain: a rule that would refuse the call cannot be evaluated for it.
	ReasonRuleUncertain Reason = "RuleUncertain"
	// ReasonTooManyVerbs: the rules together ask for more verbs than a request can hold.
	ReasonTooManyVerbs Reason = "TooManyVerbs"
	// ReasonCallerNotAllowed: a policy's callers do not name the caller.
	ReasonCallerNotAllowed Reason = "CallerNotAllowed"
	// ReasonServerStopped: the server, or a baseline, is in the mode Stopped.
	ReasonServerStopped Reason = "ServerStopped"
	// ReasonServerReadOnly: the server, or a baseline, is in the mode ReadOnly, and the tool is not Read.
	ReasonServerReadOnly Reason = "ServerReadOnly"
	// ReasonDefinitionNotAccepted: nobody accepted the tool's definition, and pinning is Enforce.
	ReasonDefinitionNotAccepted Reason = "DefinitionNotAccepted"
	// ReasonInstructionsNotAccepted: nobody accepted the server's instructions, and pinning is Enforce.
	ReasonInstructionsNotAccepted Reason = "InstructionsNotAccepted"
	// ReasonObserved: the call passes since the server's mode is Observe.
	ReasonObserved Reason = "Observed"
	// ReasonMethodPassed: the server's otherMethods lets the request pass.
	ReasonMethodPassed Reason = "MethodPassed"
	// ReasonMethodDenied: the server's otherMethods refuses the request.
	ReasonMethodDenied Reason = "MethodDenied"
)

// Freshness says how far the snapshot that decides can be trusted. The zero value cannot.
type Freshness int

const (
	// Stale: too old for anything.
	Stale Freshness = iota
	// Unproven: good for reads; nothing proves that a revocation, or a rule that gates, would have been seen.
	Unproven
	// Fresh: a revocation would have been seen.
	Fresh
)

// Call is what a verdict is asked about.
type Call struct {
	// Tool is the name as the server will read it.
	Tool string
	// Arguments of the call; expr.UnknownArguments where they were not kept.
	Arguments *expr.Arguments
	// Principal is whose call it is.
	Principal expr.Principal
	// Freshness of the snapshot at the time of the call.
	Freshness Freshness
}

// Decision is a verdict and what it rests on.
type Decision struct {
	Effect Effect
	Reason Reason
	// Tool and Tier that the verdict speaks of; an unknown tool has none.
	Tool Tool
	Tier v1alpha1.Tier
	// GatedBy names what decided: tier, minimumTier, or a policy and its entry.
	GatedBy string
	// Why is one sentence: the evidence for the tier.
	Why string
	// RequiredApprovals and Verbs are what an approval needs; set with RequireApproval only.
	RequiredApprovals int32
	Verbs             []string
	// Message is what the rule that decided has to say to the caller and to the person who is asked, Controls are its.
	Message  string
	Controls []string
	// Input: the caller may answer what the server asks in the middle of the call, which nobody who approves it sees.
	Input bool
	// Uncertain names the rule or entry that could not be evaluated and took part in the verdict, and why; "" for none.
	Uncertain string
	// Observed is the verdict that the call would have had; set where the mode Observe let it pass.
	Observed *Decision
	// Revision of the policy that decided.
	Revision string
}

// Decide returns the verdict on a call. It is total: every input has an answer, and what is not known is denied. Without
// an expression to evaluate it allocates only where it joins the verbs of several rules, or remembers what it observes.
func (s *Server) Decide(call Call) Decision {
	e := evaluation{server: s, call: call, c: s.stranger}
	if c, found := s.tools[call.Tool]; found {
		e.c = c
	}
	return e.decide()
}

// Attended returns the decision with a person put before a call that would have run at once; gatedBy says why. In
// Observe nobody is asked.
func (s *Server) Attended(d Decision, gatedBy string) Decision {
	if d.Effect == Allow && d.Observed == nil {
		d.GatedBy = gatedBy
		d.requireApproval(s.object.Spec.Approvals.Required)
	}
	return d
}

// requireApproval puts as many persons before the call as its tier asks for.
func (d *Decision) requireApproval(required v1alpha1.RequiredApprovals) {
	d.Effect, d.Reason = RequireApproval, ReasonApprovalRequired
	d.RequiredApprovals, d.Verbs = requiredFor(d.Tier, required), []string{d.Tier.ApproveVerb()}
}

// requiredFor returns how many persons must approve a call of a tier, at least one. A stricter tier never needs fewer
// than a looser one, so that raising a tool loosens nothing; a tier that is no tier counts as Irreversible.
func requiredFor(tier v1alpha1.Tier, required v1alpha1.RequiredApprovals) int32 {
	if tier.StricterThan(v1alpha1.TierReversible) {
		return max(required.Irreversible, required.Reversible, 1)
	}
	return max(required.Reversible, 1)
}

// byTier makes the verdict of a tier alone, without any promotion. A tool of any tier but Read waits for a person, and
// one of a tier that is none too.
func byTier(t Tool, s *standing, required v1alpha1.RequiredApprovals) Decision {
	d := Decision{Tool: t, Tier: s.tier, GatedBy: s.gatedBy, Why: s.reason}
	if s.tier == v1alpha1.TierRead {
		d.Effect, d.Reason = Allow, ReasonReadTool
		return d
	}
	d.requireApproval(required)
	return d
}
