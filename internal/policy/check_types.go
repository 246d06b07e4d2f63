// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// expression is one of a policy.
type expression struct {
	field, source string
	program       *expr.Program // nil for one that does not compile: Problems says so
	tool          string        // or the globs that its entry names
}

// asks tells whether the expression itself looks whether there is what a problem says is missing.
func (e expression) asks(problem expr.Problem) bool {
	path, _, _ := strings.Cut(problem.Message, ": ")
	return strings.HasPrefix(path, "args.") && strings.Contains(strings.ReplaceAll(e.source, " ", ""), "has("+path+")")
}

// fits compares an expression with the schemas of the tools that it may meet. What is wrong for all of them is an error,
// what is wrong for some a warning, if the expression does not look whether it is so, and each is said once. It may be
// right for a tool whose schema is not known.
func (c *check) fits(e expression, tools []CheckedTool) {
	if e.program == nil {
		return
	}
	var order []expr.Problem
	wrong := map[expr.Problem][]string{}
	seen := map[string][]expr.Problem{}
	for _, t := range slices.SortedStableFunc(slices.Values(tools), compareTools) {
		if t.InputSchema == nil {
			continue
		}
		problems, done := seen[string(t.InputSchema)]
		if !done && c.schemas < maxSchemas {
			c.schemas++
			problems = e.program.Check(t.InputSchema)
			seen[string(t.InputSchema)] = problems
		}
		for _, problem := range problems {
			same := sameFor(problem)
			if wrong[same] == nil {
				order = append(order, problem)
			}
			wrong[same] = append(wrong[same], t.Name+" of "+c.server(t))
		}
	}
	for _, problem := range order {
		same := sameFor(problem)
		f := Finding{
			Field: e.field, Line: problem.Line, Column: problem.Column, Severity: SeverityError, Reason: v1alpha1.NotInForceTypeMismatch,
			Tool: e.tool, Message: glyph.Escaped(fmt.Sprintf("%s (%s)", problem.Message, someOf(wrong[same]))),
		}
		if len(wrong[same]) < len(tools) {
			if f.Severity = SeverityWarning; e.asks(problem) {
				continue
			}
		}
		c.findings = append(c.findings, f)
	}
}

// sameFor is a problem without the name that was meant, which may be another one for each tool.
func sameFor(problem expr.Problem) expr.Problem {
	problem.Message, _, _ = strings.Cut(problem.Message, ";")
	return problem
}
