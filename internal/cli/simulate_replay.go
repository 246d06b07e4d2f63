// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// change is a call that would be decided otherwise, or of which that cannot be told.
type change struct {
	Time      time.Time `json:"time"`
	Namespace string    `json:"namespace"`
	Server    string    `json:"server"`
	Tool      string    `json:"tool"`
	Requester string    `json:"requester"`
	ActsFor   string    `json:"actsFor,omitempty"`
	Request   string    `json:"request,omitempty"`
	// Was is the recorded verdict, and what decided it.
	Was   string `json:"was"`
	WasBy string `json:"wasBy,omitempty"`
	// WouldBe is the verdict of the proposed policies, and what would decide it; "" where that cannot be told.
	WouldBe   string `json:"wouldBe,omitempty"`
	WouldBeBy string `json:"wouldBeBy,omitempty"`
	// Needs is what an approval would take, where people would be asked.
	Needs string `json:"needs,omitempty"`
	// Strictest and Loosest are what it could be, and CannotTell why it cannot be told.
	Strictest  string `json:"strictest,omitempty"`
	Loosest    string `json:"loosest,omitempty"`
	CannotTell string `json:"cannotTell,omitempty"`
	// File and Seq are where the receipt stands.
	File string `json:"file"`
	Seq  uint64 `json:"seq"`
}

// summary counts the decisions of the receipts; each stands in exactly one place.
type summary struct {
	Decisions int `json:"decisions"`
	Denied    int `json:"wouldHaveDenied"`
	Asked     int `json:"wouldHaveAsked"`
	Allowed   int `json:"wouldHaveLetThrough"`
	// CannotTell are calls for which it depends on what the receipts do not keep.
	CannotTell int `json:"cannotTell"`
	Unchanged  int `json:"unchanged"`
	// Already are calls that the policies in force now would decide as the proposed ones do.
	Already int `json:"alreadyDecidedOtherwise"`
	// Untouched are calls of which the proposed policies say what those in force say.
	Untouched int `json:"untouched"`
	// Repeated are further receipts of calls that people were asked about.
	Repeated int `json:"repeated"`
	// Unreadable are lines of an accepted broken chain that are no receipts, and no decisions either.
	Unreadable int `json:"unreadable,omitempty"`
	// LeftOut counts what was decided by something else than policy, by its code.
	LeftOut map[string]int `json:"leftOut,omitempty"`
	// Notes say what could not be taken into account.
	Notes []string `json:"notes"`
}

// replay judges recorded calls by the proposed policies.
type replay struct {
	known  knownDefinitions
	world  *world
	report simulationReport

	summary summary
	// asked remembers, in eight bytes each, the requests that were counted.
	asked  map[uint64]struct{}
	judges *lru.Cache
}

// maxJudges is how many judged tools are remembered.
const maxJudges = 1024

func newReplay(proposed manifests, known knownDefinitions, w *world, report simulationReport) *replay {
	r := &replay{known: known, world: w, report: report, asked: map[uint64]struct{}{}, judges: lru.New(maxJudges)}
	r.summary.LeftOut = map[string]int{}
	r.summary.Notes = notesOn(proposed, w.offline)
	return r
}

// notesOn says what a replay cannot take into account.
func notesOn(proposed manifests, offline bool) []string {
	notes := []string{
		"modes of servers do not count; minimumTier, pinning, instructions and the labels of namespaces are those of now",
		"what had been accepted of a definition, and whether a gateway was cut off, is not on record: such refusals are left out",
	}
	promotes := func(p linted) bool {
		return slices.ContainsFunc(p.Policy.Spec.Autonomy, func(a v1alpha1.AutonomyRule) bool { return a.Mode == v1alpha1.ModeUnattended })
	}
	if slices.ContainsFunc(proposed.policies, promotes) {
		notes = append(notes, "records of tools are not those of now: a promotion counts for calls that ran unattended then, and for no other")
	}
	if offline {
		notes = append(notes, "policies and baselines that are not in the files do not count")
	}
	return notes
}

// take replays one line.
func (r *replay) take(ctx context.Context, line recorded) error {
	switch {
	case line.unreadable:
		r.summary.Unreadable++
		return nil
	case line.Kind != receipt.KindDecision:
		return nil
	}
	r.summary.Decisions++
	was, ok := recordedVerdict(&line.Receipt)
	if !ok {
		r.leaveOut(was.code)
		return nil
	}
	if was.effect == policy.RequireApproval && line.RequestUID != "" && r.counted(line.RequestUID) {
		r.summary.Repeated++
		return nil
	}
	j, err := r.judge(ctx, &line.Receipt, was)
	if err != nil {
		return err
	}
	switch {
	case j == nil:
		r.leaveOut("ServerNotKnown")
	case j.untouched:
		r.summary.Untouched++
	default:
		return r.compare(j, &line, was)
	}
	return nil
}

// maxCodes is how many codes of what is left out are told apart; there are a few dozen.
const maxCodes = 100

// leaveOut counts a decision that is not replayed. Strangers may have written the code.
func (r *replay) leaveOut(code string) {
	code = glyph.Clip(code, 64)
	if _, known := r.summary.LeftOut[code]; !known && len(r.summary.LeftOut) >= maxCodes {
		code = "other codes"
	}
	r.summary.LeftOut[code]++
}

// counted tells whether a request was counted before, and remembers that it is now.
func (r *replay) counted(uid string) bool {
	sum := sha256.Sum256([]byte(uid))
	key := binary.BigEndian.Uint64(sum[:8])
	_, found := r.asked[key]
	r.asked[key] = struct{}{}
	return found
}

// verdictOnRecord is what policy decided, as the receipt has it.
type verdictOnRecord struct {
	effect policy.Effect
	code   string
	by     string
}

// byPolicy are the codes of refusals that policies give by themselves.
var byPolicy = []policy.Reason{policy.ReasonRuleDenied, policy.ReasonRuleUncertain, policy.ReasonTooManyVerbs, policy.ReasonCallerNotAllowed}

// byMode are the codes of refusals that a baseline's mode gives, or the server's own, which is no policy.
var byMode = []policy.Reason{policy.ReasonServerStopped, policy.ReasonServerReadOnly}

// recordedVerdict returns the verdict that policy gave on a recorded call, whatever became of it after; ok is false where
// something else decided, and its code says what.
func recordedVerdict(r *receipt.Receipt) (v verdictOnRecord, ok bool) {
	v = verdictOnRecord{code: r.Code, by: r.GatedBy}
	verdict := r.Verdict
	if o := r.Observed; o != nil {
		v, verdict = verdictOnRecord{code: o.Code, by: o.GatedBy}, o.Verdict
	}
	code := policy.Reason(v.code)
	switch {
	case r.Method != "":
		v.code = "NoToolCall"
		return v, false
	case r.Tier == "" || r.ToolDigest == "": // nobody knew the tool
		return v, false
	case r.RequestUID != "" || verdict == receipt.VerdictRequireApproval:
		v.effect = policy.RequireApproval
		return v, true
	case verdict == receipt.VerdictAllow:
		v.effect = policy.Allow
		return v, true
	default:
		baseline := strings.HasPrefix(v.by, "ToolPolicy/")
		return v, slices.Contains(byPolicy, code) || slices.Contains(byMode, code) && baseline
	}
}

// compare says what the proposed policies make of the call.
func (r *replay) compare(j *judges, line *recorded, was verdictOnRecord) error {
	call := policy.Call{Tool: line.Tool, Principal: principalOf(line.Requester, line.Groups), Freshness: policy.Fresh}
	call.Principal.ActsFor = line.ActsFor
	c := change{
		Time: line.Time, Namespace: line.Namespace, Server: line.Server, Tool: line.Tool, Requester: line.Requester, ActsFor: line.ActsFor,
		Request: line.Request, Was: was.effect.String(), WasBy: was.by, File: line.file, Seq: line.Seq,
	}
	would := ask(j.proposed, call)
	if missing := j.missing(&line.Receipt); missing != "" {
		would.certain = false
		would.why = missing
	}
	if !would.certain {
		r.summary.CannotTell++
		c.Strictest, c.Loosest, c.CannotTell = would.strictest.String(), would.loosest.String(), would.why
		return r.report.change(c)
	}
	inForce := wouldBe{}
	if j.inForce != nil {
		inForce = ask(j.inForce, call)
	}
	same := would.effect == was.effect
	needsSame := !inForce.certain || inForce.effect != would.effect || inForce.needs == would.needs
	switch {
	case same && needsSame:
		r.summary.Unchanged++
		return nil
	case !same && inForce.certain && inForce.effect == would.effect && needsSame:
		r.summary.Already++
		return nil
	case would.effect == policy.Deny:
		r.summary.Denied++
	case would.effect == policy.RequireApproval:
		r.summary.Asked++
	default:
		r.summary.Allowed++
	}
	c.WouldBe, c.WouldBeBy, c.Needs = would.effect.String(), would.by, would.needs
	return r.report.change(c)
}

// wouldBe is the verdict on a call whose arguments are not known.
type wouldBe struct {
	certain            bool
	effect             policy.Effect
	by, needs, why     string
	strictest, loosest policy.Effect
}

// ask judges the call.
func ask(s *policy.Server, call policy.Call) wouldBe {
	d := s.Decide(call)
	w := wouldBe{effect: d.Effect, by: d.GatedBy, why: d.Uncertain}
	w.strictest, w.loosest = s.Range(call.Tool, call.Principal)
	w.certain = d.Uncertain == "" || w.strictest == w.loosest
	if d.Effect == policy.RequireApproval {
		w.needs = fmt.Sprintf("%s with %s", counted(int(d.RequiredApprovals), "approval"), and(d.Verbs))
	}
	return w
}

// finish prints the summary.
func (r *replay) finish() error {
	r.summary.Notes = append(r.summary.Notes, r.world.notes...)
	return r.report.finish(r.summary)
}

// key names the server of a receipt.
func keyOf(r *receipt.Receipt) client.ObjectKey {
	return client.ObjectKey{Namespace: r.Namespace, Name: r.Server}
}
