// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestAGatewayGetsWhatItNeedsAndNoMore(t *testing.T) {
	t.Parallel()
	o := newOffice(t, interceptor.Funcs{}, cranes(runBy("crew"), withSecrets("token", "token", "barges-token", "secret", "missing"), func(s *v1alpha1.GovernedServer) {
		s.Spec.Endpoint.URL, s.Spec.Endpoint.Service = "", &v1alpha1.ServiceEndpoint{Name: "cranes-mcp", Port: 80, Scheme: "https"}
		s.Spec.Endpoint.TLS = &v1alpha1.EndpointTLS{CASecretRef: &v1alpha1.SecretKeyRef{Name: "authority", Key: "ca.crt"}}
	}), secretOf("token", "cranes"), secretOf("authority", "cranes"), secretOf("barges-token", "barges"), secretOf("secret", ""), secretOf("unnamed", "cranes"))
	server := o.mustRun(t)

	role, binding := o.role(t), o.binding(t)
	ours := []string{"tidewaiter.dev"}
	read := []string{"get", "list", "watch"}
	want := []rbacv1.PolicyRule{
		{APIGroups: ours, Resources: []string{"governedservers/authority"}, ResourceNames: []string{"cranes"}, Verbs: []string{"serve"}},
		{APIGroups: ours, Resources: []string{"governedservers"}, ResourceNames: []string{"cranes"}, Verbs: read},
		{APIGroups: ours, Resources: []string{"toolpolicies", "approvalrequests"}, Verbs: read},
		{APIGroups: ours, Resources: []string{"approvalrequests"}, Verbs: []string{"create"}},
		{APIGroups: ours, Resources: []string{"approvalrequests/status"}, Verbs: []string{"update", "patch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"authority", "token"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{"cranes-mcp"}, Verbs: []string{"get"}},
	}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	wantBinding := &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "harbour", Name: "crew"}},
	}
	if diff := cmp.Diff(wantBinding, binding, cmpopts.IgnoreFields(rbacv1.RoleBinding{}, "ObjectMeta", "TypeMeta")); diff != "" {
		t.Errorf("binding (-want +got):\n%s", diff)
	}
	owner := []metav1.OwnerReference{{APIVersion: "tidewaiter.dev/v1alpha1", Kind: "GovernedServer", Name: "cranes", UID: "server-uid", Controller: new(true)}}
	for _, object := range []client.Object{role, binding} {
		if diff := cmp.Diff(owner, object.GetOwnerReferences()); diff != "" {
			t.Errorf("owners of %T (-want +got):\n%s", object, diff)
		}
	}
	if got := authorized(server); got != "False/SecretNotReadable" {
		t.Errorf("condition is %s", got)
	}
	c := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionGatewayAuthorized)
	if !strings.Contains(c.Message, "barges-token, missing, secret") || strings.Contains(c.Message, "unnamed") || c.ObservedGeneration != 1 {
		t.Errorf("condition is %+v", c)
	}
	if e := <-o.events.Events; !strings.HasPrefix(e, "Warning SecretNotReadable The gateway may not read") {
		t.Errorf("told %q", e)
	}
}

func TestAServerWithoutSecretsNamesNone(t *testing.T) {
	t.Parallel()
	o := newOffice(t, interceptor.Funcs{}, cranes(runBy("crew")), secretOf("token", "cranes"))
	if got := authorized(o.mustRun(t)); got != "True/Granted" {
		t.Errorf("condition is %s", got)
	}
	if may(o.role(t).Rules, "get", "secrets", "token") || may(o.role(t).Rules, "get", "services", "x") {
		t.Errorf("rules are %v", o.role(t).Rules)
	}
	if e := <-o.events.Events; !strings.HasPrefix(e, "Normal Granted ServiceAccount crew") {
		t.Errorf("told %q", e)
	}
}

func TestRightsFollowTheSpec(t *testing.T) {
	t.Parallel()
	o := newOffice(t, interceptor.Funcs{}, cranes(withSecrets("token")), secretOf("token", "cranes"))
	replaced := []string{"create Role", "delete RoleBinding", "create RoleBinding", "delete Role"}
	steps := []struct {
		what    string
		do      func()
		writes  []string
		account string
		token   bool
		state   string
	}{
		{"nothing is asked for", func() {}, nil, "", false, ""},
		{"an account is named", func() { o.edit(t, runBy("crew")) }, []string{"create Role", "create RoleBinding", "patch GovernedServer"}, "crew", true, "True/Granted"},
		{"a steady state", func() {}, nil, "crew", true, "True/Granted"},
		{"another account", func() { o.edit(t, runBy("night-crew")) }, []string{"update RoleBinding", "patch GovernedServer"}, "night-crew", true, "True/Granted"},
		{"the label is taken away", func() { o.relabel(t, "token", "barges") }, append(slices.Clone(replaced), "patch GovernedServer"), "night-crew", false, "False/SecretNotReadable"},
		{"the label comes back", func() { o.relabel(t, "token", "cranes") }, append(slices.Clone(replaced), "patch GovernedServer"), "night-crew", true, "True/Granted"},
		{"the endpoint names no Secret", func() { o.edit(t, func(s *v1alpha1.GovernedServer) { s.Spec.Endpoint.Headers = nil }) }, replaced, "night-crew", false, "True/Granted"},
		{"the field is emptied", func() { o.edit(t, runBy("")) }, []string{"delete RoleBinding", "delete Role", "patch GovernedServer"}, "", false, ""},
		{"and stays so", func() {}, nil, "", false, ""},
	}
	for _, step := range steps {
		step.do()
		server := o.mustRun(t)
		if diff := cmp.Diff(step.writes, o.writes); diff != "" {
			t.Errorf("%s: writes (-want +got):\n%s", step.what, diff)
		}
		if got := authorized(server); got != step.state {
			t.Errorf("%s: condition is %q, want %q", step.what, got, step.state)
		}
		role, binding := o.role(t), o.binding(t)
		if (role != nil) != (step.account != "") || (binding != nil) != (step.account != "") {
			t.Fatalf("%s: role %v, binding %v", step.what, role, binding)
		}
		if role == nil {
			continue
		}
		if len(binding.Subjects) != 1 || binding.Subjects[0].Name != step.account {
			t.Errorf("%s: subjects are %v, want %s", step.what, binding.Subjects, step.account)
		}
		if may(role.Rules, "get", "secrets", "token") != step.token {
			t.Errorf("%s: rules are %v", step.what, role.Rules)
		}
	}
}

func TestWhatWasEditedByHandIsMended(t *testing.T) {
	t.Parallel()
	replaced := []string{"create Role", "delete RoleBinding", "create RoleBinding", "delete Role"}
	for name, tc := range map[string]struct {
		role    func(*rbacv1.Role)
		binding func(*rbacv1.RoleBinding)
		want    []string
	}{
		"a rule more": {role: func(r *rbacv1.Role) {
			r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
		}, want: replaced},
		"no rule": {role: func(r *rbacv1.Role) { r.Rules = nil }, want: replaced},
		"a subject more": {binding: func(b *rbacv1.RoleBinding) {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "elsewhere", Name: "crew"})
		}, want: []string{"update RoleBinding"}},
		"another subject":               {binding: func(b *rbacv1.RoleBinding) { b.Subjects[0].Namespace = "elsewhere" }, want: []string{"update RoleBinding"}},
		"without its label":             {role: func(r *rbacv1.Role) { r.Labels = nil }, want: replaced},
		"it leads to another role":      {binding: func(b *rbacv1.RoleBinding) { b.RoleRef.Name = "other" }, want: replaced},
		"labels of others are not ours": {role: func(r *rbacv1.Role) { r.Labels["team"] = "docks" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, interceptor.Funcs{}, cranes(runBy("crew")))
			o.mustRun(t)
			role, binding := o.role(t), o.binding(t)
			if tc.role != nil {
				edited := role.DeepCopy()
				tc.role(edited)
				if err := o.api.Update(t.Context(), edited); err != nil {
					t.Fatal(err)
				}
			}
			if tc.binding != nil {
				edited := binding.DeepCopy()
				tc.binding(edited)
				if err := o.api.Update(t.Context(), edited); err != nil {
					t.Fatal(err)
				}
			}
			o.mustRun(t)
			if diff := cmp.Diff(tc.want, o.writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(role.Rules, o.role(t).Rules); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			after := o.binding(t)
			if diff := cmp.Diff(binding, after, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion"), cmpopts.IgnoreFields(rbacv1.RoleBinding{}, "RoleRef")); diff != "" {
				t.Errorf("binding (-want +got):\n%s", diff)
			}
			// A Role that was there is never filled again: somebody may have bound it while it was empty.
			if now := o.role(t); after.RoleRef.Name != now.Name || (now.Name == role.Name) != (len(tc.want) < len(replaced)) {
				t.Errorf("the binding leads to %s; the Role is %s, before it was %s", after.RoleRef.Name, now.Name, role.Name)
			}
		})
	}
}

// Whoever was there first stays untouched, and nothing of ours leads to it or from it.
func TestARoleBindingThatIsNotOursIsNotTouched(t *testing.T) {
	t.Parallel()
	theirs := metav1.ObjectMeta{Namespace: rightsKey.Namespace, Name: rightsKey.Name}
	earlier := theirs
	earlier.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "tidewaiter.dev/v1alpha1", Kind: "GovernedServer", Name: "cranes", UID: "an-earlier-one", Controller: new(true),
	}}
	for name, foreign := range map[string]client.Object{
		"a RoleBinding":                      &rbacv1.RoleBinding{ObjectMeta: theirs, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "theirs"}},
		"a RoleBinding of an earlier server": &rbacv1.RoleBinding{ObjectMeta: earlier, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "theirs"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, interceptor.Funcs{}, cranes(runBy("crew")), foreign)
			server, result, err := o.run(t)
			if err != nil || result.RequeueAfter != foreignDelay {
				t.Errorf("result %v, %v; want another look in %s", result, err, foreignDelay)
			}
			if diff := cmp.Diff([]string{"patch GovernedServer"}, o.writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if got := authorized(server); got != "False/RoleConflict" {
				t.Errorf("condition is %s", got)
			}
			if e := <-o.events.Events; !strings.HasPrefix(e, "Warning RoleConflict There is a RoleBinding") {
				t.Errorf("told %q", e)
			}
			o.mustRun(t)
			if len(o.writes) > 0 || len(o.events.Events) > 0 {
				t.Errorf("it is said again: %v", o.writes)
			}
			// The twin: once it is gone the rights are given.
			if err := o.api.Delete(t.Context(), foreign); err != nil {
				t.Fatal(err)
			}
			if got := authorized(o.mustRun(t)); got != "True/Granted" || o.binding(t) == nil || o.role(t) == nil {
				t.Errorf("afterwards the condition is %s", got)
			}
		})
	}
}

// Whoever may write Roles may make one that looks like ours, without rights, and bind themselves to it.
func TestARoleThatLooksLikeOursIsNotFilled(t *testing.T) {
	t.Parallel()
	for name, ours := range map[string]bool{"with our RoleBinding to it": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forged := metav1.ObjectMeta{Namespace: rightsKey.Namespace, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "tidewaiter.dev/v1alpha1", Kind: "GovernedServer", Name: "cranes", UID: "server-uid", Controller: new(true)}}}
			role, binding := &rbacv1.Role{ObjectMeta: forged}, &rbacv1.RoleBinding{ObjectMeta: forged}
			role.Name, binding.Name = rightsKey.Name+"-forged", rightsKey.Name
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}
			objects := []client.Object{cranes(runBy("crew")), role}
			if ours {
				objects = append(objects, binding)
			}
			o := newOffice(t, interceptor.Funcs{}, objects...)
			o.mustRun(t)
			if now := o.role(t); now == nil || now.Name == role.Name || o.binding(t).RoleRef.Name != now.Name {
				t.Errorf("role %v, binding %v", now, o.binding(t))
			}
		})
	}
}

func TestNothingOfOthersIsRemovedWithTheField(t *testing.T) {
	t.Parallel()
	theirs := metav1.ObjectMeta{Namespace: rightsKey.Namespace, Name: rightsKey.Name}
	role := &rbacv1.Role{ObjectMeta: theirs}
	role.Name += "-theirs"
	o := newOffice(t, interceptor.Funcs{}, cranes(), role, &rbacv1.RoleBinding{ObjectMeta: theirs})
	o.mustRun(t)
	if len(o.writes) > 0 || o.role(t) == nil || o.binding(t) == nil {
		t.Errorf("wrote %v", o.writes)
	}
}

func TestAGatewayOfTwoServersMayListThem(t *testing.T) {
	t.Parallel()
	barges := func(account string) *v1alpha1.GovernedServer {
		return cranes(runBy(account), func(s *v1alpha1.GovernedServer) { s.Name, s.UID = "barges", "barges-uid" })
	}
	for name, tc := range map[string]struct {
		other     *v1alpha1.GovernedServer
		wantWoken int
	}{
		"another gateway":  {other: barges("another")},
		"no gateway":       {other: barges("")},
		"the same gateway": {other: barges("crew"), wantWoken: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, interceptor.Funcs{}, cranes(runBy("crew")), tc.other)
			o.mustRun(t)
			if may(o.role(t).Rules, "list", "governedservers", "barges") != (tc.wantWoken > 0) || !may(o.role(t).Rules, "list", "governedservers", "cranes") {
				t.Errorf("rules are %v", o.role(t).Rules)
			}
			if may(o.role(t).Rules, "serve", "governedservers/authority", "barges") {
				t.Error("it may serve the other server too")
			}
			if woken := o.besides(t.Context(), tc.other); len(woken) != tc.wantWoken {
				t.Errorf("a change of the other server wakes %v", woken)
			}
		})
	}
}

func TestRightsThatCannotBeSaved(t *testing.T) {
	t.Parallel()
	roles := rbacv1.SchemeGroupVersion.WithResource("roles").GroupResource()
	terminating := apierrors.NewForbidden(roles, rightsKey.Name, nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	refused := apierrors.NewForbidden(roles, rightsKey.Name, errors.New("attempting to grant RBAC permissions not currently held"))
	for name, tc := range map[string]struct {
		fault      error
		wantErr    error
		wantResult ctrl.Result
	}{
		"somebody was faster":           {fault: apierrors.NewAlreadyExists(roles, rightsKey.Name), wantResult: ctrl.Result{RequeueAfter: conflictDelay}},
		"the namespace ends":            {fault: terminating},
		"the manager may not give this": {fault: refused, wantErr: refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return tc.fault
			}}, cranes(runBy("crew")))
			server, result, err := o.run(t)
			if !errors.Is(err, tc.wantErr) || (err != nil) != (tc.wantErr != nil) {
				t.Errorf("error %v, want %v", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.wantResult, result); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if got := authorized(server); got != "" {
				t.Errorf("condition says %s of what was not saved", got)
			}
		})
	}
}

func TestAServerThatEndsIsGivenNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t, interceptor.Funcs{}, cranes(runBy("crew"), func(s *v1alpha1.GovernedServer) {
		s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: made.Add(-time.Minute)}, []string{"example.com/kept"}
	}))
	o.mustRun(t)
	if len(o.writes) > 0 {
		t.Errorf("wrote %v", o.writes)
	}
}
