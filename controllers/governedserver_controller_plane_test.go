// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// pier is a real MCP server that asks for a token.
type pier struct {
	*server.MCPServer
	url   string
	token atomic.Value
}

func newPier(t *testing.T) *pier {
	t.Helper()
	p := &pier{MCPServer: server.NewMCPServer("pier", "1", server.WithToolCapabilities(true))}
	p.token.Store("Bearer first")
	p.AddTool(mcp.NewTool("get_box", mcp.WithDescription("Shows a box.")), nil)
	p.AddTool(mcp.NewTool("move_box", mcp.WithDescription("Moves a box.")), nil)
	handler := server.NewStreamableHTTPServer(p.MCPServer)
	running := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != p.token.Load() {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(running.Close)
	t.Cleanup(running.CloseClientConnections)
	p.url = running.URL + "/mcp"
	return p
}

// govern starts the controllers of servers and requests as the manager, for the yard's namespace.
func (y *yard) govern(t *testing.T) {
	t.Helper()
	skip := true
	mgr, err := ctrl.NewManager(y.manager, ctrl.Options{
		Scheme: serverScheme(t), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{y.namespace: {}, fixture.SystemNamespace: {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	servers := &GovernedServerReconciler{
		Library: policy.NewLibrary(), OperatorNamespace: fixture.SystemNamespace,
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("governedserver"), Clock: clock.RealClock{},
		Metrics: serverMetrics(t), Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Discover: discovery.Tools, Watch: discovery.Watch,
	}
	requests := &ApprovalRequestReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("approvalrequest"), Clock: clock.RealClock{}}
	if err := servers.SetupWithManager(ctx, mgr); err != nil {
		t.Fatal(err)
	}
	if err := requests.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
}

// until waits for the status of the yard's server.
func (y *yard) until(t *testing.T, what string, is func(v1alpha1.GovernedServerStatus) bool) v1alpha1.GovernedServerStatus {
	t.Helper()
	var s v1alpha1.GovernedServer
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := y.admin.Get(ctx, client.ObjectKeyFromObject(y.server), &s)
		return is(s.Status), err
	})
	if err != nil {
		t.Fatalf("%s: %v; status is %+v", what, err, s.Status)
	}
	return s.Status
}

func reachableFor(reason string) func(v1alpha1.GovernedServerStatus) bool {
	return func(s v1alpha1.GovernedServerStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReachable)
		return c != nil && c.Reason == reason
	}
}

func hasTool(name string) func(v1alpha1.GovernedServerStatus) bool {
	return func(s v1alpha1.GovernedServerStatus) bool {
		for _, t := range s.Tools {
			if t.Name == name {
				return true
			}
		}
		return false
	}
}

func (y *yard) editServer(t *testing.T, edit func(*v1alpha1.GovernedServer)) {
	t.Helper()
	if err := y.admin.Get(t.Context(), client.ObjectKeyFromObject(y.server), y.server); err != nil {
		t.Fatal(err)
	}
	edit(y.server)
	if err := y.admin.Update(t.Context(), y.server); err != nil {
		t.Fatal(err)
	}
}

func TestARealServerIsGovernedFromItsFirstListToADenial(t *testing.T) {
	t.Parallel()
	y, p := newYard(t), newPier(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: "token"}, StringData: map[string]string{"t": "Bearer first"}}
	if err := y.admin.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	y.editServer(t, func(s *v1alpha1.GovernedServer) {
		s.Spec.Endpoint.URL = p.url
		s.Spec.Endpoint.Headers = []v1alpha1.Header{{Name: "Authorization", SecretKeyRef: &v1alpha1.SecretKeyRef{Name: "token", Key: "t"}}}
	})
	y.govern(t)
	y.until(t, "a Secret without the label is not read", reachableFor(v1alpha1.ReasonSecretNotReadable))

	secret.Labels = map[string]string{v1alpha1.ServerLabel: "cranes"}
	if err := y.admin.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	status := y.until(t, "the label is enough", reachableFor(v1alpha1.ReasonListed))
	tiers := map[string]v1alpha1.Tier{}
	for _, tool := range status.Tools {
		tiers[tool.Name] = tool.Tier
		if !strings.HasPrefix(tool.Digest, "sha256:") || tool.Reason == "" {
			t.Errorf("tool is %+v", tool)
		}
	}
	if diff := cmp.Diff(map[string]v1alpha1.Tier{"get_box": v1alpha1.TierRead, "move_box": v1alpha1.TierReversible}, tiers); diff != "" {
		t.Errorf("tiers (-want +got):\n%s", diff)
	}

	p.AddTool(mcp.NewTool("paint_box"), nil)
	y.until(t, "an announced tool is found long before the interval", hasTool("paint_box"))

	p.token.Store("Bearer second")
	secret.StringData = map[string]string{"t": "Bearer second"}
	if err := y.admin.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	p.AddTool(mcp.NewTool("wash_box"), nil)
	status = y.until(t, "a rotated Secret reconnects", func(s v1alpha1.GovernedServerStatus) bool {
		return hasTool("wash_box")(s) && reachableFor(v1alpha1.ReasonListed)(s)
	})
	if status.EndpointDigest == "" || status.LastChanged == nil || status.Counts == nil {
		t.Errorf("status is %+v", status)
	}

	request := y.ask(t, "cranes-0123")
	y.patch(t, request.Name, `{"decision":"Denied","reason":"no"}`)
	status = y.until(t, "the denial is counted and its UID let go", func(s v1alpha1.GovernedServerStatus) bool {
		return len(s.Records) == 1 && s.Records[0].Denied == 1 && len(s.Records[0].Accounted) == 0
	})
	if r := status.Records[0]; r.Tool != "lift_box" || r.Autonomy != v1alpha1.AutonomyDisqualified {
		t.Errorf("record is %+v", r)
	}
	if got := y.expect(t, request.Name, v1alpha1.PhaseDenied); !isAccounted(got) {
		t.Errorf("the request is not marked: %+v", got.Status.Conditions)
	}
}

func TestAForbiddenAddressIsNotDialled(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.editServer(t, func(s *v1alpha1.GovernedServer) { s.Spec.Endpoint.URL = "http://[::ffff:169.254.169.254]/mcp" })
	y.govern(t)
	status := y.until(t, "it is refused", reachableFor(v1alpha1.ReasonAddressForbidden))
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReachable); strings.Contains(c.Message, "169.254") {
		t.Errorf("the message names the address: %s", c.Message)
	}
}
