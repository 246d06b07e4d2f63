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
