// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A gateway runs in the pod of the server, where others may have a hand in what it says.
func TestAReportIsReadAsAStrangersAnswer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	for name, tc := range map[string]struct {
		body  string
		tools []string
		fault *Error
		gaps  int
	}{
		"a report":                  {`{"server":{"Name":"billing"},"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`, []string{"a"}, nil, 0},
		"a tool with two meanings":  {`{"tools":[{"name":"a","name":"b"},{"name":"c"}]}`, []string{"c"}, nil, 1},
		"a name that nobody sees":   {`{"tools":[{"name":"\u202ea"},{"name":"c"}]}`, []string{"c"}, nil, 1},
		"two definitions of a tool": {`{"tools":[{"name":"a"},{"name":"a","title":"b"}]}`, nil, nil, 1},
		"more gaps than are kept":   {`{"tools":[],"gaps":["` + strings.Repeat(`a","`, 100) + `b"]}`, nil, nil, maxGaps},
		"an error":                  {`{"error":{"kind":"Unauthorized","cause":"the server refuses"}}`, nil, &Error{Kind: Unauthorized, Cause: "the server refuses"}, 0},
		"an error of no kind":       {`{"error":{"kind":"Ready","cause":"\u001b[31m` + long + `"}}`, nil, &Error{Kind: Unreachable, Cause: "[31m" + long[:maxCause-4]}, 0},
		"no report":                 {`hello`, nil, &Error{Kind: ProtocolError, Cause: "the gateway in the pod gives no report that can be read"}, 0},
	} {
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, tc.body) }))
		result, err := Through(t.Context(), targetOf(t, url))
		fault, _ := errors.AsType[*Error](err)
		if (fault == nil) != (tc.fault == nil) || fault != nil && (fault.Kind != tc.fault.Kind || fault.Cause != tc.fault.Cause) {
			t.Errorf("%s: got %v, want %v", name, err, tc.fault)
			continue
		}
		var names []string
		for _, d := range result.Tools {
			names = append(names, d.Name)
		}
		if diff := cmp.Diff(tc.tools, names); diff != "" || len(result.Gaps) != tc.gaps {
			t.Errorf("%s: %d gaps %q, want %d (-want +got):\n%s", name, len(result.Gaps), result.Gaps, tc.gaps, diff)
		}
	}
}

func TestAGatewayThatAnswersNobodyIsUnreachable(t *testing.T) {
	t.Parallel()
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
	}))
	for name, where := range map[string]string{"a redirect": url, "nobody": "http://127.0.0.1:1/tools", "a forbidden address": "http://10.0.0.1/tools"} {
		_, err := Through(t.Context(), targetOf(t, where))
		if fault, ok := errors.AsType[*Error](err); !ok || !strings.Contains(fault.Cause, "gateway in the pod") {
			t.Errorf("%s: %v, want an error that speaks of the gateway", name, err)
		}
	}
}
