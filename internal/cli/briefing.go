// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// write adds the whole briefing to a page, what matters most first.
func (b briefing) write(p *page) {
	r := b.request
	p.request(r)
	b.evidence(p)
	p.preview(r.Spec.Preview)
	if r.Spec.InputResponses == v1alpha1.InputAllow {
		p.alert("Answers:", "the caller may answer what the server asks in the middle of the call; nobody sees what")
	}
	p.asked(r, b.now)
	p.line("State:", "%s", state(r))
	b.votes(p)
	b.rights(p)
	b.record(p)
	if open(r) {
		for i, sentence := range b.consequences() {
			p.line(head(i, "A yes:"), "%s", sentence)
		}
		b.refusals(p)
	}
	for i, what := range b.unread {
		p.alert(head(i, "Not read:"), "%s", what)
	}
	b.compare(p)
	p.arguments(r.Spec)
	b.next(p)
}

// head names the first of several lines.
func head(i int, name string) string {
	if i == 0 {
		return name
	}
	return ""
}

// open tells whether a vote can still matter.
func open(r *v1alpha1.ApprovalRequest) bool {
	return r.CurrentPhase() == v1alpha1.PhasePending || r.CurrentPhase() == v1alpha1.PhaseApproved
}

// tool returns what the server's status says of the tool, nil if nothing.
func (b briefing) tool() *v1alpha1.ToolStatus {
	if b.server == nil {
		return nil
	}
	return b.server.Status.Tool(b.request.Spec.Tool)
}

// evidence says why the tool has its tier, and what has changed since the request was made.
func (b briefing) evidence(p *page) {
	switch t := b.tool(); {
	case b.server == nil:
	case string(b.server.UID) != b.request.Spec.ServerRef.UID:
		p.alert("Why:", "the server was made anew since this was asked: an approval cannot be used")
	case t == nil:
		p.alert("Why:", "the server does not list this tool any more")
	default:
		p.line("Why:", "%s (%s)", t.Reason, t.Source)
		if t.Digest != b.request.Spec.ToolDigest {
			p.alert("", "the tool's definition has changed since this was asked: an approval cannot be used")
		}
	}
}

// votes lists who said what.
func (b briefing) votes(p *page) {
	for i, v := range b.request.Status.Votes {
		reason := ""
		if v.Reason != "" {
			reason = ": " + v.Reason
		}
		p.line(head(i, "Votes:"), "%s said %s %s ago%s", v.Username, v.Decision, since(v.Time.Time, b.now), reason)
	}
}

// rights says what a decision takes, and whether the person may.
func (b briefing) rights(p *page) {
	r := b.request
	ambiguous := r.CurrentPhase() == v1alpha1.PhaseAmbiguous
	if !open(r) && !ambiguous {
		p.line("You:", "%s; nothing is left to decide", b.me.Username)
		return
	}
	do := "decide"
	if ambiguous {
		do = "settle it"
	}
	p.line("Takes:", "%s on governedservers/%s", strings.Join(verbsFor(r), " and "), r.Spec.ServerRef.Name)
	lacking := b.lacking()
	switch {
	case vote.IsRequester(r, b.me.Username):
		p.line("You:", "%s; you may not %s: nobody decides what they ask for", b.me.Username, do)
	case len(lacking) > 0:
		p.line("You:", "%s; you may not %s: you lack %s", b.me.Username, do, and(lacking))
	case slices.Contains(count(r).approved, b.me.Username) && r.CurrentPhase() == v1alpha1.PhasePending:
		p.line("You:", "%s; you have approved; somebody else must, too; you may still deny", b.me.Username)
	case r.CurrentPhase() == v1alpha1.PhaseApproved:
		p.line("You:", "%s; you may take the approval back", b.me.Username)
	default:
		p.line("You:", "%s; you may %s", b.me.Username, do)
	}
}

// lacking are the rights that the person does not have.
func (b briefing) lacking() []string {
	var words []string
	for _, answer := range b.answers {
		asked := answer.Spec.ResourceAttributes
		switch {
		case answer.Status.Allowed:
		case asked.Resource == "approvalrequests":
			words = append(words, "patch on approvalrequests/status")
		default:
			words = append(words, asked.Verb)
		}
	}
	return words
}

// record says how the tool did so far.
func (b briefing) record(p *page) {
	if b.server == nil {
		return
	}
	record, known := b.storedRecord()
	if !known {
		p.line("Record:", "no call of this tool was decided on this server before")
		return
	}
	p.line("Record:", "%d approved and succeeded, %d failed, %d denied, %d of unknown outcome; autonomy %s",
		record.Approved, record.Failed, record.Denied, record.Ambiguous, record.Autonomy)
	if !b.counts(record) && record.Approved+record.Failed > 0 {
		p.line("", "the figures are those of another definition or endpoint, and count for nothing any more")
	}
}

func (b briefing) storedRecord() (v1alpha1.ToolRecord, bool) {
	if record := b.server.Status.Record(b.request.Spec.Tool); record != nil {
		return *record, true
	}
	return v1alpha1.ToolRecord{}, false
}

// counts tells whether a record is that of the definition and the endpoint that the request was made for.
func (b briefing) counts(record v1alpha1.ToolRecord) bool {
	return record.Digest == b.request.Spec.ToolDigest && record.EndpointDigest == b.request.Spec.EndpointDigest
}

// consequences are what a yes sets off, a sentence each.
func (b briefing) consequences() []string {
	r := b.request
	have, need := len(count(r).approved), int(r.Spec.RequiredApprovals)
	first := fmt.Sprintf("the call runs once, if the agent waits or sends it again by %s", instant(r.ExpiresAt()))
	if have+1 < need {
		first = fmt.Sprintf("yours is approval %d of %d; the call does not run before all are given", have+1, need)
	}
	if later := b.trust(); later != "" {
		return []string{first, later}
	}
	return []string{first}
}

// trust says what the tool's record comes to if the call is approved and succeeds; "" if nothing can be said.
func (b briefing) trust() string {
	t := b.tool()
	if t == nil || t.Digest != b.request.Spec.ToolDigest || b.server.Status.EndpointDigest != b.request.Spec.EndpointDigest {
		return ""
	}
	record, _ := b.storedRecord()
	clean := max(b.server.Spec.Autonomy.CleanApprovals, 1)
	next := int32(1)
	if b.counts(record) {
		next = record.Approved + 1
	}
	before, after := b.compiled(record), b.compiled(v1alpha1.ToolRecord{
		Tool: t.Name, Digest: t.Digest, EndpointDigest: b.server.Status.EndpointDigest,
		Approved: next, Denied: record.Denied, Ambiguous: record.Ambiguous,
	})
	standing, _ := after.Standing(t.Name)
	was, _ := before.Standing(t.Name)
	switch {
	case standing.Autonomy == v1alpha1.AutonomyForbidden:
		return "it earns nothing: an Irreversible tool never runs without a person"
	case standing.Autonomy == v1alpha1.AutonomyDisqualified:
		return "it earns nothing: a person denied a call of this tool before, and it never runs without one"
	case record.Ambiguous > 0:
		return "it earns nothing until the calls of unknown outcome are settled with kubectl tidewaiter resolve"
	case standing.Autonomy == v1alpha1.AutonomyUnattended && was.Autonomy != v1alpha1.AutonomyUnattended:
		return fmt.Sprintf("if it succeeds, this is the %s clean approval of %d: %s then lets %s run unattended, and nobody is asked any more",
			ordinal(next), clean, after.Decide(policy.Call{Tool: t.Name, Freshness: policy.Fresh}).GatedBy, t.Name)
	case standing.Autonomy == v1alpha1.AutonomyEligible && was.Autonomy != v1alpha1.AutonomyEligible:
		return fmt.Sprintf("if it succeeds, this is the %s clean approval of %d: the tool is Eligible then, and who has the verb promote may let it run unattended",
			ordinal(next), clean)
	case standing.Autonomy == v1alpha1.AutonomyEligible:
		return fmt.Sprintf("the tool is Eligible already, with %d clean approvals; it runs unattended only if somebody promotes it", record.Approved)
	case standing.Autonomy == v1alpha1.AutonomyNone && next < clean:
		return fmt.Sprintf("if it succeeds, this is the %s clean approval of the %d that the tool needs before it can be promoted", ordinal(next), clean)
	default:
		return ""
	}
}

// compiled is what the policies make of the tool with a record.
func (b briefing) compiled(record v1alpha1.ToolRecord) *policy.Server {
	server := b.server.DeepCopy()
	server.Status.Records = []v1alpha1.ToolRecord{record}
	return b.policies.compileAt(server, server.Status.EndpointDigest, policy.Facts{})
}

// ordinal is the word for a place in a row.
func ordinal(n int32) string {
	words := []string{"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"}
	if n >= 1 && int(n) <= len(words) {
		return words[n-1]
	}
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// refusals says what each no sets off.
func (b briefing) refusals(p *page) {
	r := b.request
	p.line("A no:", "deny refuses the same action until %s, and takes autonomy from %s for good", instant(r.ExpiresAt()), r.Spec.Tool)
	if r.CurrentPhase() == v1alpha1.PhasePending {
		p.line("", "dismiss refuses it this time: the agent may ask again, and the tool keeps its record")
	}
}

// compare says how the arguments differ from those of the last approved call of the tool.
func (b briefing) compare(p *page) {
	if b.earlier == nil {
		p.line("Last time:", "no other approved call of this tool is on record here")
		return
	}
	e, spec := b.earlier, b.request.Spec
	p.line("Last time:", "%s, %s ago, approved%s, %s", e.Name, since(e.CreationTimestamp.Time, b.now), by(count(e).approved), e.CurrentPhase())
	if e.Spec.Requester.Username != spec.Requester.Username || e.Spec.Requester.ActsFor != spec.Requester.ActsFor {
		asker := e.Spec.Requester.Username
		if e.Spec.Requester.ActsFor != "" {
			asker += " for " + e.Spec.Requester.ActsFor
		}
		p.alert("", "somebody else asked then: %s", asker)
	}
	if e.Spec.ToolDigest != spec.ToolDigest {
		p.alert("", "the tool had another definition then")
	}
	if e.Spec.EndpointDigest != spec.EndpointDigest {
		p.alert("", "the server had another endpoint then")
	}
	lines, ok := difference(e.Spec.Arguments, spec.Arguments)
	switch {
	case !ok:
		p.line("Difference:", "the arguments cannot be compared")
	case len(lines) == 0:
		p.line("Difference:", "none: the arguments are the same, as far as they are shown")
	default:
		p.line("Difference:", "~ other, + new, - gone")
		p.indented(lines)
	}
}

// next says with which commands to go on.
func (b briefing) next(p *page) {
	r := b.request
	switch {
	case r.CurrentPhase() == v1alpha1.PhaseAmbiguous:
		p.line("Settle it:", "kubectl tidewaiter resolve %s -n %s (--committed | --not-executed) --reason TEXT", r.Name, r.Namespace)
	case r.CurrentPhase() == v1alpha1.PhasePending:
		p.line("Decide:", "kubectl approve %s -n %s --reason TEXT", r.Name, r.Namespace)
		p.line("", "kubectl deny %s -n %s --reason TEXT", r.Name, r.Namespace)
	case r.CurrentPhase() == v1alpha1.PhaseApproved:
		p.line("Take back:", "kubectl deny %s -n %s --reason TEXT", r.Name, r.Namespace)
	}
}
