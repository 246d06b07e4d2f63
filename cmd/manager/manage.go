// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/controllers"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
	"github.com/tidewaiter/tidewaiter/internal/notify"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
	"github.com/tidewaiter/tidewaiter/internal/survey"
)

// manage wires the controllers and runs them.
func manage(ctx context.Context, cluster *rest.Config, o options) error {
	allow, err := netguard.ParsePrefixes(o.allow)
	if err != nil {
		return fmt.Errorf("--allow-address: %w", err)
	}
	webhook, err := o.webhookServer()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(appsv1.AddToScheme(scheme), policyv1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme), networkingv1.AddToScheme(scheme), corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		authorizationv1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("build the scheme: %w", err)
	}
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              v1alpha1.ManagerServiceAccount,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       server.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.healthAddress,
		WebhookServer:                 webhook.Server,
		Cache:                         cached(),
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	serverMetrics, err := controllers.NewGovernedServerMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	events := mgr.GetEventRecorder("tidewaiter")
	library := policy.NewLibrary()
	tokens := &controllers.Tokens{Client: mgr.GetClient(), Clock: clock.RealClock{}, Namespace: o.namespace}
	servers := &controllers.GovernedServerReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: events, Clock: clock.RealClock{}, Metrics: serverMetrics,
		Allow: allow, Discover: discovery.Tools, Watch: discovery.Watch, Library: library, OperatorNamespace: o.namespace,
		Through: controllers.Through{Token: tokens.For, List: discovery.Through, Watch: discovery.WatchThrough},
	}
	alone := &controllers.StandaloneReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: events, Clock: clock.RealClock{},
		Settings: standalone.Settings{Gateway: o.sidecar, Allow: allow}, OperatorNamespace: o.namespace,
	}
	networks := &controllers.PodNetworkReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: events, OperatorNamespace: o.namespace}
	requests := &controllers.ApprovalRequestReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: events, Clock: clock.RealClock{}}
	surveyor := survey.New(mgr.GetClient(), mgr.GetAPIReader(), library, o.namespace)
	policies := &controllers.ToolPolicyReconciler{Client: mgr.GetClient(), Survey: surveyor, OperatorNamespace: o.namespace}
	rights := &controllers.GatewayRightsReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: events, Clock: clock.RealClock{}}
	readers := &controllers.BaselineReadersReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), OperatorNamespace: o.namespace}
	enforcing := &controllers.EnforcingReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}, Library: library, OperatorNamespace: o.namespace}
	if err := errors.Join(
		servers.SetupWithManager(ctx, mgr),
		requests.SetupWithManager(mgr),
		policies.SetupWithManager(mgr),
		rights.SetupWithManager(mgr),
		readers.SetupWithManager(mgr),
		enforcing.SetupWithManager(mgr),
		networks.SetupWithManager(mgr),
		alone.SetupWithManager(mgr),
		webhook.setUp(mgr, o, surveyor),
		notifications(mgr, o, allow),
		metrics.Registry.Register(&controllers.ApprovalRequestMetrics{Reader: mgr.GetClient(), Clock: clock.RealClock{}}),
		mgr.AddHealthzCheck("ping", healthz.Ping),
	); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return mgr.Start(ctx)
}

// cached are the objects that the manager keeps. Of Secrets, ConfigMaps, Roles, NetworkPolicies, Services, ServiceAccounts and
// PodDisruptionBudgets that is only metadata, and of those, of Leases, Deployments and pods alone that are labelled for a
// server, or ours.
func cached() cache.Options {
	with := func(label string) cache.ByObject {
		labelled, _ := labels.NewRequirement(label, selection.Exists, nil) // which fails for what is no label
		return cache.ByObject{Label: labels.NewSelector().Add(*labelled)}
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&appsv1.Deployment{}:            with(v1alpha1.ServerLabel),
			&coordinationv1.Lease{}:         with(v1alpha1.ServerLabel),
			&corev1.ConfigMap{}:             with(v1alpha1.ServerLabel),
			&corev1.Pod{}:                   with(v1alpha1.GovernLabel),
			&corev1.Secret{}:                with(v1alpha1.ServerLabel),
			&corev1.Service{}:               with(v1alpha1.ServerLabel),
			&corev1.ServiceAccount{}:        with(v1alpha1.ServerLabel),
			&networkingv1.NetworkPolicy{}:   with(v1alpha1.ServerLabel),
			&policyv1.PodDisruptionBudget{}: with(v1alpha1.ServerLabel),
			&rbacv1.Role{}:                  with(v1alpha1.ServerLabel),
			&rbacv1.RoleBinding{}:           {Label: labels.SelectorFromSet(labels.Set{controllers.ManagedByLabel: controllers.ManagedBy})},
		},
	}
}

// notifications has the leader tell the receivers that the flag names.
func notifications(mgr ctrl.Manager, o options, allow []netip.Prefix) error {
	if o.notifyConfig == "" {
		return nil
	}
	receivers, err := notify.ReadConfig(o.notifyConfig)
	if err != nil {
		return fmt.Errorf("--notify-config: %w", err)
	}
	counted, err := notify.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return mgr.Add(&notify.Notifier{Cache: mgr.GetCache(), Clock: clock.RealClock{}, Receivers: receivers, Allow: allow, Metrics: counted})
}
