// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package action_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/action"
)

// members returns an object of so many members.
func members(count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, `,"k%d":"v"`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// Allocations are counted for the whole process, so it runs alone.
func TestACallerCannotMakeTheGatewayLookAtEverything(t *testing.T) {
	const many = 20_000
	entries := strings.Repeat(`,{"id":"x"}`, many)[1:]
	schema := []byte(`{"type":"object","properties":` + strings.ReplaceAll(members(1000), `"v"`, `{"type":"string"}`) + `}`)
	for name, tc := range map[string]struct {
		arguments string
		wantText  string
	}{
		"members":          {members(many), `more members]":null}`},
		"members below":    {`{"a":` + members(many) + `}`, `"a":"[hidden: too large`},
		"entries":          {`{"a":[` + entries + `]}`, `"a":"[hidden: too large`},
		"members and more": {`{"a":[` + entries + `],"b":` + members(many) + `}`, `"b":"[hidden: too large`},
	} {
		shown, err := action.Mask([]byte(tc.arguments))
		if err != nil || shown.Fits || len(shown.Text) > action.MaxShown || !strings.Contains(shown.Text, tc.wantText) {
			t.Errorf("%s: %d bytes that fit %t, %v, want %q in them", name, len(shown.Text), shown.Fits, err, tc.wantText)
		}
		if got := action.Radius([]byte(tc.arguments), schema); got.Scope != v1alpha1.BlastUnknown {
			t.Errorf("%s: %+v", name, got)
		}
		// A handful for each member that is looked at, whatever their number.
		allocations := testing.AllocsPerRun(1, func() {
			_, _ = action.Mask([]byte(tc.arguments)) // it was looked at above
			action.Radius([]byte(tc.arguments), schema)
		})
		if allocations > 6*many {
			t.Errorf("%s: %.0f allocations", name, allocations)
		}
	}
}

func TestManyMembersAreCountedToTheLast(t *testing.T) {
	t.Parallel()
	shown, err := action.Mask([]byte(members(5000)))
	if err != nil {
		t.Fatal(err)
	}
	visible := strings.Count(shown.Text, `":"v"`)
	if want := fmt.Sprintf(`,"[hidden: %d more members]":null}`, 5000-visible); visible == 0 || !strings.HasSuffix(shown.Text, want) {
		t.Errorf("%d are shown, and the text ends with %q", visible, shown.Text[len(shown.Text)-60:])
	}
}
