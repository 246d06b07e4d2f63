// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	// maxRecords is how many tools of a server have a track record.
	maxRecords = 1000
	// maxAccounted is how many UIDs all records of a server hold together; with more, counting waits until requests
	// say themselves that they are counted.
	maxAccounted = 1000
)

// A request is counted exactly once, whatever is retried, restarted or read late:
//
//	its UID enters accounted[] in the very write that counts it (under a conflict check);
//	then the request itself is marked Accounted;
//	then, and only then, its UID leaves accounted[].
//
// What is in accounted[] is not counted again. What is not there is counted only after a read past the cache has shown
// that it is not marked either.

// evidence is what is known of a server's requests, beside its records.
type evidence struct {
	// fresh are requests that ended and, by a read past the cache, are not marked Accounted.
	fresh []v1alpha1.ApprovalRequest
	// settled are UIDs whose requests are seen to be marked, or proved to be gone.
	settled map[string]bool
	// ambiguous counts the open Ambiguous requests of each tool.
	ambiguous map[string]int32
	// endpointDigest and digests are those of the endpoint and its tools now.
	endpointDigest string
	digests        map[string]string
	now            time.Time
}

// account returns the records after the evidence, sorted by tool, and whether all of it found room. It never changes
// its arguments.
func account(records []v1alpha1.ToolRecord, e evidence) (after []v1alpha1.ToolRecord, complete bool) {
	l := ledger{evidence: e, byTool: map[string]*v1alpha1.ToolRecord{}}
	for i := range records {
		record := records[i].DeepCopy()
		l.byTool[record.Tool] = record
		l.release(record)
		l.restart(record)
		record.Ambiguous = e.ambiguous[record.Tool]
	}
	complete = true
	for _, request := range l.inOrder() {
		complete = l.count(&request) && complete
	}
	l.openAmbiguous()
	for _, record := range l.byTool {
		after = append(after, *record)
	}
	slices.SortFunc(after, func(a, b v1alpha1.ToolRecord) int { return cmp.Compare(a.Tool, b.Tool) })
	return after, complete
}

// ledger is the records while they change.
type ledger struct {
	evidence
	byTool map[string]*v1alpha1.ToolRecord
	held   int // UIDs in accounted[] of all records
}

// release forgets UIDs that are safe without us.
func (l *ledger) release(record *v1alpha1.ToolRecord) {
	record.Accounted = slices.DeleteFunc(record.Accounted, func(uid string) bool { return l.settled[uid] })
	if len(record.Accounted) == 0 {
		record.Accounted = nil
	}
	l.held += len(record.Accounted)
}

// restart begins a record anew where it was for another definition or endpoint. Denials stay: they are of the tool.
func (l *ledger) restart(record *v1alpha1.ToolRecord) {
	digest := cmp.Or(l.digests[record.Tool], record.Digest)
	if record.Digest != digest || record.EndpointDigest != l.endpointDigest {
		record.Digest, record.EndpointDigest = digest, l.endpointDigest
		record.Approved, record.Failed = 0, 0
	}
}

// openAmbiguous begins a record, while there is room, for each listed tool of which nothing is known but requests whose
// outcome nobody knows.
func (l *ledger) openAmbiguous() {
	for _, name := range slices.Sorted(maps.Keys(l.ambiguous)) {
		digest, listed := l.digests[name]
		if l.byTool[name] == nil && listed && len(l.byTool) < maxRecords {
			l.byTool[name] = &v1alpha1.ToolRecord{
				Tool: name, Digest: digest, EndpointDigest: l.endpointDigest, Ambiguous: l.ambiguous[name], Autonomy: v1alpha1.AutonomyNone,
			}
		}
	}
}

// inOrder sorts the fresh requests: denials first, so that one finds room before an approval does.
func (l *ledger) inOrder() []v1alpha1.ApprovalRequest {
	return slices.SortedFunc(slices.Values(l.fresh), func(a, b v1alpha1.ApprovalRequest) int {
		return cmp.Or(
			compareBool(isDenial(&b), isDenial(&a)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.UID, b.UID),
		)
	})
}

// count takes one request into the records and tells whether it could. A request that found no room is neither counted
// nor marked; it stays, and a gateway that sees its denial holds to it.
func (l *ledger) count(request *v1alpha1.ApprovalRequest) bool {
	uid := string(request.UID)
	record := l.byTool[request.Spec.Tool]
	switch {
	case record != nil && slices.Contains(record.Accounted, uid):
		return true
	case l.held >= maxAccounted:
		return false
	case record == nil && len(l.byTool) >= maxRecords && !l.evict(isDenial(request)):
		return false
	case record == nil:
		record = &v1alpha1.ToolRecord{
			Tool:           request.Spec.Tool,
			Digest:         cmp.Or(l.digests[request.Spec.Tool], request.Spec.ToolDigest),
			EndpointDigest: l.endpointDigest,
			Ambiguous:      l.ambiguous[request.Spec.Tool],
			Autonomy:       v1alpha1.AutonomyNone,
		}
		l.byTool[record.Tool] = record
	}
	same := request.Spec.ToolDigest == record.Digest && request.Spec.EndpointDigest == record.EndpointDigest
	switch {
	case isDenial(request):
		record.Denied++
	case same && request.IsClean():
		record.Approved++
	case same && request.CurrentPhase() == v1alpha1.PhaseFailed && !neverSent(request):
		record.Failed++
	}
	record.Accounted = append(record.Accounted, uid)
	record.LastDecision = &metav1.Time{Time: l.now.Truncate(time.Second)}
	l.held++
	return true
}

// evict makes room for one record by giving up the one that means least: of a tool that is no longer listed, and the
// oldest. For a denial a record of a listed tool may go too. A denial never goes, so that no tool is better off for it.
func (l *ledger) evict(forDenial bool) bool {
	var victim *v1alpha1.ToolRecord
	for _, record := range l.byTool {
		_, listed := l.digests[record.Tool]
		if record.Denied > 0 || len(record.Accounted) > 0 || record.Ambiguous > 0 || listed && !forDenial {
			continue
		}
		if victim == nil || l.meansLess(record, victim) {
			victim = record
		}
	}
	if victim == nil {
		return false
	}
	delete(l.byTool, victim.Tool)
	return true
}

func (l *ledger) meansLess(a, b *v1alpha1.ToolRecord) bool {
	_, aListed := l.digests[a.Tool]
	_, bListed := l.digests[b.Tool]
	return cmp.Or(compareBool(aListed, bListed), compareTime(a.LastDecision, b.LastDecision), cmp.Compare(a.Tool, b.Tool)) < 0
}

// isDenial tells whether a person refused the action for good.
func isDenial(request *v1alpha1.ApprovalRequest) bool {
	return request.CurrentPhase() == v1alpha1.PhaseDenied
}

// neverSent tells whether the call of a request did not leave: that says nothing of the tool.
func neverSent(request *v1alpha1.ApprovalRequest) bool {
	e := request.Status.Execution
	return e != nil && e.Outcome == v1alpha1.OutcomeNotSent
}

// isAccounted tells whether a request says itself that it is counted.
func isAccounted(request *v1alpha1.ApprovalRequest) bool {
	return meta.IsStatusConditionTrue(request.Status.Conditions, v1alpha1.ConditionAccounted)
}

// accountedIn returns the UIDs that the records hold.
func accountedIn(records []v1alpha1.ToolRecord) map[string]bool {
	held := map[string]bool{}
	for _, record := range records {
		for _, uid := range record.Accounted {
			held[uid] = true
		}
	}
	return held
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

func compareTime(a, b *metav1.Time) int {
	switch {
	case a == nil || b == nil:
		return compareBool(a != nil, b != nil)
	default:
		return a.Compare(b.Time)
	}
}
