// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expr compiles, checks and evaluates the CEL expressions of policies; it does no I/O, and what it cannot
// evaluate exactly is an error, never a guess.
package expr

import (
	"errors"
	"fmt"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// Problem is a mistake in an expression. It is an error where it keeps the expression from being compiled.
type Problem struct {
	// Line and Column are where it is, from 1.
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

// Arguments are those of one call. They are read when an expression first looks at them, and then once; nothing about
// that is safe for concurrent use.
type Arguments struct {
	raw []byte
}

// NewArguments returns the arguments that a JSON object holds; none is an empty one.
func NewArguments(raw []byte) *Arguments { return &Arguments{raw: raw} }

// UnknownArguments stands for arguments that were not kept: what depends on them is ErrUnknown.
func UnknownArguments() *Arguments { return nil }

// Input is what an expression is evaluated over.
type Input struct {
	Arguments *Arguments
	Tool      Tool
	Principal Principal
	Server    Server
}

// Program is a compiled expression; it is safe for concurrent use.
type Program struct{}

// Condition compiles an expression that is true or false. Its errors are Problems.
func Condition(source string) (*Program, error) {
	return nil, Problem{1, 1, "expressions cannot be compiled yet"}
}

// Mapping compiles an expression that gives a JSON object. Its errors are Problems.
func Mapping(source string) (*Program, error) {
	return nil, Problem{1, 1, "expressions cannot be compiled yet"}
}

// UsesArguments tells whether the value can depend on the call's arguments.
func (p *Program) UsesArguments() bool { return true }

// Check compares the expression with the input schema of a tool that it may meet, and says what cannot be right.
func (p *Program) Check(inputSchema []byte) []Problem { return nil }

// Holds evaluates a condition. An error says that it cannot be told whether it holds.
func (p *Program) Holds(in *Input) (bool, error) { return false, errors.New("not compiled") }

// Map evaluates a mapping and returns the JSON object.
func (p *Program) Map(in *Input) ([]byte, error) { return nil, errors.New("not compiled") }
