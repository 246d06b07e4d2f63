// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// fits compares an expression with the schemas of the tools that it may meet. What is wrong for all of them is an error,
// what is wrong for some a warning, and each is said once. What does not compile is no program: Problems says so.
func (c *check) fits(field string, program *expr.Program, tool string, tools []CheckedTool) {
	if program == nil {
		return
	}
	var order []expr.Problem
	wrong := map[expr.Problem][]string{}
	seen := map[string][]expr.Problem{}
	compared := 0
	for _, t := range slices.SortedStableFunc(slices.Values(tools), compareTools) {
		if t.InputSchema == nil {
			continue
		}
		problems, done := seen[string(t.InputSchema)]
		if !done && c.schemas < maxSchemas {
			c.schemas++
			problems = program.Check(t.InputSchema)
			seen[string(t.InputSchema)] = problems
		}
		compared++
		for _, problem := range problems {
			if wrong[problem] == nil {
				order = append(order, problem)
			}
			wrong[problem] = append(wrong[problem], t.Name+" of "+c.server(t))
		}
	}
	for _, problem := range order {
		f := Finding{
			Field: field, Line: problem.Line, Column: problem.Column, Severity: SeverityError, Reason: v1alpha1.NotInForceTypeMismatch,
			Tool: tool, Message: visible(fmt.Sprintf("%s (%s)", problem.Message, someOf(wrong[problem]))),
		}
		if len(wrong[problem]) < compared {
			f.Severity = SeverityWarning
		}
		c.findings = append(c.findings, f)
	}
}
