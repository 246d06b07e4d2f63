// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

const (
	// previewWithin bounds one preview: a person is asked without it rather than late.
	previewWithin = 5 * time.Second
	// maxPreviews bounds the previews of one server that are under way.
	maxPreviews = 8
	// maxFailure is what a request can hold of why there is no preview.
	maxFailure = 512
)

// planned is what a request made now would say of its preview before the server is asked, nil for none.
func planned(snap *snapshot.Snapshot, of policy.Call) *v1alpha1.Preview {
	asked, found, _ := snap.Policy.Preview(of) // what is wrong with it is told once the request is made
	if !found {
		return nil
	}
	return &v1alpha1.Preview{Tool: asked.Tool, Recheck: asked.Recheck}
}

// preview asks the server what the call would affect, for the person who is about to be asked. A preview that fails is
// one too: the person is to know that it did.
func (g *gated) preview() *v1alpha1.Preview {
	p := g.want.Preview
	if p == nil {
		return nil
	}
	made := &v1alpha1.Preview{Tool: p.Tool, Recheck: p.Recheck}
	seen, err := g.foresee(p.Tool, askFirst)
	if err != nil {
		made.Failure = glyph.Clip(glyph.Escaped(err.Error()), maxFailure)
		return made
	}
	made.Result, made.ResultDigest = seen.text, seen.digest
	return made
}

// asking is how the server is asked what a call would affect.
type asking int

const (
	// askFirst is for the person who is about to be asked: identical calls may share an answer.
	askFirst asking = iota
	// askAgain is before an approval is spent. An answer that somebody else waits for may be older than the question.
	askAgain
	// askLast is after that. It is not refused for being one too many: there are no more of them than approvals that were
	// given, and this one would be lost.
	askLast
)

// recheck tells whether the server still says of the call what it said when the request was made. What was never known
// cannot be compared, and the one who approved was told so; and what runs without a person runs without a preview.
func (g *gated) recheck(request *v1alpha1.ApprovalRequest, how asking) (same bool, err error) {
	if g.decision.Effect != policy.RequireApproval || rechecking(request) == 0 {
		return true, nil
	}
	seen, err := g.foresee(request.Spec.Preview.Tool, how)
	return err == nil && seen.digest == request.Spec.Preview.ResultDigest, err
}

// rechecking is how long the preview of a request may take after the request was claimed.
func rechecking(request *v1alpha1.ApprovalRequest) time.Duration {
	if p := request.Spec.Preview; p == nil || !p.Recheck || p.ResultDigest == "" {
		return 0
	}
	return previewWithin
}

// moved looks a last time whether the call would still affect what the person saw, once nothing but the verdict and the
// votes is left to look at. It returns why the call may not leave, nil when it may.
func (e *execution) moved() *notice {
	if e.claimed == nil {
		return nil
	}
	switch same, err := e.recheck(e.claimed, askLast); {
	case e.clientGone():
		return nil // and then nothing leaves: overtaken says so
	case err != nil:
		n := notForeseen(err, "The approval is spent all the same: send the call again to ask anew.")
		return &n
	case !same:
		return &notice{code: "StateChanged", retryAfter: 5, text: "what the server says that this call would affect changed just before it was to leave. Nothing was executed. Send the call again; a person is then asked anew."}
	}
	return nil
}

// notForeseen words that a preview that has to be made again cannot be made now.
func notForeseen(err error, then string) notice {
	return notice{code: "PreviewUnavailable", retryAfter: 10,
		text: fmt.Sprintf("the server has to say once more what this call would affect, and that cannot be asked now: %s. Nothing was executed. %s", quoted(glyph.Clip(err.Error(), maxFailure)), then)}
}

// foresee has the server say what the call would affect, through the tool that the policy names; another one than this is
// not asked. Its time holds for all of it: whoever waits has it for no longer.
func (g *gated) foresee(name string, how asking) (foreseen, error) {
	ctx, cancel := context.WithTimeout(g.request.Context(), previewWithin)
	defer cancel()
	definition, unlisted := g.server.define(ctx, name)
	// What the server said just now may have changed what the tool counts as.
	j, ok := g.judge()
	if !ok {
		return foreseen{}, errors.New("the server is no longer governed")
	}
	asked, found, err := j.snap.Policy.Preview(g.question())
	switch {
	case !found || asked.Tool != name:
		return foreseen{}, fmt.Errorf("the policy does not ask for a call of %s any more", name)
	case err != nil:
		return foreseen{}, err
	case unlisted != nil:
		return foreseen{}, fmt.Errorf("the server does not say now what %s is", name)
	}
	if how != askFirst {
		return g.callPreview(ctx, j, definition, asked, how)
	}
	// The hash of the action names the requester too: nobody gets an answer that another one was let ask for.
	key := strings.Join([]string{g.want.ActionHash, name, string(asked.Arguments)}, "\x00")
	answer := g.server.previewing.DoChan(key, func() (any, error) {
		// It goes on for the others when the agent that began it goes.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), previewWithin)
		defer cancel()
		return g.callPreview(ctx, j, definition, asked, how)
	})
	select {
	case <-ctx.Done():
		return foreseen{}, errors.New("the server does not answer in time")
	case result := <-answer:
		return result.Val.(foreseen), result.Err
	}
}

// callPreview calls a tool that reads, on behalf of the gateway, with a receipt like any read.
func (c *call) callPreview(ctx context.Context, j judged, definition tool.Descriptor, asked policy.Preview, how asking) (foreseen, error) {
	defer c.server.previews.Add(-1)
	if c.server.previews.Add(1) > maxPreviews && how != askLast {
		return foreseen{}, errors.New("too many previews of this server are under way")
	}
	up := c.server.upstream.Load()
	if up == nil || up.digest != j.snap.EndpointDigest {
		return foreseen{}, errors.New("the server's endpoint cannot be used now")
	}
	r := c.receipt(judged{snap: j.snap}, receipt.KindDecision)
	r.Tool, r.ToolDigest, r.Tier, r.ArgumentsSize = asked.Tool, definition.Digest(), string(v1alpha1.TierRead), int64(len(asked.Arguments))
	r.Verdict, r.Code, r.Reason = receipt.VerdictAllow, "Preview", "the gateway asks what a call of "+c.message.Call.Name+" would affect"
	r.GatedBy, r.PolicyRevision = asked.By, j.decision.Revision
	if _, err := c.Receipts.Append(r, receipt.Batched); err != nil {
		return foreseen{}, errors.New("the gateway cannot write its record")
	}
	raw, err := c.server.Call(ctx, up.own(), definition, asked.Arguments)
	if err != nil {
		return foreseen{}, err
	}
	return foresight(raw)
}
