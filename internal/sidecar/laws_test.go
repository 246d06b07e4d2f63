// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// drawPod draws a pod with containers, volumes and mounts of its own, some of which cannot be governed.
func drawPod(t *rapid.T) *corev1.Pod {
	p := new(pod())
	name := rapid.SampledFrom([]string{"data", "cache", receiptsVolume, tokenVolume, "more"})
	for n := range rapid.IntRange(0, 3).Draw(t, "volumes") {
		v := emptyFolder(name.Draw(t, "volume") + strconv.Itoa(n))
		if rapid.Bool().Draw(t, "claimed") {
			v = claimed()
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	for n := range rapid.IntRange(0, 3).Draw(t, "more containers") {
		c := corev1.Container{Name: "more" + strconv.Itoa(n), Command: rapid.SliceOfN(rapid.SampledFrom([]string{"/tidewaiter/gateway", "stdio", "sh", "--"}), 0, 5).Draw(t, "command")}
		for _, port := range rapid.SliceOfN(rapid.Int32Range(9438, 9444), 0, 1).Draw(t, "ports") {
			c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: port})
		}
		if rapid.Bool().Draw(t, "before") {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	if rapid.Bool().Draw(t, "annotated") {
		p.Annotations = map[string]string{"team": "shop"}
	}
	p.Spec.TerminationGracePeriodSeconds = new(rapid.Int64Range(0, 1000).Draw(t, "grace"))
	return p
}

func TestInjectingTwiceIsInjectingOnceAndChangesNothingElse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before := drawPod(t)
		server := rapid.SampledFrom([]v1alpha1.GovernedServer{billing(), stdioBilling()}).Draw(t, "server")
		first, err := Inject(before, &server, settings())
		if err != nil {
			return // the table of refusals has these
		}
		second, err := Inject(first.Pod, &server, settings())
		if err != nil {
			t.Fatalf("what was injected is refused: %v", err)
		}
		if diff := cmp.Diff(first.Pod, second.Pod); diff != "" {
			t.Fatalf("injected again it changes (-first +second):\n%s", diff)
		}
		bare := first.Pod.DeepCopy()
		if err := takeOut(bare); err != nil {
			t.Fatalf("what was injected cannot be taken out: %v", err)
		}
		bare.Spec.TerminationGracePeriodSeconds = before.Spec.TerminationGracePeriodSeconds
		if diff := cmp.Diff(before, bare, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("more than the gateway changed (-before +after it was taken out):\n%s", diff)
		}
	})
}
