// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/tidewaiter/tidewaiter/internal/spelling"
)

// Check compares the expression with the input schema of a tool that it may meet, and says what cannot be right: an
// argument that the tool does not have, a comparison that cannot be between values of one sort, a value that an argument
// cannot have. It says only what it is sure of; a schema that it cannot read gives no problem.
func (p *Program) Check(inputSchema []byte) []Problem {
	document, readable := readSchema(inputSchema)
	if !p.usesArguments || !readable {
		return nil
	}
	c := checker{program: p, schema: document}
	arguments := document.shape(document.root)
	arguments.sorts = isObject
	c.shape(p.checked.Expr(), map[string]shape{"args": arguments})
	slices.SortStableFunc(c.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(c.problems)
}

// checker walks over one expression.
type checker struct {
	program  *Program
	schema   schema
	problems []Problem
}

// report places a problem where e begins.
func (c *checker) report(e ast.Expr, format string, args ...any) {
	for e.Kind() == ast.SelectKind {
		e = e.AsSelect().Operand()
	}
	c.problems = append(c.problems, c.program.problem(e.ID(), oneLine(fmt.Sprintf(format, args...))))
}

// reportName places a problem at the name that e selects.
func (c *checker) reportName(e ast.Expr, format string, args ...any) {
	problem := c.program.problem(e.ID(), oneLine(fmt.Sprintf(format, args...)))
	if e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() {
		problem.Column++ // the node stands at the dot
	}
	c.problems = append(c.problems, problem)
}

// shape returns what is known of the value of e, after looking at everything in it. Variables of macros are in scope.
func (c *checker) shape(e ast.Expr, scope map[string]shape) shape {
	switch e.Kind() {
	case ast.LiteralKind:
		result := shapeOf(c.program.checked.GetType(e.ID()))
		if text, isText := literalString(e); isText {
			result.literal = &text
		}
		return result
	case ast.IdentKind:
		if known, found := scope[strings.TrimPrefix(e.AsIdent(), ".")]; found {
			return known
		}
	case ast.SelectKind:
		of := c.shape(e.AsSelect().Operand(), scope)
		member := c.member(e, of, e.AsSelect().Operand(), e.AsSelect().FieldName())
		if e.AsSelect().IsTestOnly() {
			return shape{sorts: isBool}
		}
		if member.sorts != isAnything {
			return member
		}
	case ast.CallKind:
		return c.call(e, scope)
	case ast.ListKind:
		return c.list(e, scope)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			c.shape(entry.AsMapEntry().Key(), scope)
			c.shape(entry.AsMapEntry().Value(), scope)
		}
	case ast.ComprehensionKind:
		c.comprehension(e.AsComprehension(), scope)
	default:
	}
	return shapeOf(c.program.checked.GetType(e.ID()))
}

// member looks a member up and says what is wrong with that.
func (c *checker) member(at ast.Expr, of shape, operand ast.Expr, name string) shape {
	path := subject(operand)
	if of.sorts&isObject == 0 {
		c.reportName(at, "%s is %s and has no member %s", path, of.sorts, name)
		return anything
	}
	member, declared := c.schema.member(of, name)
	switch {
	case declared:
	case path == "args":
		c.reportName(at, "args.%s: the tool has no argument %s%s", name, name, spelling.Suggest(name, c.schema.names(of.schema)))
	default:
		c.reportName(at, "%s.%s: %s has no member %s%s", path, name, path, name, spelling.Suggest(name, c.schema.names(of.schema)))
	}
	return member
}

func (c *checker) list(e ast.Expr, scope map[string]shape) shape {
	items := shape{}
	for _, element := range e.AsList().Elements() {
		items.sorts |= c.shape(element, scope).sorts
	}
	if items.sorts == 0 {
		items = anything
	}
	return shape{sorts: isList, items: &items}
}

// comprehension walks a macro such as all, exists or map. What it gives is left to the compiler.
func (c *checker) comprehension(e ast.ComprehensionExpr, scope map[string]shape) {
	over := c.shape(e.IterRange(), scope)
	c.shape(e.AccuInit(), scope)
	if over.sorts&(isList|isObject) == 0 {
		c.report(e.IterRange(), "%s is %s, which has nothing to go through", subject(e.IterRange()), over.sorts)
		over = anything
	}
	inner := maps.Clone(scope)
	inner[e.IterVar()] = anything
	switch over.sorts &^ isNull {
	case isList:
		inner[e.IterVar()] = c.schema.element(over)
	case isObject:
		inner[e.IterVar()] = shape{sorts: isText}
	default:
	}
	inner[e.AccuVar()] = anything
	c.shape(e.LoopCondition(), inner)
	c.shape(e.LoopStep(), inner)
	inner = maps.Clone(scope)
	inner[e.AccuVar()] = anything
	c.shape(e.Result(), inner)
}

// subject names an operand in a message.
func subject(e ast.Expr) string {
	if path := pathOf(e); path != "" {
		return path
	}
	return "this"
}

// call looks at an operator or a function.
func (c *checker) call(e ast.Expr, scope map[string]shape) shape {
	call := e.AsCall()
	var shapes []shape
	operands := call.Args()
	if call.IsMemberFunction() {
		operands = append([]ast.Expr{call.Target()}, operands...)
	}
	for _, operand := range operands {
		shapes = append(shapes, c.shape(operand, scope))
	}
	result := shapeOf(c.program.checked.GetType(e.ID()))
	switch name := call.FunctionName(); name {
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		c.compare(name, operands, shapes)
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
		if len(shapes) == 2 && shapes[0].sorts&shapes[1].sorts&^isNull == 0 {
			c.disagree(name, operands, shapes)
		}
	case operators.In:
		c.contained(operands, shapes)
	case operators.Index, operators.OptIndex, operators.OptSelect:
		found := c.index(operands, shapes)
		if name == operators.Index && found.sorts != isAnything {
			return found
		}
	case operators.LogicalNot, operators.LogicalAnd, operators.LogicalOr:
		for i, operand := range operands {
			c.expect(operand, shapes[i], isBool, "and true or false is needed here")
		}
	case operators.Conditional:
		c.expect(operands[0], shapes[0], isBool, "and true or false is needed here")
	default:
		if wanted, known := targets[name]; known && len(shapes) > 0 {
			c.expect(operands[0], shapes[0], wanted, "which "+name+" does not work on")
		}
	}
	return result
}

// targets are the sorts that a function works on; others are left to the compiler.
var targets = map[string]sorts{
	"startsWith": isText, "endsWith": isText, "contains": isText, "matches": isText, "lowerAscii": isText, "upperAscii": isText,
	"trim": isText, "split": isText, "replace": isText, "substring": isText, "charAt": isText,
	"size": isText | isList | isObject, "reverse": isText | isList, "join": isList, "distinct": isList, "sort": isList, "slice": isList,
	"flatten": isList, "hasAny": isList, "hasAll": isList, "hasOnly": isList, "hasExactly": isList,
	"sets.contains": isList, "sets.intersects": isList, "sets.equivalent": isList,
}

func (c *checker) expect(operand ast.Expr, got shape, wanted sorts, otherwise string) {
	if got.sorts&wanted == 0 {
		c.report(operand, "%s is %s, %s", subject(operand), got.sorts, otherwise)
	}
}

// compare looks at the two sides of a comparison. null is compared with anything: it asks whether there is a value.
func (c *checker) compare(operator string, operands []ast.Expr, shapes []shape) {
	if len(shapes) != 2 || shapes[0].sorts == isNull || shapes[1].sorts == isNull {
		return
	}
	if shapes[0].sorts&shapes[1].sorts == 0 {
		c.disagree(operator, operands, shapes)
		return
	}
	if operator == operators.Equals || operator == operators.NotEquals {
		for i := range shapes {
			c.possible(operands[1-i], operands[i], c.schema.texts(shapes[1-i]), shapes[i].literal)
		}
	}
}

// disagree says that an operator does not work on two sorts, beginning with an operand that has a name.
func (c *checker) disagree(operator string, operands []ast.Expr, shapes []shape) {
	first := 0
	if pathOf(operands[0]) == "" && pathOf(operands[1]) != "" {
		first = 1
	}
	symbol, _ := operators.FindReverse(operator)
	c.report(operands[first], "%s is %s, and stands with %s on the other side of %s",
		subject(operands[first]), shapes[first].sorts, shapes[1-first].sorts, symbol)
}

// possible says when a text is none of those that a value can have.
func (c *checker) possible(operand, at ast.Expr, allowed []string, text *string) {
	if text == nil || len(allowed) == 0 || slices.Contains(allowed, *text) {
		return
	}
	hint := spelling.Suggest(*text, slices.Values(allowed))
	if hint == "" {
		const few = 6
		listed := allowed[:min(len(allowed), few)]
		hint = "; it is one of " + strings.Join(listed, ", ")
		if len(allowed) > few {
			hint += fmt.Sprintf(" and %d more", len(allowed)-few)
		}
	}
	c.report(at, "%s is never %s%s", subject(operand), strconv.Quote(*text), hint)
}

// contained looks at what is in what.
func (c *checker) contained(operands []ast.Expr, shapes []shape) {
	item, in := shapes[0], shapes[1]
	switch {
	case in.sorts&(isList|isObject) == 0:
		c.report(operands[1], "%s is %s, and in works on a list or a map", subject(operands[1]), in.sorts)
	case in.sorts&^isNull == isList:
		element := c.schema.element(in)
		if item.sorts&element.sorts == 0 {
			c.report(operands[0], "%s is %s, and the elements of the list are %s", subject(operands[0]), item.sorts, element.sorts)
			return
		}
		c.possible(operands[1], operands[0], c.schema.texts(element), item.literal)
		if operands[1].Kind() == ast.ListKind {
			allowed := c.schema.texts(item)
			for _, each := range operands[1].AsList().Elements() {
				if text, isText := literalString(each); isText {
					c.possible(operands[0], each, allowed, &text)
				}
			}
		}
	case in.sorts&^isNull == isObject:
		c.expect(operands[0], item, isText, "and names of members are strings")
	}
}

// index looks at an element of a list, or a member whose name stands in brackets or behind .?.
func (c *checker) index(operands []ast.Expr, shapes []shape) shape {
	of := shapes[0]
	name, isName := literalString(operands[1])
	switch {
	case isName && of.sorts&isList == 0:
		return c.member(operands[1], of, operands[0], name)
	case of.sorts&^isNull == isList:
		return c.schema.element(of)
	}
	return anything
}
