// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
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

	"regex_extract_string_string":            pairs,
	"regex_extractAll_string_string":         pairs,
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

func regexReplacement(a []ref.Val) int {
	return product(length(a[0])+1, length(a[1])+length(a[2]))
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
		parts := types.NewSizeCalculator(
			types.SizeCalculatorMaxDepth(maxDepth), types.SizeCalculatorMaxTraversal(maxVisited),
			types.SizeCalculatorStringUnitLength(1)).AggregateSize(it.Next())
		total += int(parts) + digits
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
