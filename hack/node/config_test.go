// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestConfigurationIsFilledIn(t *testing.T) {
	t.Parallel()
	files, err := render(newNode("/state", t.Output()).settings("/plugins"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"containerd.toml":      {`sandbox_image = "` + podImage + `"`, `bin_dir = "/plugins"`, `conf_dir = "/state/conf/cni"`, "restrict_oom_score_adj = true"},
		"cni/10-node.conflist": {`"subnet": "` + podRange + `"`},
		"kubelet.yaml":         {"failCgroupV1: false", "cgroupRoot: /" + cgroupRoot, "clusterDNS: [" + dnsIP + "]", "/state/pki/ca.crt"},
		"proxy.yaml":           {"hostnameOverride: " + nodeName, "clusterCIDR: " + podRange},
		"resolv.conf":          {"nameserver " + dnsIP},
		"Corefile":             {"kubeconfig /state/pki/admin.kubeconfig"},
		"dns.yaml":             {"clusterIP: " + dnsIP, "addresses: [" + nodeIP + "]"},
	} {
		text := string(files[name])
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s does not say %q:\n%s", name, part, text)
			}
		}
		delete(files, name)
		if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".conflist") { // JSON is YAML
			for document := range strings.SplitSeq(text, "\n---\n") {
				if err := yaml.UnmarshalStrict([]byte(document), &map[string]any{}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	for name := range files {
		t.Errorf("%s is not looked at", name)
	}
}

func TestTheNodeIsReadyWithAHeartbeatOfThisStart(t *testing.T) {
	t.Parallel()
	started := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	ready := func(status corev1.ConditionStatus, at time.Time) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(at), Message: "no network"}
	}
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		want       []string
	}{
		"a heartbeat of the second of the start will do": {[]corev1.NodeCondition{ready(corev1.ConditionTrue, started.Truncate(time.Second))}, nil},
		"one before is of an earlier start":              {[]corev1.NodeCondition{ready(corev1.ConditionTrue, started.Add(-time.Second))}, []string{"before this start"}},
		"a node that is not ready says why":              {[]corev1.NodeCondition{ready(corev1.ConditionFalse, started)}, []string{"no network"}},
		"other conditions are not asked":                 {[]corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}}, []string{"not said yet"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			has(t, fresh(tc.conditions, started), tc.want...)
		})
	}
}

func TestAWaitSaysWhatWasMissingLast(t *testing.T) {
	t.Parallel()
	n := newNode(t.TempDir(), t.Output())
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	err := n.until(ctx, "it works", func(ctx context.Context) error {
		if tries++; tries < 3 {
			return fmt.Errorf("try %d", tries)
		}
		cancel()
		return ctx.Err()
	})
	has(t, err, "until it works", "try 2")
	tries = 0
	has(t, n.until(t.Context(), "it works", func(context.Context) error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	}))
	has(t, n.until(t.Context(), "it works", func(context.Context) error { return &fatalError{errors.New("it is gone")} }), "it is gone")
}

func TestDifferencesOfTheMachine(t *testing.T) {
	t.Parallel()
	before := machine{
		Settings: map[string]string{"vm/overcommit_memory": "0"}, Controllers: []string{"cpu"},
		Lines: map[string][]string{"interface": {"eth0[192.0.2.2/24]", "lo[127.0.0.1/8]"}, "mount": {"tmpfs /x", "tmpfs /x"}},
	}
	for name, tc := range map[string]struct {
		now  machine
		want []string
	}{
		"the same machine has none": {before, nil},
		"everything else is named, once for each time": {machine{
			Settings: map[string]string{"vm/overcommit_memory": "1"}, Controllers: []string{"cpu", "pids"},
			Lines: map[string][]string{"interface": {"eth0[192.0.2.2/24]", "lo[127.0.0.1/8]", "tidewaiter0[]"}, "mount": {"tmpfs /x"}},
		}, []string{
			"controller of cgroups: came: pids", "interface: came: tidewaiter0[]", "kernel setting vm/overcommit_memory: was 0, is 1", "mount: gone: tmpfs /x",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, before.differences(tc.now)); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}
