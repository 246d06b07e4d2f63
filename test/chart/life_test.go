// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ofTheManagers is what they made for themselves: it goes with their namespace.
func ofTheManagers() []string {
	return []string{
		"ConfigMap " + home + " tidewaiter-voting-keys", "Secret " + home + " tidewaiter-voting-keys",
		"Secret " + home + " tidewaiter-webhook", "RoleBinding " + home + " tidewaiter-baselines-readers",
	}
}

var crdNames = []string{"governedservers.tidewaiter.dev", "toolpolicies.tidewaiter.dev", "approvalrequests.tidewaiter.dev"}

// TestTheLifeOfARelease goes on one API server, one stage after the other.
func TestTheLifeOfARelease(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	before := c.everything(t)

	t.Run("the pods satisfy the Pod Security Standard restricted", c.restricted)
	t.Run("the API server refuses a field that it does not know", func(t *testing.T) {
		_, err := try(t, "install", release, chart, "--namespace", home, "--kubeconfig", c.kubeconfig,
			"--set", "manager.affinity.podAffinity.demandedDuringScheduling=x")
		if err == nil || !strings.Contains(err.Error(), "demandedDuringScheduling") {
			t.Errorf("error %v", err)
		}
		c.uninstall(t)
		c.deleteCRDs(t)
		c.leaves(t, before)
	})
	t.Run("an upgrade keeps what is there and brings CRDs and policies", c.upgrade)
	for name, removal := range map[string][]func(*testing.T){
		"the release, then the CRDs": {c.uninstall, c.deleteCRDs},
		"the CRDs, then the release": {c.deleteCRDs, c.uninstall},
	} {
		t.Run("removed: "+name, func(t *testing.T) {
			c.helm(t, "install", release, chart)
			c.team(t)
			end := c.operate(t)
			for _, remove := range removal {
				remove(t)
			}
			end()
			c.leaves(t, before, ofTheManagers()...)
			c.clear(t, home, shop)
		})
	}
	t.Run("removed: the namespace, with the record of the release, then what it left", func(t *testing.T) {
		c.helm(t, "install", release, chart)
		c.team(t)
		end := c.operate(t)
		c.clear(t, home)
		manifest := helm(t, "template", release, chart, "--namespace", home)
		if out, complaints, exit := c.Kubectl(t, c.Admin, manifest, "delete", "--ignore-not-found", "-f", "-"); exit != 0 {
			t.Errorf("%s%s", out, complaints)
		}
		end()
		c.clear(t, home, shop) // what the manager made anew meanwhile, with rights that it had for a moment longer
		c.leaves(t, before)
	})
	t.Run("an uninstallation leaves the objects of teams, and the next installation has them", func(t *testing.T) {
		c.helm(t, "install", release, chart)
		identities := c.team(t)
		c.uninstall(t)
		c.helm(t, "install", release, chart)
		if diff := cmp.Diff(identities, c.identities(t)); diff != "" || len(identities) != 3 {
			t.Errorf("%d objects (-before +after):\n%s", len(identities), diff)
		}
	})
	t.Run("without crds.keep it takes everything along", func(t *testing.T) {
		c.helm(t, "upgrade", release, chart, "--set", "crds.keep=false")
		c.uninstall(t)
		c.leaves(t, before)
	})
	t.Run("what kustomize installed is taken over", func(t *testing.T) {
		if out, complaints, exit := c.Kubectl(t, c.Admin, "", "apply", "--server-side", "-k", config+"/default"); exit != 0 {
			t.Fatalf("%s%s", out, complaints)
		}
		identities := c.team(t)
		c.helm(t, "install", release, chart, "--take-ownership", "--force-conflicts")
		if diff := cmp.Diff(identities, c.identities(t)); diff != "" || len(identities) != 3 {
			t.Errorf("%d objects (-before +after):\n%s", len(identities), diff)
		}
		c.uninstall(t)
		c.deleteCRDs(t)
		c.leaves(t, before)
	})
}

// restricted has the API server look at the pods that the Deployment makes.
func (c *cluster) restricted(t *testing.T) {
	for _, values := range []string{"default", "every-setting-of-the-manager", "certificates-by-cert-manager"} {
		deployment := &appsv1.Deployment{}
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(rendered(t, home, matrix[values])["Deployment tidewaiter-manager"].Object, deployment))
		pod := &corev1.Pod{ObjectMeta: deployment.Spec.Template.ObjectMeta, Spec: deployment.Spec.Template.Spec}
		pod.Namespace, pod.Name = home, "manager"
		if err := c.admin.Create(t.Context(), pod.DeepCopy(), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", values, err)
		}
		pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(true)
		if err := c.admin.Create(t.Context(), pod, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("%s: a pod that gains privileges: %v", values, err)
		}
	}
}

func (c *cluster) upgrade(t *testing.T) {
	c.helm(t, "install", release, olderChart(t))
	identities := c.team(t)
	end := c.operate(t)
	webhooks := c.webhooks(t)
	leases := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "tidewaiter-leases"}}
	if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(leases), leases); err == nil {
		t.Error("the older chart has the policy that it should lack")
	}

	c.helm(t, "upgrade", release, chart, "--set", "manager.replicas=3")

	if diff := cmp.Diff(identities, c.identities(t)); diff != "" || len(identities) != 3 {
		t.Errorf("%d objects of the team (-before +after):\n%s", len(identities), diff)
	}
	if diff := cmp.Diff(webhooks, c.webhooks(t)); diff != "" {
		t.Errorf("bundles and paths (-before +after):\n%s", diff)
	}
	must(t, c.admin.Get(t.Context(), client.ObjectKeyFromObject(leases), leases))
	c.until(t, "the CRD has the short name", func(ctx context.Context) bool {
		crd := c.crd(crdNames[0])
		must(t, c.admin.Get(ctx, client.ObjectKeyFromObject(crd), crd))
		names, _, err := unstructured.NestedStringSlice(crd.Object, "status", "acceptedNames", "shortNames")
		return err == nil && len(names) == 1
	})
	deployment := &appsv1.Deployment{}
	must(t, c.admin.Get(t.Context(), client.ObjectKey{Namespace: home, Name: "tidewaiter-manager"}, deployment))
	if *deployment.Spec.Replicas != 3 {
		t.Errorf("%d replicas", *deployment.Spec.Replicas)
	}
	end()
	c.uninstall(t)
	c.deleteCRDs(t)
	c.clear(t, home, shop)
}

func (c *cluster) uninstall(t *testing.T) {
	t.Helper()
	c.helm(t, "uninstall", release)
}

func (c *cluster) crd(name string) *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	crd.SetName(name)
	return crd
}

// deleteCRDs deletes those that are there, and waits until they are gone. The API server can leave one behind for the five
// minutes to its next resync: where nothing has read the kind before, its finalizer fails on a storage that is not ready,
// tries again on an old version of the CRD, and takes the conflict for a change that it will hear of. A change wakes it.
func (c *cluster) deleteCRDs(t *testing.T) {
	t.Helper()
	for _, name := range crdNames {
		must(t, client.IgnoreNotFound(c.admin.Delete(t.Context(), c.crd(name))))
	}
	c.until(t, "the CRDs are gone", func(ctx context.Context) bool {
		gone := true
		for _, name := range crdNames {
			crd := c.crd(name)
			err := c.admin.Get(ctx, client.ObjectKeyFromObject(crd), crd)
			gone = gone && apierrors.IsNotFound(err)
			if err == nil && instancesRemain(crd) {
				wake := fmt.Appendf(nil, `{"metadata":{"annotations":{"woken-after":%q}}}`, crd.GetResourceVersion())
				must(t, client.IgnoreNotFound(c.admin.Patch(ctx, crd, client.RawPatch(types.MergePatchType, wake))))
			}
		}
		return gone
	})
}

// instancesRemain tells whether the API server says of a CRD that it could not delete the objects of its kind.
func instancesRemain(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Terminating" && condition["reason"] == "InstanceDeletionFailed"
	})
}

// clear does what deleting the namespaces would: this control plane has no controller for it.
func (c *cluster) clear(t *testing.T, namespaces ...string) {
	t.Helper()
	for _, object := range c.everything(t) {
		if slices.Contains(namespaces, object.GetNamespace()) {
			must(t, client.IgnoreNotFound(c.admin.Delete(t.Context(), object)))
		}
	}
}
