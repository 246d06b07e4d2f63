// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// allowed lets the programs dial servers on this machine.
const allowed = "127.0.0.0/8"

// world is a control plane and the manager, each a program of its own, and what the tests run beside them.
type world struct {
	// packages has the npm packages, scripts the programs of this folder that need them, bin the project's programs.
	packages, scripts, bin string
	// node runs what is of npm.
	node, namespace string
	plane           *fixture.ControlPlane
	// approver is a person with a certificate.
	approver *rest.Config
}

// newWorld starts the control plane and the manager.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	w.packages, w.node = needPackages(t)
	w.scripts = w.scriptFolder(t)
	// Discarded: what goes wrong is returned, and the programs have logs of their own.
	ctrl.SetLogger(logr.Discard())
	plane, err := fixture.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	w.plane, w.namespace, w.bin = plane, plane.Namespace(t), build(t)
	webhook := freeAddresses(t, 2)
	if err := plane.InstallWebhooks(t.Context(), "https://"+webhook[0], nil); err != nil {
		t.Fatal(err)
	}
	start(t, syscall.SIGTERM, nil, filepath.Join(w.bin, "manager"), "--allow-address", allowed, "--kubeconfig", plane.Kubeconfig(t, plane.Manager(t)),
		"--metrics-bind-address", "0", "--webhook-bind-address", webhook[0], "--health-probe-bind-address", webhook[1]).
		awaitHTTP(t, "http://"+webhook[1]+"/readyz", http.StatusOK)
	w.approver = plane.User(t, "approver")
	plane.Grant(t, w.namespace, w.approver,
		fixture.Rule("governedservers", "get", "list", "watch", "create", "update", "patch"),
		fixture.Rule("toolpolicies", "get", "list", "watch", "create", "update", "patch"),
		fixture.Rule("approvalrequests", "get", "list", "watch"), fixture.Rule("approvalrequests/status", "patch", "update"))
	return w
}

const manifest = `apiVersion: tidewaiter.dev/v1alpha1
kind: GovernedServer
metadata: {name: NAME}
spec:
  endpoint: {url: URL, transport: TRANSPORT}
  approvals: {hold: 0s}
  gateway: {serviceAccountName: gateway-NAME}
`

// register registers a server as the approver, who may decide on its calls from then on.
func (w *world) register(t *testing.T, name, url string, transport v1alpha1.Transport) {
	t.Helper()
	w.plane.Grant(t, w.namespace, w.approver, fixture.Authority(name, v1alpha1.VerbGovern, v1alpha1.VerbApprove, v1alpha1.VerbApproveIrreversible))
	w.apply(t, strings.NewReplacer("NAME", name, "URL", url, "TRANSPORT", string(transport)).Replace(manifest))
}

// apply applies a manifest as the approver.
func (w *world) apply(t *testing.T, manifest string) {
	t.Helper()
	if out, exit := w.kubectl(t, manifest, "apply", "-f", "-"); exit != 0 {
		t.Fatalf("kubectl apply: exit %d\n%s", exit, out)
	}
}

// ready waits until the manager has listed the tools of a server.
func (w *world) ready(t *testing.T, name string) v1alpha1.GovernedServer {
	t.Helper()
	var server v1alpha1.GovernedServer
	eventually(t, name+" is ready", func() error {
		out, exit := w.kubectl(t, "", "get", "gsrv", name, "-o", "json")
		if exit != 0 {
			return fmt.Errorf("kubectl get: %s", out)
		}
		if err := json.Unmarshal([]byte(out), &server); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(server.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("conditions: %+v", server.Status.Conditions)
		}
		return nil
	})
	return server
}

// front starts the gateway of a server, and returns where agents reach it and the file of its receipts. A token for it
// is needed but with --requester among the flags.
func (w *world) front(t *testing.T, name string, flags ...string) (url, receipts string) {
	t.Helper()
	addresses := freeAddresses(t, 2)
	receipts = filepath.Join(t.TempDir(), "receipts.jsonl")
	account := w.plane.ServiceAccount(t, w.namespace, "gateway-"+name) // the manager gives it its rights
	start(t, syscall.SIGTERM, nil, filepath.Join(w.bin, "gateway"), append(flags, "--allow-address", allowed, "--kubeconfig", w.plane.Kubeconfig(t, account),
		"--server", w.namespace+"/"+name, "--name", "gateway-test", "--receipts", receipts, "--voting-root-key", w.votingRoot(t),
		"--listen", addresses[0], "--ops-listen", addresses[1])...).
		awaitHTTP(t, "http://"+addresses[1]+"/readyz", http.StatusOK)
	return "http://" + addresses[0] + "/mcp", receipts
}

// votingRoot reads the public half of the root key, as whoever starts a gateway does.
func (w *world) votingRoot(t *testing.T) string {
	t.Helper()
	published := &corev1.ConfigMap{}
	eventually(t, "the voting keys are published", func() error {
		return w.plane.Client(t, w.plane.Admin).Get(t.Context(), client.ObjectKey{Namespace: fixture.SystemNamespace, Name: v1alpha1.VotingKeys}, published)
	})
	return published.Data[vote.RootEntry]
}

// kubectl runs kubectl with the project's plugins, as the approver, and returns all that it prints.
func (w *world) kubectl(t *testing.T, stdin string, args ...string) (out string, exit int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := w.plane.KubectlCommand(ctx, w.plane.Kubeconfig(t, w.approver), append(args, "-n", w.namespace)...)
	cmd.Env = append(cmd.Env, "PATH="+strings.Join([]string{w.bin, os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("PATH")}, string(os.PathListSeparator)))
	cmd.Stdin = strings.NewReader(stdin)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("run kubectl: %v", err)
	}
	return text.String(), cmd.ProcessState.ExitCode()
}

// program is the file of a program of an npm package.
func (w *world) program(name string) string {
	return filepath.Join(w.packages, "node_modules", ".bin", name)
}
