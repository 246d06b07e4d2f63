// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// opened returns a request that was opened some time before noon.
func opened(before time.Duration, phase v1alpha1.Phase, edits ...func(*v1alpha1.ApprovalRequest)) *v1alpha1.ApprovalRequest {
	r := asked(1, phase, edits...)
	r.CreationTimestamp = metav1.NewTime(noon.Add(-before))
	return r
}

// deniedBefore returns a request that was opened an hour before it was denied.
func deniedBefore(d time.Duration) *v1alpha1.ApprovalRequest {
	return opened(d+time.Hour, v1alpha1.PhaseDenied, voted(v1alpha1.DecisionDenied, noon.Add(-d)))
}

func approvedBefore(d time.Duration, phase v1alpha1.Phase) *v1alpha1.ApprovalRequest {
	return opened(d+time.Hour, phase, voted(v1alpha1.DecisionApproved, noon.Add(-d)))
}

func TestLimited(t *testing.T) {
	t.Parallel()
	type list = []*v1alpha1.ApprovalRequest
	many := func(n int, of func() *v1alpha1.ApprovalRequest) list {
		var all list
		for range n {
			all = append(all, of())
		}
		return all
	}
	for name, tc := range map[string]struct {
		known   list
		opening int
		perHour int32
		denials int
		until   time.Duration // after noon; 0: not limited
	}{
		"the first":                              {nil, 0, 1, 0, 0},
		"the first, without a limit":             {nil, 0, 0, 0, 0},
		"the second of one an hour":              {list{opened(20*time.Minute, "")}, 0, 1, 0, 40 * time.Minute},
		"the second, when the first is over":     {list{opened(20*time.Minute, v1alpha1.PhaseExpired)}, 0, 1, 0, 40 * time.Minute},
		"the second, an hour later":              {list{opened(time.Hour, "")}, 0, 1, 0, 0},
		"one that is being opened counts":        {nil, 1, 1, 0, time.Hour},
		"the third of two, the older goes first": {list{opened(10*time.Minute, ""), opened(50*time.Minute, "")}, 0, 2, 0, 10 * time.Minute},
		"far too many":                           {list{opened(10*time.Minute, ""), opened(50*time.Minute, ""), opened(40*time.Minute, "")}, 0, 1, 0, 50 * time.Minute},
		"after a denial":                         {list{deniedBefore(20 * time.Second)}, 0, 60, 1, 40 * time.Second},
		"a minute after a denial":                {list{deniedBefore(time.Minute)}, 0, 60, 0, 0},
		"a denial that nobody signed":            {list{opened(20*time.Second, v1alpha1.PhaseDenied)}, 0, 60, 1, 40 * time.Second},
		"a denial from the future":               {list{deniedBefore(-time.Hour)}, 0, 60, 1, time.Minute},
		"after two":                              {list{deniedBefore(time.Hour), deniedBefore(30 * time.Second)}, 0, 60, 2, 90 * time.Second},
		"after six":                              {many(6, func() *v1alpha1.ApprovalRequest { return deniedBefore(0) }), 0, 60, 6, 32 * time.Minute},
		"after seven":                            {many(7, func() *v1alpha1.ApprovalRequest { return deniedBefore(0) }), 0, 60, 7, time.Hour},
		"after a hundred":                        {many(100, func() *v1alpha1.ApprovalRequest { return deniedBefore(0) }), 0, 1000, 100, time.Hour},
		"an approval ends the row":               {list{deniedBefore(2 * time.Minute), deniedBefore(time.Minute), approvedBefore(30*time.Second, v1alpha1.PhaseSucceeded)}, 0, 60, 0, 0},
		"one before it does not":                 {list{approvedBefore(time.Hour, v1alpha1.PhaseSucceeded), deniedBefore(30 * time.Second)}, 0, 60, 1, 30 * time.Second},
		"a yes that came to nothing does not":    {list{deniedBefore(30 * time.Second), approvedBefore(0, v1alpha1.PhasePending)}, 0, 60, 1, 30 * time.Second},
		"a yes that was taken back":              {list{opened(time.Hour, v1alpha1.PhaseDenied, voted(v1alpha1.DecisionApproved, noon), voted(v1alpha1.DecisionDenied, noon))}, 0, 60, 1, time.Minute},
		"not now is no denial":                   {list{opened(0, v1alpha1.PhaseDismissed, voted(v1alpha1.DecisionDismissed, noon))}, 0, 60, 0, 0},
		"both: back-off speaks first":            {list{deniedBefore(0), opened(0, "")}, 0, 1, 1, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit, limited := Limited(tc.known, tc.opening, tc.perHour, noon)
			if limited != (tc.until > 0) || limit.Denials != tc.denials || limited && !limit.Until.Equal(noon.Add(tc.until)) {
				t.Errorf("limited %v, %d denials, until %s; want %d, %s", limited, limit.Denials, limit.Until.Sub(noon), tc.denials, tc.until)
			}
		})
	}
}

// drawHistory draws requests of the last three hours, up to noon.
func drawHistory(t *rapid.T) []*v1alpha1.ApprovalRequest {
	var all []*v1alpha1.ApprovalRequest
	for range rapid.IntRange(0, 12).Draw(t, "requests") {
		age := time.Duration(rapid.IntRange(0, 3*60*60).Draw(t, "age")) * time.Second
		decided := noon.Add(-time.Duration(rapid.IntRange(0, int(age/time.Second)).Draw(t, "decided")) * time.Second)
		switch rapid.IntRange(0, 3).Draw(t, "fate") {
		case 0:
			all = append(all, opened(age, v1alpha1.PhaseDenied, voted(v1alpha1.DecisionDenied, decided)))
		case 1:
			all = append(all, opened(age, v1alpha1.PhaseSucceeded, voted(v1alpha1.DecisionApproved, decided)))
		default:
			all = append(all, opened(age, v1alpha1.PhaseExpired))
		}
	}
	return all
}

func TestLawLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known, opening := drawHistory(t), rapid.IntRange(0, 3).Draw(t, "opening")
		perHour := rapid.Int32Range(0, 10).Draw(t, "perHour")
		limit, limited := Limited(known, opening, perHour, noon)

		other, otherLimited := Limited(rapid.Permutation(known).Draw(t, "order"), opening, perHour, noon)
		if limited != otherLimited || limit != other {
			t.Fatalf("one order gives %v, another %v", limit, other)
		}
		if limited && !limit.Until.After(noon) {
			t.Fatalf("limited until %s, which is over", limit.Until)
		}
		if _, more := Limited(known, opening, perHour+1, noon); more && !limited {
			t.Fatal("a higher limit refuses more")
		}
		stricter := append(known, opened(0, ""))
		if rapid.Bool().Draw(t, "denied") {
			stricter = append(known, deniedBefore(0))
		}
		if _, less := Limited(stricter, opening, perHour, noon); limited && !less {
			t.Fatal("one request more lets another through")
		}
		if limited && limit.Denials == 0 && len(known)+opening < int(max(perHour, 1)) {
			t.Fatalf("%d requests are too many for %d", len(known)+opening, perHour)
		}
		if limited {
			checkUntil(t, known, opening, perHour, limit)
		}
	})
}

// checkUntil waits as long as it is told, as often as it is told; those that are being opened now are opened then.
func checkUntil(t *rapid.T, known []*v1alpha1.ApprovalRequest, opening int, perHour int32, limit Limit) {
	for range opening {
		known = append(known, opened(0, ""))
	}
	if _, early := Limited(known, 0, perHour, limit.Until.Add(-time.Second)); !early {
		t.Fatalf("it could have come earlier than %s", limit.Until)
	}
	next, still := Limited(known, 0, perHour, limit.Until)
	if still && limit.Denials == 0 {
		t.Fatalf("it came at %s as it was told, and was told %v", limit.Until, next)
	}
	if still && (next.Denials > 0 || !next.Until.After(limit.Until)) {
		t.Fatalf("after the back-off at %s it was told %v", limit.Until, next)
	}
}
