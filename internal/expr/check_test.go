// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/internal/expr"
)

const paySchema = `{
	"type": "object",
	"properties": {
		"amount": {"type": "number"},
		"count": {"type": "integer"},
		"currency": {"type": "string", "enum": ["EUR", "USD", "GBP"]},
		"note": {"type": ["string", "null"]},
		"memo": {"anyOf": [{"type": "string"}, {"type": "null"}]},
		"urgent": {"type": "boolean"},
		"target": {"oneOf": [{"type": "string"}, {"type": "number"}]},
		"tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
		"to": {"$ref": "#/$defs/account"},
		"lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
		"extra": {"type": "object", "additionalProperties": true, "properties": {"x": {"type": "string"}}},
		"free": {"type": "object"},
		"any": {},
		"loop": {"$ref": "#/$defs/loop"},
		"kind": {"const": "payout"},
		"maybe": {"type": "string", "nullable": true},
		"maybeNumber": {"type": "number", "nullable": true},
		"mixed": {"enum": ["a", 1, null]},
		"pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "number"}},
		"odd name": {"type": "string"}
	},
	"required": ["amount"],
	"$defs": {
		"account": {"type": "object", "properties": {"iban": {"type": "string"}, "bank": {"type": "object", "properties": {"bic": {"type": "string"}}}}},
		"line": {"type": "object", "properties": {"price": {"type": "number"}, "sku": {"type": "string"}}, "additionalProperties": false},
		"loop": {"$ref": "#/$defs/loop"}
	}
}`

func TestCheckReportsWhatCannotBeRight(t *testing.T) {
	t.Parallel()
	for source, want := range map[string][]string{
		`args.amont > 5`:                  {"1:6: args.amont: the tool has no argument amont; did you mean amount?"},
		`has(args.amont)`:                 {"1:4: args.amont: the tool has no argument amont; did you mean amount?"},
		`args["amont"] > 5`:               {"1:6: args.amont: the tool has no argument amont; did you mean amount?"},
		`args.?amont.orValue(0) > 5`:      {"1:7: args.amont: the tool has no argument amont; did you mean amount?"},
		`args.zebra == 1`:                 {"1:6: args.zebra: the tool has no argument zebra"},
		"true &&\n  args.amont > 5":       {"2:8: args.amont: the tool has no argument amont; did you mean amount?"},
		`args.to.ibn == "x"`:              {"1:9: args.to.ibn: args.to has no member ibn; did you mean iban?"},
		`args.to.bank.bix == "x"`:         {"1:14: args.to.bank.bix: args.to.bank has no member bix; did you mean bic?"},
		`args.lines.all(l, l.prize < 5)`:  {"1:21: l.prize: l has no member prize; did you mean price?"},
		`args.lines[0].prize < 5`:         {"1:15: args.lines[…].prize: args.lines[…] has no member prize; did you mean price?"},
		`args.amount == "5"`:              {"1:1: args.amount is a number, and stands with a string on the other side of =="},
		`"5" == args.amount`:              {"1:8: args.amount is a number, and stands with a string on the other side of =="},
		`args.amount > args.currency`:     {"1:1: args.amount is a number, and stands with a string on the other side of >"},
		`args.note > 3`:                   {"1:1: args.note is null or a string, and stands with a number on the other side of >"},
		`args.memo == 3`:                  {"1:1: args.memo is null or a string, and stands with a number on the other side of =="},
		`args.currency == "EURO"`:         {`1:18: args.currency is never "EURO"; did you mean EUR?`},
		`args.currency != "Zloty"`:        {`1:18: args.currency is never "Zloty"; it is one of EUR, USD, GBP`},
		`args.currency in ["EUR", "YEN"]`: {`1:26: args.currency is never "YEN"; it is one of EUR, USD, GBP`},
		`args.currency in [1, 2]`:         {"1:1: args.currency is a string, and the elements of the list are a number"},
		`args.kind == "pay"`:              {`1:14: args.kind is never "pay"; it is one of payout`},
		`1 in args.tags`:                  {"1:1: this is a number, and the elements of the list are a string"},
		`args.mixed == "b"`:               {`1:15: args.mixed is never "b"; it is one of a`},
		`args.mixed == true`:              {"1:1: args.mixed is null or a number or a string, and stands with a boolean on the other side of =="},
		`"c" in args.tags`:                {`1:1: args.tags is never "c"; it is one of a, b`},
		`"a" in args.amount`:              {"1:8: args.amount is a number, and in works on a list or a map"},
		`1 in args.to`:                    {"1:1: this is a number, and names of members are strings"},
		`args.amount.foo == 1`:            {"1:13: args.amount is a number and has no member foo"},
		`args.amount.startsWith("a")`:     {"1:1: args.amount is a number, which startsWith does not work on"},
		`size(args.amount) > 3`:           {"1:6: args.amount is a number, which size does not work on"},
		`args.amount.all(a, a > 1)`:       {"1:1: args.amount is a number, which has nothing to go through"},
		`args.amount && true`:             {"1:1: args.amount is a number, and true or false is needed here"},
		`args.amount ? true : false`:      {"1:1: args.amount is a number, and true or false is needed here"},
		`args.amount + "a" == "x"`:        {"1:1: args.amount is a number, and stands with a string on the other side of +"},
		`args.tags.exists(x, x == 3)`:     {"1:21: x is a string, and stands with a number on the other side of =="},
		`args.amont > args.cont`: {
			"1:6: args.amont: the tool has no argument amont; did you mean amount?",
			"1:19: args.cont: the tool has no argument cont; did you mean count?",
		},
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(want, lines(condition(t, source).Check([]byte(paySchema)))); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
		})
	}
}

func lines(problems []expr.Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, p.Error())
	}
	return all
}

func TestCheckHasNoFalseAlarms(t *testing.T) {
	t.Parallel()
	for _, source := range []string{
		`args.amount > 5`, `args.amount > 5.5`, `args.amount > 5u`, `args.count > 1.5`, `args.count == args.amount`, `args.amount * 2.0 > 3.0`,
		`args.maybe == args.maybeNumber`, `"x" in args.pair`, `args.pair[0] == "x"`, `args.mixed == 2`, `args.mixed == "a"`,
		`args.note == null`, `args.amount == null`, `args.note == "x"`, `args.memo.startsWith("x")`, `args.memo == null || args.memo == "y"`,
		`args.target == 3`, `args.target == "x"`, `args.target > 3`, `args.any.thing == 3`, `args.loop.x == 3`, `args.free.x == 3`, `args.extra.y > 3`,
		`args.extra.x == "a"`, `args.to.bank.bic == "x"`, `args.lines.all(l, l.price < 5 && l.sku != "x")`, `args.lines[0].price < 5.0`,
		`args.currency == "EUR"`, `args.currency in ["EUR", "USD"]`, `args.currency > "A"`, `args.currency.startsWith("E")`, `"a" in args.tags`,
		`args["odd name"] == "x"`, `"amount" in args`, `args.exists(k, k == "x")`, `args.all(k, args[k] != "x")`, `size(args.tags) > 1`, `size(args) > 1`,
		`args.tags.map(x, x + "!").exists(y, y == "a!")`, `args.urgent`, `!args.urgent && args.amount > 1`, `args.?note.orValue("") == ""`,
		`args.?to.?bank.?bic.orValue("") == "x"`, `[args.amount, args.count].exists(x, x > 3)`, `(args.urgent ? args.amount : args.count) > 3`,
		`{"a": args.amount}["a"] > 3`, `string(args.amount) == "5"`, `args.note + "x" == "yx"`, `principal.namespace == "x"`,
		`tool.name == "pay" && args.kind == "payout"`, `principal.groups.exists(g, g == args.currency)`, `dyn(args.amount) == "x" || true`,
		`timestamp(args.note) > timestamp("2020-01-01T00:00:00Z")`, `duration(args.note) + duration("1s") > duration("3s")`,
		`sets.contains(["a", "b"], args.tags)`, `args.tags + ["c"] == []`, `args.lines.filter(l, l.price > 3).size() > 2`, `[1, 2].exists(args, args > 1)`,
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			if got := lines(condition(t, source).Check([]byte(paySchema))); got != nil {
				t.Errorf("Check = %q", got)
			}
		})
	}
}

func TestCheckLeavesOpenSchemasAlone(t *testing.T) {
	t.Parallel()
	p := condition(t, `args.amont > 5`)
	for name, tc := range map[string]struct {
		schema string
		alarms bool
	}{
		"properties alone close a schema":         {`{"properties": {"amount": {}}}`, true},
		"and so does a false after them":          {`{"properties": {"amount": {}}, "additionalProperties": false}`, true},
		"the arguments stand behind a reference":  {`{"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"amount": {}}}}}`, true},
		"no properties":                           {`{"type": "object"}`, false},
		"additionalProperties is true":            {`{"properties": {"amount": {}}, "additionalProperties": true}`, false},
		"additionalProperties is a schema":        {`{"properties": {"amount": {}}, "additionalProperties": {"type": "string"}}`, false},
		"patternProperties":                       {`{"properties": {"amount": {}}, "patternProperties": {"^a": {}}}`, false},
		"allOf may bring more":                    {`{"properties": {"amount": {}}, "allOf": [{"properties": {"amont": {}}}]}`, false},
		"anyOf may bring more":                    {`{"type": "object", "properties": {"amount": {}}, "anyOf": [{"properties": {"amont": {}}}]}`, false},
		"a reference with properties beside it":   {`{"$ref": "#/$defs/a", "properties": {"amont": {}}, "$defs": {"a": {"properties": {"b": {}}}}}`, false},
		"a reference to another document":         {`{"$ref": "https://example.com/schema"}`, false},
		"a reference to itself":                   {`{"$ref": "#"}`, false},
		"a schema that is true":                   {`true`, false},
		"a schema that is no schema":              {`[1, 2]`, false},
		"a schema that is no JSON":                {`{"properties": `, false},
		"no schema":                               {``, false},
		"a name given twice":                      {`{"properties": {"amount": {}}, "properties": {"amount": {}}}`, false},
		"properties that are none":                {`{"properties": 3}`, false},
		"a type that nobody knows":                {`{"type": "money"}`, false},
		"a schema that is larger than looked at":  {`{"properties": {"amount": {"description": "` + strings.Repeat("x", 1<<20) + `"}}}`, false},
		"a schema that is deeper than looked at":  {`{"properties": {"amount": ` + strings.Repeat(`{"items":`, 100) + `{}` + strings.Repeat(`}`, 100) + `}}`, false},
		"a control: the same one level shallower": {`{"properties": {"amount": ` + strings.Repeat(`{"items":`, 50) + `{}` + strings.Repeat(`}`, 50) + `}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := p.Check([]byte(tc.schema)); (len(got) > 0) != tc.alarms {
				t.Errorf("Check = %v", got)
			}
		})
	}
}

func TestCheckIsBoundedInTimeAndText(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"properties":{`)
	for i := range 20_000 {
		fmt.Fprintf(&b, `"a%d":{"type":"string","enum":["x"]},`, i)
	}
	b.WriteString(`"long\u001b[31m` + strings.Repeat("n", 400) + `":{},"e":{"enum":["`)
	b.WriteString(strings.Repeat(`evil\u202e`, 100))
	for i := range 20_000 {
		fmt.Fprintf(&b, `","v%d`, i)
	}
	b.WriteString(`"]}}}`)
	source := `args.e in [` + strings.TrimSuffix(strings.Repeat(`"q",`, 480), ",") + `]`
	start := time.Now()
	problems := condition(t, source).Check([]byte(b.String()))
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("Check took %v", took)
	}
	if len(problems) == 0 {
		t.Fatal("no problem: the schema was not read")
	}
	for _, p := range problems {
		if len(p.Message) > 300 || strings.ContainsAny(p.Message, "\n\x1b\u202e") {
			t.Fatalf("message %q", p.Message)
		}
	}
}

func TestSuggestionsAreSoughtAmongFewAndShortNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	for name, tc := range map[string]struct{ filler, name, wrong, want string }{
		"a control":      {"", "amount", "amont", "; did you mean amount?"},
		"a long name":    {"", long, long + "y", ""},
		"after too many": {fillers(1500), "amount", "amont", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := fmt.Sprintf(`{"properties":{%s%q:{}}}`, tc.filler, tc.name)
			want := []string{fmt.Sprintf("1:6: args.%s: the tool has no argument %s%s", tc.wrong, tc.wrong, tc.want)}
			if diff := cmp.Diff(want, lines(condition(t, "args."+tc.wrong+" == 1").Check([]byte(schema)))); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
		})
	}
}

func fillers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"another%d":{},`, i)
	}
	return b.String()
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(paySchema))
	f.Add([]byte(`{"$ref":"#"}`))
	f.Add([]byte(`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]},"b":{"$ref":"#/properties/a"}}}`))
	programs := []*expr.Program{
		condition(f, `args.a == "x" && args.b.c > 3 || args.items.exists(i, i.d in ["x", "y"])`),
		condition(f, `has(args.amount) && args.?to.?iban.orValue("") == "x" && args["currency"] in args.tags`),
	}
	f.Fuzz(func(t *testing.T, schema []byte) {
		for _, p := range programs {
			for _, problem := range p.Check(schema) {
				if problem.Line < 1 || problem.Column < 1 || strings.ContainsAny(problem.Message, "\n\r\x1b") {
					t.Errorf("problem %+v", problem)
				}
			}
		}
	})
}

// A schema is a stranger's. Looking at these took minutes when every mention followed every part of a reference again.
func TestHostileReferencesAreNotFollowedForEver(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("/q", 1<<18)
	deep := strings.Repeat(`{"q":`, 60) + `{"type":"string"}` + strings.Repeat("}", 60)
	wide := strings.Repeat(`{"x":1},`, 1<<15)
	source := "args.a > 1" + strings.Repeat(" || args.a > 1", 140)
	p := condition(t, source)
	for name, schema := range map[string]string{
		"a long reference":       `{"properties":{"a":{"$ref":"#` + long + `"}},"q":{}}`,
		"one to itself":          `{"properties":{"a":{"$ref":"#/properties/a"}},"pad":[` + wide + `1]}`,
		"of empty names":         `{"properties":{"a":{"$ref":"#/q` + strings.Repeat("/", 1000) + `"}},"q":{"$ref":"#/q"},"pad":[` + wide + `1]}`,
		"deep, and found":        `{"properties":{"a":{"$ref":"#` + strings.Repeat("/q", 61) + `"}},"pad":[` + wide + `1],"q":` + strings.TrimPrefix(deep, `{"q":`),
		"that ends in the midst": `{"properties":{"a":{"$ref":"#/absent` + strings.Repeat("/q", 300) + `"}},"pad":[` + wide + `1]}`,
	} {
		for _, problem := range p.Check([]byte(schema)) {
			t.Errorf("%s: %v, want no problem where nothing is sure", name, problem)
		}
	}
	// The control: a reference that leads somewhere is followed.
	if got := condition(t, "args.a > 1").Check([]byte(`{"properties":{"a":{"$ref":"#/$defs/t"}},"$defs":{"t":{"type":"string"}}}`)); len(got) != 1 {
		t.Errorf("a string compared with a number through a reference: %v, want one problem", got)
	}
}
