// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// sees is a watch that has seen nothing yet, and was started some time after the requests of these tests were made.
func sees(after time.Duration) *watch {
	return &watch{since: opened.Add(after).Add(-lookBack), told: map[types.NamespacedName]*record{}}
}

func events(list []occurrence) []Event {
	var found []Event
	for _, o := range list {
		found = append(found, o.event)
	}
	return found
}

func TestAStartTellsNothingThatIsOlderThanTheWindow(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, tc := range map[string]struct {
		started time.Duration
		request *v1alpha1.ApprovalRequest
		want    []Event
	}{
		"opened at the start of the window":               {lookBack, request(), []Event{"Opened"}},
		"opened before the window":                        {lookBack + 1, request(), nil},
		"opened before the window, denied within it":      {lookBack + second, request(in("Denied"), voted("Denied", second)), []Event{"Denied"}},
		"opened and denied before the window":             {lookBack + 2*second, request(in("Denied"), voted("Denied", second)), nil},
		"past its half-life since before the window":      {30*time.Minute + lookBack + second, request(), nil},
		"past its half-life since the window began":       {30*time.Minute + lookBack, request(), []Event{"Expiring"}},
		"expired within the window":                       {60*time.Minute + second, request(in("Expired")), []Event{"Expired"}},
		"cancelled, and made within the window":           {second, request(in("Cancelled")), []Event{"Opened", "Cancelled"}},
		"cancelled some time, and made before the window": {lookBack + second, request(in("Cancelled")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := events(sees(tc.started).news(tc.request, opened.Add(tc.started)))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("news (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsSeenWhileItRunsIsToldOnceHoweverOldItIs(t *testing.T) {
	t.Parallel()
	w := sees(24 * time.Hour)
	now := opened.Add(24 * time.Hour)
	for _, step := range []struct {
		request *v1alpha1.ApprovalRequest
		want    []Event
	}{
		{request(in("Pending")), nil},
		{request(in("Expired")), []Event{"Expired"}}, // at its time, 23 hours ago: nobody was there to write it
		{request(in("Expired")), nil},
		{request(func(r *v1alpha1.ApprovalRequest) { r.UID, r.CreationTimestamp = "another", metav1.NewTime(now) }), []Event{"Opened"}},
	} {
		if diff := cmp.Diff(step.want, events(w.news(step.request, now))); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", step.request.UID, step.request.Status.Phase, diff)
		}
	}
}

// Whatever a watch misses of a request's life, no event is told twice, and how the request ended is told.
func TestALifeIsToldWithoutRepetition(t *testing.T) {
	t.Parallel()
	lives := [][]v1alpha1.Phase{
		{"Pending", "Denied"}, {"Pending", "Dismissed"}, {"Pending", "Expired"}, {"Pending", "Approved", "Denied"},
		{"Pending", "Approved", "Expired"}, {"Pending", "Approved", "Cancelled"}, {"Pending", "Approved", "Executing", "Succeeded"},
		{"Pending", "Approved", "Executing", "Ambiguous", "Failed"},
	}
	rapid.Check(t, func(t *rapid.T) {
		life := rapid.SampledFrom(lives).Draw(t, "life")
		w := sees(0)
		now := opened
		told := map[Event]int{}
		for i, phase := range life {
			for range rapid.IntRange(0, 3).Draw(t, "looks") {
				now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "minutes")) * time.Minute)
				for _, o := range w.news(request(in(phase)), now) {
					told[o.event]++
				}
			}
			if i == len(life)-1 {
				for _, o := range w.news(request(in(phase)), now) {
					told[o.event]++
				}
				if told[Event(phase)] != 1 {
					t.Fatalf("%s was told %d times", phase, told[Event(phase)])
				}
			}
		}
		for event, n := range told {
			if n != 1 {
				t.Fatalf("%s was told %d times", event, n)
			}
		}
		if told[EventOpened] != 1 {
			t.Fatal("nobody was told that the request opened")
		}
	})
}
