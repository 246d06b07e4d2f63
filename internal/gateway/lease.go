// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1apply "k8s.io/client-go/applyconfigurations/coordination/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

const (
	// acknowledgeEvery is the least time between two writes of one Lease: changes that come faster share one.
	acknowledgeEvery = time.Second
	// renewEvery is the longest time between two writes of one Lease.
	renewEvery = time.Minute
	// leaseFor is how long a Lease says that its gateway is alive: two renewals may be lost.
	leaseFor = 3 * renewEvery
	// acknowledgeAgain is the time until the next try after a write that failed.
	acknowledgeAgain = 10 * time.Second
	// acknowledgeWithin bounds one write.
	acknowledgeWithin = 5 * time.Second
)

// Acknowledger says for every server, in a Lease beside it, which policy revision this gateway runs. It informs: no call
// waits for it, and none fails by it.
type Acknowledger struct {
	// Client writes live.
	Client  client.Client
	Servers map[types.NamespacedName]*Server
	Clock   clock.WithTicker
	// Gateway is the name of this gateway.
	Gateway string
	// Jitter is from 0 to 1, anew each time, so that gateways that started together do not write together.
	Jitter  func() float64
	Metrics *Metrics
	// Bypass is what was found of ways around this gateway; nil where nobody looks.
	Bypass *Bypass

	said map[types.NamespacedName]acknowledgement
}

// acknowledgement is what was last written of a server.
type acknowledgement struct {
	uid              types.UID
	revision, bypass string
	// next is when it is written again though nothing changed.
	next time.Time
	// failed: the last write did not succeed, which was said.
	failed bool
}

// Run acknowledges until the context ends, and takes back what it said.
func (a *Acknowledger) Run(ctx context.Context) error {
	ticker := a.Clock.NewTicker(acknowledgeEvery)
	defer ticker.Stop()
	for {
		a.acknowledge(ctx)
		select {
		case <-ctx.Done():
			a.withdraw(context.WithoutCancel(ctx))
			return nil
		case <-ticker.C():
		}
	}
}

// acknowledge writes the Leases that are due.
func (a *Acknowledger) acknowledge(ctx context.Context) {
	for key, server := range a.Servers {
		now, snap := a.Clock.Now(), server.Snapshot()
		if snap == nil || server.Freshness() == policy.Stale { // who does not know better says nothing
			continue
		}
		was := a.said[key]
		is := acknowledgement{uid: snap.Server.UID, revision: snap.Policy.Revision, bypass: a.Bypass.Found(key)}
		same := was.uid == is.uid && was.revision == is.revision && was.bypass == is.bypass
		if (same || was.failed) && now.Before(was.next) {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		err := a.write(ctx, key, is, now) // which may have arrived, whatever comes back: withdraw has to know of it
		is.failed = err != nil
		is.next = now.Add(renewEvery - time.Duration(a.Jitter()*float64(renewEvery)/5))
		if err != nil && ctx.Err() == nil {
			is.next = now.Add(acknowledgeAgain)
			a.Metrics.writeFailed(key, "lease")
		}
		if err != nil && ctx.Err() == nil && !was.failed { // said once, not at every try
			log.FromContext(ctx).Error(err, "policy revision not acknowledged", "server", key)
		}
		if a.said == nil {
			a.said = map[types.NamespacedName]acknowledgement{}
		}
		a.said[key] = is
	}
}

// write makes the Lease of a server say what runs. It is applied, so that a gateway needs no right to read Leases.
func (a *Acknowledger) write(ctx context.Context, key types.NamespacedName, is acknowledgement, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, acknowledgeWithin)
	defer cancel()
	owner := metav1apply.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind("GovernedServer").WithName(key.Name).WithUID(is.uid)
	annotations := map[string]string{v1alpha1.PolicyRevisionAnnotation: is.revision}
	if is.bypass != "" {
		annotations[v1alpha1.BypassAnnotation] = is.bypass
	}
	lease := coordinationv1apply.Lease(leaseName(key.Name, a.Gateway), key.Namespace).
		WithLabels(map[string]string{v1alpha1.ServerLabel: key.Name}).
		WithAnnotations(annotations).
		WithOwnerReferences(owner).
		WithSpec(coordinationv1apply.LeaseSpec().WithHolderIdentity(a.Gateway).
			WithLeaseDurationSeconds(int32(leaseFor / time.Second)).WithRenewTime(metav1.NewMicroTime(now)))
	if err := a.Client.Apply(ctx, lease, client.FieldOwner("tidewaiter-gateway"), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply Lease %s: %w", *lease.Name, err)
	}
	return nil
}

// withdraw deletes the Leases, so that a gateway that was stopped is not looked for.
func (a *Acknowledger) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, acknowledgeWithin)
	defer cancel()
	for key := range a.said {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: leaseName(key.Name, a.Gateway)}}
		if err := a.Client.Delete(ctx, lease); err != nil && !apierrors.IsNotFound(err) {
			log.FromContext(ctx).V(1).Info("lease not deleted", "server", key, "error", err.Error())
		}
	}
}

// leaseName is the name of the Lease by which a gateway tells what it runs for a server.
func leaseName(server, gateway string) string {
	sum := sha256.Sum256([]byte(gateway))
	return "tidewaiter-" + server + "-" + hex.EncodeToString(sum[:])[:20]
}
