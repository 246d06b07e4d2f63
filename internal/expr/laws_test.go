// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// source draws an expression, often one that compiles.
func source(t *rapid.T) string {
	atoms := []string{
		"args.a", "args.b", "args.o.a", "args.l[0]", "args.l", "args.o", "args", "args.?a", "has(args.a)", "1", "1.5", "2u", `"x"`, "true", "null",
		"tool.name", "tool.tier", "principal.groups", "principal.namespace", "server.name", "tool.annotations.readOnlyHint", `[1, "x"]`, `{"a": 1}`,
	}
	shapes := []string{
		"%s == %s", "%s != %s", "%s > %s", "%s + %s", "%s * %s", "%s / %s", "%s && %s", "%s || %s", "%s in %s", "(%s ? %s : false)",
		"[%s, %s]", "%s.exists(x, x == %s)", "%s.map(x, %s)", "%s.startsWith(%s)", "%s.matches(%s)", "sets.contains(%s, %s)", "%s[%s]",
		"%s.replace(\"a\", %s)", "%s.orValue(%s)", `{"k": %s, "v": %s}`,
	}
	text := rapid.SampledFrom(atoms).Draw(t, "atom")
	for range rapid.IntRange(0, 4).Draw(t, "depth") {
		text = fmt.Sprintf("("+rapid.SampledFrom(shapes).Draw(t, "shape")+")", text, rapid.SampledFrom(atoms).Draw(t, "other"))
	}
	return text
}

// value draws a JSON value as encoding/json decodes it, numbers as text.
func value(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return json.Number(rapid.SampledFrom([]string{
			"0", "1", "-1", "2", "1.5", "100", "0.1", "9007199254740993", "9223372036854775807", "9223372036854775808",
			"18446744073709551616", "0.10000000000000000555", "1000000000000000000000000", "0.0000001",
		}).Draw(t, "number"))
	case 3:
		return rapid.SampledFrom([]string{"", "x", "a", "é", "\"\\\n", "😀"}).Draw(t, "text")
	case 4:
		var list []any
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, value(t, depth-1))
		}
		return list
	default:
		return object(t, depth)
	}
}

func object(t *rapid.T, depth int) map[string]any {
	o := map[string]any{}
	for _, name := range []string{"a", "b", "l", "o", "é"} {
		if rapid.Bool().Draw(t, "has "+name) {
			o[name] = value(t, depth-1)
		}
	}
	return o
}

// spell writes a value in one of its spellings: another order, other white space, other escapes, other numbers.
func spell(t *rapid.T, b *strings.Builder, v any) {
	space := func() { b.WriteString(rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space")) }
	switch v := v.(type) {
	case json.Number:
		b.WriteString(spellNumber(t, v.String()))
	case string:
		spellText(t, b, v)
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			spell(t, b, e)
		}
		b.WriteByte(']')
	case map[string]any:
		b.WriteByte('{')
		for i, name := range rapid.Permutation(slices.Sorted(maps.Keys(v))).Draw(t, "order") {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			spellText(t, b, name)
			b.WriteByte(':')
			space()
			spell(t, b, v[name])
		}
		b.WriteByte('}')
	default:
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
}

func spellNumber(t *rapid.T, number string) string {
	forms := []string{number}
	switch {
	case strings.Contains(number, "."):
		forms = append(forms, number+"0", number+"00e0", number+"e-0")
	case number == "0":
		forms = append(forms, "-0", "0.0", "0e7")
	default:
		forms = append(forms, number+".0", number+"e0", number+".000E+0", number+"0e-1")
	}
	return rapid.SampledFrom(forms).Draw(t, "form")
}

func spellText(t *rapid.T, b *strings.Builder, text string) {
	escaped := rapid.Bool().Draw(t, "escaped")
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r > 0xffff:
			b.WriteRune(r)
		case escaped || r < ' ' || r == '"' || r == '\\':
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

func TestEverySpellingOfTheArgumentsGivesTheSameResult(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := source(t)
		condition, conditionErr := expr.Condition(text)
		mapping, mappingErr := expr.Mapping(text)
		arguments := object(t, 3)
		results := map[string]bool{}
		for range 2 {
			var b strings.Builder
			spell(t, &b, arguments)
			in := call(b.String())
			if conditionErr == nil {
				holds, err := condition.Holds(in)
				results[fmt.Sprint("condition ", holds, err)] = true
				if holds && err != nil {
					t.Fatalf("%s holds, and %v", text, err)
				}
			}
			if mappingErr == nil {
				got, err := mapping.Map(in)
				results[fmt.Sprintf("mapping %s %v", got, err)] = true
				if err == nil && !json.Valid(got) {
					t.Fatalf("%s gives %s", text, got)
				}
			}
		}
		if len(results) > 2 || len(results) == 2 && (conditionErr != nil || mappingErr != nil) {
			t.Fatalf("%s over %v: %q", text, arguments, slices.Collect(maps.Keys(results)))
		}
	})
}

func TestWhatIsTrueWithoutTheArgumentsIsNeverOtherwiseWithThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := source(t)
		p, err := expr.Condition(text)
		if err != nil {
			return
		}
		unknown := call("")
		unknown.Arguments = expr.UnknownArguments()
		before, err := p.Holds(unknown)
		if err != nil {
			return
		}
		var b strings.Builder
		spell(t, &b, object(t, 3))
		if after, err := p.Holds(call(b.String())); err != nil || after != before {
			t.Fatalf("%s: %v unknown, %v, %v over %s", text, before, after, err, b.String())
		}
	})
}

func TestExpressionsRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	var group sync.WaitGroup
	for _, text := range []string{
		`args.s > 1`, `args.s in [1, 2]`, `args.s.matches(args.n)`, `!args.s`, `args.s && true`, `args.n.size() == 1`, `args.s.getHours() == 1`,
		`timestamp("2020-01-01T00:00:00Z").getHours(args.n) == 1`, `args.l.sort() == []`, `args.n[args.s]`, `args.none == 1`, `args.s == "a"`,
		`args.s.matches("^a$")`, `args.l.distinct().size() == 2`, `tool.annotations.destructiveHint`, `args.over > 1`, `args.none == 1 && args.s > 1`,
	} {
		p := condition(t, text)
		const arguments = `{"s":"a","n":1,"l":[1,"a"],"over":1e300}`
		wantHolds, wantErr := p.Holds(call(arguments))
		for range 4 {
			group.Go(func() {
				for range 50 {
					if holds, err := p.Holds(call(arguments)); holds != wantHolds || fmt.Sprint(err) != fmt.Sprint(wantErr) {
						t.Errorf("%s: %v, %v, want %v, %v", text, holds, err, wantHolds, wantErr)
					}
				}
			})
		}
	}
	group.Wait()
}

func FuzzCondition(f *testing.F) {
	for _, seed := range []string{
		`args.a == 1 && has(args.b)`, `args.l.map(x, x + 1).exists(y, y > args.a)`, `"%s".format([args.s]).matches("a+")`, `args.?a.?b.orValue(1) == 1`,
		`[1].map(a, a + a).map(a, [a, a])`, `regex.replace(args.s, "(a)", "\\1\\1") != ""`, `lists.range(1000).distinct()`, `{"a": args.o}`,
		`sets.equivalent(args.l, args.l)`, `math.bitShiftLeft(1, 70) > 1`, `tool.annotations.readOnlyHint`, `args.l.sortBy(x, x.a)`, "\x00", `b"\xff"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		in := call(`{"a":1,"b":1.5,"s":"aab","l":[3,1,2,{"a":1}],"o":{"k":"v"},"x":1e400}`)
		if p, err := expr.Condition(text); err == nil {
			_, err = p.Holds(in)
			oneLine(t, err)
			p.Check([]byte(paySchema))
			in.Arguments = expr.UnknownArguments()
			_, err = p.Holds(in)
			oneLine(t, err)
		} else {
			oneLine(t, err)
		}
		if p, err := expr.Mapping(text); err == nil {
			got, err := p.Map(call(`{"a":1,"l":[3,1,2]}`))
			oneLine(t, err)
			if err == nil && !json.Valid(got) {
				t.Errorf("%q gives %q", text, got)
			}
		}
	})
}

func oneLine(t *testing.T, err error) {
	t.Helper()
	if err != nil && (strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 4*2048+300) {
		t.Errorf("error %q", err)
	}
}

func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		`{"a":1}`, `{"a":1.0,"l":[1,2,{"a":0.1}],"o":{"a":1e400}}`, `{"s":"\u0041\ud83d\ude00"}`, `{"a":-0.0}`, `[]`, `{"a":1,"a":2}`, `{"l":[[[[]]]]}`,
	} {
		f.Add([]byte(seed))
	}
	programs := []*expr.Program{
		condition(f, `args.a > 1 && args.l.exists(x, x == args.o) || args.s.startsWith("a") && size(args) < 5`),
		condition(f, `args.o == args.l || args.a == args.o.a || args.l[0].a < 1.5 || "a" in args`),
		condition(f, `sets.contains(args.l, args.l) && args.l.distinct().size() == args.l.size() && args.l.sort() != []`),
	}
	identity, err := expr.Mapping(`args`)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, arguments []byte) {
		in := call(string(arguments))
		for _, p := range programs {
			if _, err := p.Holds(in); err != nil {
				oneLine(t, err)
			}
		}
		got, err := identity.Map(in)
		if err != nil {
			oneLine(t, err)
			return
		}
		if again, err := identity.Map(call(string(got))); err != nil || string(again) != string(got) {
			t.Errorf("%s became %s, %v", got, again, err)
		}
	})
}

func BenchmarkHolds(b *testing.B) {
	arguments := []byte(`{"amount":1200,"currency":"EUR","to":{"iban":"DE89370400440532013000"},"note":"rent","tags":["a","b","c"]}`)
	for name, text := range map[string]string{
		"of a number":        `args.amount > 1000`,
		"typical":            `args.amount > 1000 && args.currency in ["EUR", "USD"] && !principal.namespace.startsWith("dev-")`,
		"no arguments":       `principal.namespace == "billing" && tool.tier != "Read"`,
		"regular expression": `args.to.iban.matches("^DE[0-9]{20}$")`,
		"over a list":        `args.tags.all(t, t != "x")`,
	} {
		p := condition(b, text)
		b.Run(name, func(b *testing.B) {
			in := call("")
			in.Arguments = expr.NewArguments(arguments)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Holds(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	p := condition(b, `args.amount > 1000`)
	b.Run("with reading the arguments", func(b *testing.B) {
		in := call("")
		b.ReportAllocs()
		for b.Loop() {
			in.Arguments = expr.NewArguments(arguments)
			if _, err := p.Holds(in); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCondition(b *testing.B) {
	for b.Loop() {
		condition(b, `args.amount > 1000 && args.currency in ["EUR", "USD"]`)
	}
}
