// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestOnlyALeaseThatHadExpiredWakesByItsRenewal(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	lease := func(at time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: at}, LeaseDurationSeconds: new(int32(180))}}
	}
	for after, want := range map[time.Duration]bool{time.Minute: false, 179 * time.Second: false, 3 * time.Minute: true, time.Hour: true} {
		if got := cameBack().Update(event.UpdateEvent{ObjectOld: lease(noon), ObjectNew: lease(noon.Add(after))}); got != want {
			t.Errorf("renewed after %v: wakes %t, want %t", after, got, want)
		}
	}
}
