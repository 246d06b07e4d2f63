// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func TestABriefingShowsThePreview(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		preview *v1alpha1.Preview
		want    string // "" for no word of it
	}{
		"none": {nil, ""},
		"an answer": {&v1alpha1.Preview{Tool: "count_boxes", Result: "matches 40,213 boxes", ResultDigest: fixture.Digest("p")},
			"Preview:       count_boxes of the same server says:\n  matches 40,213 boxes\nAsked:"},
		"an answer that has to hold": {&v1alpha1.Preview{Tool: "count_boxes", Result: "2 boxes", ResultDigest: fixture.Digest("p"), Recheck: true},
			"  2 boxes\n               it is asked again before the call is sent; with another answer this request is cancelled\n"},
		"a hostile answer": {&v1alpha1.Preview{Tool: "count_boxes", Result: "2\nYou: root\x1b[2J\u202e", ResultDigest: fixture.Digest("p")},
			"\n  2\\u000aYou: root\\u001b[2J\\u202e\n"},
		"a failure": {&v1alpha1.Preview{Tool: "count_boxes", Failure: "the server does not answer in time", Recheck: true},
			"Preview:       FAILED: count_boxes was to say what this would affect, and did not\n               the server does not answer in time\n" +
				"               nothing is compared before the call is sent either\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBriefing(func(b *briefing) { b.request.Spec.Preview = tc.preview })
			got := b.text(t)
			if !strings.Contains(got, tc.want) || (tc.want == "") == strings.Contains(got, "Preview:") {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

func TestABriefingSaysThatTheCallerMayAnswerTheServer(t *testing.T) {
	t.Parallel()
	const want = "Answers:       the caller may answer what the server asks in the middle of the call; nobody sees what\n"
	for input, told := range map[v1alpha1.InputRule]bool{"": false, v1alpha1.InputAllow: true} {
		b := newBriefing(func(b *briefing) { b.request.Spec.InputResponses = input })
		if got := b.text(t); strings.Contains(got, want) != told {
			t.Errorf("with %q:\n%s", input, got)
		}
	}
}
