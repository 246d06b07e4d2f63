// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"go/ast"
	"path/filepath"
)

// scenarioFolder is a program whose scenarios stand for tests: each is on its list, and is a function with the same name,
// which returns steps by what they do.
const scenarioFolder = "test/e2e"

// scenario checks one "test/e2e scenario/what a step does".
func (c *caseCheck) scenario(number int, name, function, step string) {
	pkg := c.packages[scenarioFolder+" scenarios"]
	if pkg == nil {
		pkg = readGo(filepath.Join(c.root, filepath.FromSlash(scenarioFolder)), "*.go")
		c.packages[scenarioFolder+" scenarios"] = pkg
	}
	list, decl := pkg.variables["scenarios"], pkg.functions[function]
	switch {
	case pkg.err != nil:
		c.problemf("case %d: %s: %v", number, name, pkg.err)
	case list == nil || !names(list, function) || decl == nil:
		c.problemf("case %d: %s: there is no such scenario", number, name)
	case !names(decl, step):
		c.problemf("case %d: %s: the scenario has no step of that name", number, name)
	case !pkg.reaches(decl, makesError):
		c.problemf("case %d: %s: the scenario finds nothing wrong", number, name)
	}
}

// makesError tells a call that says of what was seen that it is wrong.
func makesError(call *ast.CallExpr) bool {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := function.X.(*ast.Ident)
	return ok && (of.Name == "errors" && function.Sel.Name == "New" || of.Name == "fmt" && function.Sel.Name == "Errorf")
}
