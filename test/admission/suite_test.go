// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission tests, as real users on a real kube-apiserver, who may write what: every refusal stands beside
// its allowed twin. Nobody here is in system:masters but the one who sets the scene.
package admission_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/booth"
)

var (
	plane *fixture.ControlPlane
	votes *booth.Booth
	// ahead moves the webhook's clock; only tests that run alone move it.
	ahead atomic.Int64
)

func TestMain(m *testing.M) { os.Exit(booth.Main(m, &plane, &votes, movable{})) }

// movable is the real clock, moved ahead.
type movable struct{ clock.RealClock }

func (movable) Now() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }

// The policies of config/admission.
const (
	statusPolicy         = "tidewaiter-status"
	serversPolicy        = "tidewaiter-servers"
	policiesPolicy       = "tidewaiter-policies"
	promotionsPolicy     = "tidewaiter-promotions"
	requestsPolicy       = "tidewaiter-requests"
	requestsStatusPolicy = "tidewaiter-requests-status"
	gatewayRightsPolicy  = "tidewaiter-gateway-rights"
	leasesPolicy         = "tidewaiter-leases"
	definitionsPolicy    = "tidewaiter-definitions"
	networksPolicy       = "tidewaiter-networks"
	standalonePolicy     = "tidewaiter-standalone"
	podsPolicy           = "tidewaiter-pods"
)

// actor is somebody with rights in one namespace.
type actor struct {
	client.Client
	cfg *rest.Config
}

// world is a namespace with everybody in it.
type world struct {
	namespace string
	// owner governs billing and may promote its tools.
	owner actor
	// editor has all that the role edit gives, every verb on the three kinds and on their status, and no authority.
	editor actor
	// gateway serves billing, by a ServiceAccount.
	gateway actor
	manager actor
}

func newWorld(t *testing.T) world {
	t.Helper()
	namespace := plane.Namespace(t)
	w := world{
		namespace: namespace,
		owner:     person(t, namespace, "owner", fixture.Authority("billing", "govern", "promote")),
		editor:    person(t, namespace, "editor"),
		gateway: account(t, namespace, "gateway-billing", fixture.Authority("billing", "serve"),
			fixture.Rule("approvalrequests", "create"), fixture.Rule("approvalrequests/status", "patch")),
		manager: actor{Client: plane.Client(t, plane.Manager(t)), cfg: plane.Manager(t)},
	}
	plane.GrantClusterRole(t, namespace, w.editor.cfg, "system:aggregate-to-edit")
	return w
}

// kinds gives every verb on the three kinds and on their status: what an administrator of a namespace may have.
func kinds() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		fixture.Rule("governedservers", "*"), fixture.Rule("governedservers/status", "*"),
		fixture.Rule("toolpolicies", "*"), fixture.Rule("toolpolicies/status", "*"),
		fixture.Rule("approvalrequests", "*"), fixture.Rule("approvalrequests/status", "*"),
	}
}

// person is a user with every verb on the kinds, and more rules.
func person(t *testing.T, namespace, name string, more ...rbacv1.PolicyRule) actor {
	t.Helper()
	cfg := plane.User(t, name+"@"+namespace)
	plane.Grant(t, namespace, cfg, append(kinds(), more...)...)
	return actor{Client: plane.Client(t, cfg), cfg: cfg}
}

// account is a ServiceAccount with these rules and no other.
func account(t *testing.T, namespace, name string, rules ...rbacv1.PolicyRule) actor {
	t.Helper()
	cfg := plane.ServiceAccount(t, namespace, name)
	plane.Grant(t, namespace, cfg, rules...)
	return actor{Client: plane.Client(t, cfg), cfg: cfg}
}

func admin(t *testing.T) client.Client { return plane.Client(t, plane.Admin) }

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// taken fails the test if the write was refused.
func taken(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: refused, want taken: %v", what, err)
	}
}

// refused fails the test unless that policy refused the write.
func refused(t *testing.T, what, policy string, err error) {
	t.Helper()
	if !fixture.RefusedBy(err, policy) {
		t.Errorf("%s: %v, want it refused by %s", what, err, policy)
	}
}

// declined fails the test unless the webhook of votes refused the write, with all these words.
func declined(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `.votes.tidewaiter.dev" denied the request`) {
		t.Errorf("%s: %v, want it refused by the webhook", what, err)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: the refusal does not say %q: %v", what, word, err)
		}
	}
}

// invalid fails the test unless the schema or a rule of the CRD refused the write.
func invalid(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Errorf("%s: %v, want it invalid", what, err)
	}
}

// must ends the test if setting the scene failed.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// terminate deletes the namespace, which without a namespace controller stays as it is, terminating, and returns
// when the admission policies see it.
func terminate(t *testing.T, namespace string, seen func(context.Context) error) {
	t.Helper()
	must(t, admin(t).Delete(t.Context(), namespaceObject(namespace)))
	until(t, "the namespace is terminating for the policies", func(ctx context.Context) bool { return seen(ctx) == nil })
}
