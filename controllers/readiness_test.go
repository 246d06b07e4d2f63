// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// inOrder gives a server every condition that a listing gives, True.
func inOrder(s *v1alpha1.GovernedServer) {
	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionClassified, v1alpha1.ConditionPolicyAccepted} {
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Fine"})
	}
	setReady(s, made)
}

func readyOf(s *v1alpha1.GovernedServer) string {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s", c.Status, c.Reason)
}

// A server is ready when its gateway can work, if the operator is to give the gateway its rights.
func TestAServerIsReadyWithTheRightsOfItsGateway(t *testing.T) {
	t.Parallel()
	server := cranes(runBy("crew"), withSecrets("token"), inOrder)
	if got := readyOf(server); got != "Unknown/NotGrantedYet" {
		t.Errorf("before the rights are given Ready is %s", got)
	}
	if got := readyOf(cranes(inOrder)); got != "True/Ready" {
		t.Errorf("where no account is named Ready is %s", got)
	}
	o := newOffice(t, interceptor.Funcs{}, server, secretOf("token", "cranes"))
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"the rights are given", func() {}, "True/Ready"},
		{"the label of a Secret is taken away", func() { o.relabel(t, "token", "barges") }, "False/SecretNotReadable"},
		{"no account is named any more", func() { o.edit(t, runBy("")) }, "True/Ready"},
	} {
		step.do()
		if got := readyOf(o.mustRun(t)); got != step.want {
			t.Errorf("%s: Ready is %s, want %s", step.what, got, step.want)
		}
	}
}

// The cause is told before what follows from it: a server that is listed through its gateway is out of reach for that alone.
func TestWhatAGatewayLacksIsToldBeforeThatItsServerIsOutOfReach(t *testing.T) {
	t.Parallel()
	outOfReach := func(authorized metav1.ConditionStatus) func(*v1alpha1.GovernedServer) {
		return func(s *v1alpha1.GovernedServer) {
			meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnreachable})
			meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionGatewayAuthorized, Status: authorized, Reason: v1alpha1.ReasonSecretNotReadable})
			setReady(s, made)
		}
	}
	for name, tc := range map[string]struct {
		server *v1alpha1.GovernedServer
		want   string
	}{
		"a gateway without its Secrets":        {cranes(runBy("crew"), inOrder, outOfReach(metav1.ConditionFalse)), "False/SecretNotReadable"},
		"a gateway with all that it needs":     {cranes(runBy("crew"), inOrder, outOfReach(metav1.ConditionTrue)), "False/Unreachable"},
		"no account for whose rights to stand": {cranes(inOrder, outOfReach(metav1.ConditionFalse)), "False/Unreachable"},
	} {
		if got := readyOf(tc.server); got != tc.want {
			t.Errorf("%s: Ready is %s, want %s", name, got, tc.want)
		}
	}
}
