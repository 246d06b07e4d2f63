// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// bodyVersion changes when a member changes its meaning or goes; new members may come without.
const bodyVersion = 1

// notification is one event on its way to a receiver.
type notification struct {
	// id is the same whenever the same event is sent again.
	id      string
	event   Event
	request types.NamespacedName
	body    []byte
}

// body is what a receiver gets. The arguments are not part of it: masking takes out what looks like a secret, and a
// chat room has more readers than the namespace.
type body struct {
	Version  int        `json:"version"`
	ID       string     `json:"id"`
	Event    Event      `json:"event"`
	Time     *time.Time `json:"time,omitempty"`
	Request  about      `json:"request"`
	Commands commands   `json:"commands"`
}

// about is what a receiver is told of the request.
type about struct {
	Namespace         string                      `json:"namespace"`
	Name              string                      `json:"name"`
	UID               types.UID                   `json:"uid"`
	Phase             v1alpha1.Phase              `json:"phase"`
	Cancellation      v1alpha1.CancellationReason `json:"cancellation,omitempty"`
	Server            string                      `json:"server"`
	Tool              string                      `json:"tool"`
	Tier              v1alpha1.Tier               `json:"tier"`
	GatedBy           string                      `json:"gatedBy"`
	BlastRadius       blastRadius                 `json:"blastRadius"`
	Requester         string                      `json:"requester"`
	ActsFor           string                      `json:"actsFor,omitempty"`
	RequiredApprovals int32                       `json:"requiredApprovals"`
	CreatedAt         time.Time                   `json:"createdAt"`
	ExpiresAt         time.Time                   `json:"expiresAt"`
	Preview           *preview                    `json:"preview,omitempty"`
}

type blastRadius struct {
	Scope   v1alpha1.BlastScope `json:"scope"`
	Summary string              `json:"summary"`
}

// maxPreview is how much of a preview is sent, in bytes: enough for a count or some names.
const maxPreview = 256

// preview is what the server said that the call would affect, or why it did not.
type preview struct {
	Tool    string `json:"tool"`
	Result  string `json:"result,omitempty"`
	Failure string `json:"failure,omitempty"`
}

// commands are what a person may run next, as the request stands.
type commands struct {
	Describe string `json:"describe"`
	Approve  string `json:"approve,omitempty"`
	Deny     string `json:"deny,omitempty"`
	Resolve  string `json:"resolve,omitempty"`
}

// compose writes the notification of one event.
func compose(request *v1alpha1.ApprovalRequest, o occurrence) (notification, error) {
	id := string(request.UID) + "." + string(o.event)
	content := body{Version: bodyVersion, ID: id, Event: o.event, Request: describe(request), Commands: next(request)}
	if o.event == EventOpened || o.event == EventExpiring {
		content.Request.Preview = foreseen(request.Spec.Preview)
	}
	if !o.at.IsZero() {
		at := o.at.UTC()
		content.Time = &at
	}
	text, err := json.Marshal(content)
	if err != nil {
		return notification{}, fmt.Errorf("write notification %s: %w", id, err)
	}
	key := types.NamespacedName{Namespace: request.Namespace, Name: request.Name}
	return notification{id: id, event: o.event, request: key, body: text}, nil
}

// describe shows the texts of agents and servers so that a person sees nothing but what is there.
func describe(request *v1alpha1.ApprovalRequest) about {
	spec := request.Spec
	told := about{
		Namespace: request.Namespace, Name: request.Name, UID: request.UID, Phase: request.CurrentPhase(),
		Server: spec.ServerRef.Name, Tool: glyph.Plain(spec.Tool), Tier: spec.Tier, GatedBy: glyph.Plain(spec.GatedBy),
		BlastRadius: blastRadius{Scope: spec.BlastRadius.Scope, Summary: glyph.Plain(spec.BlastRadius.Summary)},
		Requester:   glyph.Plain(spec.Requester.Username), ActsFor: glyph.Plain(spec.Requester.ActsFor),
		RequiredApprovals: spec.RequiredApprovals,
		CreatedAt:         request.CreationTimestamp.UTC(), ExpiresAt: request.ExpiresAt().UTC(),
	}
	if cancellation := request.Status.Cancellation; cancellation != nil {
		told.Cancellation = cancellation.Reason
	}
	return told
}

// foreseen shows the start of a preview, to those who are to decide: it may quote the server's data, and who reads of the
// end of a request needs none of it.
func foreseen(p *v1alpha1.Preview) *preview {
	if p == nil {
		return nil
	}
	shown := func(text string) string { return glyph.Clip(glyph.Plain(text), maxPreview) }
	return &preview{Tool: shown(p.Tool), Result: shown(p.Result), Failure: shown(p.Failure)}
}

// next returns the commands that lead on from the phase. Names and namespaces of Kubernetes need no quotes in a shell.
func next(request *v1alpha1.ApprovalRequest) commands {
	target := request.Name + " -n " + request.Namespace
	c := commands{Describe: "kubectl tidewaiter describe " + target}
	switch request.CurrentPhase() {
	case v1alpha1.PhasePending:
		c.Approve, c.Deny = "kubectl approve "+target, "kubectl deny "+target
	case v1alpha1.PhaseApproved:
		c.Deny = "kubectl deny " + target
	case v1alpha1.PhaseAmbiguous:
		c.Resolve = "kubectl tidewaiter resolve " + target + " (--committed | --not-executed) --reason TEXT"
	default:
	}
	return c
}
