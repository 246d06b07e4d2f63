// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// A gateway that may not read the baselines does not run as if there were none; once it may, it runs. That it may write
// no Lease changes nothing for calls.
func TestAGatewayDecidesNothingBeforeItHasReadTheBaselines(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	url, reads, _ := newCrane(t)
	govern(t, namespace, url)
	account := plane.ServiceAccount(t, namespace, "gateway-crane")
	plane.Grant(t, namespace, account, fixture.Authority("crane", v1alpha1.VerbServe),
		fixture.Rule("governedservers", "get", "list", "watch"), fixture.Rule("toolpolicies", "get", "list", "watch"),
		fixture.Rule("approvalrequests", "get", "list", "watch", "create"), fixture.Rule("approvalrequests/status", "update", "patch"))
	g := startGateway(t, options{
		servers: []string{namespace + "/crane"}, requester: "crew", votingRoots: []string{rootKey}, operatorNamespace: fixture.SystemNamespace,
		name: "gw", receipts: filepath.Join(t.TempDir(), "r.jsonl"), allow: []string{"127.0.0.0/8"}, maxStaleness: 5 * time.Minute, drain: time.Second, cluster: account, stdout: io.Discard,
	})
	g.until("its callers are known", func() error {
		if resp, text := g.call("get_box", ""); !strings.Contains(text, "no policy is loaded") {
			return fmt.Errorf("%s %s", resp.Status, text)
		}
		return nil
	})
	if err := g.ask("/readyz", http.StatusServiceUnavailable); err != nil || reads.Load() > 0 {
		t.Errorf("%v, and the server ran %d reads", err, reads.Load())
	}
	plane.Grant(t, fixture.SystemNamespace, account, fixture.Rule("toolpolicies", "get", "list", "watch"))
	g.until("it is ready", func() error { return g.ask("/readyz", http.StatusOK) })
	if resp, text := g.call("get_box", ""); resp.StatusCode != http.StatusOK || !strings.Contains(text, "done") {
		t.Errorf("with the right: %s %s", resp.Status, text)
	}

	var said coordinationv1.LeaseList
	list := func() int {
		if err := plane.Client(t, plane.Admin).List(t.Context(), &said, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		return len(said.Items)
	}
	if list() != 0 {
		t.Error("it wrote a Lease without the right")
	}
	plane.Grant(t, namespace, account, rbacv1.PolicyRule{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"create", "patch", "delete"}})
	g.until("it says what it runs", func() error {
		if n := list(); n != 1 || said.Items[0].Annotations[v1alpha1.PolicyRevisionAnnotation] == "" {
			return fmt.Errorf("%d Leases", n)
		}
		return nil
	})
	g.stop()
	if n := list(); n != 0 {
		t.Errorf("%d Leases are left after it was stopped", n)
	}
}
