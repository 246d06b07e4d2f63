// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// stuck is a cache that holds what its reader holds and learns nothing by itself.
type stuck struct {
	cache.Cache
	reader client.Reader
}

func (s stuck) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return s.reader.Get(ctx, key, o, opts...)
}

func (s stuck) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return s.reader.List(ctx, l, opts...)
}

// objects returns an API that holds exactly these objects, its lists at version 100.
func objects(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			var asked client.ListOptions
			if live, ok := l.(*metav1.PartialObjectMetadataList); ok {
				defer live.SetResourceVersion("1000")
			}
			// The fake selects no fields: all are of one server.
			return c.List(ctx, l, client.InNamespace(asked.ApplyOptions(opts).Namespace))
		}}).Build()
}

func named[T client.Object](o T, uid types.UID, version string) T {
	o.SetNamespace(billing.Namespace)
	o.SetName(billing.Name)
	o.SetUID(uid)
	o.SetResourceVersion(version)
	if r, ok := any(o).(*v1alpha1.ApprovalRequest); ok {
		r.Spec.ServerRef.Name = billing.Name
	}
	return o
}

func TestAWatchIsProvenOnlyByACacheThatHoldsEverything(t *testing.T) {
	t.Parallel()
	server := func(version string) client.Object { return named(&v1alpha1.GovernedServer{}, "s", version) }
	toolPolicy := func(version string) client.Object { return named(&v1alpha1.ToolPolicy{}, "p", version) }
	request := func(version string) client.Object { return named(&v1alpha1.ApprovalRequest{}, "r", version) }
	baseline := func(version string) client.Object {
		b := named(&v1alpha1.ToolPolicy{}, "b", version)
		b.Namespace = "operator"
		return b
	}
	for name, tc := range map[string]struct {
		cached, live []client.Object
		want         error
	}{
		"all there":                {[]client.Object{server("5"), toolPolicy("6"), request("7")}, []client.Object{server("5"), toolPolicy("6"), request("7")}, nil},
		"nothing anywhere":         {nil, nil, nil},
		"the server was deleted":   {[]client.Object{server("5")}, nil, errBehind},
		"the server changed":       {[]client.Object{server("5")}, []client.Object{server("8")}, errBehind},
		"a policy came":            {[]client.Object{server("5")}, []client.Object{server("5"), toolPolicy("6")}, errBehind},
		"a policy was deleted":     {[]client.Object{server("5"), toolPolicy("6")}, []client.Object{server("5")}, errBehind},
		"baselines are there":      {[]client.Object{server("5"), baseline("6")}, []client.Object{server("5"), baseline("6")}, nil},
		"a baseline came":          {[]client.Object{server("5")}, []client.Object{server("5"), baseline("6")}, errBehind},
		"a baseline changed":       {[]client.Object{server("5"), baseline("6")}, []client.Object{server("5"), baseline("8")}, errBehind},
		"a baseline was deleted":   {[]client.Object{server("5"), baseline("6")}, []client.Object{server("5")}, errBehind},
		"a denial came":            {[]client.Object{server("5"), request("7")}, []client.Object{server("5"), request("9")}, errBehind},
		"the server was recreated": {[]client.Object{server("5")}, []client.Object{named(&v1alpha1.GovernedServer{}, "s2", "9")}, errBehind},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &Watcher{Cache: stuck{reader: objects(t, tc.cached...)}, Client: objects(t, tc.live...), Clock: testclock.NewFakeClock(noon), Library: policy.NewLibrary(), OperatorNamespace: "operator"}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if tc.want == nil {
				ctx = t.Context()
			}
			if err := w.compare(ctx, billing); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}
