// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

func condition(t testing.TB, source string) *expr.Program {
	t.Helper()
	p, err := expr.Condition(source)
	if err != nil {
		t.Fatalf("Condition(%s): %v", source, err)
	}
	return p
}

// call returns a call of a tool with some of everything.
func call(arguments string) *expr.Input {
	yes, no := true, false
	return &expr.Input{
		Arguments: expr.NewArguments([]byte(arguments)),
		Tool: expr.Tool{
			Name: "pay", Digest: "sha256:1", Tier: v1alpha1.TierIrreversible,
			Annotations: &v1alpha1.ToolAnnotations{ReadOnlyHint: &no, OpenWorldHint: &yes},
		},
		Principal: expr.Principal{
			Username: "system:serviceaccount:billing:agent", Groups: []string{"system:serviceaccounts", "agents"},
			Namespace: "billing", ServiceAccount: "agent", ActsFor: "ann",
		},
		Server: expr.Server{Namespace: "billing", Name: "ledger"},
	}
}

func TestConditionsOverACall(t *testing.T) {
	t.Parallel()
	const arguments = `{"amount":1200,"price":0.1,"to":{"iban":"DE1"},"tags":["a","b"],"note":null,"urgent":true,"big":9007199254740993,
		"vast":18446744073709551615,"round":1e3,"whole":2.0,"name":"Ann"}`
	for source, want := range map[string]bool{
		`args.amount > 1000`:                                         true,
		`args.amount > 1000.5`:                                       true,
		`args.amount == 1200.0`:                                      true,
		`args.price == 0.1`:                                          true,
		`args.price * 2.0 == 0.2`:                                    true,
		`args.big == 9007199254740993`:                               true,
		`args.big == 9007199254740992`:                               false,
		`args.big > 9007199254740992`:                                true,
		`args.vast == 18446744073709551615u`:                         true,
		`args.vast > args.big`:                                       true,
		`args.round == 1000 && type(args.round) == int`:              true,
		`type(args.whole) == int && args.whole == 2`:                 true,
		`type(args.price) == double`:                                 true,
		`args.to.iban.startsWith("DE")`:                              true,
		`args.to == {"iban": "DE1"}`:                                 true,
		`args["to"]["iban"] == "DE1"`:                                true,
		`"a" in args.tags`:                                           true,
		`"c" in args.tags`:                                           false,
		`args.tags.all(x, x < "c")`:                                  true,
		`args.tags[1] == "b"`:                                        true,
		`args.note == null && has(args.note)`:                        true,
		`has(args.none)`:                                             false,
		`"note" in args && !("none" in args)`:                        true,
		`args.urgent`:                                                true,
		`args.?none.orValue(3) == 3`:                                 true,
		`has(args.none) && args.none > 1`:                            false,
		`false && args.none`:                                         false,
		`args.none || true`:                                          true,
		`args.amount > 1000 || args.none`:                            true,
		`args.exists(k, k == "amount")`:                              true,
		`args.name.lowerAscii() == "ann"`:                            true,
		`args.name.matches("^A.n$")`:                                 true,
		`args.name.matches("^" + args.name + "$")`:                   true,
		`regex.extract(args.to.iban, "([0-9]+)").orValue("") == "1"`: true,
		`sets.contains(["a", "b", "c"], args.tags)`:                  true,
		`args.tags.hasAny(["b"])`:                                    true,
		`math.greatest(args.amount, 5) == 1200`:                      true,
		`"%d".format([args.amount]) == "1200"`:                       true,
		`args.tags.join(",") == "a,b"`:                               true,
		`args.name.replace("n", "m") == "Amm"`:                       true,
		`tool.name == "pay" && tool.tier == "Irreversible" && tool.digest == "sha256:1"`: true,
		`has(tool.annotations) && !tool.annotations.readOnlyHint`:                        true,
		`has(tool.annotations.destructiveHint)`:                                          false,
		`tool.annotations.openWorldHint`:                                                 true,
		`principal.username.endsWith(":agent")`:                                          true,
		`"agents" in principal.groups`:                                                   true,
		`principal.namespace == server.namespace && principal.serviceAccount == "agent"`: true,
		`principal.actsFor == "ann" && has(principal.actsFor)`:                           true,
		`server.name == "ledger"`:                                                        true,
		`[principal].all(p, p.username != "")`:                                           true,
		`dyn(tool).name == "pay" && has(dyn(tool).tier)`:                                 true,
		`tool == tool`: true,
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			if got, err := condition(t, source).Holds(call(arguments)); err != nil || got != want {
				t.Errorf("Holds = %v, %v, want %v", got, err, want)
			}
		})
	}
}

func TestWhatCannotBeEvaluatedIsAnErrorThatNamesNoValue(t *testing.T) {
	t.Parallel()
	const arguments = `{"s":"secret","n":77,"l":[77,78],"o":{"k":77},"over":18446744073709551616,"under":-9223372036854775809,"vast":1e21,
		"exact":0.1,"decimal":0.10000000000000000555,"tiny":1e-400,"inlist":[1,0.10000000000000000555],
		"inobject":{"k":1,"d":0.10000000000000000555},"max":9223372036854775807}`
	const inexact = "a number in the arguments has no exact value"
	for source, want := range map[string]string{
		`args.none == 1`:                                 "1:6: args.none is not there",
		`args.o.none == 1`:                               "1:8: args.o.none is not there",
		"true &&\n args.none == 1":                       "2:7: args.none is not there",
		`args["none"] == 1`:                              `1:5: args["none"] is not there`,
		`args.l[7] == 1`:                                 "1:7: args.l[…] has no element at that place",
		`{"a": true}[args.s]`:                            "1:12: what the index asks for is not there",
		`args.s > 1`:                                     "1:8: an operand of > has a type that this does not work with",
		`args.s + 1 == 2`:                                "1:8: an operand of + has a type that this does not work with",
		`args.n.startsWith("7")`:                         "1:18: an argument of startsWith has a type that this does not work with",
		`args.s && true`:                                 "1:8: an operand of && has a type that this does not work with",
		`args.s`:                                         "the expression gives neither true nor false",
		`int(args.s) == 1`:                               "1:4: an argument of int cannot be converted",
		`args.n / 0 == 1`:                                "1:8: an operand of / divides by zero",
		`args.n % 0 == 1`:                                "1:8: an operand of % divides by zero",
		`args.max + args.n > 1`:                          "1:10: an operand of + is beyond the range of its type",
		`args.s.matches("(" + args.s)`:                   "the expression holds a regular expression that is not valid",
		`dyn(args.s).matches("(" + args.s)`:              "the expression holds a regular expression that is not valid",
		`args.s.matches("(a{1,100}){1" + "0}")`:          "the expression holds a regular expression that is too large",
		`args.over > 1`:                                  inexact,
		`args.under < 1`:                                 inexact,
		`args.vast > 1`:                                  inexact,
		`args.decimal == 0.1`:                            inexact,
		`args.exact != args.decimal`:                     inexact,
		`args.tiny > 0`:                                  inexact,
		`args.inlist == [1, 0.1]`:                        inexact,
		`1 in args.inlist`:                               inexact,
		`size(args.inlist) == 2`:                         inexact,
		`args.inlist.exists(x, x == 1)`:                  inexact,
		`args.inlist.slice(0, 1) == [1]`:                 inexact,
		`args.inlist[0] == 1`:                            "1:12: args.inlist[…]: " + inexact,
		`args.inobject == {"k": 1, "d": 0.1}`:            inexact,
		`[args.inobject] == [args.inobject]`:             inexact,
		`args.inobject.d == 0.1`:                         inexact,
		`{"a": args.inobject} == {"a": args.o}`:          inexact,
		`"s" in args`:                                    inexact,
		`tool.annotations.destructiveHint`:               "1:18: tool.annotations.destructiveHint: the server does not give this hint",
		`tool.annotations.destructiveHint || 1 / 0 == 1`: "1:18: tool.annotations.destructiveHint: the server does not give this hint",
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			got, err := condition(t, source).Holds(call(arguments))
			if got || err == nil {
				t.Fatalf("Holds = %v, %v", got, err)
			}
			if diff := cmp.Diff(want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "77") {
				t.Errorf("error holds a value of the call: %v", err)
			}
		})
	}
}

func TestWhatStandsBesideAnInexactNumberCanBeRead(t *testing.T) {
	t.Parallel()
	in := call(`{"d":0.10000000000000000555,"x":1,"o":{"k":1,"d":1e400},"l":[{"k":2}]}`)
	for source, want := range map[string]bool{
		`args.x == 1`:                 true,
		`args.o.k == 1`:               true,
		`has(args.d)`:                 true,
		`has(args.none)`:              false,
		`has(args.o.none)`:            false,
		`args.l[0].k == 2`:            true,
		`args.x == 2 && args.d > 0.0`: false,
	} {
		if got, err := condition(t, source).Holds(in); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", source, got, err, want)
		}
	}
}

func TestArgumentsThatAreNoStrictObjectAreAnErrorOnlyWhereTheyAreLookedAt(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		`{"a":1,"a":1}`: "the arguments are not strict JSON",
		`{"a":1`:        "the arguments are not strict JSON",
		`[1]`:           "the arguments are not a JSON object",
		`null`:          "the arguments are not a JSON object",
	} {
		in := call(arguments)
		for range 2 { // the second time from what was remembered
			if got, err := condition(t, `args.a == 1`).Holds(in); got || err == nil || err.Error() != want {
				t.Errorf("%s: %v, %v, want %s", arguments, got, err, want)
			}
		}
		if got, err := condition(t, `tool.name == "pay" || args.a == 1`).Holds(in); !got || err != nil {
			t.Errorf("%s beside the arguments: %v, %v", arguments, got, err)
		}
	}
	if got, err := condition(t, `size(args) == 0`).Holds(call("")); !got || err != nil {
		t.Errorf("no arguments: %v, %v", got, err)
	}
}

func TestUnknownArguments(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]error{
		`args.a > 1`:               expr.ErrUnknown,
		`has(args.a)`:              expr.ErrUnknown,
		`args.exists(k, k == "a")`: expr.ErrUnknown,
		`principal.namespace == "billing" && args.a > 1`:    expr.ErrUnknown,
		`args.a > 1 ? true : false`:                         expr.ErrUnknown,
		`args == {}`:                                        expr.ErrUnknown,
		`args.?a.orValue(1) == 1`:                           expr.ErrUnknown,
		`[1].all(x, args.a == x)`:                           expr.ErrUnknown,
		`args.a > 1 || !(args.a > 1)`:                       expr.ErrUnknown,
		`principal.namespace == "x" && args.a > 1`:          nil,
		`args.a > 1 && principal.namespace == "x"`:          nil,
		`!(principal.namespace == "billing" || args.a > 1)`: nil,
		`tool.name != "pay"`:                                nil,
		`principal.namespace == "billing" ? false : args.a`: nil,
	} {
		in := call("")
		in.Arguments = expr.UnknownArguments()
		if got, err := condition(t, source).Holds(in); got || !errors.Is(err, want) {
			t.Errorf("%s: %v, %v, want %v", source, got, err, want)
		}
	}
	m, err := expr.Mapping(`{"filter": args.filter}`)
	if err != nil {
		t.Fatal(err)
	}
	in := call("")
	in.Arguments = expr.UnknownArguments()
	if got, err := m.Map(in); got != nil || !errors.Is(err, expr.ErrUnknown) {
		t.Errorf("Map = %s, %v", got, err)
	}
}

func TestSomebodyWhoIsNoServiceAccountHasNoNamespace(t *testing.T) {
	t.Parallel()
	in := call("{}")
	in.Principal, in.Tool.Annotations = expr.Principal{Username: "ann"}, nil
	for source, want := range map[string]bool{
		`principal.namespace == ""`:                     true,
		`has(principal.namespace)`:                      false,
		`has(principal.groups)`:                         false,
		`size(principal.groups) == 0`:                   true,
		`has(tool.annotations)`:                         false,
		`has(tool.annotations.readOnlyHint)`:            false,
		`tool.?annotations.?readOnlyHint.orValue(true)`: true,
	} {
		if got, err := condition(t, source).Holds(in); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", source, got, err, want)
		}
	}
	if got, err := condition(t, `!tool.annotations.readOnlyHint`).Holds(in); got || err == nil {
		t.Errorf("a hint that is not given: %v, %v", got, err)
	}
}

func TestMappingsGiveCanonicalObjects(t *testing.T) {
	t.Parallel()
	const arguments = `{"filter":{"z":1.0,"a":[1e2,0.5,null,true,"x\u0041\n"]},"big":9007199254740993,"vast":18446744073709551615,"s":"k","d":1e-7,"x":1e400}`
	for source, want := range map[string]string{
		`{}`:                                     `{}`,
		`{"filter": args.filter, "n": args.big}`: `{"filter":{"a":[100,0.5,null,true,"xA\n"],"z":1},"n":9007199254740993}`,
		`{"v": args.vast, "d": args.d}`:          `{"d":1e-7,"v":18446744073709551615}`,
		`args.filter`:                            `{"a":[100,0.5,null,true,"xA\n"],"z":1}`,
		`{args.s: 1}`:                            `{"k":1}`,
		`{"a": [1, 2].map(x, x * 2), ?"b": args.?none}`: `{"a":[2,4]}`,
		`{"u": 3u, "f": 2.0, "t": tool.name}`:           `{"f":2,"t":"pay","u":3}`,
	} {
		m, err := expr.Mapping(source)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Map(call(arguments)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", source, got, err, want)
		}
	}
	for source, want := range map[string]string{
		`args.s`:             "the expression gives no map, which arguments have to be",
		`{"a": args.x}`:      "a number in the arguments has no exact value",
		`args`:               "a number in the arguments has no exact value",
		`{dyn(1): 1}`:        "the map has a key in it that is not a string",
		`{"a": {dyn(1): 1}}`: "the map has a key in it that is not a string",
		`{"a": 1.0 / 0.0}`:   "the map has a number in it that JSON cannot express",
		`{"a": b"x"}`:        "the map has a value in it that JSON cannot express",
		`{"a": tool}`:        "the map has a value in it that JSON cannot express",
		`{"a": args.none}`:   "1:12: args.none is not there",
	} {
		m, err := expr.Mapping(source)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Map(call(arguments)); got != nil || err == nil || err.Error() != want {
			t.Errorf("%s: %s, %v, want %s", source, got, err, want)
		}
	}
}

func TestMistakesAreReportedWithTheirPlace(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`principal.user == "x"`:                   "1:11: principal has no field user",
		`principal.usrname == "x"`:                "1:11: principal has no field usrname; did you mean username?",
		`tool.anotations.readOnlyHint`:            "1:6: tool has no field anotations; did you mean annotations?",
		`tool.annotations.readonlyhint`:           "1:18: tool.annotations has no field readonlyhint; did you mean readOnlyHint?",
		"true &&\n  server.nam == \"x\"":          "2:10: server has no field nam; did you mean name?",
		`princpal.username == "x"`:                "1:1: there is no variable princpal; did you mean principal?",
		`arg.amount > 5`:                          "1:1: there is no variable arg; did you mean args?",
		`args.s.startWith("a")`:                   "1:17: there is no function startWith; did you mean startsWith?",
		`tool.name > 3`:                           "1:11: > does not work with (string, int)",
		`principal + 1 == 2`:                      "1:11: + does not work with (principal, int)",
		`"abc"`:                                   "1:1: this gives string, and a condition has to be true or false",
		`args`:                                    "1:1: this gives map(string, dyn), and a condition has to be true or false",
		`principal{username: "x"}.username == ""`: `1:10: there is no type principal; a map is written {"name": value}`,
		`google.protobuf.Struct{} == {}`:          `1:23: an expression makes no objects of a type; a map is written {"name": value}`,
		`tidewaiter.tool{name: "x"} == tool`:      `1:16: an expression makes no objects of a type; a map is written {"name": value}`,
		`args.s.matches("(")`:                     "1:16: invalid matches argument",
		`regex.extract(args.s, "(").hasValue()`:   "1:23: error parsing regexp: missing closing ): `(`",
		`args.s.matches("(a{1,100}){10}")`:        "1:16: regex program size 2012 exceeds limit of 1000",
		`now() > timestamp(args.t)`:               "1:4: there is no function now",
	} {
		got, err := expr.Condition(source)
		if got != nil || err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
		if _, isProblem := errors.AsType[expr.Problem](err); !isProblem {
			t.Errorf("%s: the error is no Problem", source)
		}
	}
	for source, want := range map[string]string{
		`true`:   "1:1: this gives bool, and arguments are a map with names as keys",
		`{1: 2}`: "1:1: this gives map(int, int), and arguments are a map with names as keys",
	} {
		if got, err := expr.Mapping(source); got != nil || err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
}

func TestMalformedSourceIsOneLine(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"", "args.a +", "args.a ==== 3", "\"", "a\x00b", "\xff\xfe", strings.Repeat("(", 2000), strings.Repeat("é", 2049)} {
		got, err := expr.Condition(source)
		if got != nil || err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
			t.Errorf("%.20q: %v", source, err)
		}
	}
	if _, err := expr.Condition(`"` + strings.Repeat("é", 2039) + `" != ""`); err != nil {
		t.Errorf("2,047 characters of two bytes: %v", err)
	}
}

func TestUsesArguments(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]bool{
		`args.a > 1`:               true,
		`has(args.a)`:              true,
		`[1].all(x, x in args.l)`:  true,
		`size(args) > 1`:           true,
		`.args.a > 1`:              true,
		`tool.name == "args"`:      false,
		`principal.username != ""`: false,
	} {
		if got := condition(t, source).UsesArguments(); got != want {
			t.Errorf("%s: %v, want %v", source, got, want)
		}
	}
}
