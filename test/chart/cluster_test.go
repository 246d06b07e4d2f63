// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// shop is the namespace of a team.
const shop = "shop"

// cluster is a control plane that the chart is installed into, and removed from, one test after the other.
type cluster struct {
	*fixture.ControlPlane
	admin      client.Client
	kubeconfig string
	manager    string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	plane, err := fixture.StartBare()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Errorf("stop the control plane: %v", err)
		}
	})
	c := &cluster{plane, plane.Client(t, plane.Admin), plane.Kubeconfig(t, plane.Admin), filepath.Join(t.TempDir(), "manager")}
	for _, namespace := range []string{home, shop} {
		must(t, c.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}}))
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", c.manager, "../../cmd/manager").CombinedOutput(); err != nil {
		t.Fatalf("build the manager: %v\n%s", err, out)
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) helm(t *testing.T, args ...string) {
	t.Helper()
	helm(t, append(args, "--namespace", home, "--kubeconfig", c.kubeconfig)...)
}

// operate runs a manager with the rights that the chart gave it, until it has made all that it keeps. It runs on while the
// chart is taken away from under it.
func (c *cluster) operate(t *testing.T) (end func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), c.manager, "--kubeconfig", c.Kubeconfig(t, c.Manager(t)),
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-bind-address="+address)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	ended := false
	end = func() {
		if !ended {
			ended = true
			must(t, cmd.Process.Signal(syscall.SIGTERM))
			_ = cmd.Wait() // it ends with an error where its rights were taken away
		}
		if t.Failed() {
			t.Logf("the manager says:\n%s", log.String())
		}
	}
	t.Cleanup(end)
	c.until(t, "the manager has made what it keeps", func(ctx context.Context) bool {
		key := client.ObjectKey{Namespace: home, Name: v1alpha1.VotingKeys}
		if c.admin.Get(ctx, key, &corev1.ConfigMap{}) != nil {
			return false
		}
		roles := &rbacv1.RoleBindingList{}
		if c.admin.List(ctx, roles, client.InNamespace(shop)) != nil || len(roles.Items) == 0 {
			return false
		}
		return !slices.Contains(c.webhooks(t), "")
	})
	return end
}

// webhooks returns the bundles and paths of all webhooks.
func (c *cluster) webhooks(t *testing.T) []string {
	t.Helper()
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfigurationList{}, &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	must(t, c.admin.List(t.Context(), mutating))
	must(t, c.admin.List(t.Context(), validating))
	var clients []admissionregistrationv1.WebhookClientConfig
	for _, configuration := range mutating.Items {
		for _, webhook := range configuration.Webhooks {
			clients = append(clients, webhook.ClientConfig)
		}
	}
	for _, configuration := range validating.Items {
		for _, webhook := range configuration.Webhooks {
			clients = append(clients, webhook.ClientConfig)
		}
	}
	var found []string
	for _, to := range clients {
		path := ""
		if to.Service.Path != nil {
			path = *to.Service.Path
		}
		found = append(found, string(to.CABundle), path)
	}
	return found
}

// team makes an object of each kind and returns their identities.
func (c *cluster) team(t *testing.T) map[string]string {
	t.Helper()
	server := fixture.GovernedServer(shop, "billing")
	server.Spec.Gateway = &v1alpha1.GatewaySpec{ServiceAccountName: "gateway-billing"}
	policy, request := fixture.ToolPolicy(shop, "house", "billing"), fixture.ApprovalRequest(shop, "billing", 1)
	for _, object := range []client.Object{&server, &policy, &request} {
		// A CRD is established a moment after it is there.
		c.until(t, "an object is made", func(ctx context.Context) bool { return c.admin.Create(ctx, object) == nil })
	}
	return c.identities(t)
}

// identities of the objects of a team: their UIDs and generations.
func (c *cluster) identities(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for key, object := range c.everything(t) {
		if object.GroupVersionKind().Group == v1alpha1.GroupVersion.Group {
			found[key] = fmt.Sprintf("%s, generation %d", object.GetUID(), object.GetGeneration())
		}
	}
	return found
}

func (c *cluster) until(t *testing.T, what string, is func(context.Context) bool) {
	t.Helper()
	must(t, fixture.Poll(t.Context(), what, func(ctx context.Context) (bool, error) { return is(ctx), nil }))
}

// everything that is in the cluster, but events.
func (c *cluster) everything(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	finder, err := discovery.NewDiscoveryClientForConfig(c.Admin)
	must(t, err)
	lists, err := finder.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // of a group that is on its way out
		t.Fatal(err)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		must(t, err)
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" || resource.Kind == "ComponentStatus" {
				continue
			}
			objects := &unstructured.UnstructuredList{}
			objects.SetGroupVersionKind(group.WithKind(resource.Kind + "List"))
			if c.admin.List(t.Context(), objects) != nil {
				continue // its CRD has just gone
			}
			for i := range objects.Items {
				object := &objects.Items[i]
				found[strings.TrimSpace(object.GetKind()+" "+object.GetNamespace())+" "+object.GetName()] = object
			}
		}
	}
	return found
}

// leaves waits until nothing has come since before but what is wanted and what the garbage collector takes, which this
// control plane has not: owned by what is gone. Nothing may be on its way out for ever.
func (c *cluster) leaves(t *testing.T, before map[string]*unstructured.Unstructured, want ...string) {
	t.Helper()
	slices.Sort(want)
	var got []string
	err := fixture.Poll(t.Context(), "only what is meant to be kept is left", func(context.Context) (bool, error) {
		after := c.everything(t)
		alive := map[string]bool{}
		for _, object := range after {
			alive[string(object.GetUID())] = true
		}
		got = nil
		for _, key := range slices.Sorted(maps.Keys(after)) {
			object := after[key]
			orphaned := slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return !alive[string(o.UID)] })
			switch {
			case object.GetDeletionTimestamp() != nil || object.GetNamespace() == home && len(object.GetFinalizers()) > 0:
				got = append(got, key+": Terminating, or would be")
			case before[key] == nil && !orphaned && slices.Contains([]string{"", home, shop}, object.GetNamespace()):
				got = append(got, key)
			}
		}
		return slices.Equal(want, got), nil
	})
	if err != nil {
		t.Errorf("%v (-want +left):\n%s", err, cmp.Diff(want, got))
	}
}

// olderChart is the chart as if an earlier release had had a short name less and no policy for Leases.
func olderChart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(chart)))
	must(t, os.Remove(filepath.Join(dir, "files/admission/leases.yaml")))
	crd := filepath.Join(dir, "files/crds/tidewaiter.dev_governedservers.yaml")
	text, err := os.ReadFile(crd)
	must(t, err)
	older := strings.Replace(string(text), "    shortNames:\n    - gsrv\n", "", 1)
	if older == string(text) {
		t.Fatal("the CRD of GovernedServers has another short name")
	}
	must(t, os.WriteFile(crd, []byte(older), 0o600))
	return dir
}
