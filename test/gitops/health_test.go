// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

const argocd = "../../config/argocd"

// health runs the script that is shipped, as Argo CD runs it: it has the object as obj, and the libraries that Argo CD
// opens.
func health(t *testing.T, object map[string]any) (status, message string) {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(open), NRet: 0, Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	l.SetGlobal("obj", toLua(l, object))
	if err := l.DoFile(filepath.Join(argocd, "health.lua")); err != nil {
		t.Fatal(err)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returned %v, want a table", l.Get(-1))
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

func toLua(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, item := range v {
			table.RawSetString(key, toLua(l, item))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(toLua(l, item))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	default:
		return lua.LNil
	}
}

func TestTheHealthScriptPassesItsOwnTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(argocd, "health_test.yaml"))
	must(t, err)
	var suite struct {
		Tests []struct {
			HealthStatus struct{ Status, Message string }
			InputPath    string
		}
	}
	must(t, yaml.UnmarshalStrict(text, &suite))
	files, err := filepath.Glob(filepath.Join(argocd, "testdata", "*.yaml"))
	must(t, err)
	if len(suite.Tests) != len(files) {
		t.Errorf("%d tests for %d files", len(suite.Tests), len(files))
	}
	for _, tc := range suite.Tests {
		t.Run(tc.InputPath, func(t *testing.T) {
			t.Parallel()
			input, err := os.ReadFile(filepath.Join(argocd, tc.InputPath))
			must(t, err)
			var object map[string]any
			must(t, yaml.Unmarshal(input, &object))
			if got, message := health(t, object); got != tc.HealthStatus.Status || message != tc.HealthStatus.Message {
				t.Errorf("%s %q, want %s %q", got, message, tc.HealthStatus.Status, tc.HealthStatus.Message)
			}
		})
	}
}

// TestThePageHasTheScript keeps what people copy the same as what is tested.
func TestThePageHasTheScript(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join(argocd, "health.lua"))
	must(t, err)
	page, err := os.ReadFile("../../docs/gitops.md")
	must(t, err)
	var indented strings.Builder
	for line := range strings.Lines(string(script)) {
		fmt.Fprintf(&indented, "    %s", line)
	}
	if strings.Count(string(page), indented.String()) != 2 {
		t.Error("docs/gitops.md does not have config/argocd/health.lua as it is, for both kinds")
	}
}

// TestToolsReadTheStatusRightly is what Flux (by kstatus) and Argo CD (by the script) make of what the real controllers
// write.
func TestToolsReadTheStatusRightly(t *testing.T) {
	t.Parallel()
	operate(t)
	namespace := plane.Namespace(t)
	server := "apiVersion: tidewaiter.dev/v1alpha1\nkind: GovernedServer\nmetadata: {name: %s, namespace: " + namespace + "}\nspec:\n  endpoint: {url: '%s'}\n"
	policy := "apiVersion: tidewaiter.dev/v1alpha1\nkind: ToolPolicy\nmetadata: {name: %s, namespace: " + namespace + "}\nspec:\n  targets: [ledger]\n  "
	digest := "sha256:" + strings.Repeat("a", 64)
	for _, tc := range []struct {
		name, manifest string
		flux           status.Status
		argo           string
	}{
		{"ledger", fmt.Sprintf(server, "ledger", ledger(t)), status.CurrentStatus, "Healthy"},
		{"nobody", fmt.Sprintf(server, "nobody", "http://127.0.0.1:1/mcp"), status.InProgressStatus, "Degraded"},
		{"good", fmt.Sprintf(policy, "good") + "rules: [{name: big, tools: [post_entry], when: args.amount > 1000, decision: Deny}]", status.CurrentStatus, "Healthy"},
		// A server is not ready while a policy that targets it cannot be used: this one targets another.
		{"broken", strings.Replace(fmt.Sprintf(policy, "broken"), "ledger", "nobody", 1) + "rules: [{name: big, tools: [post_entry], when: arg.amount > 1000, decision: Deny}]", status.FailedStatus, "Degraded"},
		// In Git before anything is earned: not in force, and no failure.
		{"promotion", fmt.Sprintf(policy, "promotion") + "autonomy: [{tool: post_entry, mode: Unattended, digest: '" + digest + "'}]", status.CurrentStatus, "Healthy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			object, err := apply(t, "git", tc.manifest, false)
			must(t, err)
			var got *status.Result
			var argo, message string
			seen := until(t, tc.name+" is as it should be", object.GetKind(), namespace, tc.name, func(o *unstructured.Unstructured) bool {
				got, err = status.Compute(o)
				must(t, err)
				argo, message = health(t, o.Object)
				return got.Status == tc.flux && argo == tc.argo
			})
			t.Logf("kstatus %s (%s), Argo CD %s (%s)", got.Status, got.Message, argo, message)
			if stale := seen.DeepCopy(); tc.flux == status.CurrentStatus {
				stale.SetGeneration(seen.GetGeneration() + 1)
				got, err := status.Compute(stale)
				must(t, err)
				if argo, _ := health(t, stale.Object); got.Status != status.InProgressStatus || argo != "Progressing" {
					t.Errorf("a change that the manager has not seen: kstatus %s, Argo CD %s", got.Status, argo)
				}
			}
		})
	}
}
