// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package classify

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// labelled is a tool with the tier that a person gave it.
type labelled struct {
	server     string
	descriptor tool.Descriptor
	want       v1alpha1.Tier
	sure       bool
}

// corpus reads the labelled tools under TIDEWAITER_CORPUS, or skips the test.
func corpus(tb testing.TB) []labelled {
	tb.Helper()
	dir := os.Getenv("TIDEWAITER_CORPUS")
	if dir == "" {
		tb.Skip("not run: TIDEWAITER_CORPUS does not name the directory of labelled tools")
	}
	type key struct{ Server, Name string }
	labels := map[key]labelled{}
	eachLine(tb, filepath.Join(dir, "labels.jsonl"), func(line []byte) error {
		var label struct {
			key
			Tier, Confidence string
		}
		if err := json.Unmarshal(line, &label); err != nil {
			return err
		}
		labels[label.key] = labelled{server: label.Server, want: tierOf(tb, label.Tier), sure: label.Confidence == "high"}
		return nil
	})
	var tools []labelled
	eachLine(tb, filepath.Join(dir, "tools.jsonl"), func(line []byte) error {
		var entry struct {
			key
			Title, Description string
			Annotations        tool.Annotations
			InputSchema        json.RawMessage
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			return err
		}
		if item, ok := labels[entry.key]; ok {
			item.descriptor = tool.Descriptor{
				Name: entry.Name, Title: entry.Title, Description: entry.Description,
				Annotations: entry.Annotations, InputSchema: entry.InputSchema,
			}
			tools = append(tools, item)
		}
		return nil
	})
	if len(tools) == 0 || len(tools) != len(labels) {
		tb.Fatalf("%d of %d labels have a tool", len(tools), len(labels))
	}
	return tools
}

func eachLine(tb testing.TB, path string, use func([]byte) error) {
	tb.Helper()
	file, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for number := 1; lines.Scan(); number++ {
		if err := use(lines.Bytes()); err != nil {
			tb.Fatalf("%s:%d: %v", path, number, err)
		}
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
}

func tierOf(tb testing.TB, word string) v1alpha1.Tier {
	tb.Helper()
	switch word {
	case "read":
		return v1alpha1.TierRead
	case "reversible":
		return v1alpha1.TierReversible
	case "irreversible":
		return v1alpha1.TierIrreversible
	}
	tb.Fatalf("unknown tier %q", word)
	return ""
}

// figures are what the goals are set on.
type figures struct {
	total, right map[v1alpha1.Tier]int
	// raised counts reversible tools that came out Irreversible, escaped lists effects that came out Read.
	raised  int
	escaped []string
}

// measure classifies each server's tools together, as the operator does, and scores those that pass keep.
func measure(tools []labelled, keep func(labelled) bool) figures {
	f := figures{total: map[v1alpha1.Tier]int{}, right: map[v1alpha1.Tier]int{}}
	byServer := map[string][]labelled{}
	for _, item := range tools {
		byServer[item.server] = append(byServer[item.server], item)
	}
	for server, items := range byServer {
		descriptors := make([]tool.Descriptor, len(items))
		for i, item := range items {
			descriptors[i] = item.descriptor
		}
		for i, verdict := range Server(descriptors, Options{}) {
			if item := items[i]; keep(item) {
				f.add(server+" "+item.descriptor.Name, item.want, verdict.Tier)
			}
		}
	}
	slices.Sort(f.escaped)
	return f
}

func (f *figures) add(name string, want, got v1alpha1.Tier) {
	f.total[want]++
	switch {
	case got == want:
		f.right[want]++
	case got == v1alpha1.TierRead:
		f.escaped = append(f.escaped, name)
	case want == v1alpha1.TierReversible:
		f.raised++
	}
}

func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(whole, 1)) }

func (f figures) read() float64 {
	return percent(f.right[v1alpha1.TierRead], f.total[v1alpha1.TierRead])
}

func (f figures) irreversible() float64 {
	return percent(f.right[v1alpha1.TierIrreversible], f.total[v1alpha1.TierIrreversible])
}

func (f figures) raisedPercent() float64 { return percent(f.raised, f.total[v1alpha1.TierReversible]) }

func (f figures) String() string {
	return fmt.Sprintf("read recognised %.1f%% of %d, irreversible recognised %.1f%% of %d, reversible raised %.1f%% of %d, effects that came out Read: %d %s",
		f.read(), f.total[v1alpha1.TierRead], f.irreversible(), f.total[v1alpha1.TierIrreversible],
		f.raisedPercent(), f.total[v1alpha1.TierReversible], len(f.escaped), strings.Join(f.escaped, ", "))
}

// mustMeetGoals fails the test unless the figures are what the classifier promises.
func (f figures) mustMeetGoals(tb testing.TB) {
	tb.Helper()
	tb.Log(f)
	if len(f.escaped) > 0 {
		tb.Errorf("tools with effects came out Read: %s", strings.Join(f.escaped, ", "))
	}
	if f.read() < 95 || f.irreversible() < 85 || f.raisedPercent() > 15 {
		tb.Error("the goals are: read at least 95%, irreversible at least 85%, raised at most 15%")
	}
}

func sure(item labelled) bool { return item.sure }

func TestCorpusMeetsTheGoals(t *testing.T) {
	t.Parallel()
	tools := corpus(t)
	measure(tools, sure).mustMeetGoals(t)
	t.Logf("low confidence, a trend only: %s", measure(tools, func(item labelled) bool { return !item.sure }))
}

func TestServersOwnNamesDoNotMatter(t *testing.T) {
	t.Parallel()
	tools := corpus(t)
	before := measure(tools, sure)
	renamed := slices.Clone(tools)
	changed := 0
	for i := range renamed {
		name := renamed[i].descriptor.Name
		for word := range strings.FieldsFuncSeq(renamed[i].server, func(r rune) bool { return r == '-' }) {
			renamed[i].descriptor.Name = strings.ReplaceAll(renamed[i].descriptor.Name, word, "qorvex")
		}
		if name != renamed[i].descriptor.Name {
			changed++
		}
	}
	if changed < 50 {
		t.Errorf("only %d names hold their server's own: this proves little", changed)
	}
	after := measure(renamed, sure)
	t.Logf("%d names changed: %s", changed, after)
	for what, moved := range map[string]float64{
		"read": after.read() - before.read(), "irreversible": after.irreversible() - before.irreversible(),
		"raised": after.raisedPercent() - before.raisedPercent(), "escaped": float64(len(after.escaped) - len(before.escaped)),
	} {
		if moved > 2 || moved < -2 || what == "escaped" && moved > 0 {
			t.Errorf("the figure %q moved by %.1f", what, moved)
		}
	}
}

func TestNoNameOfTheCorpusIsInTheRules(t *testing.T) {
	t.Parallel()
	tools := corpus(t)
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, path := range sources {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		read++
		for _, item := range tools {
			if name := item.descriptor.Name; len(tool.Words(name)) > 1 && strings.Contains(string(source), name) {
				t.Errorf("%s holds the full name %s of the corpus", path, name)
			}
		}
	}
	if read == 0 {
		t.Error("no source file was read")
	}
}
