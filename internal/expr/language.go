// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

// Bounds of an expression and of one evaluation; the package comment says them to authors.
const (
	maxSource = 2048
	maxLevels = 50
	maxNodes  = 10_000
	maxRegex  = 1000
	// maxCost is in units of CEL's cost model, about one for a step or for ten bytes of text: well under a second.
	maxCost = 200_000
	// maxValue is how many parts a value may have; an element, or ten bytes of text, is one.
	maxValue = 100_000
	// maxVisited is how many elements of one value are counted before it is said to be too large.
	maxVisited = 10_000
	// maxDepth of a value: what arguments may have, and what an expression may put around them.
	maxDepth = 64 + maxLevels
	// maxSteps is how much work one function may have before it starts, where its cost is not in proportion to what it
	// is given.
	maxSteps = 2_000_000
	// maxRegexSteps is how much work one match may have: bytes of text times instructions.
	maxRegexSteps = 50_000_000
)

// language is the one environment that all expressions are compiled in.
var language = sync.OnceValues(func() (*cel.Env, error) {
	env, err := newLanguage()
	if err != nil {
		return nil, err
	}
	// The checker notes its catalogue of names at its first mistake, while others may read it: cel-go v0.33.2,
	// checker.(*Env).cloneWithDecls beside Catalog. So the first one is made before the environment is shared.
	if _, issues := env.Compile("nameless"); issues.Err() == nil {
		return nil, errors.New("the language knows a name that nobody gave it")
	}
	return env, nil
})

func newLanguage() (*cel.Env, error) {
	return cel.NewCustomEnv(
		cel.StdLib(),
		cel.OptionalTypes(cel.OptionalTypesVersion(4)),
		ext.Strings(ext.StringsVersion(5)),
		ext.Lists(ext.ListsVersion(5), ext.ListsMaxRangeSize(maxVisited)),
		ext.Sets(ext.SetsVersion(0)),
		ext.Math(ext.MathVersion(3)),
		ext.Regex(ext.RegexVersion(0)),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserRecursionLimit(maxLevels),
		cel.ExpressionNodeLimit(maxNodes),
		cel.RegexProgramSizeLimit(maxRegex),
		cel.CostSizingStrategy(cost.AggregateSizingStrategy(
			types.SizeCalculatorMaxDepth(maxDepth), types.SizeCalculatorMaxTraversal(maxVisited))),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
		guarded,
		typed,
		cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("tool", toolKind.celType()),
		cel.Variable("principal", principalKind.celType()),
		cel.Variable("server", serverKind.celType()),
	)
}

// programOptions put bounds on every evaluation. Values are measured before anything is done with them, so that no
// step of an evaluation works on one that is too large.
func programOptions() []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.CustomDecoratorV2(guardMatches),
		cel.CostTrackerOptions(guardedCosts()...),
		cel.EvalOptions(cel.OptOptimize),
		cel.CostTracking(charge{cost.StandardOverloadTrackers()}),
		cel.CostLimit(maxCost),
		cel.MemoryTracking(types.MemoryTrackerSizeCalculator(parts)),
		cel.MemoryLimit(maxValue),
	}
}

// parts measures values.
var parts = types.NewSizeCalculator(types.SizeCalculatorMaxDepth(maxDepth), types.SizeCalculatorMaxTraversal(maxVisited))

// charge makes the calls cost what they are given and what they give, that the cost model takes for a single step
// each: among others, all whose overload is only chosen when the types of the arguments are known.
type charge struct {
	modelled map[string]cost.FunctionTracker
}

// CallCost returns the cost of a call, nil where the cost model has it.
func (c charge) CallCost(_, overload string, args []ref.Val, result ref.Val) *uint64 {
	if _, modelled := c.modelled[overload]; modelled {
		return nil
	}
	total := 1 + weight(result)
	for _, arg := range args {
		total += weight(arg)
	}
	return &total
}

// weight of a value that takes more than a step to handle.
func weight(v ref.Val) uint64 {
	switch v.(type) {
	case types.String, types.Bytes, traits.Lister, traits.Mapper:
		return uint64(parts.AggregateSize(v))
	}
	return 0
}
