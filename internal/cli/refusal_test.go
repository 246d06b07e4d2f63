// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func status(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

func TestARefusalIsItsSentence(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want string
		own  bool
	}{
		"a webhook": {
			status(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "mutate.votes.tidewaiter.dev" denied the request: ana counts once`), "ana counts once", true,
		},
		"an admission policy": {
			fmt.Errorf("patch: %w", status(http.StatusForbidden, metav1.StatusReasonForbidden,
				`approvalrequests.tidewaiter.dev "x-1" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: only the manager`)),
			"only the manager", true,
		},
		"RBAC": {
			status(http.StatusForbidden, metav1.StatusReasonForbidden, `approvalrequests.tidewaiter.dev "x-1" is forbidden: User "eli" cannot patch`),
			`approvalrequests.tidewaiter.dev "x-1" is forbidden: User "eli" cannot patch`, false,
		},
		"a sentence with an escape sequence": {
			status(http.StatusForbidden, metav1.StatusReasonForbidden, "admission webhook \"w\" denied the request: \x1b[2Kfine"), `\u001b[2Kfine`, true,
		},
		"no answer of the API server": {errors.New("connection refused"), "connection refused", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := refusal(tc.err); got != tc.want || admissionRefused(tc.err) != tc.own {
				t.Errorf("refusal %q, own words %t; want %q and %t", got, admissionRefused(tc.err), tc.want, tc.own)
			}
		})
	}
}

func TestWarningsArePrintedButForTheTally(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &warnings{out: &out}
	for _, text := range []string{"1 of 2 approvals; 1 more needed", "status is not changed\x1b[2K this way", ""} {
		w.HandleWarningHeaderWithContext(t.Context(), 299, "", text)
	}
	w.HandleWarningHeaderWithContext(t.Context(), 199, "", "other")
	if want := "Warning: status is not changed\\u001b[2K this way\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// The API server tells every voter the URL of a webhook that it cannot reach, and so its path.
func TestWhereTheOperatorIsNotReachedNobodyIsToldItsAddress(t *testing.T) {
	t.Parallel()
	const said = `failed calling webhook "mutate.votes.tidewaiter.dev": failed to call webhook: Post "https://tidewaiter-webhook.tidewaiter-system.svc:443/s3cret?timeout=10s": dial tcp 10.0.0.1:443: connect: connection refused`
	for name, down := range map[string]error{
		"as the API server says it": status(http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred: "+said),
		"with another reason":       status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, said),
		"with no status":            errors.New(said),
	} {
		s, patches := newSession(t, newRequest(), func(int, client.WithWatch) error { return down })
		var out, errOut bytes.Buffer
		s.Out, s.ErrOut = &out, &errOut
		cmd := newProgram("kubectl-approve", s)
		cmd.SetArgs([]string{"cranes-0123-1"})
		code := execute(t.Context(), cmd, s.IOStreams)
		want := "error: nothing was changed: the operator is not reachable, and nobody can vote without it; try again, " +
			"and if that does not help, whoever runs it should look at the Deployment tidewaiter-manager and its log\n"
		if diff := cmp.Diff(want, errOut.String()); diff != "" || code != 1 || len(*patches) != 1 {
			t.Errorf("%s: exit %d after %d patches (-want +got):\n%s", name, code, len(*patches), diff)
		}
	}
	// Whatever else becomes of such an error, nothing behind the name of the webhook is printed.
	const want = `write: failed calling webhook "mutate.votes.tidewaiter.dev"`
	for _, text := range []string{lines("write: " + said), refusal(errors.New("write: " + said))} {
		if text != want {
			t.Errorf("printed %q, want %q", text, want)
		}
	}
}

// A write that the webhook did not see is no vote, whatever the API server answers.
func TestWithoutAVoteNothingIsPromised(t *testing.T) {
	t.Parallel()
	for verb, tc := range map[string]struct {
		phase v1alpha1.Phase
		args  []string
		want  string
	}{
		"approve": {v1alpha1.PhasePending, []string{"approve", "cranes-0123-1"}, "cranes-0123-1 was written, and no vote was counted"},
		"deny":    {v1alpha1.PhasePending, []string{"deny", "cranes-0123-1"}, "cranes-0123-1 is Pending until"},
		"resolve": {v1alpha1.PhaseAmbiguous, []string{"resolve", "cranes-0123-1", "--committed", "--reason", "seen"}, "cranes-0123-1 was written, and nothing came of it"},
	} {
		s, patches := newSession(t, newRequest(func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = tc.phase }), func(int, client.WithWatch) error { return nil })
		var out, errOut bytes.Buffer
		s.Out, s.ErrOut = &out, &errOut
		cmd := newProgram("kubectl-tidewaiter", s)
		cmd.SetArgs(tc.args)
		if code := execute(t.Context(), cmd, s.IOStreams); code != 1 || !strings.Contains(errOut.String(), tc.want) || len(*patches) != 1 {
			t.Errorf("%s: exit %d after %d patches, %q; want 1 and %q", verb, code, len(*patches), errOut.String(), tc.want)
		}
	}
}

func TestNamesOfRequestsAreTakenAsTheyArePrinted(t *testing.T) {
	t.Parallel()
	got, err := requestNames([]string{"a-1", "areq/b-1", "approvalrequest.tidewaiter.dev/c-1", "areq/a-1"})
	if diff := cmp.Diff([]string{"a-1", "b-1", "c-1"}, got); diff != "" || err != nil {
		t.Errorf("%v; names (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"pod/a", "areq/", "areq/a/b", "/a"} {
		if got, err := requestNames([]string{bad}); err == nil {
			t.Errorf("%q is taken for %q", bad, got)
		}
	}
}

// Colours are for terminals; what is not one gets none, and what is gets them around harmless text only.
func TestOnlyATerminalGetsColours(t *testing.T) {
	t.Parallel()
	p := newPage(true)
	p.alert("Tier:", "%s", "Irre\x1b[0mversible")
	if want := "Tier:          \x1b[1;31mIrre\\u001b[0mversible\x1b[0m\n"; p.text.String() != want {
		t.Errorf("printed %q, want %q", p.text.String(), want)
	}
	var out bytes.Buffer
	if s := at(&out, made); s.colours() {
		t.Error("a buffer is taken for a terminal")
	}
}
