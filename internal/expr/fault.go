// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"
)

var (
	errTooMuch = errors.New("the expression would work too long on these arguments")
	errTooDear = fmt.Errorf("the expression costs more than %d steps on these arguments", maxCost)
	errTooBig  = fmt.Errorf("the expression handles a value of more than %d elements, or %d bytes of text", maxVisited, 10*maxValue)
)

// phrases say in our words what the evaluator reports. Its texts may quote values of the call, so none of them is passed
// on; they only choose a phrase, and an unknown one chooses the last.
var phrases = []struct{ prefix, phrase string }{
	{"no such key", "is not there"},
	{"no such attribute", "is not there"},
	{"index out of bounds", "has no element at that place"},
	{"index '", "has no element at that place"},
	{"no such field", "is not there"},
	{"no such overload", "has a type that this does not work with"},
	{"found no matching overload", "has a type that this does not work with"},
	{"unsupported index", "has a type that this does not work with"},
	{"type conversion error", "cannot be converted"},
	{"division by zero", "divides by zero"},
	{"modulus by zero", "divides by zero"},
	{"integer overflow", "is beyond the range of its type"},
	{"unsigned integer overflow", "is beyond the range of its type"},
	{"error parsing regexp", "holds a regular expression that is not valid"},
	{"regex program size", "holds a regular expression that is too large"},
	{"", "cannot be evaluated"},
}

// fault tells in one line why there is no value, and where. It names what stands in the expression, never a value.
func (p *Program) fault(err error) error {
	var cancelled interpreter.EvalCancelledError
	switch {
	case errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded:
		return errTooDear
	case errors.As(err, &cancelled) && cancelled.Cause == interpreter.MemoryLimitExceeded:
		return errTooBig
	}
	for _, own := range []error{errMalformed, errNoObject, errTooMuch} {
		if errors.Is(err, own) {
			return own
		}
	}
	var failed *types.Err
	if !errors.As(err, &failed) {
		return errors.New("cannot be evaluated")
	}
	subject, at := p.place(failed.NodeID())
	for _, own := range []error{errInexact, errAbsentHint} {
		if !errors.Is(err, own) {
			continue
		}
		if at == "" {
			return own
		}
		return fmt.Errorf("%s%s: %w", at, subject, own)
	}
	return fmt.Errorf("%s%s %s", at, subject, phrase(failed.Error()))
}

func phrase(text string) string {
	for _, known := range phrases {
		if strings.HasPrefix(text, known.prefix) {
			return known.phrase
		}
	}
	return ""
}

// place names a node and where it stands; an error that carries no node is of the whole expression.
func (p *Program) place(id int64) (subject, at string) {
	subject = "the expression"
	if id <= 0 {
		return subject, ""
	}
	where := p.problem(id, "")
	if e := find(p.checked.Expr(), id); e != nil {
		subject = describe(e)
		if e.Kind() == ast.SelectKind {
			where.Column++ // past the dot, to the name
		}
	}
	return subject, fmt.Sprintf("%d:%d: ", where.Line, where.Column)
}

// describe names a node as its author would.
func describe(e ast.Expr) string {
	if path := pathOf(e); path != "" {
		return path
	}
	if e.Kind() == ast.CallKind {
		name := e.AsCall().FunctionName()
		if name == operators.Index || name == operators.OptIndex {
			return "what the index asks for"
		}
		if symbol, isOperator := operators.FindReverse(name); isOperator && symbol != "" {
			return "an operand of " + symbol
		}
		if !strings.HasPrefix(name, "_") && !strings.HasPrefix(name, "@") {
			return "an argument of " + name
		}
	}
	return "the expression"
}

// pathOf writes a chain of selections as it stands in the source; "" if there is more in it.
func pathOf(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		return strings.TrimPrefix(e.AsIdent(), ".")
	case ast.SelectKind:
		if of := pathOf(e.AsSelect().Operand()); of != "" {
			return of + "." + e.AsSelect().FieldName()
		}
	case ast.CallKind:
		call := e.AsCall()
		if len(call.Args()) != 2 {
			return ""
		}
		name, isName := literalString(call.Args()[1])
		of := pathOf(call.Args()[0])
		switch {
		case of == "":
		case call.FunctionName() == operators.OptSelect && isName:
			return of + "." + name
		case call.FunctionName() == operators.Index && isName:
			return fmt.Sprintf("%s[%q]", of, name)
		case call.FunctionName() == operators.Index:
			return of + "[…]"
		}
	default:
	}
	return ""
}

func literalString(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, isString := e.AsLiteral().(types.String)
	return string(s), isString
}
