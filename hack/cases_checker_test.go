// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sound is a folder of tests in which each is what it says.
const sound = `package sound

import "testing"

var table = map[string]int{"one": 1}

func TestDirect(t *testing.T) {
	for name, want := range map[string]int{"refused": 0, "allowed": 1} {
		t.Run(name, func(t *testing.T) {
			if want > 1 {
				t.Errorf("%d", want)
			}
		})
	}
}

func TestTable(t *testing.T) {
	for name := range table {
		t.Run(name, func(t *testing.T) { check(t) })
	}
}

func TestSlice(t *testing.T) {
	for _, tc := range []struct{ name string; n int }{{"first", 1}, {name: "second"}} {
		t.Run(tc.name, func(t *testing.T) { t.Fatalf("%d", tc.n) })
	}
	t.Run("third", func(t *testing.T) {})
}

func TestIndirect(t *testing.T) { w := &world{t}; w.look() }

func TestNoRun(t *testing.T) {
	for name := range map[string]bool{"quiet": true} {
		t.Error(name)
	}
}

func TestEmpty(t *testing.T) {}

func TestScene(t *testing.T) { w := newWorld(t); w.t.Helper() }

func TestSteps(t *testing.T) {
	err := step()
	if err != nil {
		t.Fatal(err)
	}
	_ = err.Error()
	log.Error("not of the test")
}

func TestSkipped(t *testing.T) { check(t); leave(t) }

func TestSkippedNow(t *testing.T) { t.SkipNow(); t.Error("never") }

func TestWalk(t *testing.T) { t.Skip("a step"); t.Error("always") }

func TestHelper(t *testing.T, n int) { t.Error(n) }

func helper(t *testing.T) { t.Error("no test") }

func check(t *testing.T) { t.Error("checked") }

func leave(t *testing.T) { t.Skipf("%s", "not here") }

type world struct{ t *testing.T }

func newWorld(t *testing.T) *world { t.Errorf("no scene"); return &world{t} }

func (w *world) look() { w.again() }

func (w *world) again() { w.look(); w.t.Errorf("looked") }

func (w *world) TestMethod(t *testing.T) { t.Error("a method") }
`

// elsewhere is a file that is not built here.
const elsewhere = `//go:build never

package sound

import "testing"

var hidden = map[string]int{"hidden": 1}

func TestElsewhere(t *testing.T) { t.Error("x") }
`

// acts is a program of scenarios.
const acts = `package main

var scenarios = []scenario{{"good", good}, {"lazy", lazy}, {"gone", good}}

func good() []step { return []step{{"it runs", func() error { return look() }}, {"it stops", func() error { return nil }}} }

func look() error { return errors.New("seen") }

func lazy() []step { return []step{{"it runs", func() error { return nil }}} }

func unlisted() []step { return []step{{"it runs", look}} }
`

func TestTheCheckOfCasesFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{"sound/a_test.go": sound, "sound/b_test.go": elsewhere, "torn/a_test.go": "package torn\nfunc", "empty/a.go": "package empty", "test/e2e/a.go": acts} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := func(test, control string) string {
		return "cases:\n- case: 1\n  about: a\n  tests: ['" + test + "']\n  controls: ['" + control + "']\n"
	}
	with := func(test string) string { return one(test, "sound TestIndirect") }
	good := "sound TestDirect/refused"
	for name, tc := range map[string]struct {
		list string
		want string // in the only problem; "" for none
	}{
		"a test and its control":           {one(good, "sound TestDirect/allowed"), ""},
		"a table beside the test":          {with("sound TestTable/one"), ""},
		"a name in front":                  {with("sound TestSlice/first"), ""},
		"a name by its field":              {with("sound TestSlice/second"), ""},
		"a name in a call":                 {with("sound TestSlice/third"), ""},
		"a walk that may skip":             {with("sound TestWalk"), ""},
		"no entry":                         {"cases: []\n", "case 1 stands 0 times"},
		"no list":                          {"", "case 1 stands 0 times"},
		"an entry twice":                   {with(good) + strings.TrimPrefix(with(good), "cases:\n"), "case 1 stands 2 times"},
		"an entry of no case":              {with(good) + strings.Replace(strings.TrimPrefix(with(good), "cases:\n"), "1", "9", 1), "case 9 is not on the list"},
		"no test":                          {strings.Replace(with(good), "['"+good+"']", "[]", 1), "case 1 has no test"},
		"tests left out":                   {strings.Replace(with(good), "  tests: ['"+good+"']\n", "", 1), "case 1 has no test"},
		"no control":                       {strings.Replace(with(good), "['sound TestIndirect']", "[]", 1), "case 1 has no control"},
		"not a word about it":              {strings.Replace(with(good), "about: a", "about: ' '", 1), "does not say what it is about"},
		"a key that nobody knows":          {strings.Replace(with(good), "about", "abuot", 1), "unknown field"},
		"a key twice":                      {with(good) + "  about: b\n", "already set"},
		"a function that is not there":     {with("sound TestNobody"), "no such test"},
		"a control that is not there":      {one(good, "sound TestNobody"), "no such test"},
		"a package that is not there":      {with("nowhere TestDirect"), "no tests found"},
		"a package without tests":          {with("empty TestDirect"), "no tests found"},
		"a package that does not parse":    {with("torn TestDirect"), "expected"},
		"a helper":                         {with("sound helper"), "no such test"},
		"a helper that looks like a test":  {with("sound TestHelper"), "no such test"},
		"a method":                         {with("sound TestMethod"), "no such test"},
		"a file that is not built":         {with("sound TestElsewhere"), "no such test"},
		"no test at all":                   {with("sound"), "no such test"},
		"a subtest that is not there":      {with("sound TestDirect/forgiven"), "no subtest of that name"},
		"a subtest of another test":        {with("sound TestTable/refused"), "no subtest of that name"},
		"a table in a file that is absent": {with("sound TestTable/hidden"), "no subtest of that name"},
		"an empty subtest":                 {with("sound TestDirect/"), "no subtest of that name"},
		"a table without subtests":         {with("sound TestNoRun/quiet"), "no subtest of that name"},
		"another text of the test":         {with("sound TestDirect/%d"), "no subtest of that name"},
		"nothing is asserted":              {with("sound TestEmpty"), "asserts nothing"},
		"only the scene is asserted":       {with("sound TestScene"), "asserts nothing"},
		"only steps are checked":           {with("sound TestSteps"), "asserts nothing"},
		"a step of a scenario":             {with("test/e2e good/it stops"), ""},
		"a step that is not there":         {with("test/e2e good/it flies"), "no step of that name"},
		"a scenario without a step":        {with("test/e2e good"), "no step of that name"},
		"a scenario that is not listed":    {with("test/e2e unlisted/it runs"), "no such scenario"},
		"a scenario that is not there":     {with("test/e2e gone/it runs"), "no such scenario"},
		"a scenario that looks at nothing": {with("test/e2e lazy/it runs"), "finds nothing wrong"},
		"a test beside scenarios":          {with("test/e2e TestGood"), "no tests found"},
		"skipped by a helper":              {with("sound TestSkipped"), "may be skipped"},
		"skipped at once":                  {with("sound TestSkippedNow"), "may be skipped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := &caseCheck{root: root, required: []int{1}, maySkip: map[string]string{}}
			if strings.Contains(tc.list, "TestWalk") {
				check.maySkip["sound TestWalk"] = "as rapid does"
			}
			got := check.run([]byte(tc.list))
			switch {
			case tc.want == "" && len(got) > 0:
				t.Errorf("found %q in a sound list", got)
			case tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)):
				t.Errorf("found %q, want one problem: %s", got, tc.want)
			}
		})
	}
	stale := &caseCheck{root: root, required: []int{1}, maySkip: map[string]string{"sound TestDirect": "long ago"}}
	if got := stale.run([]byte(with(good))); len(got) != 1 || !strings.Contains(got[0], "may skip, and does not") {
		t.Errorf("found %q, want the leave to skip that nothing uses", got)
	}
}
