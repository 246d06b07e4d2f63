// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

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
			if filepath.Base(file) == "kustomization.yaml" {
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

// The policies compare with the manager's user name, which has its namespace in it.
func TestAnotherNamespaceReachesThePolicies(t *testing.T) {
	t.Parallel()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(config)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(copied, "manager", "kustomization.yaml")
	manifest, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	moved := bytes.Replace(manifest, []byte("\nnamespace: "+fixture.SystemNamespace+"\n"), []byte("\nnamespace: elsewhere\n"), 1)
	if err := os.WriteFile(file, moved, 0o600); err != nil {
		t.Fatal(err)
	}
	out := kubectl(t, "", "kustomize", filepath.Join(copied, "default"))
	if strings.Contains(out, fixture.SystemNamespace) {
		t.Errorf("%s is left in the build for another namespace", fixture.SystemNamespace)
	}
	if want := "system:serviceaccount:elsewhere:tidewaiter-manager"; strings.Count(out, want) != 4 {
		t.Errorf("%s stands %d times in the build, want once in each of four policies", want, strings.Count(out, want))
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

func TestTheChartHasTheCRDs(t *testing.T) {
	t.Parallel()
	want, err := filepath.Glob(config + "/crd/bases/*.yaml")
	if err != nil || len(want) != 3 {
		t.Fatalf("config/crd/bases holds %v, %v", want, err)
	}
	for _, file := range want {
		base, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		copied, err := os.ReadFile(filepath.Join("../../charts/tidewaiter/crds", filepath.Base(file)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(base, copied) {
			t.Errorf("charts/tidewaiter/crds/%s differs from config/crd/bases", filepath.Base(file))
		}
	}
}

// What the controllers say in their markers that they need, the manager's role gives.
func TestTheManagersRoleCoversTheMarkers(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile(config + "/rbac/manager_role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(manifest, &role); err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					given[group+" "+resource+" "+verb] = true
				}
			}
		}
	}
	files, err := filepath.Glob("../../controllers/*.go")
	if err != nil {
		t.Fatal(err)
	}
	marker := regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:groups="?([^",]*)"?,resources=([^,]+),verbs=(\S+)$`)
	found := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range marker.FindAllStringSubmatch(string(source), -1) {
			found++
			for resource := range strings.SplitSeq(match[2], ";") {
				for verb := range strings.SplitSeq(match[3], ";") {
					if right := match[1] + " " + resource + " " + verb; !given[right] {
						t.Errorf("%s needs %q, which config/rbac/manager_role.yaml does not give", filepath.Base(file), right)
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("no +kubebuilder:rbac marker found in controllers/")
	}
}
