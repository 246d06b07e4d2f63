// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationv1apply "k8s.io/client-go/applyconfigurations/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// desk is an acknowledger whose writes are looked at.
type desk struct {
	*Acknowledger
	r       *rig
	written []*coordinationv1apply.LeaseApplyConfiguration
	deleted []string
	err     error
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{r: newRig(t)}
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			d.written = append(d.written, o.(*coordinationv1apply.LeaseApplyConfiguration))
			return d.err
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			d.deleted = append(d.deleted, o.GetName())
			return d.err
		},
	}).Build()
	d.Acknowledger = &Acknowledger{Client: api, Servers: d.r.gateway.Servers, Clock: d.r.clock, Gateway: "gw",
		Jitter: func() float64 { return 1 }, Metrics: d.r.gateway.Metrics}
	return d
}

// after lets time pass while the watch is proven, and returns how many Leases are written then.
func (d *desk) after(t *testing.T, pass time.Duration) int {
	t.Helper()
	d.r.clock.Step(pass)
	d.r.server.Prove(d.r.clock.Now())
	before := len(d.written)
	d.acknowledge(t.Context())
	return len(d.written) - before
}

// change puts another revision into force.
func (d *desk) change() { d.r.edit(func() { d.r.governed.Generation++ }) }

func (d *desk) expect(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d Leases written, want %d", what, got, want)
	}
}

func TestAGatewaySaysWhichRevisionItRuns(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.expect(t, "at the start", d.after(t, 0), 1)
	lease := d.written[0]
	if *lease.Name != leaseName("billing", "gw") || *lease.Namespace != billing.Namespace ||
		*lease.Spec.HolderIdentity != "gw" || *lease.Spec.LeaseDurationSeconds != 180 || !lease.Spec.RenewTime.Time.Equal(noon) {
		t.Errorf("the Lease is %+v, %+v", lease, lease.Spec)
	}
	owner := lease.OwnerReferences[0]
	if *owner.Kind != "GovernedServer" || *owner.Name != billing.Name || *owner.UID != "server-uid" || owner.Controller != nil {
		t.Errorf("it belongs to %+v", owner)
	}
	said := func() string { return d.written[len(d.written)-1].Annotations["tidewaiter.dev/policy-revision"] }
	want := d.r.server.Snapshot().Policy.Revision
	if diff := cmp.Diff(map[string]string{"tidewaiter.dev/server": "billing"}, lease.Labels); diff != "" || said() != want {
		t.Errorf("labels (-want +got):\n%s\nrevision %s, want %s", diff, said(), want)
	}

	d.expect(t, "nothing new", d.after(t, 40*time.Second), 0)
	d.expect(t, "the minute, less what jitter takes, is over", d.after(t, 8*time.Second), 1)
	d.change()
	d.change()
	d.expect(t, "two changes within a second", d.after(t, time.Second), 1)
	if now := d.r.server.Snapshot().Policy.Revision; now == want || said() != now {
		t.Errorf("said %s, want %s", said(), now)
	}
	d.r.edit(func() { d.r.governed.UID = "another" })
	d.expect(t, "a server that was made anew", d.after(t, time.Second), 1)
	d.r.edit(func() { d.r.governed = nil })
	d.expect(t, "a server that is gone", d.after(t, time.Hour), 0)
}

func TestAGatewayThatIsStaleSaysNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.r.clock.Step(6 * time.Minute)
	d.acknowledge(t.Context())
	d.expect(t, "without a proof for six minutes", len(d.written), 0)
	d.expect(t, "proven", d.after(t, 0), 1)
}

func TestAGatewayWithoutTheRightGoesOn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.err = errors.New("forbidden")
	d.expect(t, "the first try", d.after(t, 0), 1)
	d.change()
	d.expect(t, "a change at once", d.after(t, time.Second), 0)
	d.expect(t, "ten seconds later", d.after(t, 9*time.Second), 1)
	if n := testutil.ToFloat64(d.r.gateway.Metrics.failures.WithLabelValues(billing.Namespace, billing.Name, "lease")); n != 2 {
		t.Errorf("%v failures are counted, want 2", n)
	}
	d.err = nil
	d.expect(t, "the right is there", d.after(t, 10*time.Second), 1)
	d.expect(t, "and then nothing new", d.after(t, 10*time.Second), 0)
}

func TestAGatewayThatStopsTakesItsLeaseBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := d.Run(ctx); err != nil || len(d.deleted) != 0 {
		t.Errorf("what was never written is deleted: %v, %v", d.deleted, err)
	}
	d.after(t, time.Minute)
	if err := d.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{leaseName("billing", "gw")}, d.deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
}

func TestALeaseThatIsBeingWrittenAsAGatewayStopsIsTakenBackToo(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ctx, stop := context.WithCancel(t.Context())
	d.Client = interceptor.NewClient(d.Client.(client.WithWatch), interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			defer stop() // it is there, and the gateway does not learn of it
			return errors.Join(c.Apply(ctx, o, opts...), context.Canceled)
		},
	})
	if err := d.Run(ctx); err != nil {
		t.Fatal(err)
	}
	d.expect(t, "as it stopped", len(d.written), 1)
	if diff := cmp.Diff([]string{leaseName("billing", "gw")}, d.deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if n := testutil.ToFloat64(d.r.gateway.Metrics.failures.WithLabelValues(billing.Namespace, billing.Name, "lease")); n != 0 {
		t.Errorf("%v failures are counted", n)
	}
}

func TestNamesOfLeasesFitAndDiffer(t *testing.T) {
	t.Parallel()
	long := leaseName(strings.Repeat("s", 63), strings.Repeat("gateway of somebody ", 100))
	if len(long) > 253 {
		t.Errorf("%d characters", len(long))
	}
	if leaseName("a", "gw") == leaseName("a", "gw2") || leaseName("a", "gw") == leaseName("b", "gw") {
		t.Error("two gateways share a name")
	}
	if strings.ToLower(long) != long {
		t.Errorf("%s is no name in Kubernetes", long)
	}
}
