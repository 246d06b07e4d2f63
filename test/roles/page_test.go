// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

const (
	page    = "../../docs/roles.md"
	readme  = "../../README.md"
	approve = "Who may approve"
)

// holder is who gets rights on the pages: what they may do in the namespace of the server billing, and what not.
type holder struct {
	may, mayNot []right
	// baselines: they may read the policies of the operator's namespace.
	baselines bool
}

var (
	reads = []string{"get list watch governedservers", "get list watch toolpolicies", "get list watch approvalrequests"}
	// nobody gets any of this from a page.
	nobody = []string{
		"approve approve-irreversible approve-x resolve govern promote serve governedservers/authority payroll",
		"approve govern promote serve tidewaiter-wildcard governedservers/authority",
		"update patch governedservers/status", "update patch toolpolicies/status", "update patch delete deletecollection approvalrequests",
		"list watch create update secrets", "get secrets payroll-mcp", "create pods", "create update roles", "create rolebindings", "impersonate serviceaccounts",
	}
	writes   = []string{"create update patch delete governedservers", "create update patch delete toolpolicies"}
	decides  = []string{"patch approvalrequests/status"}
	asks     = []string{"create approvalrequests"}
	readsAll = rights(reads...)
	// readsBaselines is in the operator's namespace.
	readsBaselines = rights("get list watch toolpolicies")
	tellsWhatRuns  = []string{"create patch delete leases"}
	noGateway      = rights("serve governedservers/authority billing", "create approvalrequests", "get secrets billing-mcp")
)

func holders() map[string]holder {
	list := func(groups ...[]string) []right { return rights(slices.Concat(groups...)...) }
	verbs := func(words string) []string { return []string{words + " governedservers/authority billing"} }
	return map[string]holder{
		"Group auditors": {
			may:    readsAll,
			mayNot: append(list(nobody, writes, decides, verbs("approve approve-irreversible resolve govern promote")), noGateway...),
		},
		"Group finance-leads": {
			may:    list(reads, decides, verbs("approve approve-irreversible resolve")),
			mayNot: append(list(nobody, writes, []string{"update approvalrequests/status"}, verbs("govern promote")), noGateway...),
		},
		"Group finance-clerks": {
			may:    list(reads, decides, verbs("approve")),
			mayNot: append(list(nobody, writes, verbs("approve-irreversible resolve govern promote")), noGateway...),
		},
		"Group billing-team": {
			may:    list(reads, writes, verbs("govern promote")),
			mayNot: append(list(nobody, decides, verbs("approve approve-irreversible resolve")), noGateway...),
		},
		"ServiceAccount gitops": {
			may:    list(reads, writes, verbs("govern")),
			mayNot: append(list(nobody, decides, verbs("approve approve-irreversible resolve promote")), noGateway...),
		},
		"ServiceAccount gateway-billing": {
			baselines: true,
			may: list(asks, decides, tellsWhatRuns, verbs("serve"), []string{
				"get list watch governedservers billing", "get list watch toolpolicies", "get list watch approvalrequests",
				"update approvalrequests/status", "get secrets billing-mcp", "get services billing-mcp",
			}),
			mayNot: list(nobody, writes, verbs("approve approve-irreversible resolve govern promote"), []string{
				"list watch governedservers", "get list watch governedservers payroll", "get services payroll-mcp", "list watch secrets billing-mcp",
			}),
		},
		"ServiceAccount gateway-by-hand": {
			baselines: true,
			may: list(reads, asks, decides, tellsWhatRuns, verbs("serve"), []string{
				"update approvalrequests/status", "get secrets billing-mcp", "get services billing-mcp",
			}),
			mayNot: list(nobody, writes, verbs("approve approve-irreversible resolve govern promote"), []string{"list watch secrets billing-mcp"}),
		},
	}
}

// sections returns the objects in the YAML of a page, by the heading that they stand under.
func sections(t *testing.T, file string) map[string][]*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	found := map[string][]*unstructured.Unstructured{}
	for _, section := range regexp.MustCompile(`(?m)^## `).Split(string(text), -1)[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(body, -1) {
			objects, err := fixture.Parse(block[1])
			must(t, err)
			found[heading] = append(found[heading], objects...)
		}
	}
	return found
}

// Every Role that the page shows is tested as it is written, for everybody that it is given to.
func TestTheRolesOfThePage(t *testing.T) {
	t.Parallel()
	shown := sections(t, page)
	if len(shown) != 5 {
		t.Errorf("%d headings of %s have YAML, want 5", len(shown), page)
	}
	given := map[string]bool{}
	for heading, objects := range shown {
		for _, holder := range subjectsOf(t, objects) {
			given[holder] = true
		}
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			testSection(t, objects)
		})
	}
	for name := range holders() {
		if !given[name] {
			t.Errorf("nothing is given to %s any more", name)
		}
	}
}

// What the README says of who may approve is tested like the page.
func TestTheRolesOfTheREADME(t *testing.T) {
	t.Parallel()
	objects := sections(t, readme)[approve]
	if len(objects) == 0 {
		t.Fatalf("%s has no YAML under the heading %s", readme, approve)
	}
	testSection(t, objects)
}

// testSection applies the objects to a namespace of their own and asks for the rights of everybody that is named.
func testSection(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	namespace := plane.Namespace(t)
	admin := plane.Client(t, plane.Admin)
	letGatewaysRead(t)
	bound := map[string]bool{}
	for _, object := range objects {
		applied := object.DeepCopy()
		if applied.GetNamespace() == "" {
			applied.SetNamespace(namespace)
		} else {
			movedTo(t, applied, namespace)
		}
		must(t, admin.Create(t.Context(), applied))
		if object.GetKind() == "RoleBinding" {
			bound[bindingOf(t, object).RoleRef.Name] = true
		}
	}
	for _, object := range objects {
		if object.GetKind() == "Role" && !bound[object.GetName()] {
			t.Errorf("the Role %s is given to nobody, so it is not tested", object.GetName())
		}
	}
	for _, name := range subjectsOf(t, objects) {
		expected, known := holders()[name]
		if !known {
			t.Errorf("it is not written down what %s may do", name)
			continue
		}
		as := clientFor(t, namespace, name)
		expect(t, name, as, namespace, expected.may, expected.mayNot)
		if expected.baselines {
			expect(t, name+" of baselines", as, fixture.SystemNamespace, readsBaselines, nil)
		} else {
			expect(t, name+" of baselines", as, fixture.SystemNamespace, nil, readsBaselines)
		}
	}
}

// movedTo puts a namespace in place of shop, whose gateways the page binds in the operator's namespace.
func movedTo(t *testing.T, object *unstructured.Unstructured, namespace string) {
	t.Helper()
	subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
	must(t, err)
	for _, subject := range subjects {
		if of := subject.(map[string]any); of["namespace"] == "shop" {
			of["namespace"] = namespace
		}
	}
	must(t, unstructured.SetNestedSlice(object.Object, subjects, "subjects"))
}

// subjectsOf returns who is given something, as "Group NAME" or "ServiceAccount NAME".
func subjectsOf(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	var names []string
	for _, object := range objects {
		if object.GetKind() == "RoleBinding" {
			for _, subject := range bindingOf(t, object).Subjects {
				names = append(names, subject.Kind+" "+subject.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func bindingOf(t *testing.T, object *unstructured.Unstructured) *rbacv1.RoleBinding {
	t.Helper()
	var binding rbacv1.RoleBinding
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &binding, true))
	return &binding
}

func clientFor(t *testing.T, namespace, subject string) client.Client {
	t.Helper()
	kind, name, _ := strings.Cut(subject, " ")
	if kind == rbacv1.ServiceAccountKind {
		return plane.Client(t, plane.ServiceAccount(t, namespace, name))
	}
	return plane.Client(t, plane.User(t, "somebody@"+namespace, name))
}
