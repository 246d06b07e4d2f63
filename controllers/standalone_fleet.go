// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
)

// fleet is what the standalone gateway of a server should be made of, and what is there. Nothing here reads or writes.
type fleet struct {
	server   *v1alpha1.GovernedServer
	settings standalone.Settings
	pairs    []pair
}

// pair is an object as it should be, and as it is; nil where there is none.
type pair struct {
	wanted, is client.Object
}

// foreign returns the objects of others that stand in the way; old tells whether one is of an earlier server of this name,
// whose are collected.
func (f fleet) foreign() (names []string, old bool) {
	for _, p := range f.pairs {
		switch {
		case p.is == nil || metav1.IsControlledBy(p.is, f.server):
		case slices.ContainsFunc(p.is.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
			return o.Kind == "GovernedServer" && o.Name == f.server.Name && o.Controller != nil && *o.Controller
		}):
			old = true
		default:
			names = append(names, nounOf(p.is))
		}
	}
	return names, old
}

// missing says what is not known yet that every gateway is told.
func (f fleet) missing() string {
	switch {
	case f.settings.Gateway.Image == "":
		return "The operator was not told the gateway's image: set --gateway-image"
	case f.settings.Gateway.VotingRoot == "":
		return "The root key of the votes is not published yet"
	default:
		return ""
	}
}

// blocked tells whether nothing may be made now: all of it or none.
func (f fleet) blocked() bool {
	names, old := f.foreign()
	return f.missing() != "" || len(names) > 0 || old
}

// delay is the time until the next look at what blocks.
func (f fleet) delay() time.Duration {
	if names, old := f.foreign(); len(names) > 0 && !old && f.missing() == "" {
		return foreignDelay
	}
	return rootDelay
}

// condition says whether agents find a gateway.
func (f fleet) condition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionGatewayAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotDeployedYet}
	names, old := f.foreign()
	switch missing := f.missing(); {
	case missing != "":
		c.Message = missing
	case len(names) > 0:
		c.Reason = v1alpha1.ReasonObjectConflict
		c.Message = fmt.Sprintf("There are objects %s that do not belong to this GovernedServer, of which the gateway would be made: delete or rename %s",
			standalone.Name(f.server.Name), listNames(names))
	case old:
		c.Message = "The gateway of an earlier GovernedServer of this name is still being removed"
	default:
		f.judge(&c)
	}
	c.Message = glyph.Clip(c.Message, maxMessage)
	return c
}

// judge reads the status of the Deployment.
func (f fleet) judge(c *metav1.Condition) {
	for _, p := range f.pairs {
		d, ok := p.is.(*appsv1.Deployment)
		if !ok {
			continue
		}
		if d.Status.AvailableReplicas > 0 {
			c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonAvailable
			c.Message = fmt.Sprintf("%d of %d gateways are ready", min(d.Status.AvailableReplicas, *d.Spec.Replicas), *d.Spec.Replicas)
			return
		}
		c.Reason = v1alpha1.ReasonUnavailable
		c.Message = fmt.Sprintf("No gateway is ready: look at the pods of Deployment %s", d.Name)
		for _, said := range d.Status.Conditions {
			if said.Type == appsv1.DeploymentReplicaFailure && said.Status == corev1.ConditionTrue {
				c.Message = "No gateway is ready: " + podName.ReplaceAllString(said.Message, "pods")
			}
		}
	}
}

// podName is how the words of a Deployment begin, with another pod each time.
var podName = regexp.MustCompile(`^pods "[^"]*"`)

// nounOf is the word that people know the kind of an object by.
func nounOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }
