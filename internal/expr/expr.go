// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expr compiles, checks and evaluates the CEL expressions of policies; it does no I/O, and what it cannot
// evaluate exactly is an error, never a guess.
//
// # What an author may rely on
//
// The language is CEL with its standard library and macros, optional values (args.?note.orValue("")), and the
// extensions strings, lists, sets, math and regex. There is no clock and nothing random: one call always gives one
// result, in the gateway, in admission and in the CLI.
//
// The variables are args, a map of the call's arguments; tool {name, tier, digest, annotations {readOnlyHint,
// destructiveHint, idempotentHint, openWorldHint}}; principal {username, groups, namespace, serviceAccount, actsFor};
// server {namespace, name}. All but args are typed: a name that they do not have is refused when the policy is read. A
// hint that the server does not give is absent: has(tool.annotations.readOnlyHint) tells, and reading it is an error.
// namespace and serviceAccount of somebody who is no ServiceAccount are "", and has() says that they are not there.
//
// Numbers in args keep the value that was sent. What is integral, however it is spelled (3, 3.0, 3e0), is an int, or a
// uint above the greatest int; a decimal is a double if that double prints as the very same decimal. Any other number has
// no exact value here: looking at it, or at a whole list or object that it is in, is an error, while everything beside
// it can be read. Numbers of all types compare with each other; arithmetic does not mix them (write
// double(args.price) * 1.19).
//
// A name that the expression reads and that the arguments spell otherwise (N for n, customer_id for customerId) is an
// error too: servers are known to take the one for the other. args.n is compared with the arguments' own names, any
// other name with those at every depth.
//
// An error is no value: a missing argument, a wrong type, an overflow, a division by zero. It is not false, and the
// policy takes the stricter side. A side of && or || that decides alone hides an error of the other one:
// has(args.x) && args.x > 1 is false without x. The text of an error never holds a value of the call.
//
// An expression has at most 2,048 characters, 50 levels and 10,000 nodes after its macros are expanded; a regular
// expression compiles to at most 1,000 instructions. One evaluation costs at most 200,000 steps of CEL's cost model
// and handles no value of more than 10,000 elements or a megabyte of text; beyond that it is an error, not a slow
// answer.
package expr

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// Problem is a mistake in an expression. It is an error where it keeps the expression from being compiled.
type Problem struct {
	// Line and Column are where it is, from 1; columns are counted in characters.
	Line, Column int
	Message      string
}

// Error says where and what, in one line.
func (p Problem) Error() string { return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message) }

// ErrUnknown: the value depends on arguments that are not known.
var ErrUnknown = errors.New("depends on arguments that are not known")

// Tool is what an expression sees as tool.
type Tool struct {
	Name, Digest string
	Tier         v1alpha1.Tier
	Annotations  *v1alpha1.ToolAnnotations
}

// Principal is what an expression sees as principal.
type Principal struct {
	Username, ActsFor string
	Groups            []string
	// Namespace and ServiceAccount are those of a ServiceAccount, "" for anybody else.
	Namespace, ServiceAccount string
}

// Server is what an expression sees as server.
type Server struct{ Namespace, Name string }

// Input is what an expression is evaluated over.
type Input struct {
	Arguments *Arguments
	Tool      Tool
	Principal Principal
	Server    Server
}

// ResolveName gives the evaluator a variable. It is part of the evaluator's interface and of no use elsewhere.
func (in *Input) ResolveName(name string) (any, bool) {
	switch name {
	case "args":
		return in.Arguments.resolve(), true
	case "tool":
		return &in.Tool, true
	case "principal":
		return &in.Principal, true
	case "server":
		return &in.Server, true
	}
	return nil, false
}

// Parent is none: an Input is all there is. It is part of the evaluator's interface.
func (in *Input) Parent() cel.Activation { return nil }

// Program is a compiled expression; it is safe for concurrent use.
type Program struct {
	program       cel.Program
	checked       *ast.AST
	usesArguments bool
	reads         reads
}

// Condition compiles an expression that is true or false. Its errors are Problems.
func Condition(source string) (*Program, error) {
	p, err := compile(source)
	if err != nil {
		return nil, err
	}
	if got := p.result(); got.Kind() != types.BoolKind && got.Kind() != types.DynKind {
		return nil, p.problem(p.checked.Expr().ID(), "this gives "+nameOf(got)+", and a condition has to be true or false")
	}
	return p, nil
}

// Mapping compiles an expression that gives a JSON object. Its errors are Problems.
func Mapping(source string) (*Program, error) {
	p, err := compile(source)
	if err != nil {
		return nil, err
	}
	got := p.result()
	isObject := got.Kind() == types.DynKind
	if got.Kind() == types.MapKind {
		key := got.Parameters()[0].Kind()
		isObject = key == types.StringKind || key == types.DynKind || key == types.TypeParamKind
	}
	if !isObject {
		return nil, p.problem(p.checked.Expr().ID(), "this gives "+nameOf(got)+", and arguments are a map with names as keys")
	}
	return p, nil
}

func compile(source string) (*Program, error) {
	if n := utf8.RuneCountInString(source); n > maxSource {
		return nil, Problem{1, 1, fmt.Sprintf("%d characters are too many; an expression has at most %d", n, maxSource)}
	}
	env, err := language()
	if err != nil {
		return nil, Problem{1, 1, "the language is not available"}
	}
	compiled, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, explain(env, source, issues)
	}
	p := &Program{checked: compiled.NativeRep()}
	if err := p.validate(); err != nil {
		return nil, err
	}
	if p.usesArguments = mentions(p.checked.Expr(), "args"); p.usesArguments {
		p.reads = readsOf(p.checked.Expr())
	}
	p.program, err = env.Program(compiled, programOptions()...)
	if err != nil {
		return nil, Problem{1, 1, "cannot be planned: is a regular expression in it too large?"}
	}
	return p, nil
}

// mentions tells whether a variable of that name occurs; a variable of a macro that bears the name counts too.
func mentions(root ast.Expr, name string) bool {
	found := false
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.IdentKind && (e.AsIdent() == name || e.AsIdent() == "."+name)
	}))
	return found
}

func (p *Program) result() *types.Type { return p.checked.GetType(p.checked.Expr().ID()) }

// problem places a message at a node.
func (p *Program) problem(id int64, message string) Problem {
	at := p.checked.SourceInfo().GetStartLocation(id)
	return Problem{max(at.Line(), 1), max(at.Column()+1, 1), message}
}

// UsesArguments tells whether the value can depend on the call's arguments.
func (p *Program) UsesArguments() bool { return p.usesArguments }

// Holds evaluates a condition. An error says that it cannot be told whether it holds.
func (p *Program) Holds(in *Input) (bool, error) {
	value, err := p.evaluate(in)
	if err != nil {
		return false, err
	}
	holds, isBool := value.(types.Bool)
	if !isBool {
		return false, errors.New("the expression gives neither true nor false")
	}
	return bool(holds), nil
}

// Map evaluates a mapping and returns the JSON object, in canonical form.
func (p *Program) Map(in *Input) ([]byte, error) {
	value, err := p.evaluate(in)
	if err != nil {
		return nil, err
	}
	return object(value)
}

func (p *Program) evaluate(in *Input) (ref.Val, error) {
	if p.usesArguments && in.Arguments.resemble(p.reads) {
		return nil, errLookalike
	}
	value, _, err := p.program.Eval(in)
	switch {
	case err != nil:
		return nil, p.fault(err)
	case value == nil || types.IsError(value):
		return nil, errors.New("the expression has no value")
	case types.IsUnknown(value):
		return nil, ErrUnknown
	}
	return value, nil
}
