// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/controllers"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/gateway"
)

// started runs the one reconciler of the RoleBinding that all gateways share, as the manager. Each test has a namespace
// of its own and they run at once, so it is started once and ends with the process.
var started = sync.OnceValue(func() error {
	ctx := context.Background()
	cfg, err := plane.AddServiceAccount(ctx, fixture.SystemNamespace, v1alpha1.ManagerServiceAccount)
	if err != nil {
		return err
	}
	s, skip := runtime.NewScheme(), true
	if err := errors.Join(corev1.AddToScheme(s), rbacv1.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return err
	}
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{controllers.ManagedByLabel: controllers.ManagedBy})}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&rbacv1.RoleBinding{}: ours}},
	})
	if err != nil {
		return err
	}
	readers := &controllers.BaselineReadersReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), OperatorNamespace: fixture.SystemNamespace}
	if err := readers.SetupWithManager(mgr); err != nil {
		return err
	}
	go mgr.Start(ctx) // it ends with the process
	return nil
})

func letGatewaysRead(t *testing.T) {
	t.Helper()
	must(t, started())
}

func TestWhoReadsTheBaselinesFollowsTheServers(t *testing.T) {
	t.Parallel()
	q := newQuay(t)
	readsAs := func(account string) func(context.Context) bool {
		as := clientFor(t, q.namespace, "ServiceAccount "+account)
		return func(ctx context.Context) bool {
			return may(ctx, t, as, fixture.SystemNamespace, right{"watch", "toolpolicies", ""})
		}
	}
	first, second := readsAs("gateway-billing"), readsAs("gateway-new")
	until(t, "the gateway reads the baselines", first)
	q.edit(t, func(s *v1alpha1.GovernedServerSpec) { s.Gateway.ServiceAccountName = "gateway-new" })
	until(t, "another account reads them", second)
	until(t, "the old one does not", func(ctx context.Context) bool { return !first(ctx) })

	binding := &rbacv1.RoleBinding{}
	must(t, q.admin.Get(t.Context(), types.NamespacedName{Namespace: fixture.SystemNamespace, Name: "tidewaiter-baselines-readers"}, binding))
	binding.Subjects = nil
	if err := q.admin.Update(t.Context(), binding); err != nil {
		t.Log("the reconciler was faster:", err)
	}
	until(t, "what was edited by hand is put back", second)
	must(t, q.admin.Delete(t.Context(), q.server))
	until(t, "nobody reads for a server that is gone", func(ctx context.Context) bool { return !second(ctx) })
}

// A gateway that may not read the baselines must not run as if there were none.
func TestAGatewayWithoutTheBaselinesDecidesNothing(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	server := fixture.GovernedServer(namespace, "billing")
	must(t, plane.Client(t, plane.Admin).Create(t.Context(), &server))
	cfg := plane.ServiceAccount(t, namespace, "gateway")
	plane.Grant(t, namespace, cfg, fixture.Authority("billing", "serve"))
	plane.GrantClusterRole(t, namespace, cfg, "tidewaiter-gateway")
	key := client.ObjectKeyFromObject(&server)
	watched, err := gateway.NewCache(cfg, scheme(t), map[types.NamespacedName]*gateway.Server{key: {Key: key, Clock: clock.RealClock{}}}, fixture.SystemNamespace)
	must(t, err)
	start(t, watched.Start)
	servers, err := watched.GetInformer(t.Context(), &v1alpha1.GovernedServer{}, cache.BlockUntilSynced(false))
	must(t, err)
	policies, err := watched.GetInformer(t.Context(), &v1alpha1.ToolPolicy{}, cache.BlockUntilSynced(false))
	must(t, err)
	until(t, "its server is there", func(context.Context) bool { return servers.HasSynced() })
	if policies.HasSynced() {
		t.Error("the policies count as read without those of the operator's namespace")
	}
	plane.Grant(t, fixture.SystemNamespace, cfg, fixture.Rule("toolpolicies", "get", "list", "watch"))
	until(t, "with the right they are read", func(context.Context) bool { return policies.HasSynced() })
}
