// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	gocmp "github.com/google/go-cmp/cmp"
)

// absent is the status of a check that one side has not come to.
const absent = "-"

// ranks say which status is the worse. A check that was not made has failed, or what comes before it has.
var ranks = map[string]int{absent: 0, statusFailed: 0, statusWarning: 1, statusSkipped: 2, statusPassed: 3}

// line is one check, the status on both sides, and what the suite says of that through the gateway.
type line struct{ scenario, check, direct, through, message string }

// isWorse tells whether the gateway has made something worse.
func (l line) isWorse() bool {
	if l.direct == absent { // made only on the other side, where it is no harm unless it found something
		return ranks[l.through] < ranks[statusSkipped]
	}
	return ranks[l.through] < ranks[l.direct]
}

// compare lays the two sides beside each other, in order.
func compare(direct, through found) []line {
	var lines []line
	scenarios := maps.Clone(direct)
	maps.Copy(scenarios, through)
	for _, scenario := range slices.Sorted(maps.Keys(scenarios)) {
		checks := maps.Clone(direct[scenario])
		if checks == nil {
			checks = map[string]outcome{}
		}
		maps.Copy(checks, through[scenario])
		for _, check := range slices.Sorted(maps.Keys(checks)) {
			here, there := direct[scenario][check], through[scenario][check]
			lines = append(lines, line{scenario, check, cmp.Or(here.Status, absent), cmp.Or(there.Status, absent), there.ErrorMessage})
		}
	}
	return lines
}

// better returns the better status of each check of two runs: a server that loses a message now and then passes when it
// does not.
func (f found) better(again found) {
	for scenario, checks := range again {
		if f[scenario] == nil {
			f[scenario] = checks
			continue
		}
		for check, got := range checks {
			if ranks[got.Status] > ranks[cmp.Or(f[scenario][check].Status, absent)] {
				f[scenario][check] = got
			}
		}
	}
}

// worse are the scenarios in which the gateway has made a check worse.
func worse(lines []line) []string {
	var scenarios []string
	for _, l := range lines {
		if l.isWorse() && !slices.Contains(scenarios, l.scenario) {
			scenarios = append(scenarios, l.scenario)
		}
	}
	return scenarios
}

// table prints both columns, and their totals. reruns are how often a scenario was run again on both sides.
func table(title string, lines []line, reruns map[string]int) string {
	direct, through, both := totals(lines)
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%s\n\n", title, both)
	columns := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "scenario\tcheck\tdirect\tthrough\t")
	for _, l := range lines {
		note := ""
		if l.isWorse() {
			note = "WORSE"
		}
		fmt.Fprintf(columns, "%s\t%s\t%s\t%s\t%s\n", l.scenario, l.check, l.direct, l.through, note)
	}
	fmt.Fprintf(columns, "passed, failed\t\t%d, %d\t%d, %d\t\n", direct[statusPassed], direct[statusFailed], through[statusPassed], through[statusFailed])
	columns.Flush()
	for _, scenario := range slices.Sorted(maps.Keys(reruns)) {
		fmt.Fprintf(&out, "%s was run again on both sides, %d times; the better of each check counts.\n", scenario, reruns[scenario])
	}
	return out.String()
}

// totals counts the statuses of both sides, and says so in a sentence.
func totals(lines []line) (direct, through map[string]int, both string) {
	direct, through = map[string]int{}, map[string]int{}
	worse, improved := 0, 0
	for _, l := range lines {
		direct[l.direct]++
		through[l.through]++
		switch {
		case l.isWorse():
			worse++
		case l.direct != absent && ranks[l.through] > ranks[l.direct]:
			improved++
		}
	}
	return direct, through, fmt.Sprintf("%d checks: %d pass directly, %d through the gateway; %d worse, %d better",
		len(lines), direct[statusPassed], through[statusPassed], worse, improved)
}

func TestWhatIsWorseIsSeen(t *testing.T) {
	t.Parallel()
	passed, failed, warned := outcome{Status: statusPassed}, outcome{Status: statusFailed}, outcome{Status: statusWarning}
	for name, tc := range map[string]struct {
		direct, through string
		want            bool
	}{
		"a check that passes on both sides":         {statusPassed, statusPassed, false},
		"a check that fails on both sides":          {statusFailed, statusFailed, false},
		"a check that the gateway mends":            {statusFailed, statusPassed, false},
		"a check that the gateway breaks":           {statusPassed, statusFailed, true},
		"a recommendation that it breaks":           {statusPassed, statusWarning, true},
		"a check that it has skipped":               {statusPassed, statusSkipped, true},
		"a check that is not come to":               {statusPassed, absent, true},
		"a failure that is not come to":             {statusFailed, absent, false},
		"a failure where nothing was to be checked": {absent, statusFailed, true},
		"a check that only the gateway comes to":    {absent, statusPassed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := func(status string) found {
				checks := map[string]outcome{"other": {Status: statusPassed}}
				if status != absent {
					checks["check"] = outcome{Status: status}
				}
				return found{"scenario": checks}
			}
			lines := compare(side(tc.direct), side(tc.through))
			if got := len(worse(lines)) == 1; got != tc.want {
				t.Errorf("worse: got %t, want %t", got, tc.want)
			}
			if got := strings.Contains(table("title", lines, nil), "WORSE"); got != tc.want {
				t.Errorf("marked in the table: got %t, want %t", got, tc.want)
			}
		})
	}
	t.Run("a scenario that is not run", func(t *testing.T) {
		t.Parallel()
		if got := worse(compare(found{"ping": {"ping": passed}}, found{})); !slices.Equal(got, []string{"ping"}) {
			t.Errorf("worse: got %v, want ping", got)
		}
	})
	t.Run("the better of two runs", func(t *testing.T) {
		t.Parallel()
		got := found{"a": {"x": failed, "y": passed}}
		got.better(found{"a": {"x": passed, "y": failed, "z": warned}, "b": {"x": failed}})
		want := found{"a": {"x": passed, "y": passed, "z": warned}, "b": {"x": failed}}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("better (-want +got):\n%s", diff)
		}
	})
}
