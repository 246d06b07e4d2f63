// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

const config = "../../config"

func build(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := fixture.Parse(kubectl(t, "", "kustomize", folder))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// What tests and demo install file by file is what kustomize installs.
func TestTheInstallationHoldsEveryManifest(t *testing.T) {
	t.Parallel()
	built := map[string]*unstructured.Unstructured{}
	for _, object := range build(t, config+"/default") {
		built[object.GetKind()+"/"+object.GetName()] = object
	}
	count := 0
	for _, folder := range []string{"crd/bases", "rbac", "admission", "webhook", "manager"} {
		files, err := filepath.Glob(filepath.Join(config, folder, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if name := filepath.Base(file); name == "kustomization.yaml" || name == "images.yaml" { // kustomize's own
				continue
			}
			manifest, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects, err := fixture.Parse(string(manifest))
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range objects {
				count++
				key := object.GetKind() + "/" + object.GetName()
				switch {
				case built[key] == nil:
					t.Errorf("config/default lacks %s of %s", key, file)
				case folder != "manager":
					if diff := cmp.Diff(object, built[key]); diff != "" {
						t.Errorf("config/default changes %s (-file +built):\n%s", key, diff)
					}
				}
			}
		}
	}
	if count != len(built) {
		t.Errorf("config/default builds %d objects, the files hold %d", len(built), count)
	}
}

// into returns a copy of config/ that installs into a namespace.
func into(t *testing.T, namespace string) string {
	t.Helper()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(config)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(copied, "manager", "kustomization.yaml")
	manifest, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	moved := bytes.Replace(manifest, []byte("\nnamespace: "+fixture.SystemNamespace+"\n"), []byte("\nnamespace: "+namespace+"\n"), 1)
	if err := os.WriteFile(file, moved, 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}

// The policies compare with the manager's user name, which has its namespace in it.
func TestAnotherNamespaceReachesThePolicies(t *testing.T) {
	t.Parallel()
	out := kubectl(t, "", "kustomize", filepath.Join(into(t, "elsewhere"), "default"))
	if strings.Contains(out, fixture.SystemNamespace) {
		t.Errorf("%s is left in the build for another namespace", fixture.SystemNamespace)
	}
	const name = "system:serviceaccount:%s:tidewaiter-manager"
	here := strings.Count(kubectl(t, "", "kustomize", filepath.Join(config, "default")), fmt.Sprintf(name, fixture.SystemNamespace))
	if there := strings.Count(out, fmt.Sprintf(name, "elsewhere")); there != here || here == 0 {
		t.Errorf("the manager is named %d times in the build for another namespace, %d times in this one", there, here)
	}
}

// With cert-manager the certificates are made where the manager is, and for its Service there.
func TestAnotherNamespaceReachesTheCertificates(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{fixture.SystemNamespace, "elsewhere"} {
		overlay := filepath.Join(into(t, namespace), "overlay")
		if err := os.Mkdir(overlay, 0o700); err != nil {
			t.Fatal(err)
		}
		kustomization := "resources: [../default]\ncomponents: [../certmanager]\n"
		if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, object := range build(t, overlay) {
			if group := object.GroupVersionKind().Group; group == "cert-manager.io" {
				seen[object.GetKind()+" in "+object.GetNamespace()]++
			}
			if names, found, _ := unstructured.NestedStringSlice(object.Object, "spec", "dnsNames"); found {
				seen[strings.Join(names, " ")]++
			}
			if from := object.GetAnnotations()["cert-manager.io/inject-ca-from"]; from != "" {
				seen[from]++
			}
		}
		want := map[string]int{
			"Issuer in " + namespace: 2, "Certificate in " + namespace: 2,
			"tidewaiter-webhook." + namespace + ".svc": 1, namespace + "/tidewaiter-webhook": 2,
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("the build for %s (-want +got):\n%s", namespace, diff)
		}
	}
}

func TestTheInstallationIsTakenWithoutAWarning(t *testing.T) {
	t.Parallel()
	for folder, namespace := range map[string]string{"default": fixture.SystemNamespace, "samples": plane.Namespace(t)} {
		_, stderr, exit := plane.Kubectl(t, plane.Admin, "", "apply", "--server-side", "--force-conflicts",
			"-k", config+"/"+folder, "-n", namespace)
		if exit != 0 || stderr != "" {
			t.Errorf("kubectl apply -k config/%s: exit %d\n%s", folder, exit, stderr)
		}
	}
}

// The operator's rights are few and named; nothing of ours slips into the roles edit and admin.
func TestRolesAreNarrow(t *testing.T) {
	t.Parallel()
	banned := []string{"*", "escalate", "bind", "impersonate"}
	roles := 0
	for _, object := range append(build(t, config+"/default"), build(t, config+"/samples")...) {
		for label := range object.GetLabels() {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
				t.Errorf("%s %s is aggregated by %s", object.GetKind(), object.GetName(), label)
			}
		}
		if kind := object.GetKind(); kind != "Role" && kind != "ClusterRole" {
			continue
		}
		roles++
		rules, _, err := unstructured.NestedSlice(object.Object, "rules")
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range rules {
			for _, field := range []string{"verbs", "resources", "apiGroups"} {
				values, _, err := unstructured.NestedStringSlice(rule.(map[string]any), field)
				if err != nil {
					t.Fatal(err)
				}
				for _, value := range values {
					if slices.Contains(banned, value) {
						t.Errorf("%s %s has %s in %s", object.GetKind(), object.GetName(), value, field)
					}
				}
			}
			if object.GetKind() == "ClusterRole" && givesAuthority(t, rule) && !isTheManagersServe(object, rule) {
				t.Errorf("the ClusterRole %s gives authority in every namespace: %v", object.GetName(), rule)
			}
		}
	}
	if roles < 8 {
		t.Errorf("looked at %d roles, want at least the manager's two, those to bind and the samples'", roles)
	}
}

func givesAuthority(t *testing.T, rule any) bool {
	t.Helper()
	resources, _, err := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(resources, "governedservers/authority")
}

// isTheManagersServe tells the one rule of authority that a ClusterRole may hold: serve, which the manager gives on.
func isTheManagersServe(role *unstructured.Unstructured, rule any) bool {
	verbs, _, err := unstructured.NestedStringSlice(rule.(map[string]any), "verbs")
	return err == nil && role.GetName() == "tidewaiter-manager" && slices.Equal(verbs, []string{"serve"})
}

// What the code says in its markers that the manager needs is what the manager's roles give, and nothing else.
func TestTheManagersRolesAreItsMarkers(t *testing.T) {
	t.Parallel()
	given := map[string]bool{}
	for _, file := range []string{"manager_role.yaml", "webhook_role.yaml"} {
		manifest, err := os.ReadFile(filepath.Join(config, "rbac", file))
		if err != nil {
			t.Fatal(err)
		}
		objects, err := fixture.Parse(string(manifest))
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			if kind := object.GetKind(); kind != "Role" && kind != "ClusterRole" {
				continue
			}
			var role rbacv1.Role
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				addRights(given, role.Namespace, rule)
			}
		}
	}
	needed := map[string]bool{}
	for _, file := range sources(t, "../../controllers", "../../internal") {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, marker := range regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:(\S+)$`).FindAllStringSubmatch(string(source), -1) {
			namespace, rule := parseMarker(t, marker[1])
			addRights(needed, namespace, rule)
		}
	}
	if diff := cmp.Diff(needed, given); diff != "" {
		t.Errorf("the markers and config/rbac (-needed +given):\n%s", diff)
	}
}

// addRights adds each right of a rule as one line.
func addRights(rights map[string]bool, namespace string, rule rbacv1.PolicyRule) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{"*"}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				for _, verb := range rule.Verbs {
					rights[strings.Join([]string{verb, resource + "." + group, name, in(namespace)}, " ")] = true
				}
			}
		}
	}
}

func in(namespace string) string {
	if namespace == "" {
		return "in every namespace"
	}
	return "in " + namespace
}

// parseMarker reads what stands behind +kubebuilder:rbac: in a comment.
func parseMarker(t *testing.T, marker string) (namespace string, rule rbacv1.PolicyRule) {
	t.Helper()
	for field := range strings.SplitSeq(marker, ",") {
		name, value, _ := strings.Cut(field, "=")
		values := strings.Split(strings.Trim(value, `"`), ";")
		switch name {
		case "groups":
			rule.APIGroups = values
		case "resources":
			rule.Resources = values
		case "resourceNames":
			rule.ResourceNames = values
		case "verbs":
			rule.Verbs = values
		case "namespace":
			namespace = value
		default:
			t.Fatalf("marker %s: unknown field %s", marker, name)
		}
	}
	return namespace, rule
}

// sources returns the Go files of folders and of what is in them.
func sources(t *testing.T, folders ...string) []string {
	t.Helper()
	var files []string
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}
