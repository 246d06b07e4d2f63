// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/controllers"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/gateway"
)

// quay is a namespace with the objects that the page shows for a gateway, and the operator that keeps its rights.
type quay struct {
	namespace string
	admin     client.Client
	server    *v1alpha1.GovernedServer
}

const made = "tidewaiter-gateway-billing"

func newQuay(t *testing.T) *quay {
	t.Helper()
	q := &quay{namespace: plane.Namespace(t), admin: plane.Client(t, plane.Admin)}
	for _, object := range shownForTheGateway(t) {
		switch object.GetKind() + " " + object.GetName() {
		case "GovernedServer billing", "Secret billing-mcp", "ServiceAccount gateway-billing":
			object.SetNamespace(q.namespace)
			must(t, q.admin.Create(t.Context(), object))
		}
	}
	others := []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: q.namespace, Name: "plain"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: q.namespace, Name: "payroll-mcp", Labels: map[string]string{v1alpha1.ServerLabel: "payroll"}}},
		new(fixture.GovernedServer(q.namespace, "payroll")),
	}
	for _, object := range others {
		must(t, q.admin.Create(t.Context(), object))
	}
	q.server = &v1alpha1.GovernedServer{}
	must(t, q.admin.Get(t.Context(), q.key("billing"), q.server))
	q.operate(t)
	letGatewaysRead(t)
	return q
}

func shownForTheGateway(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	return sections(t, page)["The gateway"]
}

func (q *quay) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: q.namespace, Name: name}
}

// operate runs the reconciler of rights as the manager, with its real role and a cache like the manager's.
func (q *quay) operate(t *testing.T) {
	t.Helper()
	labelled, err := labels.NewRequirement(v1alpha1.ServerLabel, selection.Exists, nil)
	must(t, err)
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{controllers.ManagedByLabel: controllers.ManagedBy})}
	only := cache.ByObject{Label: labels.NewSelector().Add(*labelled)}
	skip := true
	mgr, err := ctrl.NewManager(plane.Manager(t), ctrl.Options{
		Scheme: scheme(t), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{q.namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.Secret{}: only, &rbacv1.Role{}: only, &rbacv1.RoleBinding{}: ours},
		},
	})
	must(t, err)
	rights := &controllers.GatewayRightsReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("tidewaiter"), Clock: clock.RealClock{},
	}
	must(t, rights.SetupWithManager(mgr))
	start(t, mgr.Start)
}

// start runs something until the test ends.
func start(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	must(t, errors.Join(corev1.AddToScheme(s), rbacv1.AddToScheme(s), v1alpha1.AddToScheme(s)))
	return s
}

// authorized waits until the condition of the server says so.
func (q *quay) authorized(t *testing.T, status metav1.ConditionStatus, reason string) {
	t.Helper()
	until(t, "GatewayAuthorized is "+reason, func(ctx context.Context) bool {
		must(t, q.admin.Get(ctx, q.key("billing"), q.server))
		c := meta.FindStatusCondition(q.server.Status.Conditions, v1alpha1.ConditionGatewayAuthorized)
		return c != nil && c.Status == status && c.Reason == reason && c.ObservedGeneration == q.server.Generation
	})
}

// edit changes the spec of the server billing.
func (q *quay) edit(t *testing.T, edit func(*v1alpha1.GovernedServerSpec)) {
	t.Helper()
	must(t, q.admin.Get(t.Context(), q.key("billing"), q.server))
	before := q.server.DeepCopy()
	edit(&q.server.Spec)
	must(t, q.admin.Patch(t.Context(), q.server, client.MergeFrom(before)))
}

// given returns the Role and the RoleBinding that were made, or nil.
func (q *quay) given(ctx context.Context, t *testing.T) (*rbacv1.Role, *rbacv1.RoleBinding) {
	t.Helper()
	binding, role := &rbacv1.RoleBinding{}, &rbacv1.Role{}
	if err := q.admin.Get(ctx, q.key(made), binding); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		t.Fatal(err)
	}
	if err := q.admin.Get(ctx, q.key(binding.RoleRef.Name), role); apierrors.IsNotFound(err) {
		return nil, binding
	} else if err != nil {
		t.Fatal(err)
	}
	return role, binding
}

// watch syncs the very cache that a gateway of these servers has.
func (q *quay) watch(t *testing.T, cfg *rest.Config, names ...string) cache.Cache {
	t.Helper()
	servers := map[types.NamespacedName]*gateway.Server{}
	for _, name := range names {
		servers[q.key(name)] = &gateway.Server{Key: q.key(name), Clock: clock.RealClock{}}
	}
	watched, err := gateway.NewCache(cfg, scheme(t), servers, fixture.SystemNamespace)
	must(t, err)
	start(t, watched.Start)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, object := range []client.Object{&v1alpha1.GovernedServer{}, &v1alpha1.ToolPolicy{}, &v1alpha1.ApprovalRequest{}} {
		_, err := watched.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		must(t, err)
	}
	if !watched.WaitForCacheSync(ctx) {
		t.Fatal("the cache of a gateway does not sync")
	}
	return watched
}

func TestTheRoleOfAGatewayIsTheOneThatIsShown(t *testing.T) {
	t.Parallel()
	q := newQuay(t)
	q.authorized(t, metav1.ConditionTrue, v1alpha1.ReasonGranted)
	role, binding := q.given(t.Context(), t)

	var want rbacv1.Role
	var wantBinding rbacv1.RoleBinding
	for _, object := range shownForTheGateway(t) {
		switch object.GetKind() + " " + object.GetName() {
		case "Role " + made + "-x7k2p":
			must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &want))
		case "RoleBinding " + made:
			wantBinding = *bindingOf(t, object)
		}
	}
	if diff := cmp.Diff(want.Rules, role.Rules); diff != "" {
		t.Errorf("rules (-shown +made):\n%s", diff)
	}
	for i := range wantBinding.Subjects {
		wantBinding.Subjects[i].Namespace = q.namespace
	}
	if diff := cmp.Diff(wantBinding, *binding, cmpopts.IgnoreFields(rbacv1.RoleBinding{}, "ObjectMeta", "TypeMeta", "RoleRef")); diff != "" {
		t.Errorf("binding (-shown +made):\n%s", diff)
	}
	owner := []metav1.OwnerReference{{
		APIVersion: "tidewaiter.dev/v1alpha1", Kind: "GovernedServer", Name: "billing", UID: q.server.UID, Controller: new(true),
	}}
	for _, object := range []client.Object{role, binding} {
		if diff := cmp.Diff(owner, object.GetOwnerReferences()); diff != "" {
			t.Errorf("owners of %T (-want +got):\n%s", object, diff)
		}
	}
}

// A gateway with nothing but what the operator gave it watches, asks, and uses an approval; and it can do nothing else.
func TestAGatewayWorksWithWhatItIsGiven(t *testing.T) {
	t.Parallel()
	q := newQuay(t)
	q.authorized(t, metav1.ConditionTrue, v1alpha1.ReasonGranted)
	cfg := plane.ServiceAccount(t, q.namespace, "gateway-billing")
	live := plane.Client(t, cfg)
	expected := holders()["ServiceAccount gateway-billing"]
	expect(t, "the gateway", live, q.namespace, expected.may, expected.mayNot)
	expect(t, "the gateway", live, fixture.SystemNamespace, readsBaselines, rights("create update patch delete toolpolicies", "get list watch approvalrequests", "get secrets"))

	watched := q.watch(t, cfg, "billing")
	must(t, watched.Get(t.Context(), q.key("billing"), &v1alpha1.GovernedServer{}))
	if err := watched.Get(t.Context(), q.key("payroll"), &v1alpha1.GovernedServer{}); !apierrors.IsNotFound(err) {
		t.Errorf("it sees another server: %v", err)
	}
	must(t, live.Get(t.Context(), q.key("billing-mcp"), &corev1.Secret{}))
	for _, name := range []string{"plain", "payroll-mcp"} {
		if err := live.Get(t.Context(), q.key(name), &corev1.Secret{}); !apierrors.IsForbidden(err) {
			t.Errorf("it reads the Secret %s: %v", name, err)
		}
	}

	spec := fixture.ApprovalRequest(q.namespace, "billing", 1).Spec
	spec.ServerRef.UID = string(q.server.UID)
	name := func(attempt int32) string { return fmt.Sprintf("billing-0123-%d", attempt) }
	store := approval.Store{Client: live, Clock: clock.RealClock{}, Gateway: "gateway-0", NewClaim: func() string { return "claim" }}
	request, err := store.Create(t.Context(), q.namespace, spec, name)
	must(t, err)
	until(t, "the cache has the request", func(ctx context.Context) bool {
		return watched.Get(ctx, client.ObjectKeyFromObject(request), &v1alpha1.ApprovalRequest{}) == nil
	})
	yes := client.RawPatch(types.MergePatchType, []byte(`{"status":{"decision":"Approved"}}`))
	if err := live.Status().Patch(t.Context(), request.DeepCopy(), yes); !apierrors.IsForbidden(err) {
		t.Errorf("the gateway approves: %v", err)
	}
	must(t, q.lead(t).Status().Patch(t.Context(), request.DeepCopy(), yes))
	approved, err := store.Get(t.Context(), client.ObjectKeyFromObject(request))
	must(t, err)
	claimed, err := store.Claim(t.Context(), approved, time.Minute)
	must(t, err)
	_, err = store.Finish(t.Context(), claimed, approval.Result{Outcome: v1alpha1.OutcomeSucceeded, At: time.Now()})
	must(t, err)

	spec.ServerRef.Name = "payroll"
	foreign := func(attempt int32) string { return fmt.Sprintf("payroll-0123-%d", attempt) }
	if _, err := store.Create(t.Context(), q.namespace, spec, foreign); !fixture.RefusedBy(err, "tidewaiter-requests") {
		t.Errorf("it asks for another server: %v", err)
	}
	// The manager holds serve to be able to give it, and may not use it.
	spec.ServerRef.Name, spec.Attempt = "billing", 7
	store.Client = plane.Client(t, plane.Manager(t))
	if _, err := store.Create(t.Context(), q.namespace, spec, name); !fixture.RefusedBy(err, "tidewaiter-requests") {
		t.Errorf("the manager asks for a server: %v", err)
	}
}

// lead returns a person who may decide by what the README shows.
func (q *quay) lead(t *testing.T) client.Client {
	t.Helper()
	for _, object := range sections(t, readme)[approve] {
		object.SetNamespace(q.namespace)
		must(t, q.admin.Create(t.Context(), object))
	}
	lead := plane.Client(t, plane.User(t, "lead@"+q.namespace, "finance-leads"))
	expect(t, "the lead", lead, q.namespace, holders()["Group finance-leads"].may, nil)
	return lead
}

func TestTheRightsOfAGatewayFollowTheSpecAndNobodyElse(t *testing.T) {
	t.Parallel()
	q := newQuay(t)
	q.authorized(t, metav1.ConditionTrue, v1alpha1.ReasonGranted)
	role, binding := q.given(t.Context(), t)

	for what, drift := range map[string]func(*rbacv1.Role, *rbacv1.RoleBinding) client.Object{
		"rules":   func(r *rbacv1.Role, _ *rbacv1.RoleBinding) client.Object { r.Rules = nil; return r },
		"a label": func(r *rbacv1.Role, _ *rbacv1.RoleBinding) client.Object { r.Labels = nil; return r },
		"subjects": func(_ *rbacv1.Role, b *rbacv1.RoleBinding) client.Object {
			b.Subjects[0].Namespace = "elsewhere"
			return b
		},
	} {
		must(t, q.admin.Update(t.Context(), drift(q.given(t.Context(), t))))
		until(t, what+" edited by hand are put back", func(ctx context.Context) bool {
			r, b := q.given(ctx, t)
			return r != nil && b != nil && cmp.Equal(r.Rules, role.Rules) && cmp.Equal(r.Labels, role.Labels) && cmp.Equal(b.Subjects, binding.Subjects)
		})
	}
	deleted, _ := q.given(t.Context(), t)
	must(t, q.admin.Delete(t.Context(), deleted))
	until(t, "a Role that was deleted is there again", func(ctx context.Context) bool {
		r, _ := q.given(ctx, t)
		return r != nil && r.UID != deleted.UID
	})

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: q.namespace, Name: "billing-mcp"}}
	relabel := func(server string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.ServerLabel, server)
		must(t, q.admin.Patch(t.Context(), secret.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	gatewayIs := func(account string) client.Client { return clientFor(t, q.namespace, "ServiceAccount "+account) }
	relabel("null")
	q.authorized(t, metav1.ConditionFalse, v1alpha1.ReasonSecretNotReadable)
	until(t, "the Secret without its label is taken away", func(ctx context.Context) bool {
		return !may(ctx, t, gatewayIs("gateway-billing"), q.namespace, right{"get", "secrets", "billing-mcp"})
	})
	relabel(`"billing"`)
	q.authorized(t, metav1.ConditionTrue, v1alpha1.ReasonGranted)

	serve := right{"serve", "governedservers/authority", "billing"}
	q.edit(t, func(s *v1alpha1.GovernedServerSpec) { s.Gateway.ServiceAccountName = "gateway-new" })
	expect(t, "the new account", gatewayIs("gateway-new"), q.namespace, []right{serve, {"get", "secrets", "billing-mcp"}}, nil)
	until(t, "the old account has lost its rights", func(ctx context.Context) bool {
		return !may(ctx, t, gatewayIs("gateway-billing"), q.namespace, serve)
	})
	q.edit(t, func(s *v1alpha1.GovernedServerSpec) { s.Gateway = nil })
	until(t, "nothing is left without an account", func(ctx context.Context) bool {
		r, b := q.given(ctx, t)
		return r == nil && b == nil
	})

	theirs := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: q.namespace, Name: made},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tidewaiter-viewer"},
	}
	must(t, q.admin.Create(t.Context(), theirs))
	q.edit(t, func(s *v1alpha1.GovernedServerSpec) {
		s.Gateway = &v1alpha1.GatewaySpec{ServiceAccountName: "gateway-new"}
	})
	q.authorized(t, metav1.ConditionFalse, v1alpha1.ReasonRoleConflict)
	if r, b := q.given(t.Context(), t); r != nil || b.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("a RoleBinding of others: %v, bound to %v", b, r)
	}
}

// Whoever may write Roles, and holds none of the rights, may empty a Role, bind themselves to what is left, and wait for
// the operator to fill it again: it never does.
func TestNobodyGetsTheRightsOfAGatewayByEmptyingItsRole(t *testing.T) {
	t.Parallel()
	q := newQuay(t)
	q.authorized(t, metav1.ConditionTrue, v1alpha1.ReasonGranted)
	role, _ := q.given(t.Context(), t)
	cfg := plane.User(t, "tenant@"+q.namespace)
	plane.Grant(t, q.namespace, cfg, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"},
		Verbs: []string{"get", "list", "create", "update", "patch", "delete"}})
	tenant := plane.Client(t, cfg)
	bind := func(to string) error {
		return tenant.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: q.namespace, GenerateName: "mine-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: to},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant@" + q.namespace}},
		})
	}
	if err := bind(role.Name); !apierrors.IsForbidden(err) {
		t.Fatalf("the Role as it is can be bound: %v", err)
	}
	empty := role.DeepCopy()
	empty.Rules = nil
	must(t, tenant.Update(t.Context(), empty))
	// The operator may have been faster; then there is nothing to bind.
	if err := bind(role.Name); err != nil && !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	until(t, "the gateway has its rights again", func(ctx context.Context) bool {
		now, _ := q.given(ctx, t)
		return now != nil && now.Name != role.Name && cmp.Equal(now.Rules, role.Rules)
	})
	expect(t, "the gateway", clientFor(t, q.namespace, "ServiceAccount gateway-billing"), q.namespace, rights("serve governedservers/authority billing"), nil)
	for _, r := range rights("serve governedservers/authority billing", "get secrets billing-mcp") {
		if may(t.Context(), t, tenant, q.namespace, r) {
			t.Errorf("the tenant may %v", r)
		}
	}
}

func TestAGatewayOfTwoServersSeesBoth(t *testing.T) {
	t.Parallel()
	q := newQuay(t)
	q.authorized(t, metav1.ConditionTrue, v1alpha1.ReasonGranted)
	payroll := &v1alpha1.GovernedServer{ObjectMeta: metav1.ObjectMeta{Namespace: q.namespace, Name: "payroll"}}
	share := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"gateway":{"serviceAccountName":"gateway-billing"}}}`))
	must(t, q.admin.Patch(t.Context(), payroll, share))
	cfg := plane.ServiceAccount(t, q.namespace, "gateway-billing")
	live := plane.Client(t, cfg)
	expect(t, "the gateway of two", live, q.namespace, rights("list watch governedservers", "serve governedservers/authority billing", "serve governedservers/authority payroll"), nil)
	watched := q.watch(t, cfg, "billing", "payroll")
	for _, name := range []string{"billing", "payroll"} {
		must(t, watched.Get(t.Context(), q.key(name), &v1alpha1.GovernedServer{}))
	}
	must(t, q.admin.Delete(t.Context(), payroll))
	until(t, "a gateway of one again sees one", func(ctx context.Context) bool {
		role, _ := q.given(ctx, t)
		return role != nil && len(role.Rules[1].ResourceNames) == 1
	})
}
