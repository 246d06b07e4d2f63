// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/internal/fixture/login"
)

// plane is a real API server that takes the tokens of people too, with the settings of kube-apiserver's defaults. It is
// started by the first test that needs it: not where only rules are tested, fuzzed or measured.
type plane struct {
	env    *envtest.Environment
	cfg    *rest.Config
	people *login.Provider
	dir    string
	err    error
}

var started struct {
	sync.Once
	plane
}

// apiAudience is what the API server wants in tokens of people.
const apiAudience = "kubernetes"

const startTimeout = 2 * time.Minute

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	code := m.Run()
	if err := started.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// cluster returns an administrator's configuration, and the provider that the API server trusts.
func cluster(t testing.TB) (*rest.Config, *login.Provider) {
	t.Helper()
	started.Do(func() { started.err = started.start() })
	if started.err != nil {
		t.Fatal(started.err)
	}
	return started.cfg, started.people
}

func (p *plane) start() (err error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return errors.New("KUBEBUILDER_ASSETS is not set: run `make test`, or `export KUBEBUILDER_ASSETS=$(hack/envtest.sh)` first")
	}
	p.people = login.Start(clock.RealClock{})
	if p.dir, err = os.MkdirTemp("", "tidewaiter-"); err != nil {
		return err
	}
	ca := filepath.Join(p.dir, "ca.pem")
	if err := os.WriteFile(ca, login.CA(p.people.Server), 0o600); err != nil {
		return err
	}
	p.env = &envtest.Environment{ControlPlaneStartTimeout: startTimeout, ControlPlaneStopTimeout: startTimeout}
	p.env.ControlPlane.GetAPIServer().Configure().
		Append("oidc-issuer-url", p.people.URL).Append("oidc-client-id", apiAudience).Append("oidc-ca-file", ca)
	if p.cfg, err = p.env.Start(); err != nil {
		return fmt.Errorf("start the control plane: %w", err)
	}
	return nil
}

func (p *plane) stop() error {
	if p.people != nil {
		p.people.Close()
	}
	var err error
	if p.env != nil {
		err = p.env.Stop()
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

func admin(t testing.TB) client.Client {
	t.Helper()
	cfg, _ := cluster(t)
	made, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// account makes a ServiceAccount in a namespace of its own.
func account(t testing.TB, name string) *corev1.ServiceAccount {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := admin(t).Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: name}}
	if err := admin(t).Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	return made
}

// tokenOf asks the API server for a token, as kubelet does; without audiences it is for the API server.
func tokenOf(t testing.TB, account *corev1.ServiceAccount, pod *corev1.Pod, audiences ...string) string {
	t.Helper()
	ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if pod != nil {
		ask.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	if err := admin(t).SubResource("token").Create(t.Context(), account, ask); err != nil {
		t.Fatal(err)
	}
	return ask.Status.Token
}

// asAccount is a configuration with a ServiceAccount's own token.
func asAccount(t testing.TB, account *corev1.ServiceAccount) *rest.Config {
	t.Helper()
	administrator, _ := cluster(t)
	cfg := rest.AnonymousClientConfig(administrator)
	cfg.BearerToken = tokenOf(t, account, nil)
	return cfg
}

// reviewBy sends reviews as admin.
func reviewBy(t testing.TB) func(context.Context, *authenticationv1.TokenReview) error {
	made := admin(t)
	return func(ctx context.Context, review *authenticationv1.TokenReview) error { return made.Create(ctx, review) }
}
