// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package governance tests the promise from end to end: agents' calls over HTTP, a real MCP server, a real Kubernetes
// API with its admission policies, people with certificates, and the gateway between them.
package governance

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/controllers"
	"github.com/tidewaiter/tidewaiter/hack/demo/billing"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/classify"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/booth"
	"github.com/tidewaiter/tidewaiter/internal/gateway"
	"github.com/tidewaiter/tidewaiter/internal/identity"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/survey"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

var (
	plane *fixture.ControlPlane
	votes *booth.Booth
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	os.Exit(booth.Main(m, &plane, &votes, clock.RealClock{}))
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// world is one namespace with a billing server under governance, its manager, and a person who may approve.
type world struct {
	t         *testing.T
	site      site
	namespace string
	billing   *billing.Server
	upstream  *httptest.Server
	// intercept, when set, stands between the gateway and the billing server.
	intercept func(w http.ResponseWriter, r *http.Request, next http.Handler)
	// pulse, when set, is called while something is waited for.
	pulse func()

	mu    sync.Mutex
	calls []reached // guarded by mu

	// stopManager ends the manager's controllers.
	stopManager func()

	manager, admin, gateway client.Client
	gatewayConfig           *rest.Config
	approver                *rest.Config
	person                  client.Client
}

// reached is a tools/call that the server got.
type reached struct {
	body, query string
	header      http.Header
}

// record notes the calls that reach the server, and hands the request on.
func (w *world) record(rw http.ResponseWriter, r *http.Request, next http.Handler) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if bytes.Contains(body, []byte("tools/call")) {
		w.mu.Lock()
		w.calls = append(w.calls, reached{string(body), r.URL.RawQuery, r.Header.Clone()})
		w.mu.Unlock()
	}
	next.ServeHTTP(rw, r)
}

// lastCall returns the last call that the server got.
func (w *world) lastCall() reached {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) == 0 {
		w.t.Fatal("no call has reached the server")
	}
	return w.calls[len(w.calls)-1]
}

// site is a control plane on which votes are given, and the root key of its voting keys.
type site struct {
	*fixture.ControlPlane
	root ed25519.PublicKey
}

// newWorld makes the namespace and everything in it but the gateway.
func newWorld(t *testing.T, edits ...func(*v1alpha1.GovernedServer)) *world {
	t.Helper()
	return newWorldOn(t, site{plane, votes.Root}, edits...)
}

func newWorldOn(t *testing.T, site site, edits ...func(*v1alpha1.GovernedServer)) *world {
	t.Helper()
	w := &world{t: t, site: site, namespace: site.Namespace(t), billing: billing.New()}
	handler := w.billing.Handler()
	w.upstream = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.intercept != nil {
			w.intercept(rw, r, handler)
			return
		}
		w.record(rw, r, handler)
	}))
	t.Cleanup(w.upstream.Close)
	w.admin, w.manager = w.site.Client(t, w.site.Admin), w.site.Client(t, w.site.Manager(t))

	w.gatewayConfig = w.site.ServiceAccount(t, w.namespace, "gateway-billing")
	w.site.Grant(t, w.namespace, w.gatewayConfig, fixture.Authority("billing", v1alpha1.VerbServe),
		fixture.Rule("governedservers", "get", "list", "watch"), fixture.Rule("toolpolicies", "get", "list", "watch"),
		fixture.Rule("approvalrequests", "get", "list", "watch", "create"), fixture.Rule("approvalrequests/status", "update", "patch"),
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "patch", "delete"}})
	w.site.Grant(t, fixture.SystemNamespace, w.gatewayConfig, fixture.Rule("toolpolicies", "get", "list", "watch"))
	w.gateway = w.site.Client(t, w.gatewayConfig)

	w.approver = w.site.User(t, "approver-"+w.namespace)
	w.site.Grant(t, w.namespace, w.approver,
		fixture.Authority("billing", v1alpha1.VerbApprove, v1alpha1.VerbApproveIrreversible, v1alpha1.VerbGovern, v1alpha1.VerbPromote, v1alpha1.VerbResolve),
		fixture.Rule("approvalrequests", "get", "list", "watch"), fixture.Rule("approvalrequests/status", "update", "patch"),
		fixture.Rule("governedservers", "get", "list", "watch", "create", "update", "patch", "delete"),
		fixture.Rule("toolpolicies", "get", "list", "watch", "create", "update", "patch", "delete"),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
	w.person = w.site.Client(t, w.approver)

	hold := w.server()
	for _, edit := range edits {
		edit(hold)
	}
	if err := w.person.Create(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	w.discover()
	w.startManager()
	return w
}

// server returns the GovernedServer of the world; calls are held for half a minute.
func (w *world) server() *v1alpha1.GovernedServer {
	s := &v1alpha1.GovernedServer{}
	s.Namespace, s.Name = w.namespace, "billing"
	s.Spec.Endpoint.URL = w.upstream.URL + "/mcp"
	s.Spec.Approvals.Hold = duration(30 * time.Second)
	return s
}

// discover writes what the manager's discovery would: the tools as they are now, with their tiers.
func (w *world) discover() {
	w.t.Helper()
	ctx := w.t.Context()
	server := w.governed()
	up, err := endpoint.Resolve(ctx, w.manager, server, loopback)
	if err != nil {
		w.t.Fatal(err)
	}
	found, err := list(ctx, up)
	if err != nil {
		w.t.Fatal(err)
	}
	digest, err := tool.EndpointDigest(server.Spec.Endpoint)
	if err != nil {
		w.t.Fatal(err)
	}
	w.status(func(s *v1alpha1.GovernedServerStatus) {
		s.EndpointDigest, s.Tools = digest, nil
		s.NamespaceLabels = map[string]string{corev1.LabelMetadataName: w.namespace}
		for i, verdict := range classify.Server(found, classify.Options{}) {
			s.Tools = append(s.Tools, v1alpha1.ToolStatus{Name: found[i].Name, ClassifiedTier: verdict.Tier, Tier: verdict.Tier,
				Source: verdict.Source, Reason: verdict.Reason, Digest: found[i].Digest()})
		}
	})
}

// status edits the server's status as the manager.
func (w *world) status(edit func(*v1alpha1.GovernedServerStatus)) {
	w.t.Helper()
	server := w.governed()
	before := server.DeepCopy()
	edit(&server.Status)
	if err := w.manager.Status().Patch(w.t.Context(), server, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// governed reads the GovernedServer.
func (w *world) governed() *v1alpha1.GovernedServer {
	w.t.Helper()
	server := &v1alpha1.GovernedServer{}
	if err := w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "billing"}, server); err != nil {
		w.t.Fatal(err)
	}
	return server
}

// digest returns the digest of a tool as the manager saw it.
func (w *world) digest(name string) string {
	w.t.Helper()
	for _, t := range w.governed().Status.Tools {
		if t.Name == name {
			return t.Digest
		}
	}
	w.t.Fatalf("no tool %s", name)
	return ""
}

func list(ctx context.Context, up endpoint.Upstream) ([]tool.Descriptor, error) {
	transport := up.Transport()
	defer transport.CloseIdleConnections()
	result, err := discovery.Tools(ctx, discovery.Target{URL: up.URL, SSE: up.SSE, Headers: up.Headers, Transport: transport})
	return result.Tools, err
}

// startManager runs the ApprovalRequest controller as the manager, until the test ends.
func (w *world) startManager() {
	w.t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		w.t.Fatal(err)
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		w.t.Fatal(err)
	}
	skip := true
	mgr, err := ctrl.NewManager(w.site.Manager(w.t), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Cache: inNamespace(w.namespace),
		Controller: controllerOptions(&skip),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	requests := &controllers.ApprovalRequestReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("tidewaiter"), Clock: clock.RealClock{}}
	library := policy.NewLibrary()
	policies := &controllers.ToolPolicyReconciler{
		Client: mgr.GetClient(), OperatorNamespace: fixture.SystemNamespace,
		Survey: survey.New(mgr.GetClient(), mgr.GetAPIReader(), library, fixture.SystemNamespace),
	}
	if err := requests.SetupWithManager(mgr); err != nil {
		w.t.Fatal(err)
	}
	if err := policies.SetupWithManager(mgr); err != nil {
		w.t.Fatal(err)
	}
	w.stopManager = w.background("manager", mgr.Start)
}

// background runs a part until the test ends.
func (w *world) background(name string, run func(context.Context) error) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	var stopped bool
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("%s: %v", name, err)
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// door is a gateway that agents reach.
type door struct {
	w        *world
	url      string
	name     string
	receipts *receipt.Writer
	path     string
	session  string
	stop     func()
	server   *gateway.Server
	keyring  *gateway.Keyring
}

// doorOption changes how a gateway is started.
type doorOption func(*doorParts)

type doorParts struct {
	clock    clock.WithTicker
	api      *rest.Config
	receipts string
}

// withReceipts gives the gateway the receipts of an earlier one of the same name.
func withReceipts(path string) doorOption {
	return func(p *doorParts) { p.receipts = path }
}

// withClock gives the gateway a clock that stands still but while something is waited for.
func withClock(c *testclock.FakeClock) doorOption {
	return func(p *doorParts) { p.clock = c }
}

// throughAPI has everything between the gateway and the Kubernetes API pass something.
func throughAPI(wrap func(http.RoundTripper) http.RoundTripper) doorOption {
	return func(p *doorParts) {
		p.api = rest.CopyConfig(p.api)
		p.api.Wrap(wrap)
	}
}

// openDoor starts a gateway and waits until it has what it needs, and reads pass.
func (w *world) openDoor(name string, options ...doorOption) *door {
	w.t.Helper()
	return w.open(name, func(d *door) error { return wantServerAnswer(d.call("get_invoice", `{"invoiceId":"probe"}`)) }, options...)
}

// open starts a gateway and waits until it has what it needs.
func (w *world) open(name string, ready func(*door) error, options ...doorOption) *door {
	w.t.Helper()
	g, d := w.start(name, options...)
	w.eventually("gateway ready", g.Ready)
	w.eventually("a session opens", d.initialize)
	w.eventually("calls pass", func() error { return ready(d) })
	return d
}

// start starts a gateway, which may have nothing yet.
func (w *world) start(name string, options ...doorOption) (*gateway.Gateway, *door) {
	w.t.Helper()
	parts := doorParts{clock: clock.RealClock{}, api: w.gatewayConfig, receipts: filepath.Join(w.t.TempDir(), name+".jsonl")}
	for _, option := range options {
		option(&parts)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		w.t.Fatal(err)
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		w.t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: w.namespace, Name: "billing"}
	d := &door{w: w, name: name, path: parts.receipts}
	d.server = &gateway.Server{Key: key, Clock: parts.clock, MaxStaleness: 5 * time.Minute, List: list, Call: call}
	servers := map[types.NamespacedName]*gateway.Server{key: d.server}
	cache, err := gateway.NewCache(parts.api, scheme, servers, fixture.SystemNamespace)
	if err != nil {
		w.t.Fatal(err)
	}
	if d.receipts, err = receipt.Open(receipt.Options{Path: d.path, Gateway: name, Now: time.Now}); err != nil {
		w.t.Fatal(err)
	}
	live := w.site.Client(w.t, parts.api)
	metrics, err := gateway.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		w.t.Fatal(err)
	}
	keys, err := gateway.NewKeyCache(parts.api, scheme, fixture.SystemNamespace)
	if err != nil {
		w.t.Fatal(err)
	}
	d.keyring = &gateway.Keyring{Cache: keys, Client: live, Namespace: fixture.SystemNamespace, Roots: []ed25519.PublicKey{w.site.root}, Clock: parts.clock, Metrics: metrics}
	g := &gateway.Gateway{
		Servers: servers, Everybody: "system:serviceaccount:" + w.namespace + ":gateway-billing", Metadata: &identity.Metadata{PublicURL: "http://localhost"}, Votes: d.keyring.Count,
		Approvals: &approval.Store{Client: live, Clock: parts.clock, Gateway: name, NewClaim: uuid.NewString},
		Receipts:  d.receipts, Clock: parts.clock, NewID: uuid.NewString, Loopback: true,
		Metrics: metrics, Stopping: w.t.Context(), Limits: gateway.DefaultLimits(),
	}
	watcher := &gateway.Watcher{Cache: cache, Client: live, Servers: servers, Clock: parts.clock, Allow: loopback, Metrics: metrics, Library: policy.NewLibrary(), OperatorNamespace: fixture.SystemNamespace}
	acknowledger := &gateway.Acknowledger{Client: live, Servers: servers, Clock: parts.clock, Gateway: name, Jitter: rand.Float64, Metrics: metrics}
	stopWatch := w.background("gateway "+name, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return watcher.Run(ctx) })
		group.Go(func() error { return acknowledger.Run(ctx) })
		group.Go(func() error { return d.keyring.Run(ctx) })
		return group.Wait()
	})
	front := httptest.NewServer(g)
	d.url = front.URL + "/mcp"
	d.stop = sync.OnceFunc(func() {
		front.CloseClientConnections()
		front.Close()
		stopWatch()
		if err := d.receipts.Close(); err != nil {
			w.t.Errorf("close receipts: %v", err)
		}
	})
	w.t.Cleanup(d.stop)
	return g, d
}

// initialize opens a session of the MCP server, through the gateway.
func (d *door) initialize() error {
	req, err := http.NewRequest(http.MethodPost, d.url, strings.NewReader(
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if d.session = resp.Header.Get("Mcp-Session-Id"); d.session == "" {
		return fmt.Errorf("no session: %s", resp.Status)
	}
	return nil
}

// answer is what an agent got for a call.
type answer struct {
	status int
	raw    string
	Result *struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Meta struct {
			Decision struct {
				Code, Tier, Rule, Request, Namespace, Expiry string
			} `json:"tidewaiter.dev/decision"`
		} `json:"_meta"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	ID json.RawMessage `json:"id"`
}

func (a answer) isError() bool { return a.Result == nil || a.Result.IsError }

// code returns the code of the gateway's own answer, "" for one of the server.
func (a answer) code() string {
	if a.Result == nil {
		return ""
	}
	return a.Result.Meta.Decision.Code
}

func (a answer) request() string {
	if a.Result == nil {
		return ""
	}
	return a.Result.Meta.Decision.Request
}

// call sends a tools/call and returns its answer.
func (d *door) call(name, arguments string, headers ...string) answer {
	d.w.t.Helper()
	var got answer
	// When the tools have changed just now the gateway may have to ask the server again, and says so.
	d.w.eventually("the gateway can say what "+name+" is", func() error {
		got = d.post(d.w.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name, arguments), headers...)
		if got.code() == "DefinitionUnavailable" {
			return errors.New(got.raw)
		}
		return nil
	})
	return got
}

// post sends one message and returns its answer; headers are name, value, name, value…
func (d *door) post(ctx context.Context, body string, headers ...string) answer {
	d.w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, strings.NewReader(body))
	if err != nil {
		d.w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Session-Id", d.session)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{raw: err.Error()}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{raw: err.Error()}
	}
	a := answer{status: resp.StatusCode, raw: string(raw)}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		raw = lastData(raw)
	}
	if json.Unmarshal(raw, &a) != nil {
		a.Result, a.Error = nil, nil
	}
	return a
}

// lastData returns the last data line of an event stream.
func lastData(stream []byte) []byte {
	var data []byte
	for line := range bytes.Lines(stream) {
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = bytes.TrimSpace(rest)
		}
	}
	return data
}

// request returns the request of a name, as stored.
func (w *world) request(name string) *v1alpha1.ApprovalRequest {
	w.t.Helper()
	r := &v1alpha1.ApprovalRequest{}
	if err := w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// requests returns all requests of the namespace.
func (w *world) requests() []v1alpha1.ApprovalRequest {
	w.t.Helper()
	var all v1alpha1.ApprovalRequestList
	if err := w.admin.List(w.t.Context(), &all, client.InNamespace(w.namespace)); err != nil {
		w.t.Fatal(err)
	}
	return all.Items
}

// theRequest waits until there is exactly one request in a phase and returns it.
func (w *world) theRequest(phase v1alpha1.Phase) *v1alpha1.ApprovalRequest {
	w.t.Helper()
	var found v1alpha1.ApprovalRequest
	w.eventually("one request "+string(phase), func() error {
		count := 0
		for _, r := range w.requests() {
			if r.CurrentPhase() == phase {
				found = r
				count++
			}
		}
		if count != 1 {
			return fmt.Errorf("%d requests are %s", count, phase)
		}
		return nil
	})
	return &found
}

// decide patches the decision as the approver.
func (w *world) decide(name string, decision v1alpha1.Decision) {
	w.t.Helper()
	if err := w.vote(name, decision); err != nil {
		w.t.Fatal(err)
	}
}

// vote is decide for those who do not end the test.
func (w *world) vote(name string, decision v1alpha1.Decision) error {
	r := &v1alpha1.ApprovalRequest{}
	r.Namespace, r.Name = w.namespace, name
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"decision":"`+string(decision)+`","reason":"looked at it"}}`))
	return w.person.Status().Patch(w.t.Context(), r, patch)
}

// each does something for the numbers below n, some at a time, and reports what failed.
func (w *world) each(n int, do func(int) error) {
	w.t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	if err := group.Wait(); err != nil {
		w.t.Fatal(err)
	}
}

// executions waits until a tool has run this often, and reports if it ran more.
func (w *world) executions(name string, want int) {
	w.t.Helper()
	if got := w.billing.Executions()[name]; got != want {
		w.t.Errorf("executions of %s: got %d, want %d", name, got, want)
	}
}

// eventually polls until a condition holds.
func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if w.pulse != nil {
			w.pulse()
		}
		select {
		case <-deadline.C:
			w.t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}
