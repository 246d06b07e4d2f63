// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"encoding/json"
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// Change is what an injection does to a pod, or to a template of pods, as it stands in JSON.
type Change struct {
	// Operations are a JSON patch. Fields that are not known here are not in it, and stay.
	Operations []jsonpatch.Operation
	// Warnings are those of Result.
	Warnings []string
}

// Labels returns the labels of a pod, or of a template of pods, in JSON.
func Labels(raw []byte) (map[string]string, error) {
	var labelled struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &labelled); err != nil {
		return nil, fmt.Errorf("read the labels of the pod: %w", err)
	}
	return labelled.Metadata.Labels, nil
}

// Patch injects the gateway of a server into a pod, or a template of pods, in JSON.
func Patch(raw []byte, server *v1alpha1.GovernedServer, s Settings) (Change, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		return Change{}, fmt.Errorf("read the pod: %w", err)
	}
	result, err := Inject(&pod, server, s)
	if err != nil {
		return Change{}, err
	}
	before, err := json.Marshal(&pod)
	if err != nil {
		return Change{}, fmt.Errorf("write the pod: %w", err)
	}
	after, err := json.Marshal(result.Pod)
	if err != nil {
		return Change{}, fmt.Errorf("write the pod with its gateway: %w", err)
	}
	operations, err := jsonpatch.CreatePatch(before, after)
	if err != nil {
		return Change{}, fmt.Errorf("compare the pod with what it was: %w", err)
	}
	return Change{Operations: operations, Warnings: result.Warnings}, nil
}
