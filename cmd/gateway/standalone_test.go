// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/sidecar"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
	"github.com/tidewaiter/tidewaiter/internal/tool"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// vault is a real MCP server behind a door that asks for a credential.
type vault struct {
	namespace, url string
	reads, moves   *atomic.Int64
	turnedAway     atomic.Int64
	governed       *v1alpha1.GovernedServer
	// program is the gateway, as it is built, and kubeconfig that of its account.
	program, kubeconfig string
}

const credential = "Bearer s3cr3t"

// newVault governs a server that is open to whoever shows the credential, which a Secret holds.
func newVault(t *testing.T) *vault {
	t.Helper()
	v := &vault{namespace: plane.Namespace(t)}
	var behind string
	behind, v.reads, v.moves = newCrane(t)
	inner, err := url.Parse(behind)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: inner.Host}) }}
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != credential {
			v.turnedAway.Add(1)
			http.Error(w, "no credential", http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(door.Close)
	v.url = door.URL + "/mcp"
	admin := plane.Client(t, plane.Admin)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.namespace, Name: "vault", Labels: map[string]string{v1alpha1.ServerLabel: "crane"}},
		StringData: map[string]string{"authorization": credential},
	}
	govern(t, v.namespace, behind)
	v.governed = &v1alpha1.GovernedServer{}
	err = errors.Join(admin.Create(t.Context(), secret), admin.Get(t.Context(), client.ObjectKey{Namespace: v.namespace, Name: "crane"}, v.governed))
	if err != nil {
		t.Fatal(err)
	}
	v.governed.Spec.Endpoint = v1alpha1.Endpoint{URL: v.url, Headers: []v1alpha1.Header{{Name: "Authorization", SecretKeyRef: &v1alpha1.SecretKeyRef{Name: "vault", Key: "authorization"}}}}
	v.governed.Spec.Approvals.Hold = &metav1.Duration{Duration: 45 * time.Second}
	if err := admin.Update(t.Context(), v.governed); err != nil {
		t.Fatal(err)
	}
	before := v.governed.DeepCopy()
	if v.governed.Status.EndpointDigest, err = tool.EndpointDigest(v.governed.Spec.Endpoint); err != nil {
		t.Fatal(err)
	}
	if err := plane.Client(t, plane.Manager(t)).Status().Patch(t.Context(), v.governed, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	account := gatewayAccount(t, v.namespace)
	plane.Grant(t, v.namespace, account, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"vault"}, Verbs: []string{"get"}})
	v.kubeconfig = plane.Kubeconfig(t, account)
	v.program = build(t)
	return v
}

// pod runs the container that the operator makes, as a process of its own: with its arguments, but for what is of this
// machine.
func (v *vault) pod(t *testing.T, name string) *running {
	t.Helper()
	alone := v.governed.DeepCopy()
	alone.Spec.Gateway = &v1alpha1.GatewaySpec{Standalone: &v1alpha1.StandaloneGateway{Replicas: 2}}
	settings := standalone.Settings{
		Gateway: sidecar.Settings{VotingRoot: vote.FormatRoot(votes.Root), OperatorNamespace: fixture.SystemNamespace},
		Allow:   []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
	g := &running{t: t, agents: freeAddress(t), ops: freeAddress(t)}
	here := strings.NewReplacer("$(POD_NAME)", name, "=:9440", "="+g.agents, "=:9441", "="+g.ops, "=:9442", "="+freeAddress(t), "/var/lib/tidewaiter", t.TempDir())
	args := []string{"--kubeconfig=" + v.kubeconfig}
	for _, object := range standalone.Build(alone, settings) {
		if d, ok := object.(*appsv1.Deployment); ok {
			for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
				args = append(args, here.Replace(arg))
			}
		}
	}
	cmd := exec.Command(v.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.stop = sync.OnceFunc(func() {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Errorf("gateway %s: %v: %s", name, err, said.String())
		}
	})
	t.Cleanup(g.stop)
	g.until("it is ready", func() error { return g.ask("/readyz", http.StatusOK) })
	return g
}

// Two processes of one standalone gateway: both reach the server by the credential, which nobody else has, and one approval
// is one execution, whichever of them gets the calls.
func TestTwoProcessesOfAStandaloneGatewayUseAnApprovalOnce(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	gateways := []*running{v.pod(t, "crane-1"), v.pod(t, "crane-2")}
	token := agentToken(t, v.namespace, "agent", "http://tidewaiter-crane."+v.namespace+".svc/"+v.namespace+"/crane/mcp")
	for _, g := range gateways {
		if resp, text := g.call("get_box", token); resp.StatusCode != http.StatusOK || !strings.Contains(text, "done") {
			t.Fatalf("a read: %s %s", resp.Status, text)
		}
	}
	if v.reads.Load() != 2 || v.turnedAway.Load() != 0 {
		t.Errorf("the server ran %d reads and turned %d requests away", v.reads.Load(), v.turnedAway.Load())
	}
	resp, err := http.Post(v.url, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"move_box","arguments":{}}}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized || v.moves.Load() != 0 {
		t.Errorf("whoever walks around the gateway gets %s, and %d moves", resp.Status, v.moves.Load())
	}

	answers, calls := make(chan string, 8), sync.WaitGroup{}
	for i := range 8 {
		calls.Go(func() {
			_, text := gateways[i%2].call("move_box", token)
			answers <- text
		})
	}
	gateways[0].approve(v.namespace)
	calls.Wait()
	close(answers)
	done := 0
	for text := range answers {
		if strings.Contains(text, "\"text\":\"done\"") {
			done++
		} else if !strings.Contains(text, "ApprovalUsed") {
			t.Errorf("an answer of neither: %s", text)
		}
	}
	if done != 1 || v.moves.Load() != 1 {
		t.Errorf("%d calls were done, and the server ran %d moves", done, v.moves.Load())
	}
}

// approve has a person say yes to the one request that comes.
func (g *running) approve(namespace string) {
	g.t.Helper()
	person := plane.User(g.t, "ana-"+namespace)
	plane.Grant(g.t, namespace, person, fixture.Authority("crane", v1alpha1.VerbApprove), fixture.Rule("approvalrequests", "get", "list"), fixture.Rule("approvalrequests/status", "patch"))
	var all v1alpha1.ApprovalRequestList
	g.until("a person is asked", func() error {
		err := plane.Client(g.t, plane.Admin).List(g.t.Context(), &all, client.InNamespace(namespace))
		if err == nil && len(all.Items) != 1 {
			return fmt.Errorf("there are %d requests", len(all.Items))
		}
		return err
	})
	yes := client.RawPatch(types.MergePatchType, []byte(`{"status":{"decision":"Approved"}}`))
	if err := plane.Client(g.t, person).Status().Patch(g.t.Context(), &all.Items[0], yes); err != nil {
		g.t.Fatal(err)
	}
}
