// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gitops tests that tools which apply manifests from Git get along with this project: what kstatus and Argo CD
// make of the status that the real controllers write, and server-side apply by several managers.
package gitops

import (
	"context"
	"net/http/httptest"
	"net/netip"
	"os"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/controllers"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/survey"
)

var plane *fixture.ControlPlane

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &plane)) }

// operate starts the controllers as the manager.
func operate(t *testing.T) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme} {
		must(t, add(scheme))
	}
	skip := true
	mgr, err := ctrl.NewManager(plane.Manager(t), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
	})
	must(t, err)
	metrics, err := controllers.NewGovernedServerMetrics(prometheus.NewRegistry())
	must(t, err)
	library := policy.NewLibrary()
	ctx, cancel := context.WithCancel(t.Context())
	servers := &controllers.GovernedServerReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("tidewaiter"), Clock: clock.RealClock{}, Metrics: metrics,
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Discover: discovery.Tools, Watch: discovery.Watch,
		Library: library, OperatorNamespace: fixture.SystemNamespace,
	}
	must(t, servers.SetupWithManager(ctx, mgr))
	policies := &controllers.ToolPolicyReconciler{
		Client: mgr.GetClient(), OperatorNamespace: fixture.SystemNamespace,
		Survey: survey.New(mgr.GetClient(), mgr.GetAPIReader(), library, fixture.SystemNamespace),
	}
	must(t, policies.SetupWithManager(mgr))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
}

// ledger starts a real MCP server and returns its address.
func ledger(t *testing.T) string {
	t.Helper()
	s := server.NewMCPServer("ledger", "1.0.0")
	s.AddTool(mcp.NewTool("get_entry", mcp.WithDescription("Reads an entry"), mcp.WithNumber("amount")), nil)
	s.AddTool(mcp.NewTool("post_entry", mcp.WithDescription("Posts an entry"), mcp.WithNumber("amount")), nil)
	up := httptest.NewServer(server.NewStreamableHTTPServer(s))
	t.Cleanup(func() { up.CloseClientConnections(); up.Close() }) // the manager listens on a stream
	return up.URL + "/mcp"
}

// apply applies a manifest as a tool does that has it in Git.
func apply(t *testing.T, tool, manifest string, force bool) (*unstructured.Unstructured, error) {
	t.Helper()
	objects, err := fixture.Parse(manifest)
	must(t, err)
	options := []client.ApplyOption{client.FieldOwner(tool)}
	if force {
		options = append(options, client.ForceOwnership)
	}
	err = plane.Client(t, plane.Admin).Apply(t.Context(), client.ApplyConfigurationFromUnstructured(objects[0]), options...)
	return objects[0], err
}

// read returns an object as the API server has it.
func read(t *testing.T, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	must(t, plane.Client(t, plane.Admin).Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object))
	return object
}

// until waits for an object to be as it should.
func until(t *testing.T, what, kind, namespace, name string, is func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	var object *unstructured.Unstructured
	err := fixture.Poll(t.Context(), what, func(context.Context) (bool, error) {
		object = read(t, kind, namespace, name)
		return is(object), nil
	})
	if err != nil {
		t.Fatalf("%v: it is %v", err, object.Object["status"])
	}
	return object
}

// condition returns the status and reason of a condition.
func condition(object *unstructured.Unstructured, kind string) (status metav1.ConditionStatus, reason string) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			status, reason = metav1.ConditionStatus(c["status"].(string)), c["reason"].(string)
		}
	}
	return status, reason
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
