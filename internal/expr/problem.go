// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/tidewaiter/tidewaiter/internal/spelling"
)

// explain returns the first problem of an expression that does not compile.
func explain(env *cel.Env, source string, issues *cel.Issues) Problem {
	all := slices.Clone(issues.Errors())
	slices.SortStableFunc(all, func(a, b *cel.Error) int {
		return cmp.Or(cmp.Compare(a.Location.Line(), b.Location.Line()), cmp.Compare(a.Location.Column(), b.Location.Column()))
	})
	first := all[0]
	problem := Problem{max(first.Location.Line(), 1), max(first.Location.Column()+1, 1), ""}
	parsed, parseIssues := env.Parse(source)
	var node ast.Expr
	if parseIssues.Err() == nil {
		node = find(parsed.NativeRep().Expr(), first.ExprID)
	}
	problem.Message = inOurWords(env, node, first.Message)
	if node != nil && node.Kind() == ast.SelectKind {
		problem.Column++ // past the dot, to the name
	}
	return problem
}

func find(root ast.Expr, id int64) ast.Expr {
	var found ast.Expr
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.ID() == id {
			found = e
		}
	}))
	return found
}

var noOverload = regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '([^']*)'`)

// inOurWords rewrites the compiler's message where it can be said better; node is where it came up, if that is known.
func inOurWords(env *cel.Env, node ast.Expr, message string) string {
	switch {
	case node == nil:
	case strings.HasPrefix(message, "undeclared reference"):
		return undeclared(env, node)
	case strings.HasPrefix(message, "undefined field") && node.Kind() == ast.SelectKind:
		operand, name := pathOf(node.AsSelect().Operand()), node.AsSelect().FieldName()
		if k, known := kinds[operand]; known {
			return fmt.Sprintf("%s has no field %s%s", operand, name, spelling.Suggest(name, slices.Values(k.fieldNames())))
		}
	}
	if parts := noOverload.FindStringSubmatch(message); parts != nil {
		name := parts[1]
		if symbol, isOperator := operators.FindReverse(name); isOperator && symbol != "" {
			name = symbol
		}
		return fmt.Sprintf("%s does not work with %s", name, strings.ReplaceAll(parts[2], typePrefix, ""))
	}
	return oneLine(message)
}

// undeclared says that there is no such variable or function.
func undeclared(env *cel.Env, node ast.Expr) string {
	if node.Kind() == ast.CallKind {
		name := node.AsCall().FunctionName()
		return fmt.Sprintf("there is no function %s%s", name, spelling.Suggest(name, maps.Keys(env.Functions())))
	}
	if node.Kind() == ast.StructKind {
		return fmt.Sprintf("there is no type %s; a map is written {\"name\": value}", node.AsStruct().TypeName())
	}
	name := pathOf(node)
	root, _, _ := strings.Cut(name, ".")
	return fmt.Sprintf("there is no variable %s%s", root, spelling.Suggest(root, slices.Values([]string{"args", "tool", "principal", "server"})))
}

// maxMessage keeps a message short enough for a condition; the grammar's own are long lists of tokens.
const maxMessage = 256

// oneLine keeps a message to one line of at most maxMessage bytes that can be printed.
func oneLine(message string) string {
	message = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return utf8.RuneError
	}, message)
	message = strings.Join(strings.Fields(message), " ")
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "…"
}

// nameOf names a type as CEL does.
func nameOf(t *types.Type) string { return strings.ReplaceAll(cel.FormatCELType(t), typePrefix, "") }

// validate looks for what compiles and can only fail when it is evaluated.
func (p *Program) validate() error {
	var problem error
	ast.PreOrderVisit(p.checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case problem != nil:
		case e.Kind() == ast.StructKind:
			problem = p.problem(e.ID(), "an expression makes no objects of a type; a map is written {\"name\": value}")
		case e.Kind() == ast.CallKind && strings.HasPrefix(e.AsCall().FunctionName(), "regex."):
			pattern := e.AsCall().Args()[1]
			if text, isLiteral := literalString(pattern); isLiteral {
				if _, err := regexp.Compile(text); err != nil {
					problem = p.problem(pattern.ID(), oneLine(err.Error()))
				}
			}
		}
	}))
	return problem
}
