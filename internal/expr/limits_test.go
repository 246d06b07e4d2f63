// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// largeArguments are about as large as an expression may look at, each of them.
func largeArguments() string {
	numbers := func(n int) string {
		texts := make([]string, n)
		for i := range texts {
			texts[i] = fmt.Sprint(i)
		}
		return "[" + strings.Join(texts, ",") + "]"
	}
	members := make([]string, 4000)
	for i := range members {
		members[i] = fmt.Sprintf(`"k%d":%d`, i, i)
	}
	return fmt.Sprintf(`{"list":%s,"small":%s,"text":%q,"short":%q,"map":{%s},"vast":%s,"texts":[%s"x"],"path":"/tmp"}`,
		numbers(9000), numbers(1000), strings.Repeat("x", 900_000), strings.Repeat("x", 2000), strings.Join(members, ","), numbers(20_000), strings.Repeat(`"x",`, 6000))
}

func TestAnEvaluationIsBounded(t *testing.T) {
	t.Parallel()
	const (
		dear = "the expression costs more than 200000 steps on these arguments"
		big  = "the expression handles a value of more than 10000 elements, or 1000000 bytes of text"
		long = "the expression would work too long on these arguments"
	)
	doubled := func(step string) string { return "[[1]]" + strings.Repeat(step, 40) }
	for source, want := range map[string]string{
		`args.list.all(x, args.list.all(y, y >= 0))`:                       dear,
		`args.small.all(x, args.small.all(y, args.small.all(z, true)))`:    dear,
		`args.list.all(x, args.map == args.map)`:                           dear,
		`args.list.all(x, x in args.list)`:                                 dear,
		`args.list.all(x, "k" in args.map || true)`:                        dear,
		`args.list.all(x, args.small.map(y, y).size() > 0)`:                dear,
		`args.small.all(x, args.text.size() > 1)`:                          dear,
		`args.small.all(x, args.text.reverse() != "")`:                     dear,
		`args.small.all(x, args.list.sort().size() > 1)`:                   dear,
		`args.small.all(x, args.list.reverse().size() > 1)`:                dear,
		`args.small.map(x, args.list) == []`:                               big,
		`args.small.map(x, args.text) == []`:                               big,
		`size(args.vast) > 1`:                                              big,
		`size(args) > 1`:                                                   big,
		doubled(`.map(a, a + a)`) + `.exists(x, 5 in x)`:                   big,
		doubled(`.map(a, [a, a])`) + `.exists(x, x == x)`:                  big,
		`args.text + args.text != ""`:                                      dear,
		`args.list.distinct().size() == 1`:                                 long,
		`sets.contains(args.list, args.list)`:                              long,
		`sets.equivalent(args.list, args.list)`:                            long,
		`sets.intersects(args.list, args.list)`:                            long,
		`args.list.hasOnly(args.list)`:                                     long,
		`args.list.hasAny(args.list)`:                                      long,
		`args.list.hasAll(args.list)`:                                      long,
		`args.list.hasExactly(args.list)`:                                  long,
		`args.short.replace("x", args.short) == ""`:                        long,
		`args.short.replace("x", args.short, 1999) == ""`:                  long,
		`args.small.map(x, "").join(args.short + args.short) == ""`:        long,
		`"%s%s%s".format([args.text, args.text, args.text]) == ""`:         big,
		`"%s%s".format(args.texts) == ""`:                                  long,
		`regex.replace(args.short, "x", args.short) == ""`:                 long,
		`regex.replace(args.short, "x", args.short, 1999) == ""`:           long,
		`regex.extract(args.text, "(?:x|x|x|xx|xxx){100}y").hasValue()`:    long,
		`regex.extractAll(args.text, "(?:x|x|x|xx|xxx){100}y").size() > 1`: long,
		`args.text.matches("(x|x|x|xx|xxx){100}y")`:                        long,
		`args.text.matches("(x|x|x|xx|xxx)" + "{100}y")`:                   long,
	} {
		t.Run(source[:min(len(source), 60)], func(t *testing.T) {
			t.Parallel()
			p, in := condition(t, source), call(largeArguments())
			start := time.Now()
			got, err := p.Holds(in)
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			if got || err == nil {
				t.Fatalf("Holds = %v, %v, want %s", got, err, want)
			}
			if err.Error() != want {
				t.Errorf("Holds: %v, want %s", err, want)
			}
		})
	}
}

func TestLargeArgumentsCanBeLookedAt(t *testing.T) {
	t.Parallel()
	in := call(largeArguments())
	for source, want := range map[string]bool{
		`args.path.startsWith("/tmp")`:                           true,
		`size(args.text) > 100000`:                               true,
		`args.text.matches("^x+$")`:                              true,
		`regex.extract(args.text, "(x)").hasValue()`:             true,
		`args.text.contains("y")`:                                false,
		`args.list.all(x, x >= 0 && x < 9000)`:                   true,
		`args.small.map(x, x * 2).filter(x, x > 500).size() > 1`: true,
		`args.map.k17 == 17`:                                     true,
		`args.short.replace("x", "yy").size() == 4000`:           true,
		`args.small.slice(0, 300).distinct().size() == 300`:      true,
		`"%d".format([args.small[3]]) == "3"`:                    true,
		`args.vast[17] == 17`:                                    true,
	} {
		if got, err := condition(t, source).Holds(in); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", source, got, err, want)
		}
	}
}

func TestAnExpressionIsBounded(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"length":             strings.Repeat("true || ", 256) + "true",
		"levels":             strings.Repeat("(", 60) + "true" + strings.Repeat(")", 60),
		"macros":             strings.Repeat("[1].all(x, ", 60) + "true" + strings.Repeat(")", 60),
		"regular expression": `args.a.matches("(a{1,100}){10}")`,
	} {
		if p, err := expr.Condition(source); p != nil || err == nil {
			t.Errorf("%s: no problem", name)
		}
	}
	for name, source := range map[string]string{
		"length":             strings.Repeat("true || ", 255) + "true",
		"levels":             strings.Repeat("(", 20) + "true" + strings.Repeat(")", 20),
		"macros":             strings.Repeat("[1].all(x, ", 8) + "true" + strings.Repeat(")", 8),
		"regular expression": `args.a.matches("(a{1,10}){10}")`,
	} {
		if _, err := expr.Condition(source); err != nil {
			t.Errorf("%s within its bound: %v", name, err)
		}
	}
}
