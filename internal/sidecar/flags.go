// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// AddFlags adds the settings that do not come from the cluster, with their defaults. The operator and the kubectl plugin
// have the same.
func (s *Settings) AddFlags(flags *pflag.FlagSet) {
	s.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}
	flags.StringVar(&s.Image, "gateway-image", "ghcr.io/tidewaiter/tidewaiter-gateway:0.1.0", "image of the gateway that is put into pods")
	flags.Var((*quantities)(&s.Resources.Requests), "gateway-requests", "resources that the gateway in a pod asks for")
	flags.Var((*quantities)(&s.Resources.Limits), "gateway-limits", "resources that the gateway in a pod may use")
}

// quantities are resources as a flag has them: cpu=20m,memory=64Mi.
type quantities corev1.ResourceList

// String returns the resources by name.
func (q *quantities) String() string {
	var all []string
	for name, quantity := range *q {
		all = append(all, string(name)+"="+quantity.String())
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// Set reads resources; it replaces those that are there.
func (q *quantities) Set(text string) error {
	read := quantities{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		quantity, err := resource.ParseQuantity(value)
		if err != nil || name == "" || quantity.Sign() < 0 {
			return fmt.Errorf("%q is no NAME=QUANTITY, such as cpu=20m", pair)
		}
		read[corev1.ResourceName(name)] = quantity
	}
	*q = read
	return nil
}

// Type names the kind of value.
func (*quantities) Type() string { return "NAME=QUANTITY,..." }
