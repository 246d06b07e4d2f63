// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// printed runs a command line that asks no cluster anything.
func printed(t *testing.T, args ...string) (out, errOut string, exit int) {
	t.Helper()
	var o, e bytes.Buffer
	exit = Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &o, ErrOut: &e})
	return o.String(), e.String(), exit
}

func TestWhatIsNotUnderstoodIsSaidInWords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", maxReason+1)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a verb with a slip": {
			[]string{"aprove", "x"}, "kubectl tidewaiter has no verb \"aprove\"; did you mean approve?\nSee 'kubectl tidewaiter --help'.\n",
		},
		"half a verb": {
			[]string{"pendi"}, "kubectl tidewaiter has no verb \"pendi\"; did you mean pending?\nSee 'kubectl tidewaiter --help'.\n",
		},
		"a verb that is like none": {[]string{"frobnicate"}, "kubectl tidewaiter has no verb \"frobnicate\"\nSee 'kubectl tidewaiter --help'.\n"},
		"a name for pending":       {[]string{"pending", "x"}, "pending takes no names; 1 name was given\nSee 'kubectl tidewaiter pending --help'.\n"},
		"a name for version":       {[]string{"version", "x", "y"}, "version takes no names; 2 names were given\nSee 'kubectl tidewaiter version --help'.\n"},
		"a reason of a decision":   {[]string{"deny", "x", "--reason", long}, "--reason has at most 1024 characters; 1025 were given\nSee 'kubectl tidewaiter deny --help'.\n"},
		"a reason of a resolution": {
			[]string{"resolve", "x", "--committed", "--reason", long}, "--reason has at most 1024 characters; 1025 were given\nSee 'kubectl tidewaiter resolve --help'.\n",
		},
		"a reason of an override": {
			[]string{"set-tier", "billing", "x", "Read", "--policy", "p", "--reason", long}, "--reason has at most 512 characters; 1025 were given\nSee 'kubectl tidewaiter set-tier --help'.\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, errOut, exit := printed(t, append([]string{"kubectl-tidewaiter"}, tc.args...)...)
			if diff := cmp.Diff("error: "+tc.want, errOut); diff != "" || exit != exitUsage {
				t.Errorf("exit %d (-want +got):\n%s", exit, diff)
			}
		})
	}
	if err := checkReason(long[:2*maxReason], maxReason); err != nil {
		t.Errorf("a reason that is as long as may be: %v", err)
	}
}

// kubectl completes plugins by programs of their own; the script is for the binary by its own name.
func TestTheCompletionScriptIsForTheNameOfTheBinary(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string]string{
		"bash": "__start_kubectl-tidewaiter kubectl-tidewaiter\n", "zsh": "#compdef kubectl-tidewaiter\n", "fish": "complete -c kubectl-tidewaiter ",
	} {
		out, errOut, exit := printed(t, "kubectl-tidewaiter", "completion", shell)
		if exit != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, %s; %q is not in the script", shell, exit, errOut, want)
		}
	}
	help, _, _ := printed(t, "kubectl-tidewaiter", "completion", "bash", "--help")
	if !strings.Contains(help, "source <(kubectl-tidewaiter completion bash)") {
		t.Errorf("the help names another program:\n%s", help)
	}
}
