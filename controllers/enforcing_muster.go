// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	// missedFor is how long a gateway is missed whose Lease expired; one that was stopped takes its Lease with it, so this
	// one was killed, or has lost the API server.
	missedFor = 10 * time.Minute
	// leftFor is how long an expired Lease stays.
	leftFor = time.Hour
)

// muster is which gateways of a server there are. Nothing here reads or writes.
type muster struct {
	// live gateways renewed their Lease in time; current are those of them that run the current policy. missed ones did
	// so until a few minutes ago.
	live, current, missed int
	// open and closed are the live gateways that have found that the server in their pod answers at the pod's address, and
	// that it does not; the others cannot tell.
	open, closed int
	// left are the Leases of gateways that have been gone for long.
	left []*coordinationv1.Lease
	// next is the time until one of these changes by itself; 0 for never.
	next time.Duration
}

// count looks at the Leases of a server. Those of an earlier server of its name say nothing.
func count(server *v1alpha1.GovernedServer, revision string, leases []coordinationv1.Lease, now time.Time) muster {
	var m muster
	wake := func(at time.Time) {
		if in := at.Sub(now); m.next == 0 || in < m.next {
			m.next = in
		}
	}
	for i := range leases {
		lease := &leases[i]
		if !slices.ContainsFunc(lease.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == server.UID }) {
			continue
		}
		switch expiry := expiryOf(lease); {
		case now.Before(expiry):
			m.live++
			if lease.Annotations[v1alpha1.PolicyRevisionAnnotation] == revision {
				m.current++
			}
			switch lease.Annotations[v1alpha1.BypassAnnotation] {
			case "Open":
				m.open++
			case "Closed":
				m.closed++
			}
			wake(expiry)
		case now.Before(expiry.Add(missedFor)):
			m.missed++
			wake(expiry.Add(missedFor))
		case now.Before(expiry.Add(leftFor)):
			wake(expiry.Add(leftFor))
		default:
			m.left = append(m.left, lease)
		}
	}
	return m
}

// expiryOf returns until when a Lease says that its gateway is alive.
func expiryOf(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
}

// condition says whether the current policy is enforced.
func (m muster) condition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionEnforcing, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonCatchingUp}
	all := m.live + m.missed
	c.Message = fmt.Sprintf("%d of %d gateways run the current policy", m.current, all)
	switch {
	case m.live == 0:
		c.Reason, c.Message = v1alpha1.ReasonNoGateway, "No gateway of this server is alive"
		if m.missed > 0 {
			c.Message += fmt.Sprintf("; there were %d until a few minutes ago", m.missed)
		} else {
			c.Message += ": label its pods, set spec.gateway.standalone, or run one"
		}
	case m.missed > 0:
		c.Message += fmt.Sprintf("; %d of %d has not been heard of for some minutes", m.missed, all)
	case m.current == m.live:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonEnforced
	}
	return c
}

// unseen is what is known of the ways to a server that is not in the pods of its gateways: nothing.
func unseen() *metav1.Condition {
	return &metav1.Condition{
		Type: v1alpha1.ConditionBypassClosed, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonDirectPathUnknown,
		Message: "The server is not in a pod of its gateways, which cannot see whether it answers others: have it refuse whoever lacks " +
			"the credentials of spec.endpoint.headers, or let its network admit the gateways alone",
	}
}

// bypass says whether a way around the gateways was found; nil where no gateway can tell.
func (m muster) bypass() *metav1.Condition {
	c := &metav1.Condition{Type: v1alpha1.ConditionBypassClosed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDirectPathOpen}
	switch {
	case m.open > 0:
		c.Message = fmt.Sprintf("In %d of %d pods the server answers at the address of the pod, so calls can walk around the gateway", m.open, m.open+m.closed)
	case m.closed > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonDirectPathClosed, "The server answers on the loopback of its pods only"
	default:
		return nil
	}
	return c
}
