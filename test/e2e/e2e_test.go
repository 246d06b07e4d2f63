// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func TestAChapterEndsAtTheFirstStepThatFailsAndIsToldInTheSummary(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	r := newReport(&out)
	fine := func(context.Context) (string, error) { return "seen\nthis", nil }
	broken := func(context.Context) (string, error) { return "seen that", errors.New("it should not be") }
	if !r.chapter(t.Context(), "first", limit, []step{{"one", fine}, {"two", fine}}) {
		t.Error("a chapter without a failure failed")
	}
	if r.chapter(t.Context(), "second", limit, []step{{"three", fine}, {"four", broken}, {"five", fine}}) {
		t.Error("a chapter with a failure passed")
	}
	r.summary()
	for _, want := range []string{"1.2 ok", "       | this\n", "2.2 FAILED", "       | seen that\n", "FAILED: it should not be", "the other 1 steps", "3 steps passed, 1 failed", "FAILED 2.2 four", "e2e: FAILED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "five") {
		t.Errorf("a step was done after one that failed:\n%s", &out)
	}
}

func TestBlocksAreReadFromTheirSectionAlone(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	text := "# Page\n\n## One\n```\na b\nc\n```\nwords\n```yaml\nk: v\n```\n```\nd\n```\n## Two\n```\ne\n```\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := commands(page, "## One")
	if diff := cmp.Diff([]string{"a b", "c", "d"}, got); diff != "" || err != nil {
		t.Errorf("commands: %v (-want +got)\n%s", err, diff)
	}
	yamls, err := blocks(page, "## One", "yaml")
	if diff := cmp.Diff([]string{"k: v\n"}, yamls); diff != "" || err != nil {
		t.Errorf("blocks: %v (-want +got)\n%s", err, diff)
	}
	for _, heading := range []string{"## Three", "# Page"} {
		if got, err := commands(page, heading); err == nil {
			t.Errorf("%s: %q", heading, got)
		}
	}
}

// TestThePagesHaveWhatIsRunAsItStands shows it without a cluster too.
func TestThePagesHaveWhatIsRunAsItStands(t *testing.T) {
	t.Chdir("../..")
	for _, s := range scenarios {
		for _, step := range s.steps(&e2e{}) {
			if strings.HasSuffix(step.what, "are read") {
				_, err := step.do(t.Context())
				t.Errorf("%s: %v", s.name, err)
			}
		}
	}
	if yamls, err := blocks("README.md", "## Who may approve", "yaml"); err != nil || !strings.Contains(yamls[0], "finance-leads") {
		t.Errorf("%v, %q", err, yamls)
	}
}

func TestEveryManifestCanBeReadOnceItIsFilledIn(t *testing.T) {
	t.Parallel()
	if err := fstest.TestFS(manifests, "manifests/team.yaml"); err != nil {
		t.Fatal(err)
	}
	files, err := manifests.ReadDir("manifests")
	if err != nil {
		t.Fatal(err)
	}
	for _, listen := range []string{"", ":9000"} {
		for _, file := range files {
			team := (&e2e{}).team("x")
			team.Listen = listen
			text, err := team.manifest(file.Name())
			if err != nil {
				t.Errorf("%s: %v", file.Name(), err)
				continue
			}
			objects, err := fixture.Parse(text)
			if err != nil || len(objects) == 0 {
				t.Errorf("%s: %d objects, %v\n%s", file.Name(), len(objects), err, text)
			}
		}
	}
}

func TestAClusterIsChosenAndMissedWithAWordOfWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for name, tc := range map[string]struct {
		kubeconfig, kind, about string
		lacks                   string
	}{
		"the one of KUBECONFIG, where that is set": {kubeconfig: "/k", about: "the cluster of KUBECONFIG"},
		"that, asked for":                          {kubeconfig: "/k", kind: "kubeconfig", about: "the cluster of KUBECONFIG"},
		"that, asked for and not set":              {kind: "kubeconfig", lacks: "KUBECONFIG is not set"},
		"kind, which is not here":                  {kubeconfig: "/k", kind: "kind", lacks: "kind"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.kubeconfig)
			got, err := (&e2e{}).choose(t.Context(), tc.kind)
			lack, missing := errors.AsType[*unsupportedError](err)
			switch {
			case tc.lacks == "" && (err != nil || !strings.Contains(got.about, tc.about)):
				t.Errorf("%q, %v", got.about, err)
			case tc.lacks != "" && (!missing || !strings.Contains(lack.Error(), tc.lacks)):
				t.Errorf("error %v", err)
			}
		})
	}
	if _, err := (&e2e{}).choose(t.Context(), "moon"); err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("error %v", err)
	}
}
