// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Which values --dry-run takes is a matter of the verb, under every name of the program. What a verb does not know must
// not pass as no dry run at all.
func TestADryRunThatAVerbDoesNotKnowIsNotUnderstood(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"kubectl-tidewaiter", "approve", "a"}, {"kubectl-tidewaiter", "deny", "a"}, {"kubectl-tidewaiter", "dismiss", "a"},
		{"kubectl-tidewaiter", "resolve", "a", "--committed", "--reason", "x"},
		{"kubectl-approve", "a"}, {"kubectl-deny", "a"},
	} {
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		if exit := Run(t.Context(), append(args, "--dry-run=client"), streams); exit != exitUsage || !strings.Contains(errOut.String(), "none, server") {
			t.Errorf("%v: exit %d, %s", args, exit, errOut)
		}
	}
	// The twin: the verbs that print what goes to Git know it, and get as far as looking for a cluster.
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	nowhere := []string{"kubectl-tidewaiter", "revoke", "a", "b", "--policy", "c", "--dry-run=client", "--kubeconfig", t.TempDir() + "/none"}
	if exit := Run(t.Context(), nowhere, streams); exit != 1 {
		t.Errorf("revoke: exit %d, %s", exit, errOut)
	}
}
