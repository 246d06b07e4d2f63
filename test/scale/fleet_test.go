// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scale measures many gateways on one Kubernetes API: how long a revocation takes until the last of them enforces
// it, and how much they ask of the API while nothing happens. Each gateway is what the binary runs, with an account, a
// client, connections and a cache of its own; only agents and MCP servers are missing.
package scale

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/gateway"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

var plane *fixture.ControlPlane

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &plane)) }

// refund is a Reversible tool with a clean record.
const refund = "refund_invoice"

// fleet is a server and its gateways.
type fleet struct {
	t         testing.TB
	namespace string
	key       types.NamespacedName
	admin     client.Client
	manager   client.Client
	gateways  []*gateway.Server
	// asked counts the requests to the API, but for those of watches, which last.
	asked atomic.Int64
}

// newFleet starts gateways of one server, and returns when all of them let its tool run unattended.
func newFleet(t testing.TB, size int) *fleet {
	t.Helper()
	f := newServer(t)
	f.launch(f.accounts(size))
	f.await(policy.Allow)
	return f
}

// newServer governs a server that has no gateway yet.
func newServer(t testing.TB) *fleet {
	t.Helper()
	f := &fleet{t: t, namespace: plane.Namespace(t), admin: plane.Client(t, plane.Admin)}
	f.key = types.NamespacedName{Namespace: f.namespace, Name: "billing"}
	cfg, err := plane.AddServiceAccount(t.Context(), fixture.SystemNamespace, v1alpha1.ManagerServiceAccount)
	must(t, err)
	f.manager, err = fixture.NewClient(cfg)
	must(t, err)
	f.govern(f.key.Name, 1)
	f.promote()
	return f
}

// launch starts a gateway for each account.
func (f *fleet) launch(accounts []*rest.Config) {
	t := f.t
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	group, ctx := errgroup.WithContext(ctx)
	t.Cleanup(func() {
		stop()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	for i, account := range accounts {
		server := &gateway.Server{Key: f.key, Clock: clock.RealClock{}, MaxStaleness: 5 * time.Minute}
		f.gateways = append(f.gateways, server)
		f.start(ctx, group, account, fmt.Sprint("gateway-", i), server)
	}
}

// start runs one gateway.
func (f *fleet) start(ctx context.Context, group *errgroup.Group, account *rest.Config, name string, server *gateway.Server) {
	f.t.Helper()
	account = rest.CopyConfig(account)
	account.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, &f.asked} })
	servers := map[types.NamespacedName]*gateway.Server{f.key: server}
	cache, err := gateway.NewCache(account, f.admin.Scheme(), servers, fixture.SystemNamespace)
	must(f.t, err)
	live, err := client.New(account, client.Options{Scheme: clientgoscheme.Scheme, Mapper: gateway.Mapper()})
	must(f.t, err)
	metrics, err := gateway.NewMetrics(prometheus.NewRegistry())
	must(f.t, err)
	watcher := &gateway.Watcher{Cache: cache, Client: live, Servers: servers, Clock: clock.RealClock{}, Library: policy.NewLibrary(),
		OperatorNamespace: fixture.SystemNamespace, Metrics: metrics}
	acknowledger := &gateway.Acknowledger{Client: live, Servers: servers, Clock: clock.RealClock{}, Gateway: name,
		Jitter: rand.Float64, Metrics: metrics}
	group.Go(func() error { return watcher.Run(ctx) })
	group.Go(func() error { return acknowledger.Run(ctx) })
}

// counted counts requests.
type counted struct {
	http.RoundTripper
	asked *atomic.Int64
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" {
		c.asked.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// govern writes a server, and as the manager what is known of it: so many tools, and a clean record of the first.
func (f *fleet) govern(name string, tools int) {
	f.t.Helper()
	s := fixture.GovernedServer(f.namespace, name)
	must(f.t, f.admin.Create(f.t.Context(), &s))
	before := s.DeepCopy()
	endpoint, err := tool.EndpointDigest(s.Spec.Endpoint)
	must(f.t, err)
	s.Status = v1alpha1.GovernedServerStatus{
		EndpointDigest: endpoint, NamespaceLabels: map[string]string{corev1.LabelMetadataName: f.namespace},
		Records: []v1alpha1.ToolRecord{{Tool: refund, Digest: fixture.Digest("a"), EndpointDigest: endpoint, Approved: 3, Autonomy: v1alpha1.AutonomyEligible}},
	}
	for i := range tools {
		t := v1alpha1.ToolStatus{Name: refund, ClassifiedTier: v1alpha1.TierReversible, Tier: v1alpha1.TierReversible,
			Source: v1alpha1.TierSourceName, Reason: `"refund" changes what can be changed back`, Digest: fixture.Digest("a")}
		if i > 0 {
			t.Name = fmt.Sprintf("update_thing_%d", i)
		}
		s.Status.Tools = append(s.Status.Tools, t)
	}
	must(f.t, f.manager.Status().Patch(f.t.Context(), &s, client.MergeFrom(before)))
}

// promote lets the tool run unattended.
func (f *fleet) promote() {
	f.t.Helper()
	p := f.promotion()
	p.Spec.Targets = []string{f.key.Name}
	p.Spec.Autonomy = []v1alpha1.AutonomyRule{{Tool: refund, Digest: fixture.Digest("a"), Mode: v1alpha1.ModeUnattended}}
	must(f.t, f.admin.Create(f.t.Context(), p))
}

func (f *fleet) promotion() *v1alpha1.ToolPolicy {
	return &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "promotions"}}
}

// stop stops every server of the namespace by a baseline.
func (f *fleet) stop() *v1alpha1.ToolPolicy {
	p := &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: fixture.SystemNamespace, Name: "stop-" + f.namespace}}
	p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: f.namespace}}
	p.Spec.Mode = v1alpha1.BaselineStopped
	return p
}

// accounts makes a ServiceAccount for each gateway, so that none shares a connection with another, and gives them their
// rights.
func (f *fleet) accounts(size int) []*rest.Config {
	f.t.Helper()
	var subjects []rbacv1.Subject
	configs := make([]*rest.Config, size)
	for i := range configs {
		name := fmt.Sprint("gateway-", i)
		cfg, err := plane.AddServiceAccount(f.t.Context(), f.namespace, name)
		must(f.t, err)
		configs[i] = cfg
		subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: name})
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "serve"}, Rules: []rbacv1.PolicyRule{
		fixture.Authority(f.key.Name, v1alpha1.VerbServe), fixture.Rule("governedservers", "get", "list", "watch"),
		fixture.Rule("toolpolicies", "get", "list", "watch"), fixture.Rule("approvalrequests", "get", "list", "watch"),
		{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"create", "patch", "delete"}},
	}}
	must(f.t, f.admin.Create(f.t.Context(), role))
	for namespace, name := range map[string]string{f.namespace: "serve", fixture.SystemNamespace: "tidewaiter-baselines-reader"} {
		must(f.t, f.admin.Create(f.t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "serve-" + f.namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: subjects,
		}))
	}
	return configs
}

// effect is what a gateway does with a call of the tool now.
func effect(s *gateway.Server) policy.Effect {
	snap := s.Snapshot()
	if snap == nil {
		return policy.Deny
	}
	return snap.Policy.Decide(policy.Call{Tool: refund, Arguments: expr.NewArguments([]byte("{}")), Freshness: s.Freshness()}).Effect
}

// await waits until every gateway has this effect, and returns when each of them had.
func (f *fleet) await(want policy.Effect) []time.Time {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	at := make([]time.Time, len(f.gateways))
	var waiting sync.WaitGroup
	for i, server := range f.gateways {
		waiting.Go(func() {
			for {
				changed := server.Changed()
				if effect(server) == want {
					at[i] = time.Now()
					return
				}
				select {
				case <-changed:
				case <-time.After(time.Second): // freshness comes without a change
				case <-ctx.Done():
					return
				}
			}
		})
	}
	waiting.Wait()
	if ctx.Err() != nil {
		f.t.Fatalf("not every gateway comes to %s", want)
	}
	return at
}

// revoke writes something and returns how long each gateway took to enforce it: after the answer to the write, and after
// the write was sent. A gateway may be faster than the answer.
func (f *fleet) revoke(want policy.Effect, write func() error) (answer, send []time.Duration) {
	f.t.Helper()
	answered, sent := make(chan time.Time, 1), time.Now()
	go func() {
		if err := write(); err != nil {
			f.t.Error(err)
		}
		answered <- time.Now()
	}()
	at, since := f.await(want), <-answered
	for i := range at {
		answer = append(answer, max(0, at[i].Sub(since)))
		send = append(send, at[i].Sub(sent))
	}
	return answer, send
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
