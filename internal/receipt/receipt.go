// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package receipt keeps the record of every decision on a call, one hash-chained JSON line each; it never holds
// raw arguments or secrets, and never decides anything.
package receipt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// Schema names the fields of a line and the way it is hashed.
const Schema = "tidewaiter.dev/receipt/v1"

// Kind says what a receipt records.
type Kind string

const (
	// KindOpened: a gateway opened its file; the first line of every chain, and one after each restart.
	KindOpened Kind = "Opened"
	// KindDecision: a call was decided. An Allow with a request's uid is written before the call leaves.
	KindDecision Kind = "Decision"
	// KindOutcome: a call that was allowed has ended; it shares the callID of its decision.
	KindOutcome Kind = "Outcome"
	// KindRecovered: something was lost or set aside before this line; reason says what.
	KindRecovered Kind = "Recovered"
)

// Verdict is what was decided.
type Verdict string

const (
	// VerdictAllow: the call may go on.
	VerdictAllow Verdict = "Allow"
	// VerdictRequireApproval: a person is asked.
	VerdictRequireApproval Verdict = "RequireApproval"
	// VerdictDeny: the call is refused.
	VerdictDeny Verdict = "Deny"
)

// Receipt is one line of the record. The writer sets Schema, Seq, PrevHash, Chain, Gateway, Time and Hash.
// The order of the fields is part of the schema: it is the order in which they are hashed.
type Receipt struct {
	Schema   string    `json:"schema"`
	Seq      uint64    `json:"seq"`
	PrevHash string    `json:"prevHash"`
	Chain    string    `json:"chain"`
	Gateway  string    `json:"gateway"`
	Time     time.Time `json:"time"`
	Kind     Kind      `json:"kind"`

	// Method of a message that is no call of a tool; "" for a call.
	Method string `json:"method,omitempty"`
	// CallID is the same on the decision and the outcome of one call.
	CallID         string `json:"callID,omitempty"`
	Namespace      string `json:"namespace,omitempty"`
	Server         string `json:"server,omitempty"`
	ServerUID      string `json:"serverUID,omitempty"`
	EndpointDigest string `json:"endpointDigest,omitempty"`
	Tool           string `json:"tool,omitempty"`
	ToolDigest     string `json:"toolDigest,omitempty"`
	Tier           string `json:"tier,omitempty"`

	Verdict Verdict `json:"verdict,omitempty"`
	// Code is the stable word that the caller was given, Reason the sentence with it.
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	// GatedBy is what decided: tier, or a policy and its entry.
	GatedBy string `json:"gatedBy,omitempty"`
	// Rule is gatedBy where that is a rule of a policy.
	Rule string `json:"rule,omitempty"`
	// Controls are the requirements that the rule meets.
	Controls []string `json:"controls,omitempty"`
	// Uncertain names what could not be evaluated and took part in the verdict, and why.
	Uncertain string `json:"uncertain,omitempty"`
	// Observed is the verdict that the call would have had if the server did not only observe.
	Observed *Observed `json:"observed,omitempty"`
	// Steps are how a refusal was come to, in their order.
	Steps []Step `json:"steps,omitempty"`
	// Request is the name of the ApprovalRequest.
	Request    string `json:"request,omitempty"`
	RequestUID string `json:"requestUID,omitempty"`
	// Requester is the username that the call counts for.
	Requester string `json:"requester,omitempty"`
	// ActsFor is the user that the requester acts for.
	ActsFor string `json:"actsFor,omitempty"`
	// Groups of the requester; where some are left out, GroupsTotal says how many there were.
	Groups      []string `json:"groups,omitempty"`
	GroupsTotal int      `json:"groupsTotal,omitempty"`
	// ApprovedBy are the persons whose valid votes let the call run, KeyIDs the voting keys of those votes in their order.
	ApprovedBy  []string `json:"approvedBy,omitempty"`
	KeyIDs      []string `json:"keyIDs,omitempty"`
	ActionHash  string   `json:"actionHash,omitempty"`
	BlastRadius string   `json:"blastRadius,omitempty"`
	// ArgumentsSize is in bytes, as received.
	ArgumentsSize  int64  `json:"argumentsSize,omitempty"`
	PolicyRevision string `json:"policyRevision,omitempty"`
	// Preview is the digest of what the server said that the call would affect, as the person who approved it saw it.
	Preview string `json:"preview,omitempty"`

	// Outcome is Succeeded, ToolError, NotSent, Rejected or Unclear.
	Outcome      string        `json:"outcome,omitempty"`
	ResultDigest string        `json:"resultDigest,omitempty"`
	Duration     time.Duration `json:"durationNanos,omitempty"`

	// Torn describes what a KindRecovered line set aside.
	Torn *Torn `json:"torn,omitempty"`

	Hash string `json:"hash"`
}

// Observed is the verdict that a call would have had.
type Observed struct {
	Verdict Verdict `json:"verdict"`
	// Code is the first reason for it, GatedBy what would have decided.
	Code    string `json:"code,omitempty"`
	GatedBy string `json:"gatedBy,omitempty"`
}

// Step is one step on the way to a verdict.
type Step struct {
	// Source is who speaks: the server, a policy, a rule.
	Source string `json:"source"`
	Says   string `json:"says"`
}

// Torn is an unfinished last line that was set aside.
type Torn struct {
	// File that holds it, beside the receipts.
	File string `json:"file"`
	// Bytes is its length.
	Bytes int64 `json:"bytes"`
	// Digest is its SHA-256.
	Digest string `json:"digest"`
}

// dispatches tells whether the receipt stands for a call that leaves on the strength of a request.
func (r *Receipt) dispatches() bool {
	return r.Kind == KindDecision && r.Verdict == VerdictAllow && r.RequestUID != ""
}

const (
	// maxText bounds a text that others choose, in bytes: a name of a megabyte must not keep its refusal off the record.
	maxText = 1024
	// keptText is how much of a longer text stays.
	keptText = 256
	// maxGroups, maxSteps and maxControls bound the lists.
	maxGroups, maxSteps, maxControls = 64, 48, 16
)

// clip shortens what could be longer than a line should be. What is cut of a text stays provable by its digest, and of
// groups by their number.
func (r *Receipt) clip() {
	for _, text := range []*string{
		&r.Method, &r.CallID, &r.Namespace, &r.Server, &r.ServerUID, &r.EndpointDigest, &r.Tool, &r.ToolDigest, &r.Tier, &r.Code,
		&r.Reason, &r.GatedBy, &r.Rule, &r.Uncertain, &r.Request, &r.RequestUID, &r.Requester, &r.ActsFor, &r.ActionHash, &r.BlastRadius,
		&r.PolicyRevision, &r.Preview, &r.Outcome, &r.ResultDigest,
	} {
		clipText(text, maxText)
	}
	if o := r.Observed; o != nil {
		r.Observed = &Observed{Verdict: o.Verdict, Code: o.Code, GatedBy: o.GatedBy}
		clipText(&r.Observed.Code, maxText)
		clipText(&r.Observed.GatedBy, maxText)
	}
	if len(r.Groups) > maxGroups {
		r.Groups, r.GroupsTotal = r.Groups[:maxGroups], max(r.GroupsTotal, len(r.Groups))
	}
	r.Groups, r.Controls = clipTexts(r.Groups), clipTexts(r.Controls[:min(len(r.Controls), maxControls)])
	r.Steps = clipSteps(r.Steps)
}

func clipText(text *string, limit int) {
	if len(*text) > limit {
		*text = fmt.Sprintf("%s… (%d bytes, %s)", glyph.Cut(*text, keptText), len(*text), digest([]byte(*text)))
	}
}

// clipTexts shortens the texts of a list, which may be another's.
func clipTexts(texts []string) []string {
	if !slices.ContainsFunc(texts, func(text string) bool { return len(text) > keptText }) {
		return texts
	}
	texts = slices.Clone(texts)
	for i := range texts {
		clipText(&texts[i], keptText)
	}
	return texts
}

// clipSteps keeps the first steps, and the last ones, which say what came of them.
func clipSteps(steps []Step) []Step {
	if len(steps) > maxSteps {
		left := len(steps) - maxSteps + 1
		gap := Step{Source: "receipt", Says: fmt.Sprintf("%d steps are left out here", left)}
		steps = slices.Concat(steps[:maxSteps/2], []Step{gap}, steps[maxSteps/2+left:])
	} else {
		steps = slices.Clone(steps)
	}
	for i := range steps {
		clipText(&steps[i].Source, keptText)
		clipText(&steps[i].Says, maxText)
	}
	return steps
}

// link is the place of one line in its chain.
type link struct {
	seq  uint64
	hash string
}

// genesis is the prevHash of the first line: it binds the chain to its gateway.
func genesis(gateway, chain string) string {
	return digest([]byte(Schema + "\n" + gateway + "\n" + chain))
}

// chainTo gives r its place after prev and appends the line, line feed included. The hash covers the line up to, and not
// including, `,"hash":`.
func (r *Receipt) chainTo(prev link, dst []byte) ([]byte, error) {
	r.Schema, r.Seq, r.PrevHash, r.Hash = Schema, prev.seq+1, prev.hash, ""
	text, err := json.Marshal(r)
	if err != nil {
		return dst, fmt.Errorf("encode receipt: %w", err)
	}
	start := len(dst)
	dst = appendEscaped(dst, bytes.TrimSuffix(text, []byte(hashField+`"}`)))
	r.Hash = digest(dst[start:])
	return append(append(append(dst, hashField...), r.Hash...), "\"}\n"...), nil
}

const (
	seqField  = `{"schema":"` + Schema + `","seq":`
	prevField = `,"prevHash":"`
	hashField = `,"hash":"`
	// digestLength is that of "sha256:" and 64 digits.
	digestLength = 71
)

// envelope is what one line says of its own place.
type envelope struct {
	seq      uint64
	prevHash string
	hash     string
	// intact: the line fits its own hash.
	intact bool
}

// parseEnvelope reads the place of a line (without its line feed); ok is false if it is no receipt of this schema.
func parseEnvelope(line []byte) (e envelope, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(seqField))
	if !ok {
		return envelope{}, false
	}
	digits, rest, ok := bytes.Cut(rest, []byte(prevField))
	if !ok || len(digits) > 1 && digits[0] == '0' {
		return envelope{}, false
	}
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil || len(rest) < digestLength {
		return envelope{}, false
	}
	split := len(line) - len(hashField) - digestLength - len(`"}`)
	if split < len(seqField) {
		return envelope{}, false
	}
	tail, ok := bytes.CutPrefix(line[split:], []byte(hashField))
	if !ok || !bytes.HasSuffix(tail, []byte(`"}`)) {
		return envelope{}, false
	}
	e = envelope{seq: seq, prevHash: string(rest[:digestLength]), hash: string(tail[:digestLength])}
	e.intact = e.hash == digest(line[:split])
	return e, true
}

// appendEscaped appends a text in which what could break a line or deceive its reader (controls, bidirectional marks,
// zero-width and other invisible characters) is written as \u escapes, which mean the same in JSON.
func appendEscaped(out, text []byte) []byte {
	for len(text) > 0 {
		plain := 0
		for plain < len(text) && ' ' <= text[plain] && text[plain] <= '~' {
			plain++
		}
		if plain > 0 { // nearly all of it, at once
			out, text = append(out, text[:plain]...), text[plain:]
			continue
		}
		r, size := utf8.DecodeRune(text)
		if glyph.Visible(r) {
			out = append(out, text[:size]...)
		} else {
			out = glyph.AppendEscape(out, r)
		}
		text = text[size:]
	}
	return out
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}
