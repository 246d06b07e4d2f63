// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/control"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

// The gateway in a pod, with real tokens: the operator is told all tools of a server that it does not reach, an agent none;
// and that the server answers at the pod's address is said in the Lease.
func TestAGatewayInAPodTellsTheOperatorWhatItSees(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	url, _, _ := newCrane(t) // on 127.0.0.1, which is the pod's address here too
	govern(t, namespace, url)
	account := gatewayAccount(t, namespace)
	plane.Grant(t, namespace, account, rbacv1.PolicyRule{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"create", "patch", "delete"}})
	address := freeAddress(t)
	g := startGateway(t, options{
		servers: []string{namespace + "/crane"}, publicURL: "http://gateway.example.com", votingRoots: []string{rootKey}, operatorNamespace: fixture.SystemNamespace,
		name: "gw", receipts: filepath.Join(t.TempDir(), "r.jsonl"), allow: []string{"127.0.0.0/8"}, maxStaleness: 5 * time.Minute, drain: time.Second, cluster: account, stdout: io.Discard,
		pod: podOptions{controlListen: address, ips: []string{"127.0.0.1"}},
	})
	g.until("it is ready", func() error { return g.ask("/readyz", http.StatusOK) })
	server := types.NamespacedName{Namespace: namespace, Name: "crane"}
	ask := func(token string) (discovery.Result, error) {
		transport := netguard.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}.Transport(nil)
		defer transport.CloseIdleConnections()
		return discovery.Through(t.Context(), discovery.Target{
			URL: "http://" + address + control.ToolsPath(server), Headers: http.Header{"Authorization": {"Bearer " + token}}, Transport: transport,
		})
	}
	operator := plane.ServiceAccount(t, fixture.SystemNamespace, v1alpha1.ManagerServiceAccount, control.Audience(server))
	g.until("the operator is told the tools", func() error {
		result, err := ask(operator.BearerToken)
		if err == nil && len(result.Tools) < 2 {
			t.Errorf("it is told %d tools, want all", len(result.Tools))
		}
		return err
	})
	for name, token := range map[string]string{
		"an agent, by a token for its calls":             agentToken(t, namespace, "agent", "http://gateway.example.com/"+namespace+"/crane/mcp"),
		"an agent, by a token for the operator's":        agentToken(t, namespace, "agent", control.Audience(server)),
		"the operator, by a token for the API server":    plane.Manager(t).BearerToken,
		"the operator, by a token for another server":    plane.ServiceAccount(t, fixture.SystemNamespace, v1alpha1.ManagerServiceAccount, control.Audience(types.NamespacedName{Namespace: "a", Name: "b"})).BearerToken,
		"somebody who has the operator's name elsewhere": agentToken(t, namespace, v1alpha1.ManagerServiceAccount, control.Audience(server)),
	} {
		if _, err := ask(token); err == nil || !strings.Contains(err.Error(), "refuses the operator's token") {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
	var said coordinationv1.LeaseList
	g.until("it says that the server answers at the pod's address", func() error {
		if err := plane.Client(t, plane.Admin).List(t.Context(), &said, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(said.Items) != 1 || said.Items[0].Annotations[v1alpha1.BypassAnnotation] != "Open" {
			return errNobody
		}
		return nil
	})
}

func TestWhatAGatewayInAPodIsToldMustMakeSense(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pod       podOptions
		requester string
		want      string
	}{
		"outside of a pod":                       {podOptions{}, "crew", ""},
		"in a pod":                               {podOptions{controlListen: ":9442", ips: []string{"10.0.0.1", "fd00::1"}}, "", ""},
		"nobody is told apart, but the operator": {podOptions{controlListen: ":9442"}, "crew", "--control-listen"},
		"an address that is none":                {podOptions{ips: []string{"10.0.0.1", "pod"}}, "", "--pod-ip"},
	} {
		_, err := tc.pod.check(tc.requester)
		if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
