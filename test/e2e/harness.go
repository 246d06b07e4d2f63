// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// patience is how long a step waits for something that has to come about.
const patience = 90 * time.Second

// scenario is a chapter of the report, and what it does. They are done in order; each makes what it needs but what the
// first one installs.
type scenario struct {
	name, about string
	steps       func(e *e2e) []step
}

// e2e is the cluster, and what works on it.
type e2e struct {
	report  *report
	install bool

	// path leads to kubectl, helm and the plugin.
	path       string
	kubeconfig string
	config     *rest.Config
	admin      client.Client
	cluster    cluster
	// isUp says that the cluster was brought up, isUsed that something of Tidewaiter was there.
	isUp, isUsed bool
	// before is what was in the cluster before anything was installed.
	before map[string]bool
	// nodeProgram stops, starts and fills the node; empty where the cluster is another.
	nodeProgram string
}

// prepare finds out which cluster is meant, before anything is built or touched.
func (e *e2e) prepare(ctx context.Context, kind string) (err error) {
	e.cluster, err = e.choose(ctx, kind)
	if err == nil {
		e.report.sayf("Tidewaiter, end to end.\nThe cluster: %s", e.cluster.about)
	}
	return err
}

// bringUp makes the cluster ready for the first scenario.
func (e *e2e) bringUp() []step {
	return []step{
		{"kubectl, helm, the plugin and the images of this commit are built", e.buildAll},
		{"the cluster is up", func(ctx context.Context) (seen string, err error) {
			if e.kubeconfig, err = e.cluster.up(ctx); err != nil {
				return "", err
			}
			e.isUp = true
			return e.kubeconfig, e.connect()
		}},
		{"nothing of Tidewaiter is in it", e.untouched},
		{"the images are brought in", func(ctx context.Context) (string, error) { return e.cluster.load(ctx) }},
	}
}

// build builds a program of this module.
func (e *e2e) build(ctx context.Context, folder, name string) error {
	out, err := e.run(ctx, "", "env", "CGO_ENABLED=0", "go", "build", "-o", filepath.Join(programs, name), folder)
	if err != nil {
		return fmt.Errorf("build %s: %w: %s", folder, err, out)
	}
	return nil
}

func (e *e2e) buildAll(ctx context.Context) (string, error) {
	said, err := e.watched(ctx, "hack/envtest.sh")
	if err != nil {
		return said, fmt.Errorf("find kubectl: %w", err)
	}
	plane := lastWord(said)
	here, err := filepath.Abs(".")
	if err != nil {
		return "", err
	}
	// Helm is a module of its own.
	if out, err := e.watched(ctx, "env", "CGO_ENABLED=0", "go", "build", "-C", "hack/tools/helm", "-o", filepath.Join(here, programs, "helm"), "helm.sh/helm/v4/cmd/helm"); err != nil {
		return out, err
	}
	if err := e.build(ctx, "./cmd/kubectl-tidewaiter", "kubectl-tidewaiter"); err != nil {
		return "", err
	}
	for _, verb := range []string{"approve", "deny"} {
		link := filepath.Join(programs, "kubectl-"+verb)
		if err := errors.Join(os.RemoveAll(link), os.Symlink("kubectl-tidewaiter", link)); err != nil {
			return "", err
		}
	}
	e.path = strings.Join([]string{filepath.Join(here, programs), plane, os.Getenv("PATH")}, ":")
	return e.watched(ctx, "go", "run", "./hack/image")
}

func (e *e2e) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	e.config = config
	all := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(all), v1alpha1.AddToScheme(all), apiextensionsv1.AddToScheme(all)); err != nil {
		return err
	}
	e.admin, err = client.New(config, client.Options{Scheme: all})
	return err
}

// untouched refuses a cluster that somebody uses: what the scenarios install is uninstalled, with all objects of its kinds.
func (e *e2e) untouched(ctx context.Context) (string, error) {
	namespaces := &corev1.NamespaceList{}
	if err := e.admin.List(ctx, namespaces); err != nil {
		return "", err
	}
	var names []string
	for _, namespace := range namespaces.Items {
		names = append(names, namespace.Name)
		if ours(namespace.Name) {
			e.isUsed = true
			return "", fmt.Errorf("there is a namespace %s: this test removes it. Remove it yourself, or the node by make node-down", namespace.Name)
		}
	}
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := e.admin.List(ctx, crds); err != nil {
		return "", err
	}
	for _, crd := range crds.Items {
		if crd.Spec.Group == v1alpha1.GroupVersion.Group {
			e.isUsed = true
			return "", fmt.Errorf("there is a CRD %s: this test removes it, with all its objects. Remove it yourself", crd.Name)
		}
	}
	var err error
	e.before, err = e.inventory(ctx)
	return fmt.Sprintf("%d objects in the namespaces %s", len(e.before), strings.Join(names, ", ")), err
}

// ours tells whether a namespace is one that a run makes.
func ours(namespace string) bool {
	return namespace == home || namespace == shop || strings.HasPrefix(namespace, prefix)
}

// giveBack removes the cluster, but not one that was found in use.
func (e *e2e) giveBack(ctx context.Context) error {
	if !e.isUp {
		return nil
	}
	if e.isUsed {
		e.report.sayf("\nThe cluster is in use, and stays as it is")
		return nil
	}
	if !e.report.chapter(ctx, "The end of the cluster", limit, []step{{"it is given back as it was", e.cluster.down}}) {
		return errFailed
	}
	return nil
}

// run runs a program at the root of the repository, and returns all that it says.
func (e *e2e) run(ctx context.Context, stdin, program string, args ...string) (string, error) {
	cmd := e.command(ctx, program, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	err := cmd.Run()
	return out.String(), err
}

// watched is run for what may take minutes: what it says is also shown as it says it.
func (e *e2e) watched(ctx context.Context, program string, args ...string) (string, error) {
	cmd := e.command(ctx, program, args...)
	var out bytes.Buffer
	both := io.MultiWriter(&out, os.Stderr)
	cmd.Stdout, cmd.Stderr = both, both
	err := cmd.Run()
	return out.String(), err
}

// lastWord is what scripts say that tell how far they are before they say what they found.
func lastWord(said string) string {
	words := strings.Fields(said)
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

// command is a program with the cluster at hand, of those that were built if it is one.
func (e *e2e) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	for _, folder := range filepath.SplitList(e.path) {
		if file := filepath.Join(folder, program); executable(file) && !strings.ContainsRune(program, '/') {
			program = file
		}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = os.Environ()
	if e.path != "" {
		cmd.Env = append(cmd.Env, "PATH="+e.path)
	}
	if e.kubeconfig != "" {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+e.kubeconfig)
	}
	return cmd
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// kubectl runs kubectl as the administrator, or as whoever --as says.
func (e *e2e) kubectl(ctx context.Context, args ...string) (string, error) {
	return e.kubectlWith(ctx, "", args...)
}

func (e *e2e) kubectlWith(ctx context.Context, stdin string, args ...string) (string, error) {
	out, err := e.run(ctx, stdin, "kubectl", args...)
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(out))
	}
	return out, err
}

// apply applies a manifest.
func (e *e2e) apply(ctx context.Context, manifest string) (string, error) {
	return e.kubectlWith(ctx, manifest, "apply", "-f", "-")
}

// until waits until there is no error any more, and returns the last that was not for want of time.
func (e *e2e) until(ctx context.Context, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %w", last)
		case <-time.After(300 * time.Millisecond):
		}
	}
}
