// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

var (
	rootPrivate   = ed25519.NewKeyFromSeed([]byte(strings.Repeat("r", 32)))
	votingPrivate = ed25519.NewKeyFromSeed([]byte(strings.Repeat("v", 32)))
)

func half(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// gatewayAccount is a ServiceAccount with the rights of a gateway for crane.
func gatewayAccount(t *testing.T, namespace string) *rest.Config {
	t.Helper()
	account := plane.ServiceAccount(t, namespace, "gateway-crane")
	plane.Grant(t, namespace, account, fixture.Authority("crane", v1alpha1.VerbServe),
		fixture.Rule("governedservers", "get", "list", "watch"), fixture.Rule("toolpolicies", "get", "list", "watch"),
		fixture.Rule("approvalrequests", "get", "list", "watch", "create"), fixture.Rule("approvalrequests/status", "update", "patch"))
	plane.Grant(t, fixture.SystemNamespace, account, fixture.Rule("toolpolicies", "get", "list", "watch"))
	return account
}

// agentToken returns a token of a ServiceAccount, for an audience.
func agentToken(t *testing.T, namespace, name, audience string) string {
	t.Helper()
	return plane.ServiceAccount(t, namespace, name, audience).BearerToken
}

// mayReview gives the gateway of a namespace the right to ask the API server about tokens.
func mayReview(t *testing.T, namespace string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reviews-" + namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "gateway-crane"}},
	}
	if err := plane.Client(t, plane.Admin).Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
}

func TestCallersOfARunningGatewayAreWhoTheirTokensSay(t *testing.T) {
	t.Parallel()
	for name, review := range map[string]bool{"by the cluster's keys": false, "by TokenReview": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := plane.Namespace(t)
			url, reads, moves := newCrane(t)
			govern(t, namespace, url)
			account := gatewayAccount(t, namespace)
			if review {
				mayReview(t, namespace)
			}
			g := startGateway(t, options{
				servers: []string{namespace + "/crane"}, publicURL: "http://gateway.example.com", tokenReview: review, votingRoots: []string{rootKey}, operatorNamespace: fixture.SystemNamespace,
				name: "gw", receipts: filepath.Join(t.TempDir(), "r.jsonl"), allow: []string{"127.0.0.0/8"}, maxStaleness: 5 * time.Minute, drain: time.Second, cluster: account, stdout: io.Discard,
			})
			g.until("it is ready", func() error { return g.ask("/readyz", http.StatusOK) })
			resource := "http://gateway.example.com/" + namespace + "/crane/mcp"
			for name, tc := range map[string]struct {
				token string
				want  int
			}{
				"no token":                  {"", http.StatusUnauthorized},
				"one for the API server":    {account.BearerToken, http.StatusUnauthorized},
				"one for another server":    {agentToken(t, namespace, "other", strings.Replace(resource, "crane", "winch", 1)), http.StatusUnauthorized},
				"one for this server":       {agentToken(t, namespace, "agent", resource), http.StatusOK},
				"one for the gateway's own": {agentToken(t, namespace, "short", "http://gateway.example.com/mcp"), http.StatusOK},
			} {
				if resp, text := g.call("get_box", tc.token); resp.StatusCode != tc.want {
					t.Errorf("%s: %s %s", name, resp.Status, text)
				}
			}
			if reads.Load() != 2 {
				t.Errorf("the server ran %d reads, want the two with tokens for it", reads.Load())
			}
			if resp, text := g.call("move_box", agentToken(t, namespace, "agent", resource)); resp.StatusCode != http.StatusOK || !strings.Contains(text, "ApprovalPending") {
				t.Errorf("%s %s", resp.Status, text)
			}
			var all v1alpha1.ApprovalRequestList
			if err := plane.Client(t, plane.Admin).List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			asked := 0
			for _, request := range all.Items {
				if request.Namespace == namespace {
					asked++
					if got, want := request.Spec.Requester.Username, "system:serviceaccount:"+namespace+":agent"; got != want {
						t.Errorf("asked for %q, want %q", got, want)
					}
				}
			}
			if asked != 1 || moves.Load() != 0 {
				t.Errorf("%d requests and %d moves, want 1 and none", asked, moves.Load())
			}
		})
	}
}

func TestARunningGatewayFollowsTheVotingKeys(t *testing.T) {
	t.Parallel()
	namespace, system := plane.Namespace(t), plane.Namespace(t)
	url, _, _ := newCrane(t)
	govern(t, namespace, url)
	account := gatewayAccount(t, namespace)
	plane.Grant(t, system, account, fixture.Rule("toolpolicies", "get", "list", "watch"))
	admin := plane.Client(t, plane.Admin)
	g := startGateway(t, options{
		servers: []string{namespace + "/crane"}, requester: "crew", votingRoots: []string{vote.FormatRoot(half(rootPrivate))}, operatorNamespace: system,
		name: "gw", receipts: filepath.Join(t.TempDir(), "r.jsonl"), allow: []string{"127.0.0.0/8"}, maxStaleness: 5 * time.Minute, drain: time.Second, cluster: account, stdout: io.Discard,
	})
	says := func(what string, wanted bool) {
		t.Helper()
		g.until(what, func() error {
			resp, err := http.Get("http://" + g.ops + "/readyz")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusOK || strings.Contains(string(text), "no approval can be used now") != wanted {
				return errors.Join(fmt.Errorf("/readyz answers %s %s", resp.Status, text), err)
			}
			return err
		})
	}
	says("no key may be read, and reads go on", true)
	plane.MustCreate(t, plane.Admin, system, readers)
	says("no key is published", true)
	id, value, err := vote.Publish(rootPrivate, vote.Published{Public: half(votingPrivate), NotBefore: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: v1alpha1.VotingKeys}, Data: map[string]string{id: value}}
	if err := admin.Create(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	says("the key is known", false)
	if err := admin.Delete(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	says("the key was taken away", true)
}

// readers lets everybody who is known read the voting keys, as the operator's own Role does.
const readers = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tidewaiter-voting-keys}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [tidewaiter-voting-keys], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tidewaiter-voting-keys}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tidewaiter-voting-keys}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:authenticated}
`

// The program itself, as it is built: what it refuses, it refuses before it listens, and says why.
func TestTheProgramSaysWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	program := filepath.Join(folder, "gateway")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	kubeconfig := plane.Kubeconfig(t, plane.Admin)
	for _, tc := range []struct{ flags, want string }{
		{"--server a/b --receipts R", "--voting-root-key is needed"},
		{"--server a/b --receipts R --voting-root-key " + rootKey + " --requester crane --listen 0.0.0.0:0", "--listen must be a loopback address"},
		{"--server a/b --receipts R --voting-root-key " + rootKey + " --listen 0.0.0.0:0", "--public-url is needed"},
	} {
		args := strings.Fields(strings.ReplaceAll(tc.flags, "R ", filepath.Join(folder, "r.jsonl")+" "))
		cmd := exec.CommandContext(t.Context(), program, append(args, "--kubeconfig", kubeconfig)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG=")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s: %v, %s", tc.flags, err, out)
		}
	}
}
