// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/hack/demo/billing"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// namespace is where the demo's servers are governed.
const namespace = "shop"

// stage is all that the story needs.
type stage struct {
	dir        string
	plane      *fixture.ControlPlane
	billing    *billing.Server
	billingURL string
	gatewayURL string
	caller     string // a script that calls a tool as the agent
	receipts   string
	kubectl    string
	files      map[string]string // kubeconfigs, by identity
	clearing   []func() error
}

// rights are what the identities of the story may do, beside the manager's own role and what the manager gives the
// gateway. None is in system:masters.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: billing-approver}
rules:
- {apiGroups: [tidewaiter.dev], resources: [governedservers/authority], resourceNames: [billing], verbs: [approve, approve-irreversible, govern, promote]}
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [get, list]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [tidewaiter-definitions-billing], verbs: [get]}   # what tools said before
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: billing-approver}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: billing-approver}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: approver}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: colleague}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: approvers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tidewaiter-approver}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: approver}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: colleague}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: policy-authors}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tidewaiter-policy-author}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: approver}]
---
# A mistake that a team can make: the agent's own account may approve.
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: agent-may-approve}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: billing-approver}
subjects: [{kind: ServiceAccount, name: invoice-agent, namespace: shop}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: agent-approver}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tidewaiter-approver}
subjects: [{kind: ServiceAccount, name: invoice-agent, namespace: shop}]
---
# Without kube-controller-manager nothing fills the ClusterRole edit; this is the part that would.
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:aggregate-to-edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: editor}]
`

// rightsOverAll are those in the operator's namespace: a platform engineer governs every server, by baselines there, and
// the team may read these.
const rightsOverAll = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: platform}
rules:
- {apiGroups: [tidewaiter.dev], resources: [governedservers/authority], verbs: [govern]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: platform}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: platform}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: platform}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: platform-policies}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tidewaiter-policy-author}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: platform}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: billing-team-reads-baselines}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tidewaiter-baselines-reader}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: approver}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: colleague}
`

// everything gives the editor all rights on the three kinds, later in the story: the authority verbs are not among
// them.
const everything = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: all-on-the-three-kinds}
rules:
- {apiGroups: [tidewaiter.dev], resources: [governedservers, toolpolicies, approvalrequests, approvalrequests/status], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: all-on-the-three-kinds}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: all-on-the-three-kinds}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: editor}]
`

// setStage starts everything.
func setStage(ctx context.Context, t *teller) (_ *stage, err error) {
	dir, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", folder, err)
	}
	s := &stage{dir: dir, billing: billing.New(), files: map[string]string{}, receipts: filepath.Join(dir, "receipts.jsonl"),
		kubectl: filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.clear())
		}
	}()
	if err := os.RemoveAll(s.receipts); err != nil {
		return nil, fmt.Errorf("remove old receipts: %w", err)
	}
	t.say("Starting a control plane: etcd, kube-apiserver, the CRDs and the admission policies…")
	if s.plane, err = fixture.Start(ctx); err != nil {
		return nil, err
	}
	s.later(s.plane.Stop)
	if err := s.cast(ctx); err != nil {
		return nil, err
	}
	if s.billingURL, err = s.serve(ctx, s.billing.Handler()); err != nil {
		return nil, err
	}
	t.say("Starting the manager, as system:serviceaccount:%s:tidewaiter-manager, and its webhook for votes…", fixture.SystemNamespace)
	return s, s.startManager(ctx)
}

// startManager starts the manager, whose webhook the API server dials at an address of this machine, and waits until
// votes can be given.
func (s *stage) startManager(ctx context.Context) error {
	webhook, health, err := freeAddresses(ctx)
	if err != nil {
		return err
	}
	if err := s.plane.InstallWebhooks(ctx, "https://"+webhook, nil); err != nil {
		return err
	}
	if err := s.start("manager", "--kubeconfig", s.files["manager"], "--metrics-bind-address", "0",
		"--health-probe-bind-address", health, "--webhook-bind-address", webhook, "--allow-address", "127.0.0.0/8"); err != nil {
		return err
	}
	return ready(ctx, "manager", "http://"+health+"/readyz")
}

// votingRoot returns the public half of the root key, which a gateway is started with.
func (s *stage) votingRoot(ctx context.Context) (string, error) {
	admin, err := fixture.NewClient(s.plane.Admin)
	if err != nil {
		return "", err
	}
	published := &corev1.ConfigMap{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: fixture.SystemNamespace, Name: v1alpha1.VotingKeys}, published); err != nil {
		return "", fmt.Errorf("read the voting keys: %w", err)
	}
	return published.Data[vote.RootEntry], nil
}

// cast makes the identities, their rights and their kubeconfigs.
func (s *stage) cast(ctx context.Context) error {
	admin, err := fixture.NewClient(s.plane.Admin)
	if err != nil {
		return err
	}
	if err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	configs := map[string]func() (*rest.Config, error){
		"manager": func() (*rest.Config, error) {
			return s.plane.AddServiceAccount(ctx, fixture.SystemNamespace, "tidewaiter-manager")
		},
		"gateway-billing": func() (*rest.Config, error) { return s.plane.AddServiceAccount(ctx, namespace, "gateway-billing") },
		"invoice-agent":   func() (*rest.Config, error) { return s.plane.AddServiceAccount(ctx, namespace, "invoice-agent") },
	}
	for _, person := range []string{"approver", "colleague", "editor", "platform"} {
		configs[person] = func() (*rest.Config, error) { return s.plane.AddUser(person) }
	}
	for name, makeConfig := range configs {
		config, err := makeConfig()
		if err != nil {
			return err
		}
		path, err := s.plane.WriteKubeconfig(config)
		if err != nil {
			return err
		}
		s.files[name] = filepath.Join(s.dir, "kubeconfig-"+name)
		if err := keepKubeconfig(s.files[name], path); err != nil {
			return err
		}
	}
	if err := fixture.Create(ctx, s.plane.Admin, namespace, rights); err != nil {
		return err
	}
	return fixture.Create(ctx, s.plane.Admin, fixture.SystemNamespace, rightsOverAll)
}

// keepKubeconfig copies a kubeconfig, with the demo's namespace as that of its context.
func keepKubeconfig(to, from string) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return fmt.Errorf("read a kubeconfig: %w", err)
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	if err := clientcmd.WriteToFile(*config, to); err != nil {
		return fmt.Errorf("keep a kubeconfig: %w", err)
	}
	return nil
}

// serve serves a handler on a free port of this machine.
func (s *stage) serve(ctx context.Context, handler http.Handler) (url string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(listener) }) //nolint:errcheck // it ends by Close
	s.later(func() error {
		err := server.Close()
		serving.Wait()
		return err
	})
	return "http://" + listener.Addr().String() + "/mcp", nil
}

// start starts one of the project's own programs; its log goes to a file of its own.
func (s *stage) start(program string, args ...string) error {
	log, err := os.Create(filepath.Join(s.dir, program+".log"))
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	cmd := exec.Command(filepath.Join(s.path(), program), args...)
	cmd.Stdout, cmd.Stderr = log, log
	// An interrupt from the terminal is for the demo, which ends its programs in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s (make build makes it): %w", program, err)
	}
	s.later(func() error {
		stopErr := cmd.Process.Signal(syscall.SIGTERM)
		if errors.Is(stopErr, os.ErrProcessDone) {
			stopErr = nil
		}
		return errors.Join(stopErr, cmd.Wait(), log.Close())
	})
	return nil
}

// path is where the project's programs are.
func (s *stage) path() string { return filepath.Join(filepath.Dir(s.dir), "bin") }

func (s *stage) kubeconfig(identity string) string { return s.files[identity] }

// later adds what is to be done when the stage is cleared, in the opposite order.
func (s *stage) later(clear func() error) { s.clearing = append(s.clearing, clear) }

// clear ends everything.
func (s *stage) clear() error {
	var errs []error
	for _, end := range slices.Backward(s.clearing) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// as returns kubectl with the project's plugins, as one of the identities.
func (s *stage) as(ctx context.Context, identity string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.files[identity], "KUBECACHEDIR="+filepath.Join(s.dir, "cache-"+identity),
		"PATH="+strings.Join([]string{s.path(), filepath.Dir(s.kubectl), os.Getenv("PATH")}, string(os.PathListSeparator)))
	return cmd
}

// giveEditorTheKinds gives the editor every right on the three kinds.
func (s *stage) giveEditorTheKinds(ctx context.Context) error {
	return fixture.Create(ctx, s.plane.Admin, namespace, everything)
}
