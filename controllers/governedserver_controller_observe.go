// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
)

const (
	// shortReason is how much of each reason is kept, in bytes, where all of them take too much.
	shortReason = 64
	// maxMessage is how long the message of a condition or event may be, in bytes.
	maxMessage = 512
)

// observe sets the whole status from the facts. It is pure: the same facts give the same status.
func observe(server *v1alpha1.GovernedServer, f facts) {
	status := &server.Status
	status.NamespaceLabels = f.namespaceLabels
	if status.EndpointDigest != f.endpointDigest {
		// What came from another endpoint says nothing of this one. Denials stay with the records.
		status.EndpointDigest = f.endpointDigest
		status.Server, status.Counts, status.LastChanged, status.Tools, status.Accepted = nil, nil, nil, nil, nil
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionReachable)
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionClassified)
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionPinsMatch)
	}
	gaps := setTools(server, f)
	standing, complete := setRecords(server, f)
	if !complete {
		gaps = append(gaps, fmt.Sprintf("there is room for %d records, and some decisions are not counted", maxRecords))
	}
	setConditions(server, f, standing, gaps)
}

// setTools sets the tools and the instructions, with what is in force for each, and returns what is left out.
func setTools(server *v1alpha1.GovernedServer, f facts) (gaps []string) {
	status, before := &server.Status, server.Status.Tools
	pinning, firstContact := server.Spec.Pinning, status.LastChanged == nil
	known := inventory{tools: remembered(before), accepted: status.Accepted}
	listed, introduction := known.tools, status.Server
	if last := f.seen.last; last != nil {
		listed, introduction, gaps = last.tools, &last.server, slices.Clone(last.gaps)
	}
	if introduction != nil {
		status.Server = reintroduce(status.Server, *introduction, pinning)
	}
	now, left := relist(known, listed, firstContact, pinning)
	status.Tools, status.Accepted = now.tools, now.accepted
	standing := f.compile(server)
	if settle(server, standing) && len(left) > 0 { // there is room again
		now, left = relist(inventory{tools: now.tools, accepted: status.Accepted}, listed, firstContact, pinning)
		status.Tools, status.Accepted = now.tools, now.accepted
		standing = f.compile(server)
		settle(server, standing)
	}
	gaps = append(gaps, left...)
	size := 0
	for i := range status.Tools {
		t := &status.Tools[i]
		if s, known := standing.Standing(t.Name); known {
			t.Tier, t.Source, t.Reason = s.Tier, s.Source, s.Reason
		}
		size += jsonSize(t)
	}
	if size > maxToolBytes { // by reasons that are longer than the classifier's
		for i := range status.Tools {
			status.Tools[i].Reason = glyph.Clip(status.Tools[i].Reason, shortReason)
		}
	}
	if f.seen.last == nil && firstContact {
		return gaps // never listed
	}
	if firstContact || !slices.EqualFunc(before, status.Tools, sameTool) {
		status.LastChanged = &metav1.Time{Time: f.now.Truncate(time.Second)}
	}
	status.Counts = countTiers(status.Tools)
	return gaps
}

// compile joins what is known of the server now.
func (f facts) compile(server *v1alpha1.GovernedServer) *policy.Server {
	return policy.Compile(policy.Inputs{Server: server, Policies: f.policies, OperatorNamespace: f.operatorNamespace, EndpointDigest: f.endpointDigest})
}

// remembered returns the tools of a status for use as a listing. What the classifier said of a tool beside its tier is
// lost where something else decided.
func remembered(tools []v1alpha1.ToolStatus) []v1alpha1.ToolStatus {
	tools = slices.Clone(tools)
	for i := range tools {
		others := []v1alpha1.TierSource{v1alpha1.TierSourceOverride, v1alpha1.TierSourceMinimum, v1alpha1.TierSourceRatchet}
		if t := &tools[i]; slices.Contains(others, t.Source) {
			t.Source = v1alpha1.TierSourceName
			t.Reason = fmt.Sprintf("The classifier said %s when the server was last listed", t.ClassifiedTier)
		}
	}
	return tools
}

// sameTool tells whether a tool is as it was, but for the words of the reason.
func sameTool(a, b v1alpha1.ToolStatus) bool {
	return a.Name == b.Name && a.Digest == b.Digest && a.Tier == b.Tier && a.ClassifiedTier == b.ClassifiedTier
}

func countTiers(tools []v1alpha1.ToolStatus) *v1alpha1.TierCounts {
	counts := &v1alpha1.TierCounts{}
	for _, t := range tools {
		switch t.Tier {
		case v1alpha1.TierRead:
			counts.Read++
		case v1alpha1.TierReversible:
			counts.Reversible++
		default:
			counts.Irreversible++
		}
	}
	return counts
}

// setRecords counts what ended and sets where every tool with a record stands. It returns what is in force then.
func setRecords(server *v1alpha1.GovernedServer, f facts) (standing *policy.Server, complete bool) {
	status := &server.Status
	e := f.evidence
	e.digests = make(map[string]string, len(status.Tools))
	for _, t := range status.Tools {
		e.digests[t.Name] = t.Digest
	}
	status.Records, complete = account(status.Records, e)
	standing = f.compile(server)
	for i := range status.Records {
		record := &status.Records[i]
		s, listed := standing.Standing(record.Tool)
		switch {
		case listed:
			record.Autonomy = s.Autonomy
		case record.Denied > 0:
			record.Autonomy = v1alpha1.AutonomyDisqualified
		default:
			record.Autonomy = v1alpha1.AutonomyNone
		}
	}
	return standing, complete
}

// setConditions sums up. While the first listing under a spec is awaited, what the last one said stands.
func setConditions(server *v1alpha1.GovernedServer, f facts, standing *policy.Server, gaps []string) {
	conditions := &server.Status.Conditions
	awaited := f.seen.fault == nil && f.seen.last == nil
	if !awaited {
		server.Status.ObservedGeneration = server.Generation
	}
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: glyph.Clip(message, maxMessage),
			ObservedGeneration: server.Status.ObservedGeneration, LastTransitionTime: metav1.NewTime(f.now.Truncate(time.Second)),
		})
	}
	switch {
	case f.seen.fault != nil:
		set(v1alpha1.ConditionReachable, metav1.ConditionFalse, f.seen.fault.reason, f.seen.fault.message)
	case !awaited:
		set(v1alpha1.ConditionReachable, metav1.ConditionTrue, v1alpha1.ReasonListed, "The server's tools are listed")
	case meta.FindStatusCondition(*conditions, v1alpha1.ConditionReachable) == nil:
		set(v1alpha1.ConditionReachable, metav1.ConditionUnknown, v1alpha1.ReasonNotListedYet, "The server's tools are not listed yet")
	}
	switch {
	case server.Status.LastChanged == nil:
		set(v1alpha1.ConditionClassified, metav1.ConditionUnknown, v1alpha1.ReasonNotListedYet, "The server's tools are not listed yet")
	case f.seen.fault != nil:
		set(v1alpha1.ConditionClassified, metav1.ConditionFalse, v1alpha1.ReasonStale, "The tools are those of an earlier listing")
	case !awaited && len(gaps) > 0:
		set(v1alpha1.ConditionClassified, metav1.ConditionFalse, v1alpha1.ReasonTruncated, sentence(strings.Join(gaps, "; ")))
	case !awaited:
		set(v1alpha1.ConditionClassified, metav1.ConditionTrue, v1alpha1.ReasonClassified, "Every tool has a tier")
	}
	if rejected := rejectedPolicies(server, f); len(rejected) > 0 {
		set(v1alpha1.ConditionPolicyAccepted, metav1.ConditionFalse, v1alpha1.ReasonPolicyRejected, "Not usable as written: ToolPolicy "+listNames(rejected))
	} else {
		set(v1alpha1.ConditionPolicyAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "Every ToolPolicy that covers the server can be used as written")
	}
	switch drifted := driftedNames(standing); {
	case server.Spec.Pinning == v1alpha1.PinningOff || server.Status.LastChanged == nil:
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionPinsMatch)
	case len(drifted) > 0:
		set(v1alpha1.ConditionPinsMatch, metav1.ConditionFalse, v1alpha1.ReasonDrifted,
			"Nobody accepted what the server now says of "+listNames(drifted)+": review it, then pin it")
	default:
		set(v1alpha1.ConditionPinsMatch, metav1.ConditionTrue, v1alpha1.ReasonPinned, "Every definition is the accepted one")
	}
	setReady(server, f.now)
}

// driftedNames returns what is not accepted, the instructions first, then tools in their order.
func driftedNames(standing *policy.Server) []string {
	var names []string
	for _, d := range standing.Drift() {
		if d.Tool == "" {
			names = append(names, "the instructions")
			continue
		}
		names = append(names, quote(d.Tool))
	}
	return names
}

// setReady sums up the other conditions. Two write some of them, each at the version that it read, and both call this:
// so Ready is never older than what it sums up.
func setReady(server *v1alpha1.GovernedServer, now time.Time) {
	status, reason, message := readiness(server)
	meta.SetStatusCondition(&server.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: glyph.Clip(message, maxMessage),
		ObservedGeneration: server.Status.ObservedGeneration, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
}

// readiness is the first of the other conditions that is not True; stale tools come before their cause, which the
// message keeps. A server whose gateway is not given its rights, or is to be run here and is not ready, is not ready. What
// the gateway lacks comes first: a server that is listed through it is out of reach for that alone.
func readiness(server *v1alpha1.GovernedServer) (metav1.ConditionStatus, string, string) {
	conditions := server.Status.Conditions
	reachable := meta.FindStatusCondition(conditions, v1alpha1.ConditionReachable)
	classified := meta.FindStatusCondition(conditions, v1alpha1.ConditionClassified)
	if reachable != nil && classified != nil && classified.Reason == v1alpha1.ReasonStale {
		return metav1.ConditionFalse, v1alpha1.ReasonStale, classified.Message + ": " + reachable.Message
	}
	authorized, account := meta.FindStatusCondition(conditions, v1alpha1.ConditionGatewayAuthorized), accountOf(server)
	if account != "" && authorized != nil && authorized.Status != metav1.ConditionTrue {
		return authorized.Status, authorized.Reason, authorized.Message
	}
	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionClassified, v1alpha1.ConditionPolicyAccepted} {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil {
			return metav1.ConditionUnknown, v1alpha1.ReasonNotListedYet, "The server's tools are not listed yet"
		}
		if c.Status != metav1.ConditionTrue {
			return c.Status, c.Reason, c.Message
		}
	}
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionPinsMatch); c != nil &&
		server.Spec.Pinning == v1alpha1.PinningEnforce && c.Status != metav1.ConditionTrue {
		return c.Status, c.Reason, c.Message
	}
	if account != "" && authorized == nil {
		return metav1.ConditionUnknown, v1alpha1.ReasonNotGrantedYet, "The gateway has not been given its rights yet"
	}
	if standalone.Wanted(server) {
		switch c := meta.FindStatusCondition(conditions, v1alpha1.ConditionGatewayAvailable); {
		case c == nil:
			return metav1.ConditionUnknown, v1alpha1.ReasonNotDeployedYet, "The standalone gateway has not been made yet"
		case c.Status != metav1.ConditionTrue:
			return c.Status, c.Reason, c.Message
		}
	}
	return metav1.ConditionTrue, v1alpha1.ReasonReady, "The server's tools are listed and have a tier"
}

// rejectedPolicies returns the names of the policies that cover the server and are not valid, sorted; a baseline with its
// namespace.
func rejectedPolicies(server *v1alpha1.GovernedServer, f facts) []string {
	var names []string
	for _, p := range f.policies {
		object := p.Object()
		switch {
		case len(p.Problems()) == 0 || !p.Covers(server, f.operatorNamespace):
		case object.Spec.NamespaceSelector != nil:
			names = append(names, object.Namespace+"/"+object.Name)
		default:
			names = append(names, object.Name)
		}
	}
	slices.Sort(names)
	return names
}

// listNames joins sorted names, the first few of them.
func listNames(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

// sentence starts a phrase with a capital.
func sentence(phrase string) string {
	first, size := utf8.DecodeRuneInString(phrase)
	return string(unicode.ToUpper(first)) + phrase[size:]
}
