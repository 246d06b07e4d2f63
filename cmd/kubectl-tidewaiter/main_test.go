// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/controllers"
	"github.com/tidewaiter/tidewaiter/internal/cli"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/booth"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// asPlugin makes the test binary the plugin itself, so that kubectl can run it.
const asPlugin = "TIDEWAITER_TEST_AS_PLUGIN"

var (
	plane *fixture.ControlPlane
	hall  *booth.Booth
)

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		os.Exit(run())
	}
	os.Exit(booth.Main(m, &plane, &hall, clock.RealClock{}))
}

// scene is a namespace with a server, its gateway, people, and no manager until one is started.
type scene struct {
	namespace      string
	admin, gateway client.Client
	manager        client.Client
	server         *v1alpha1.GovernedServer
	// ana may decide and resolve, ben may decide; eli may write everything that the role edit lets them, and no more.
	ana, ben, eli             *rest.Config
	anaFile, benFile, eliFile string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{namespace: plane.Namespace(t), admin: plane.Client(t, plane.Admin), manager: plane.Client(t, plane.Manager(t))}
	gateway := plane.ServiceAccount(t, s.namespace, "gateway")
	plane.Grant(t, s.namespace, gateway, fixture.Authority("cranes", v1alpha1.VerbServe),
		fixture.Rule("approvalrequests", "create", "get"), fixture.Rule("approvalrequests/status", "update"))
	s.gateway = plane.Client(t, gateway)
	s.ana, s.ben, s.eli = plane.User(t, "ana-"+s.namespace), plane.User(t, "ben-"+s.namespace), plane.User(t, "eli-"+s.namespace)
	see := []string{"get", "list", "watch"}
	for cfg, verbs := range map[*rest.Config][]string{s.ana: {v1alpha1.VerbApprove, v1alpha1.VerbResolve}, s.ben: {v1alpha1.VerbApprove}} {
		plane.Grant(t, s.namespace, cfg, fixture.Authority("cranes", verbs...), fixture.Rule("approvalrequests", see...),
			fixture.Rule("approvalrequests/status", "patch"), fixture.Rule("governedservers", see...), fixture.Rule("toolpolicies", see...))
		plane.Grant(t, fixture.SystemNamespace, cfg, fixture.Rule("toolpolicies", "list"))
	}
	plane.Grant(t, s.namespace, s.eli, fixture.Rule("approvalrequests", see...), fixture.Rule("approvalrequests/status", "patch", "update"))
	s.anaFile, s.benFile, s.eliFile = plane.Kubeconfig(t, s.ana), plane.Kubeconfig(t, s.ben), plane.Kubeconfig(t, s.eli)
	s.server = &v1alpha1.GovernedServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "cranes"},
		Spec:       v1alpha1.GovernedServerSpec{Endpoint: v1alpha1.Endpoint{URL: "https://cranes.example/mcp"}},
	}
	if err := s.admin.Create(t.Context(), s.server); err != nil {
		t.Fatal(err)
	}
	return s
}

// startManager runs the ApprovalRequest controller with the manager's own identity until the test ends.
func (s *scene) startManager(t *testing.T, c clock.PassiveClock) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	skip := true
	mgr, err := ctrl.NewManager(plane.Manager(t), ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{s.namespace: {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	reconciler := &controllers.ApprovalRequestReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("approvalrequest"), Clock: c,
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
}

func (s *scene) ask(t *testing.T, name string, edits ...func(*v1alpha1.ApprovalRequest)) *v1alpha1.ApprovalRequest {
	t.Helper()
	digest := "sha256:" + strings.Repeat("0", 64)
	endpoint, err := tool.EndpointDigest(s.server.Spec.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	request := fixture.With(v1alpha1.ApprovalRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1alpha1.ApprovalRequestSpec{
			ServerRef: v1alpha1.ServerReference{Name: "cranes", UID: string(s.server.UID)}, EndpointDigest: endpoint,
			Tool: "lift_box", ToolDigest: digest, Arguments: `{"box":"7"}`, ArgumentsSize: 11, ActionHash: digest,
			BlastRadius: v1alpha1.BlastRadius{Scope: v1alpha1.BlastSingle, Summary: `scoped to box="7"`},
			Requester:   v1alpha1.Requester{Username: "crew"}, Tier: v1alpha1.TierReversible, GatedBy: "tier",
			RequiredApprovals: 1, ApproveVerbs: []string{v1alpha1.VerbApprove}, TTLSeconds: 3600, Attempt: 1,
		},
	}, edits...)
	if err := s.gateway.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	return request
}

func (s *scene) read(t *testing.T, name string) *v1alpha1.ApprovalRequest {
	t.Helper()
	var request v1alpha1.ApprovalRequest
	if err := s.admin.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, &request); err != nil {
		t.Fatal(err)
	}
	return &request
}

func (s *scene) expect(t *testing.T, name string, want v1alpha1.Phase) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return s.read(t, name).CurrentPhase() == want, nil
	})
	if err != nil {
		t.Fatalf("%s is %s, want %s: %v", name, s.read(t, name).CurrentPhase(), want, err)
	}
}

// claim does what a gateway does before it sends the call.
func (s *scene) claim(t *testing.T, name string, timeout time.Duration) {
	t.Helper()
	var request v1alpha1.ApprovalRequest
	if err := s.gateway.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, &request); err != nil {
		t.Fatal(err)
	}
	now, deadline := metav1.NowMicro(), metav1.NewMicroTime(time.Now().Add(timeout))
	request.Status.Phase = v1alpha1.PhaseExecuting
	request.Status.Execution = &v1alpha1.Execution{Gateway: "gateway-0", Claim: "c-" + name, StartedAt: &now, Deadline: &deadline}
	if err := s.gateway.Status().Update(t.Context(), &request); err != nil {
		t.Fatal(err)
	}
}

// output of one run, with what depends on the clock made stable.
type output struct {
	stdout, stderr string
	exit           int
}

var (
	instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	age     = regexp.MustCompile(`\d+s ago, expires in \d+m,`)
	ago     = regexp.MustCompile(`\d+s ago`)
)

func (s *scene) stable(text string) string {
	text = age.ReplaceAllString(instant.ReplaceAllString(text, "THEN"), "Ns ago, expires in Nm,")
	text = ago.ReplaceAllString(text, "Ns ago")
	return strings.ReplaceAll(text, s.namespace, "NAMESPACE")
}

// run runs a verb in this process as whoever the kubeconfig is of; onShown is called when the request was shown and
// nothing written yet.
func (s *scene) run(t *testing.T, kubeconfig string, onShown func(), args ...string) output {
	t.Helper()
	out, errOut := &hookedWriter{hook: onShown}, &bytes.Buffer{}
	args = append(args, "--kubeconfig", kubeconfig, "-n", s.namespace)
	exit := cli.Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut})
	return output{stdout: s.stable(out.String()), stderr: s.stable(errOut.String()), exit: exit}
}

// hookedWriter calls hook at its first write.
type hookedWriter struct {
	bytes.Buffer
	hook func()
}

func (w *hookedWriter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.hook != nil {
		w.hook()
		w.hook = nil
	}
	return n, err
}

// pluginPath returns a PATH on which kubectl finds the plugin under all its names.
func pluginPath(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubectl-tidewaiter", "kubectl-approve", "kubectl-deny", "kubectl_complete-tidewaiter", "kubectl_complete-approve"} {
		if err := os.Symlink(binary, filepath.Join(directory, name)); err != nil {
			t.Fatal(err)
		}
	}
	return directory + string(os.PathListSeparator) + os.Getenv("PATH")
}

// kubectl runs the real kubectl, which runs the plugin.
func (s *scene) kubectl(t *testing.T, kubeconfig string, args ...string) output {
	t.Helper()
	cmd := plane.KubectlCommand(t.Context(), kubeconfig, append(args, "-n", s.namespace)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.Env = append(cmd.Env, asPlugin+"=1", "PATH="+pluginPath(t))
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return output{stdout: s.stable(out.String()), stderr: s.stable(errOut.String()), exit: cmd.ProcessState.ExitCode()}
}
