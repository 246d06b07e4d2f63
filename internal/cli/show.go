// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/action"
)

// show prints what is decided, for the person who decides.
func (s *session) show(r *v1alpha1.ApprovalRequest) error {
	p := newPage(s.colours())
	p.request(r)
	p.preview(r.Spec.Preview)
	p.asked(r, s.clock.Now())
	p.arguments(r.Spec)
	return p.print(s.Out)
}

// request adds what would happen, and who asks for it.
func (p *page) request(r *v1alpha1.ApprovalRequest) {
	spec := r.Spec
	p.line("Request:", "%s in namespace %s", r.Name, r.Namespace)
	p.line("Server:", "%s", spec.ServerRef.Name)
	p.line("Tool:", "%s", spec.Tool)
	say := p.line
	if spec.Tier.StricterThan(v1alpha1.TierReversible) {
		say = p.alert
	}
	say("Tier:", "%s, gated by %s", spec.Tier, spec.GatedBy)
	say = p.line
	if spec.BlastRadius.Scope == v1alpha1.BlastUnbounded || spec.BlastRadius.Scope == v1alpha1.BlastUnknown {
		say = p.alert
	}
	say("Blast radius:", "%s: %s", spec.BlastRadius.Scope, spec.BlastRadius.Summary)
	for _, evidence := range spec.BlastRadius.Evidence {
		p.line("", "%s", evidence)
	}
	requester := spec.Requester.Username
	if spec.Requester.ActsFor != "" {
		requester += ", for " + spec.Requester.ActsFor
	}
	if spec.Requester.Pod != "" {
		requester += ", pod " + spec.Requester.Pod
	}
	p.line("Requester:", "%s", requester)
}

// preview adds what the server itself says that the call would affect; a person has to know where it could not.
func (p *page) preview(made *v1alpha1.Preview) {
	switch {
	case made == nil:
	case made.ResultDigest == "":
		p.alert("Preview:", "FAILED: %s was to say what this would affect, and did not", made.Tool)
		p.alert("", "%s", made.Failure)
		if made.Recheck {
			p.alert("", "nothing is compared before the call is sent either")
		}
	default:
		p.line("Preview:", "%s of the same server says:", made.Tool)
		p.indented([]string{made.Result})
		if made.Recheck {
			p.line("", "it is asked again before the call is sent; with another answer this request is cancelled")
		}
	}
}

// asked adds since when, until when and how often the action is asked.
func (p *page) asked(r *v1alpha1.ApprovalRequest, now time.Time) {
	p.line("Asked:", "%s", when(r, now))
	if r.Spec.Attempt > 1 {
		p.alert("Attempt:", "%d: the same action was asked before, and may have run", r.Spec.Attempt)
	}
	if r.Spec.RequiredApprovals > 1 {
		p.line("Approvals:", "%d of %d%s", len(count(r).approved), r.Spec.RequiredApprovals, by(count(r).approved))
	}
}

// arguments adds the arguments, and what is to be known of what is not shown of them.
func (p *page) arguments(spec v1alpha1.ApprovalRequestSpec) {
	note, hidden := argumentsNote(spec)
	if hidden {
		p.alert("Arguments:", "%s", note)
	} else {
		p.line("Arguments:", "%s", note)
	}
	p.indented(argumentLines(spec.Arguments))
}

func when(r *v1alpha1.ApprovalRequest, now time.Time) string {
	left := r.ExpiresAt().Sub(now)
	text := fmt.Sprintf("%s ago, ", since(r.CreationTimestamp.Time, now))
	if left <= 0 {
		return text + "expired at " + instant(r.ExpiresAt())
	}
	return text + fmt.Sprintf("expires in %s, at %s", duration.HumanDuration(left), instant(r.ExpiresAt()))
}

// since is the age of an instant; the clocks of this machine and of the cluster may differ.
func since(then, now time.Time) string { return duration.HumanDuration(max(now.Sub(then), 0)) }

// argumentsNote says how much there is, and that something is hidden where it is.
func argumentsNote(spec v1alpha1.ApprovalRequestSpec) (note string, hidden bool) {
	note = fmt.Sprintf("%d bytes", spec.ArgumentsSize)
	marks := strings.Count(spec.Arguments, `"`+action.HiddenMark)
	switch {
	case spec.Arguments == "" && spec.ArgumentsSize > 0:
		return note + ", NOT SHOWN here", true
	case marks == 1:
		return note + ", 1 PART HIDDEN: its length and digest stand in its place", true
	case marks > 1:
		return note + fmt.Sprintf(", %d PARTS HIDDEN: their length and digest stand in their place", marks), true
	case spec.BlastRadius.Scope == v1alpha1.BlastUnknown:
		return note + ", PERHAPS NOT ALL SHOWN here: see the blast radius", true
	}
	return note, false
}
