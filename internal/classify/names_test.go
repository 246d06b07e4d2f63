// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package classify

import (
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// ownNames reads our own list of names, which carry no other evidence.
func ownNames(tb testing.TB) []labelled {
	tb.Helper()
	tiers := map[string]v1alpha1.Tier{"r": v1alpha1.TierRead, "w": v1alpha1.TierReversible, "x": v1alpha1.TierIrreversible}
	var tools []labelled
	server := ""
	eachLine(tb, "testdata/names.txt", func(line []byte) error {
		fields := strings.Fields(string(line))
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case fields[0] == "@":
			server = fields[1]
		case tiers[fields[0]] == "":
			tb.Fatalf("unknown tier in %q", line)
		default:
			tools = append(tools, labelled{
				server: server, descriptor: tool.Descriptor{Name: fields[1]}, want: tiers[fields[0]], sure: len(fields) == 2,
			})
		}
		return nil
	})
	return tools
}

func TestNamesOfOtherServersMeetTheGoals(t *testing.T) {
	t.Parallel()
	tools := ownNames(t)
	if len(tools) < 300 {
		t.Errorf("only %d names: too few to say anything", len(tools))
	}
	measure(tools, sure).mustMeetGoals(t)
	t.Logf("unsure names, a trend only: %s", measure(tools, func(item labelled) bool { return !item.sure }))
	for _, item := range tools {
		verdict := verdictOn(item.descriptor, Options{})
		if item.sure && verdict.Tier != item.want {
			t.Errorf("%s %s: want %s, got %s: %s", item.server, item.descriptor.Name, item.want, verdict.Tier, verdict.Reason)
		}
	}
}
