// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

func server(edits ...func(*v1alpha1.GovernedServer)) *v1alpha1.GovernedServer {
	return fixture.With(v1alpha1.GovernedServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "billing"},
		Spec:       v1alpha1.GovernedServerSpec{Endpoint: v1alpha1.Endpoint{URL: "https://billing.example/mcp"}},
	}, edits...)
}

func withHeader(secret, key string) func(*v1alpha1.GovernedServer) {
	return func(s *v1alpha1.GovernedServer) {
		s.Spec.Endpoint.Headers = []v1alpha1.Header{
			{Name: "x-tenant", Value: "blue"},
			{Name: "authorization", SecretKeyRef: &v1alpha1.SecretKeyRef{Name: secret, Key: key}},
		}
	}
}

func withCA(secret, key string) func(*v1alpha1.GovernedServer) {
	return func(s *v1alpha1.GovernedServer) {
		s.Spec.Endpoint.TLS = &v1alpha1.EndpointTLS{ServerName: "inner", CASecretRef: &v1alpha1.SecretKeyRef{Name: secret, Key: key}}
	}
}

func withService(name string) func(*v1alpha1.GovernedServer) {
	return func(s *v1alpha1.GovernedServer) {
		s.Spec.Endpoint = v1alpha1.Endpoint{Service: &v1alpha1.ServiceEndpoint{Name: name, Port: 8080, Path: "/mcp", Scheme: "http"}}
	}
}

func secret(name, label string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Data: map[string][]byte{}}
	if label != "" {
		s.Labels = map[string]string{v1alpha1.ServerLabel: label}
	}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

// cluster holds objects and notes the Secrets whose data was read.
func cluster(t *testing.T, objects ...client.Object) (client.Reader, *[]string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	var read []string
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*corev1.Secret); ok {
				read = append(read, key.Name)
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	return reader, &read
}

func authority(t *testing.T) string {
	t.Helper()
	running := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(running.Close)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: running.Certificate().Raw}))
}

func TestSecretsAreReadOnlyIfLabelledForTheServer(t *testing.T) {
	t.Parallel()
	const noSecret = `Secret "token" does not exist, or does not carry the label tidewaiter.dev/server: billing`
	for name, tc := range map[string]struct {
		secret   *corev1.Secret
		want     string
		wantRead []string
	}{
		"labelled for it":            {secret: secret("token", "billing", map[string]string{"t": "Bearer x\n"}), wantRead: []string{"token"}},
		"not labelled":               {secret: secret("token", "", map[string]string{"t": "Bearer x"}), want: noSecret},
		"labelled for another":       {secret: secret("token", "payroll", map[string]string{"t": "Bearer x"}), want: noSecret},
		"absent":                     {secret: secret("other", "billing", map[string]string{"t": "Bearer x"}), want: noSecret},
		"without the key":            {secret: secret("token", "billing", map[string]string{"u": "Bearer x"}), want: `Secret "token" has no key "t"`, wantRead: []string{"token"}},
		"with an empty key":          {secret: secret("token", "billing", map[string]string{"t": ""}), want: `Secret "token" has no key "t"`, wantRead: []string{"token"}},
		"with two lines":             {secret: secret("token", "billing", map[string]string{"t": "a\r\nX-Evil: b"}), want: `key "t" of Secret "token" holds no value for a header`, wantRead: []string{"token"}},
		"with nothing but a newline": {secret: secret("token", "billing", map[string]string{"t": "\n"}), want: `key "t" of Secret "token" holds no value for a header`, wantRead: []string{"token"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader, read := cluster(t, tc.secret)
			got, err := Resolve(t.Context(), reader, server(withHeader("token", "t")), nil)
			if !slices.Equal(*read, tc.wantRead) {
				t.Errorf("read the data of %v, want %v", *read, tc.wantRead)
			}
			if tc.want != "" {
				if secretErr, ok := errors.AsType[*SecretError](err); !ok || secretErr.Message != tc.want {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				return
			}
			want := http.Header{"Authorization": {"Bearer x"}, "X-Tenant": {"blue"}}
			if diff := cmp.Diff(want, got.Headers); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// refusing is an API server that gives no object.
type refusing struct {
	client.Reader
	err error
}

func (r refusing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return r.err
}

// A gateway has the right to the Secrets that exist and are labelled, and learns of all others that they are forbidden.
func TestASecretThatIsForbiddenIsSaidToBeMissingItsLabelOrTheRight(t *testing.T) {
	t.Parallel()
	for said, want := range map[error]string{
		apierrors.NewForbidden(corev1.Resource("secrets"), "token", errors.New("no")): `Secret "token" does not exist, or does not carry the label tidewaiter.dev/server: billing, or the right to read it is missing`,
		apierrors.NewInternalError(errors.New("no")):                                  `Secret "token" cannot be read now`,
	} {
		_, err := Resolve(t.Context(), refusing{err: said}, server(withHeader("token", "t")), nil)
		if err == nil || err.Error() != want || !errors.Is(err, said) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestOnlyTheNamedAuthorityIsTrusted(t *testing.T) {
	t.Parallel()
	reader, _ := cluster(t, secret("ca", "billing", map[string]string{"ca.crt": authority(t), "junk": "hello"}))
	got, err := Resolve(t.Context(), reader, server(withCA("ca", "ca.crt")), nil)
	if err != nil || got.TLS == nil || got.TLS.RootCAs == nil || got.TLS.ServerName != "inner" || got.TLS.InsecureSkipVerify {
		t.Errorf("got %+v, %v", got.TLS, err)
	}
	if _, err := Resolve(t.Context(), reader, server(withCA("ca", "junk")), nil); err == nil {
		t.Error("junk is taken for certificates")
	}
	if _, err := Resolve(t.Context(), reader, server(withCA("other", "ca.crt")), nil); err == nil {
		t.Error("an absent Secret is no error")
	}
}

func TestAServiceMayBePrivateAndAURLMayNot(t *testing.T) {
	t.Parallel()
	reader, _ := cluster(t,
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mcp"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "away"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "secrets.other.svc.cluster.local"}},
	)
	private := netip.MustParseAddr("10.96.0.7")
	got, err := Resolve(t.Context(), reader, server(withService("mcp")), nil)
	if err != nil || got.URL != "http://mcp.team.svc:8080/mcp" || got.Guard.Check(private) != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = Resolve(t.Context(), reader, server(), nil)
	if err != nil || got.URL != "https://billing.example/mcp" || got.Guard.Check(private) == nil {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, wantForbidden := range map[string]bool{"away": true, "absent": false} {
		_, err := Resolve(t.Context(), reader, server(withService(name)), nil)
		if _, ok := errors.AsType[*ServiceError](err); !ok || errors.Is(err, netguard.ErrForbidden) != wantForbidden {
			t.Errorf("%s: %v, want a ServiceError that is ErrForbidden: %t", name, err, wantForbidden)
		}
	}
}
