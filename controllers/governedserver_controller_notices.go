// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// maxNotices bounds the events of one change; a server with many tools says them in its status anyway.
const maxNotices = 20

// notice is an event about a change of status.
type notice struct{ kind, reason, action, message string }

// noticesOf returns what people should be told of a change; the same state twice gives none.
func noticesOf(before, after *v1alpha1.GovernedServer, said bodies) []notice {
	notices := slices.Concat(reachNotices(before, after), toolNotices(before, after, said), autonomyNotices(before, after))
	return notices[:min(len(notices), maxNotices)]
}

func reachNotices(before, after *v1alpha1.GovernedServer) []notice {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReachable)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReachable)
	switch {
	case is == nil || is.Status == metav1.ConditionUnknown, was != nil && was.Reason == is.Reason:
		return nil
	case is.Status == metav1.ConditionFalse:
		return []notice{{corev1.EventTypeWarning, is.Reason, "Discover", is.Message}}
	case was != nil && was.Status == metav1.ConditionFalse:
		return []notice{{corev1.EventTypeNormal, is.Reason, "Discover", is.Message}}
	default:
		return nil // the first listing has a notice of its own
	}
}

func autonomyNotices(before, after *v1alpha1.GovernedServer) []notice {
	was := map[string]v1alpha1.Autonomy{}
	for _, r := range before.Status.Records {
		was[r.Tool] = r.Autonomy
	}
	var notices []notice
	say := func(kind, reason, format string, args ...any) {
		notices = append(notices, notice{kind, reason, "Account", glyph.Clip(fmt.Sprintf(format, args...), maxMessage)})
	}
	for _, r := range after.Status.Records {
		old := was[r.Tool]
		switch {
		case old == r.Autonomy:
		case old == v1alpha1.AutonomyUnattended:
			say(corev1.EventTypeWarning, v1alpha1.ReasonRevoked, "%s needs approval again: %s", quote(r.Tool), standsAt(r))
		case r.Autonomy == v1alpha1.AutonomyUnattended:
			say(corev1.EventTypeNormal, v1alpha1.ReasonUnattended, "%s runs without approval from now on, by a promotion of %s", quote(r.Tool), r.Digest)
		case r.Autonomy == v1alpha1.AutonomyEligible:
			say(corev1.EventTypeNormal, v1alpha1.ReasonEligible, "%s has %d clean approvals; to let it run unattended, promote %s in a ToolPolicy", quote(r.Tool), r.Approved, r.Digest)
		}
		delete(was, r.Tool)
	}
	for name, old := range was {
		if old == v1alpha1.AutonomyUnattended {
			say(corev1.EventTypeWarning, v1alpha1.ReasonRevoked, "%s needs approval again: its record is gone", quote(name))
		}
	}
	return notices
}

// standsAt says in a few words where a tool stands.
func standsAt(r v1alpha1.ToolRecord) string {
	switch r.Autonomy {
	case v1alpha1.AutonomyDisqualified:
		return "a person denied a call"
	case v1alpha1.AutonomyForbidden:
		return "it is Irreversible"
	case v1alpha1.AutonomyEligible:
		return "its promotion is no longer in force"
	default:
		return "its record is not clean for this definition and endpoint"
	}
}

// quote shows a name that a server chose so that it stays on one line and is seen for what it is.
func quote(name string) string { return fmt.Sprintf("%q", name) }
