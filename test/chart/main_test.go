// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests charts/tidewaiter with Helm itself: what it renders, that config/default holds the same, and what
// becomes of it on a real API server.
package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

const (
	chart   = "../../charts/tidewaiter"
	config  = "../../config"
	release = "tidewaiter"
)

// program is Helm, built once.
var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	log.SetLogger(logr.Discard()) // controller-runtime complains when nobody says where its log goes
	dir, err := os.MkdirTemp("", "tidewaiter-helm-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "helm")
	// Helm is a module of its own, so that its hundred and more dependencies choose no version of what is shipped.
	build := exec.CommandContext(context.Background(), "go", "build", "-o", program, "helm.sh/helm/v4/cmd/helm")
	build.Dir = "../../hack/tools/helm"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build Helm: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// try runs Helm with nothing of the person who runs the tests.
func try(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	inputs(t)
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + filepath.Join(home, "none")}
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("helm %s: %w\n%s%s", strings.Join(args, " "), err, complaints.String(), out.String())
	}
	return out.String(), err
}

func helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := try(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// inputs lets the test cache know what Helm and kubectl read.
func inputs(t *testing.T) {
	t.Helper()
	for _, root := range []string{chart, config, "../../hack/tools/helm"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			_, missing := os.Stat(path)
			return errors.Join(err, missing)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// valuesFile keeps values for --values.
func valuesFile(t *testing.T, values string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// rendered returns what the chart makes of values, by kind and name.
func rendered(t *testing.T, namespace, values string) map[string]*unstructured.Unstructured {
	t.Helper()
	return byName(t, helm(t, "template", release, chart, "--namespace", namespace, "--values="+valuesFile(t, values)))
}

func byName(t *testing.T, manifest string) map[string]*unstructured.Unstructured {
	t.Helper()
	objects, err := fixture.Parse(manifest)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		key := object.GetKind() + " " + object.GetName()
		if found[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		found[key] = object
	}
	return found
}

// kustomized returns what a folder builds to, by kind and name.
func kustomized(t *testing.T, folder string) map[string]*unstructured.Unstructured {
	t.Helper()
	inputs(t)
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Fatal("KUBEBUILDER_ASSETS is not set, so there is no kubectl: run `make test`, or `export KUBEBUILDER_ASSETS=$(hack/envtest.sh)` first")
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"), "kustomize", folder).Output()
	if err != nil {
		t.Fatalf("kustomize %s: %v", folder, err)
	}
	return byName(t, string(out))
}
