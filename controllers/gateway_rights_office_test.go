// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// kindOf returns the Go type of an object without its package.
func kindOf(object client.Object) string {
	_, kind, _ := strings.Cut(fmt.Sprintf("%T", object), ".")
	return kind
}

// office runs the reconciler of rights on a fake API.
type office struct {
	*GatewayRightsReconciler
	api    client.WithWatch
	events *events.FakeRecorder
	// writes are the verbs and kinds of what was written.
	writes []string
}

func newOffice(t *testing.T, faults interceptor.Funcs, objects ...client.Object) *office {
	t.Helper()
	scheme := serverScheme(t)
	if err := rbacv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	o := &office{events: events.NewFakeRecorder(100)}
	o.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.GovernedServer{}).Build()
	note := func(verb string, object client.Object) {
		o.writes = append(o.writes, verb+" "+kindOf(object))
	}
	writes := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			note("create", obj)
			if faults.Create != nil {
				return faults.Create(ctx, c, obj, opts...)
			}
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			note("update", obj)
			return c.Update(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			note("delete", obj)
			return c.Delete(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			note("patch", obj)
			return c.SubResource(sub).Patch(ctx, obj, p, opts...)
		},
	}
	o.GatewayRightsReconciler = &GatewayRightsReconciler{
		Client: interceptor.NewClient(o.api, writes), Live: o.api, Events: o.events, Clock: clocktesting.NewFakePassiveClock(made),
	}
	return o
}

// run reconciles cranes as it is stored and returns how it is stored then.
func (o *office) run(t *testing.T) (*v1alpha1.GovernedServer, ctrl.Result, error) {
	t.Helper()
	o.writes = nil
	var server v1alpha1.GovernedServer
	if err := o.api.Get(t.Context(), cranesKey, &server); err != nil {
		t.Fatal(err)
	}
	result, err := o.Reconcile(t.Context(), &server)
	if err := o.api.Get(t.Context(), cranesKey, &server); err != nil {
		t.Fatal(err)
	}
	return &server, result, err
}

func (o *office) mustRun(t *testing.T) *v1alpha1.GovernedServer {
	t.Helper()
	server, _, err := o.run(t)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// role returns the one Role of the server, nil without one.
func (o *office) role(t *testing.T) *rbacv1.Role {
	t.Helper()
	var all rbacv1.RoleList
	if err := o.api.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	ours := slices.DeleteFunc(all.Items, func(r rbacv1.Role) bool { return !strings.HasPrefix(r.Name, rightsKey.Name+"-") })
	switch len(ours) {
	case 0:
		return nil
	case 1:
		return &ours[0]
	default:
		t.Fatalf("%d Roles of the server", len(ours))
		return nil
	}
}

func (o *office) binding(t *testing.T) *rbacv1.RoleBinding {
	t.Helper()
	var binding rbacv1.RoleBinding
	if err := o.api.Get(t.Context(), rightsKey, &binding); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		t.Fatal(err)
	}
	return &binding
}

func (o *office) edit(t *testing.T, edit func(*v1alpha1.GovernedServer)) {
	t.Helper()
	var server v1alpha1.GovernedServer
	if err := o.api.Get(t.Context(), cranesKey, &server); err != nil {
		t.Fatal(err)
	}
	edit(&server)
	if err := o.api.Update(t.Context(), &server); err != nil {
		t.Fatal(err)
	}
}

var rightsKey = client.ObjectKey{Namespace: "harbour", Name: "tidewaiter-gateway-cranes"}

func runBy(account string) func(*v1alpha1.GovernedServer) {
	return func(s *v1alpha1.GovernedServer) {
		if s.Spec.Gateway = nil; account != "" {
			s.Spec.Gateway = &v1alpha1.GatewaySpec{ServiceAccountName: account}
		}
	}
}

func withSecrets(names ...string) func(*v1alpha1.GovernedServer) {
	return func(s *v1alpha1.GovernedServer) {
		for i, name := range names {
			s.Spec.Endpoint.Headers = append(s.Spec.Endpoint.Headers,
				v1alpha1.Header{Name: fmt.Sprintf("X-%d", i), SecretKeyRef: &v1alpha1.SecretKeyRef{Name: name, Key: "k"}})
		}
	}
}

func secretOf(name, server string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: name}}
	if server != "" {
		s.Labels = map[string]string{v1alpha1.ServerLabel: server}
	}
	return s
}

func authorized(s *v1alpha1.GovernedServer) string {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionGatewayAuthorized)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s", c.Status, c.Reason)
}

// may tells whether rules give a verb on a resource of a name.
func may(rules []rbacv1.PolicyRule, verb, resource, name string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Verbs, verb) && slices.Contains(r.Resources, resource) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name))
	})
}

func (o *office) relabel(t *testing.T, name, server string) {
	t.Helper()
	secret := secretOf(name, server)
	if err := o.api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}
