// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/identity"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/tool"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

var (
	noon    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	billing = types.NamespacedName{Namespace: "finance", Name: "billing"}
)

const agent = "system:serviceaccount:finance:gateway"

// rig is a gateway between a server that records what it gets and a fake Kubernetes API, with a clock that stands
// still.
type rig struct {
	t        testing.TB
	clock    *testclock.FakeClock
	upstream *recorder
	server   *Server
	gateway  *Gateway
	front    *httptest.Server
	agents   *http.Transport // nil for the default one
	api      client.Client
	receipts string
	ids      atomic.Int64
	gone     atomic.Bool            // a client that watchClient watches has gone
	onStamp  atomic.Pointer[func()] // what happens while a receipt gets its time, once

	mu       sync.Mutex // guards the fields below
	governed *v1alpha1.GovernedServer
	policies []v1alpha1.ToolPolicy
	listed   []tool.Descriptor
	listErr  error
	lists    int
	keys     vote.Keys
	keysErr  error
	updates  func(o *v1alpha1.ApprovalRequest, update func() error) error
	gets     func(get func() error) error
	creates  func(o *v1alpha1.ApprovalRequest, create func() error) error
}

// newRig starts the parts; the server has get_invoice (Read), update_invoice (Reversible) and delete_account
// (Irreversible), and calls are not held.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, clock: testclock.NewFakeClock(noon), upstream: newRecorder(t), keys: published(votingKey)}
	r.api = r.fakeAPI()
	up := endpoint.Upstream{URL: r.upstream.URL + "/mcp", Headers: http.Header{"X-Configured": {"yes"}},
		Guard: netguard.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
	r.governed = &v1alpha1.GovernedServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: billing.Namespace, Name: billing.Name, UID: "server-uid", Generation: 1},
		Spec: v1alpha1.GovernedServerSpec{
			Endpoint:    v1alpha1.Endpoint{URL: up.URL},
			CallTimeout: metav1.Duration{Duration: time.Minute},
			Approvals:   v1alpha1.Approvals{Hold: &metav1.Duration{}, TTL: metav1.Duration{Duration: time.Hour}, MaxPending: 20, MaxPerHour: 60},
			Autonomy:    v1alpha1.AutonomySpec{CleanApprovals: 3},
		},
	}
	for name, tier := range map[string]v1alpha1.Tier{"get_invoice": v1alpha1.TierRead, "update_invoice": v1alpha1.TierReversible, "delete_account": v1alpha1.TierIrreversible} {
		d := describe(t, name, "x")
		r.listed = append(r.listed, d)
		r.governed.Status.Tools = append(r.governed.Status.Tools, v1alpha1.ToolStatus{Name: name, ClassifiedTier: tier, Tier: tier, Digest: d.Digest()})
	}
	r.server = &Server{Key: billing, Clock: r.clock, MaxStaleness: 5 * time.Minute, List: r.list}
	r.receipts = filepath.Join(t.TempDir(), "receipts.jsonl")
	writer, err := receipt.Open(receipt.Options{Path: r.receipts, Gateway: "gw", Now: r.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close() })
	r.gateway = &Gateway{
		Servers: map[types.NamespacedName]*Server{billing: r.server}, Everybody: agent, Metadata: &identity.Metadata{PublicURL: publicURL}, Votes: r.count,
		Approvals: &approval.Store{Client: r.api, Clock: r.clock, Gateway: "gw", NewClaim: r.newID},
		Receipts:  writer, Clock: r.clock, NewID: r.newID, Loopback: true, Metrics: newMetrics(t), Stopping: t.Context(), Limits: DefaultLimits(),
	}
	r.edit(nil)
	r.server.Dial(&up, r.server.Snapshot().EndpointDigest)
	r.server.Prove(noon)
	r.front = httptest.NewServer(r.gateway)
	t.Cleanup(r.front.Close)
	return r
}

func describe(t testing.TB, name, description string) tool.Descriptor {
	t.Helper()
	d, err := tool.Parse(fmt.Appendf(nil, `{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"Amount"}}}}`, name, description))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// now is the clock of the receipts.
func (r *rig) now() time.Time {
	if happens := r.onStamp.Swap(nil); happens != nil {
		(*happens)()
	}
	return r.clock.Now()
}

// receiptClock has something happen while the next receipt gets its time.
func (r *rig) receiptClock(happens func()) { r.onStamp.Store(&happens) }

// watchClient has gone set once the gateway sees the client of a request go.
func (r *rig) watchClient() {
	inner := r.front.Config.Handler
	r.front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, rq *http.Request) {
		defer context.AfterFunc(rq.Context(), func() { r.gone.Store(true) })()
		inner.ServeHTTP(w, rq)
	})
}

func (r *rig) newID() string { return fmt.Sprint("id-", r.ids.Add(1)) }

func (r *rig) list(context.Context, endpoint.Upstream) ([]tool.Descriptor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists++
	return slices.Clone(r.listed), r.listErr
}

// fakeAPI keeps requests, and brings every change of one into the snapshot, as the watch would.
func (r *rig) fakeAPI() client.Client {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		r.t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ApprovalRequest{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetUID(types.UID("uid-" + o.GetName()))
			o.SetCreationTimestamp(metav1.NewTime(r.clock.Now()))
			create := func() error { return c.Create(ctx, o, opts...) }
			if request, ok := o.(*v1alpha1.ApprovalRequest); ok && r.creates != nil {
				return r.creates(request, create)
			}
			defer r.edit(nil)
			return create()
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			get := func() error { return c.Get(ctx, key, o, opts...) }
			if r.gets != nil {
				return r.gets(get)
			}
			return get()
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			update := func() error {
				defer r.edit(nil)
				return c.SubResource(sub).Update(ctx, o, opts...)
			}
			if r.updates != nil {
				return r.updates(o.(*v1alpha1.ApprovalRequest), update)
			}
			return update()
		},
	}).Build()
}

// edit changes what is governed and how, and puts it into force with the requests as they are.
func (r *rig) edit(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if change != nil {
		change()
	}
	if r.server == nil {
		return
	}
	if r.governed == nil {
		if err := r.server.Update(nil); err != nil {
			r.t.Error(err)
		}
		return
	}
	var all v1alpha1.ApprovalRequestList
	if err := r.api.List(context.Background(), &all); err != nil {
		r.t.Error(err)
	}
	r.show(all.Items)
}

// show has the gateway's snapshot hold these requests.
func (r *rig) show(requests []v1alpha1.ApprovalRequest) {
	governed := r.governed.DeepCopy()
	if governed.Status.EndpointDigest == "" {
		digest, err := tool.EndpointDigest(governed.Spec.Endpoint)
		if err != nil {
			r.t.Error(err)
		}
		governed.Status.EndpointDigest = digest
	}
	in := &snapshot.Inputs{Server: governed, Policies: parse(r.policies), OperatorNamespace: "tidewaiter-system"}
	for i := range requests {
		in.Requests = append(in.Requests, &requests[i])
	}
	if err := r.server.Update(in); err != nil {
		r.t.Error(err)
	}
}

// promote puts a clean record and a promotion of update_invoice into force.
func (r *rig) promote() {
	r.edit(func() {
		digest := r.digest("update_invoice")
		endpoint, err := tool.EndpointDigest(r.governed.Spec.Endpoint)
		if err != nil {
			r.t.Error(err)
		}
		r.governed.Status.Records = []v1alpha1.ToolRecord{{Tool: "update_invoice", Digest: digest, EndpointDigest: endpoint, Approved: 3}}
		r.policies = []v1alpha1.ToolPolicy{{
			ObjectMeta: metav1.ObjectMeta{Namespace: billing.Namespace, Name: "team", UID: "policy-uid", Generation: 1},
			Spec: v1alpha1.ToolPolicySpec{Targets: []string{billing.Name}, Autonomy: []v1alpha1.AutonomyRule{
				{Tool: "update_invoice", Digest: digest, Mode: v1alpha1.ModeUnattended}}},
		}}
	})
}

// redefine has the server say something else of a tool; with learned the manager knows.
func (r *rig) redefine(name string, learned bool) (digest string) {
	return r.redefineAs(name, "changed", learned)
}

// redefineAs is redefine with what the server says of the tool.
func (r *rig) redefineAs(name, description string, learned bool) (digest string) {
	changed := describe(r.t, name, description)
	r.edit(func() {
		for i := range r.listed {
			if r.listed[i].Name == name {
				r.listed[i] = changed
			}
		}
		if learned {
			r.accept()
		}
	})
	return changed.Digest()
}

// accept brings what the manager knows to what the server says.
func (r *rig) accept() {
	for i := range r.governed.Status.Tools {
		for _, d := range r.listed {
			if d.Name == r.governed.Status.Tools[i].Name {
				r.governed.Status.Tools[i].Digest = d.Digest()
			}
		}
	}
}

func (r *rig) digest(name string) string {
	for _, t := range r.governed.Status.Tools {
		if t.Name == name {
			return t.Digest
		}
	}
	return ""
}

// request returns the only request there is.
func (r *rig) request() *v1alpha1.ApprovalRequest {
	r.t.Helper()
	all := r.requests()
	if len(all) != 1 {
		r.t.Fatalf("%d requests, want 1", len(all))
	}
	return &all[0]
}

func (r *rig) requests() []v1alpha1.ApprovalRequest {
	r.t.Helper()
	var all v1alpha1.ApprovalRequestList
	if err := r.api.List(context.Background(), &all); err != nil {
		r.t.Fatal(err)
	}
	return all.Items
}

func newMetrics(t testing.TB) *Metrics {
	t.Helper()
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// parse compiles policies.
func parse(objects []v1alpha1.ToolPolicy) []*policy.Policy {
	all := make([]*policy.Policy, 0, len(objects))
	for i := range objects {
		all = append(all, policy.Parse(objects[i].DeepCopy()))
	}
	return all
}
