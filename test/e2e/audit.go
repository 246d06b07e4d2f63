// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// audit compares what servers wrote down with the requests by the notes of their calls: every approval was used, and
// nothing ran more often than it was approved, nor than its end says.
func audit(executions []execution, requests map[string][]v1alpha1.ApprovalRequest) (seen string, err error) {
	ran := map[string]int{}
	for _, e := range executions {
		ran[fmt.Sprint(e.Arguments["note"])]++
	}
	var faults []string
	phases := map[v1alpha1.Phase]int{}
	for note, of := range requests {
		approved, succeeded, unclear := 0, 0, 0
		for _, request := range of {
			phases[request.Status.Phase]++
			if request.Status.Decision == v1alpha1.DecisionApproved {
				approved++
			}
			switch phase := request.Status.Phase; {
			case phase == v1alpha1.PhaseSucceeded:
				succeeded++
			case ended[phase]:
				unclear++
			case request.Status.Decision == v1alpha1.DecisionApproved:
				faults = append(faults, fmt.Sprintf("the approval of %s for %q was not used: it is %s", request.Name, note, phase))
			}
		}
		if n := ran[note]; n > approved || n < succeeded || n > succeeded+unclear {
			faults = append(faults, fmt.Sprintf("%q ran %d times, with %d approvals; %d calls succeeded, the end of %d is unclear", note, n, approved, succeeded, unclear))
		}
	}
	for note, n := range ran {
		if len(requests[note]) == 0 {
			faults = append(faults, fmt.Sprintf("%q ran %d times, and nobody was asked", note, n))
		}
	}
	seen = fmt.Sprintf("%d executions in the book; requests by their phase:", len(executions))
	for _, phase := range slices.Sorted(maps.Keys(phases)) {
		seen += fmt.Sprintf(" %s %d", phase, phases[phase])
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		err = errors.New(strings.Join(faults, "\n"))
	}
	return seen, err
}
