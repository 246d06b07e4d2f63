// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// suiteTimeout bounds one run of all scenarios, which takes half a minute on an idle machine with two cores.
const suiteTimeout = 5 * time.Minute

// found is what the suite says of a server, by scenario and check. A scenario that makes the same check several times has
// it several times, as "check", "check #2" and so on.
type found map[string]map[string]outcome

// outcome is the status of a check, and what the suite says when it has not passed.
type outcome struct{ Status, ErrorMessage string }

// The statuses of a check; what is SKIPPED says nothing about the server.
const (
	statusPassed  = "SUCCESS"
	statusFailed  = "FAILURE"
	statusWarning = "WARNING"
	statusSkipped = "SKIPPED"
	// statusInfo is of records of what the suite has sent and got, which are no checks, and of checks that do not apply.
	statusInfo = "INFO"
)

// resultFolder is how the suite names the folder of a scenario's results.
var resultFolder = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// suite runs the scenarios of a revision, or one of them, against a server.
func (w *world) suite(ctx context.Context, t *testing.T, url, revision, scenario string) (found, error) {
	ctx, cancel := context.WithTimeout(ctx, suiteTimeout)
	defer cancel()
	folder := t.TempDir()
	what := []string{"--requirements", revision}
	if scenario != "" {
		what = []string{"--scenario", scenario, "--spec-version", revision}
	}
	cmd := command(ctx, w.node, append([]string{w.program("conformance"), "server", "--url", url, "--output-dir", folder}, what...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	failed := cmd.Run() // also when a check fails
	if ctx.Err() != nil {
		return nil, fmt.Errorf("run the suite: %w\n%s", ctx.Err(), out.Bytes())
	}
	results, err := readResults(folder)
	if err == nil && len(results) == 0 {
		err = fmt.Errorf("no results: %w", failed)
	}
	if err != nil {
		return nil, fmt.Errorf("run the suite: %w\n%s", err, out.Bytes())
	}
	return results, nil
}

// readResults reads what the suite has written.
func readResults(folder string) (found, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*", "checks.json"))
	if err != nil {
		return nil, err
	}
	results := found{}
	for _, file := range files {
		match := resultFolder.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		if match == nil {
			return nil, fmt.Errorf("%s is not named after a scenario", file)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var checks []struct {
			ID string
			outcome
		}
		if err := json.Unmarshal(text, &checks); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		outcomes, times := map[string]outcome{}, map[string]int{}
		for _, c := range checks {
			if c.Status == statusInfo {
				continue
			}
			if _, known := ranks[c.Status]; !known {
				return nil, fmt.Errorf("%s: the status %q is not known", file, c.Status)
			}
			times[c.ID]++
			if n := times[c.ID]; n > 1 {
				c.ID = fmt.Sprintf("%s #%d", c.ID, n)
			}
			outcomes[c.ID] = c.outcome
		}
		results[match[1]] = outcomes
	}
	return results, nil
}
