// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// guards estimate the work of the functions whose work or result can be far larger than what they are given. The cost of
// a call is known to the evaluator only after it; these are asked before.
var guards = map[string]func(args []ref.Val) int{
	"list_distinct":             func(a []ref.Val) int { return product(length(a[0]), length(a[0])) },
	"list_sets_contains_list":   pairs,
	"list_sets_equivalent_list": pairs,
	"list_sets_intersects_list": pairs,
	"list_hasOnly_list":         pairs,
	"list_hasAny_list":          pairs,
	"list_hasAll_list":          pairs,
	"list_hasExactly_list":      pairs,

	"regex_extract_string_string":            search,
	"regex_extractAll_string_string":         search,
	"regex_replace_string_string_string":     regexReplacement,
	"regex_replace_string_string_string_int": regexReplacement,
	"string_replace_string_string":           replacement,
	"string_replace_string_string_int":       replacement,
	"list_join_string":                       func(a []ref.Val) int { return product(length(a[0]), length(a[1])) },
	"string_format":                          formatted,
}

func pairs(a []ref.Val) int { return product(length(a[0]), length(a[1])) }

func replacement(a []ref.Val) int {
	target, _ := a[0].(types.String)
	old, _ := a[1].(types.String)
	return product(strings.Count(string(target), string(old)), length(a[2]))
}

// search is the work of a regular expression. Its steps are small: maxRegexSteps of them count as maxSteps.
func search(a []ref.Val) int {
	source, _ := a[1].(types.String)
	size, err := types.RegexProgramSize(string(source))
	if err != nil {
		return 0 // the function says so
	}
	return product(length(a[0]), size) / (maxRegexSteps / maxSteps)
}

func regexReplacement(a []ref.Val) int {
	return search(a) + product(length(a[0])+1, length(a[2]))
}

// formatted bounds the text that format gives by the text of all that is put into it, and by the digits of numbers.
func formatted(a []ref.Val) int {
	const digits = 400
	list, isList := a[1].(traits.Lister)
	if !isList {
		return 0
	}
	total := 0
	for it := list.Iterator(); it.HasNext() == types.True && total <= maxSteps; {
		total += 10*int(weight(it.Next())) + digits
	}
	return total
}

// length of a text is in bytes, that of a list in elements.
func length(v ref.Val) int {
	if s, isString := v.(types.String); isString {
		return len(s)
	}
	if s, isSizer := v.(traits.Sizer); isSizer {
		if n, isInt := s.Size().(types.Int); isInt {
			return int(n)
		}
	}
	return 0
}

// product of two sizes, neither of which is above maxSteps where the result is right.
func product(a, b int) int {
	if a > maxSteps || b > maxSteps {
		return maxSteps + 1
	}
	return a * b
}

// guardedCosts make a guarded function cost a step for ten of its work, and nothing if its guard refused it.
func guardedCosts() []cost.TrackerOption {
	trackers := make([]cost.TrackerOption, 0, len(guards)+2)
	track := func(overload string, work func([]ref.Val) int) {
		trackers = append(trackers, cost.OverloadTracker(overload, func(args []ref.Val, result ref.Val) *uint64 {
			total := uint64(1)
			if err, failed := result.(*types.Err); !failed || !errors.Is(err, errTooMuch) {
				total += uint64(work(args)/10) + weight(result)
			}
			return &total
		}))
	}
	for overload, guard := range guards {
		track(overload, guard)
	}
	// The cost model counts a pass over the text for every four bytes of the pattern; here it is the same.
	for _, overload := range []string{overloads.Matches, overloads.MatchesString} {
		track(overload, func(a []ref.Val) int { return product(length(a[0]), 1+length(a[1])/4) })
	}
	return trackers
}

// guarded puts the guards before the functions of the libraries.
func guarded(env *cel.Env) (*cel.Env, error) {
	guardless := maps.Clone(guards)
	for name, function := range maps.Clone(env.Functions()) {
		bindings, err := function.Bindings()
		if err != nil {
			return nil, fmt.Errorf("bindings of %s: %w", name, err)
		}
		for _, overload := range function.OverloadDecls() {
			guard, found := guards[overload.ID()]
			i := slices.IndexFunc(bindings, func(b *functions.Overload) bool { return b.Operator == overload.ID() })
			if !found || i < 0 {
				continue
			}
			declare := cel.Overload
			if overload.IsMemberFunction() {
				declare = cel.MemberOverload
			}
			call := guardedCall{guard, bindings[i].Unary, bindings[i].Binary, bindings[i].Function}
			env, err = cel.Function(name, declare(overload.ID(), overload.ArgTypes(), overload.ResultType(), call.binding()))(env)
			if err != nil {
				return nil, fmt.Errorf("guard %s: %w", overload.ID(), err)
			}
			delete(guardless, overload.ID())
		}
	}
	if len(guardless) > 0 {
		return nil, fmt.Errorf("no function for the guards %s", slices.Sorted(maps.Keys(guardless)))
	}
	return env, nil
}

// guardedCall is a function of a library behind its guard; one of the three forms is set.
type guardedCall struct {
	guard    func([]ref.Val) int
	unary    func(ref.Val) ref.Val
	binary   func(ref.Val, ref.Val) ref.Val
	function func(...ref.Val) ref.Val
}

func (c guardedCall) binding() cel.OverloadOpt {
	switch {
	case c.unary != nil:
		return cel.UnaryBinding(func(v ref.Val) ref.Val {
			if c.guard([]ref.Val{v}) > maxSteps {
				return types.WrapErr(errTooMuch)
			}
			return c.unary(v)
		})
	case c.binary != nil:
		return cel.BinaryBinding(func(l, r ref.Val) ref.Val {
			if c.guard([]ref.Val{l, r}) > maxSteps {
				return types.WrapErr(errTooMuch)
			}
			return c.binary(l, r)
		})
	}
	return cel.FunctionBinding(func(args ...ref.Val) ref.Val {
		if c.guard(args) > maxSteps {
			return types.WrapErr(errTooMuch)
		}
		return c.function(args...)
	})
}

// guardMatches replaces the function matches, whose work is the length of the text times the size of the pattern.
// A constant pattern is compiled once.
func guardMatches(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, isCall := i.(interpreter.InterpretableCall)
	if !isCall || call.Function() != overloads.Matches || len(call.Args()) != 2 {
		return i, nil
	}
	var constant *pattern
	if c, isConstant := call.Args()[1].(interpreter.InterpretableConst); isConstant {
		var err error
		if constant, err = compilePattern(c.Value()); err != nil {
			return nil, err
		}
	}
	// Another name than matches: what bears that one is replaced again by the evaluator, without a guard.
	return interpreter.NewCall(call.ID(), "guarded matches", call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		text, isText := args[0].(types.String)
		if !isText {
			return types.NewErr("no such overload")
		}
		p, err := constant, error(nil)
		if p == nil {
			if p, err = compilePattern(args[1]); err != nil {
				return types.WrapErr(err)
			}
		}
		if len(text)*p.size > maxRegexSteps {
			return types.WrapErr(errTooMuch)
		}
		return types.Bool(p.MatchString(string(text)))
	}), nil
}

// pattern is a regular expression and how many instructions it has.
type pattern struct {
	*regexp.Regexp
	size int
}

func compilePattern(v ref.Val) (*pattern, error) {
	source, isText := v.(types.String)
	if !isText {
		return nil, errors.New("no such overload")
	}
	compiled, err := types.CompileRegexWithLimit(string(source), maxRegex)
	if err != nil {
		return nil, err
	}
	size, err := types.RegexProgramSize(string(source))
	return &pattern{compiled, size}, err
}
