// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// requiredCases are the numbers of the cases whose right outcome a test must show by now.
var requiredCases = []int{
	1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, // messages
	14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, // policy
	27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, // tiers
	39, 40, 41, 42, 43, 44, 45, 46, // digests and discovery
	47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 92, 93, 94, 95, 96, 97, 98, // approvals
	63, 64, 66, // effects
	73, 74, 75, 76, 77, 99, 100, 101, 102, 103, 104, // the operator
	68, 69, 70, 71, 72, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, // the gateway
	105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, // around the gate
}

// maySkip are the tests that may call Skip and still count, each with the reason why nothing is left out by it.
var maySkip = map[string]string{
	"internal/admission FuzzReview":                     "the skip leaves out inputs that are no JSON objects, which a fuzzer may make; the seeds are all run",
	"controllers TestEveryDecisionIsCountedExactlyOnce": "the skip is one of rapid: it leaves out a step of a random walk, not the test",
}

// TestEveryCaseHasATestAndAControl reads the sources itself: what a child process reads is not seen by the test cache.
func TestEveryCaseHasATestAndAControl(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../test/cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range (&caseCheck{root: "..", required: requiredCases, maySkip: maySkip}).run(text) {
		t.Error(problem)
	}
}

// caseList is test/cases.yaml.
type caseList struct {
	Cases []caseEntry `json:"cases"`
}

type caseEntry struct {
	Case     int      `json:"case"`
	About    string   `json:"about"`
	Tests    []string `json:"tests"`
	Controls []string `json:"controls"`
	// Note says which part of the case is not shown yet.
	Note string `json:"note,omitempty"`
}

// caseCheck compares a list of cases with the tests under a root.
type caseCheck struct {
	root     string
	required []int
	maySkip  map[string]string

	packages map[string]*testPackage
	problems []string
}

func (c *caseCheck) problemf(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// run returns everything that is wrong with the list.
func (c *caseCheck) run(text []byte) []string {
	var list caseList
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return []string{fmt.Sprintf("cases.yaml: %v", err)}
	}
	c.packages = map[string]*testPackage{}
	count, skipping := map[int]int{}, map[string]bool{}
	for _, entry := range list.Cases {
		count[entry.Case]++
		if !slices.Contains(c.required, entry.Case) {
			c.problemf("case %d is not on the list of the cases that belong here", entry.Case)
		}
		if strings.TrimSpace(entry.About) == "" {
			c.problemf("case %d does not say what it is about", entry.Case)
		}
		if len(entry.Tests) == 0 {
			c.problemf("case %d has no test", entry.Case)
		}
		if len(entry.Controls) == 0 {
			c.problemf("case %d has no control", entry.Case)
		}
		for _, name := range slices.Concat(entry.Tests, entry.Controls) {
			c.reference(entry.Case, name, skipping)
		}
	}
	for _, number := range c.required {
		if count[number] != 1 {
			c.problemf("case %d stands %d times in the list, want once", number, count[number])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.maySkip)) {
		if !skipping[name] {
			c.problemf("%s may skip, and does not, or stands for no case", name)
		}
	}
	return c.problems
}

// reference checks one "package TestName/name of a subtest".
func (c *caseCheck) reference(number int, name string, skipping map[string]bool) {
	folder, rest, _ := strings.Cut(name, " ")
	function, subtest, hasSubtest := strings.Cut(rest, "/")
	if folder == scenarioFolder && !strings.HasPrefix(function, "Test") {
		c.scenario(number, name, function, subtest)
		return
	}
	pkg := c.testPackage(folder)
	decl := pkg.functions[function]
	switch {
	case pkg.err != nil:
		c.problemf("case %d: %s: %v", number, name, pkg.err)
		return
	case decl == nil || !isTest(decl):
		c.problemf("case %d: %s: there is no such test in %s", number, name, folder)
		return
	case hasSubtest && !pkg.runs(function, subtest):
		c.problemf("case %d: %s: the test runs no subtest of that name", number, name)
	}
	if !pkg.reaches(decl, isAssertion) {
		c.problemf("case %d: %s: the test asserts nothing", number, name)
	}
	if pkg.reaches(decl, isSkip) {
		test := folder + " " + function
		skipping[test] = true
		if c.maySkip[test] == "" {
			c.problemf("case %d: %s: the test may be skipped", number, name)
		}
	}
}

// testPackage is what files of a folder hold that are built here.
type testPackage struct {
	err error
	// functions and methods by their names; methods of one name are taken together.
	functions map[string]*ast.FuncDecl
	methods   map[string][]*ast.FuncDecl
	// variables of the package by name, and the file of everything.
	variables map[string]ast.Node
	files     map[ast.Node]*ast.File
}

func (c *caseCheck) testPackage(folder string) *testPackage {
	if c.packages[folder] == nil {
		c.packages[folder] = readGo(filepath.Join(c.root, filepath.FromSlash(folder)), "*_test.go")
	}
	return c.packages[folder]
}

// readGo reads the files of a folder whose names match.
func readGo(folder, pattern string) *testPackage {
	p := &testPackage{functions: map[string]*ast.FuncDecl{}, methods: map[string][]*ast.FuncDecl{}, variables: map[string]ast.Node{}, files: map[ast.Node]*ast.File{}}
	paths, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(paths) == 0 {
		p.err = fmt.Errorf("no tests found: %w", os.ErrNotExist)
		return p
	}
	for _, path := range paths {
		built, err := build.Default.MatchFile(folder, filepath.Base(path))
		if err != nil || !built {
			continue // a test that is left out here shows nothing
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			p.err = err
			return p
		}
		for _, decl := range file.Decls {
			p.add(file, decl)
		}
	}
	return p
}

func (p *testPackage) add(file *ast.File, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		p.files[decl] = file
		if decl.Recv == nil {
			p.functions[decl.Name.Name] = decl
		} else {
			p.methods[decl.Name.Name] = append(p.methods[decl.Name.Name], decl)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			if values, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range values.Names {
					p.variables[name.Name] = values
					p.files[values] = file
				}
			}
		}
	}
}

// isTest tells whether go test runs the function: a test, or a fuzz test, whose seeds are tests.
func isTest(decl *ast.FuncDecl) bool {
	if decl.Recv != nil || len(decl.Type.Params.List) != 1 {
		return false
	}
	star, ok := decl.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	of, ok := star.X.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch of.Sel.Name {
	case "T":
		return strings.HasPrefix(decl.Name.Name, "Test")
	case "F":
		return strings.HasPrefix(decl.Name.Name, "Fuzz")
	}
	return false
}

// runs tells whether a test gives one of its subtests that name: in a call of Run, or in a table that it goes through.
func (p *testPackage) runs(function, subtest string) bool {
	decl := p.functions[function]
	tables := []ast.Node{decl}
	hasRun := false
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			selector, ok := n.Fun.(*ast.SelectorExpr)
			hasRun = hasRun || ok && selector.Sel.Name == "Run" && len(n.Args) == 2
		case *ast.Ident:
			if table := p.variables[n.Name]; table != nil && p.files[table] == p.files[decl] {
				tables = append(tables, table)
			}
		}
		return true
	})
	return hasRun && slices.ContainsFunc(tables, func(table ast.Node) bool { return names(table, subtest) })
}

// names tells whether a text stands where the names of subtests stand.
func names(table ast.Node, text string) bool {
	found := false
	is := func(e ast.Expr) {
		got, ok := literal(e)
		found = found || ok && got == text
	}
	ast.Inspect(table, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr: // "name": {…}, and name: "name"
			is(n.Key)
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "name" {
				is(n.Value)
			}
		case *ast.CompositeLit: // {"name", …}, and []string{"name", …}
			_, list := n.Type.(*ast.ArrayType)
			for i, element := range n.Elts {
				if i == 0 || list {
					is(element)
				}
			}
		case *ast.CallExpr:
			if selector, ok := n.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "Run" && len(n.Args) == 2 {
				is(n.Args[0])
			}
		}
		return !found
	})
	return found
}

// scaffold names the functions that set a scene: that a scene stands is no outcome of a case.
var scaffold = regexp.MustCompile(`^(new|open|start)([A-Z]|$)`)

// reaches tells whether a function, or one of the package's tests that it calls, makes a call of a kind.
func (p *testPackage) reaches(decl *ast.FuncDecl, kind func(*ast.CallExpr) bool) bool {
	seen := map[*ast.FuncDecl]bool{}
	var look func(*ast.FuncDecl) bool
	look = func(decl *ast.FuncDecl) bool {
		if decl.Body == nil || seen[decl] {
			return false
		}
		seen[decl] = true
		found := false
		var called []*ast.FuncDecl
		ast.Inspect(decl.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return !found
			}
			found = found || kind(call)
			switch f := call.Fun.(type) {
			case *ast.Ident:
				if next := p.functions[f.Name]; next != nil && !scaffold.MatchString(f.Name) {
					called = append(called, next)
				}
			case *ast.SelectorExpr:
				if !scaffold.MatchString(f.Sel.Name) {
					called = append(called, p.methods[f.Sel.Name]...)
				}
			}
			return !found
		})
		return found || slices.ContainsFunc(called, look)
	}
	return look(decl)
}

// isAssertion tells a call that fails a test because of what was seen. `t.Fatal(err)` is none: it says that a step on
// the way failed.
func isAssertion(call *ast.CallExpr) bool {
	switch onT(call) {
	case "Error", "Errorf", "Fatalf":
		return true
	case "Fatal":
		if len(call.Args) == 1 {
			_, plain := call.Args[0].(*ast.Ident)
			return !plain
		}
		return true
	}
	return false
}

func isSkip(call *ast.CallExpr) bool {
	switch onT(call) {
	case "Skip", "Skipf", "SkipNow":
		return true
	}
	return false
}

// onT returns the name of a method that is called on a test, which is named t or tb everywhere.
func onT(call *ast.CallExpr) string {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	receiver := ""
	switch x := method.X.(type) {
	case *ast.Ident:
		receiver = x.Name
	case *ast.SelectorExpr:
		receiver = x.Sel.Name
	}
	if receiver != "t" && receiver != "tb" {
		return ""
	}
	return method.Sel.Name
}
