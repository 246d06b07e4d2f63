// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// leastSteps are how many steps of a script must have an answer of the server itself, so that nothing is proved with one
// that fails.
const leastSteps = 10

// ownWord is what the reference server says of its own: the time of day, and its port in its environment.
var ownWord = regexp.MustCompile(`\d{1,2}:\d\d:\d\d [AP]M|PORT\\": \\"\d+`)

// compareAnswers has a client go through a script on both sides at once, and compares what it got, step by step.
func (w *world) compareAnswers(t *testing.T, s subject, script string, governed v1alpha1.GovernedServer, direct, through string) {
	var sides [2]map[string]any
	var errs [2]error
	var both sync.WaitGroup
	for i, url := range []string{direct, through} {
		both.Go(func() { sides[i], errs[i] = w.answers(t.Context(), script, url) })
	}
	both.Wait()
	for i, side := range []string{"directly", "through the gateway"} {
		if errs[i] != nil {
			t.Fatalf("%s: %v", side, errs[i])
		}
	}
	want, got := sides[0], sides[1]
	keepKnown(want, governed)
	dropNotes(got)
	answered, equal := 0, 0
	var out strings.Builder
	columns := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "step\tdirect\tthrough\t")
	for _, step := range slices.Sorted(maps.Keys(want)) {
		through := "the same"
		if diff := gocmp.Diff(want[step], got[step]); diff != "" {
			through = "DIFFERENT"
			t.Errorf("%s (-directly +through the gateway):\n%s", step, diff)
		} else {
			equal++
		}
		here := "answered"
		answer, _ := want[step].(map[string]any)
		if fault, failed := answer["error"]; failed {
			here = fmt.Sprint("error: ", fault)
		} else {
			answered++
		}
		fmt.Fprintf(columns, "%s\t%s\t%s\t\n", step, here, through)
	}
	columns.Flush()
	report(t, fmt.Sprintf("%s and a client of the TypeScript SDK, %s\n%d steps: %d answered, %d the same through the gateway\n\n%s",
		s.title, script, len(want), answered, equal, out.String()))
	if answered < leastSteps {
		t.Errorf("%d steps have an answer directly, want at least %d", answered, leastSteps)
	}
}

// answers runs a script against a server, and returns what each step got.
func (w *world) answers(ctx context.Context, script, url string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, suiteTimeout)
	defer cancel()
	cmd := command(ctx, w.node, filepath.Join(w.scripts, "client", "main.mjs"), script, url)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run the client: %w\n%s", err, stderr.Bytes())
	}
	var steps map[string]any
	if err := json.Unmarshal(ownWord.ReplaceAll(stdout.Bytes(), []byte("ITS OWN")), &steps); err != nil {
		return nil, fmt.Errorf("what the client got: %w", err)
	}
	return steps, nil
}

// keepKnown leaves the tools that the manager knows in the list of the server itself. The reference server has more of
// them for a client that says it can do more than the manager.
func keepKnown(steps map[string]any, governed v1alpha1.GovernedServer) {
	list, _ := steps["tools/list"].(map[string]any)
	tools, _ := list["tools"].([]any)
	if len(tools) == 0 {
		return
	}
	list["tools"] = slices.DeleteFunc(tools, func(entry any) bool {
		tool, _ := entry.(map[string]any)
		return !slices.ContainsFunc(governed.Status.Tools, func(known v1alpha1.ToolStatus) bool { return known.Name == tool["name"] })
	})
}

// dropNotes removes what the gateway adds to the tools of a list.
func dropNotes(steps map[string]any) {
	list, _ := steps["tools/list"].(map[string]any)
	tools, _ := list["tools"].([]any)
	for _, entry := range tools {
		tool, _ := entry.(map[string]any)
		notes, _ := tool["_meta"].(map[string]any)
		maps.DeleteFunc(notes, func(key string, _ any) bool { return strings.HasPrefix(key, "tidewaiter.dev/") })
		if len(notes) == 0 {
			delete(tool, "_meta")
		}
	}
}
