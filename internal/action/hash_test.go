// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package action_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/internal/action"
)

// input returns a call of pay with these params.
func input(params string) action.Input {
	return action.Input{
		ServerUID: "u1", EndpointDigest: "sha256:e", Tool: "pay", ToolDigest: "sha256:t",
		Params: []byte(params), Requester: "system:serviceaccount:a:b",
	}
}

func hash(t interface {
	Helper()
	Fatal(...any)
}, in action.Input) string {
	t.Helper()
	got, err := action.Hash(in)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const params = `{"name":"pay","arguments":{"id":"o1","amount":500},"vendor":{"a":1},"_meta":{"x":1,"progressToken":1,"traceparent":"00-1"}}`

func TestTheSameActionHasTheSameHash(t *testing.T) {
	t.Parallel()
	want := hash(t, input(params))
	for name, other := range map[string]string{
		"order of keys":              `{"_meta":{"progressToken":1,"x":1},"arguments":{"amount":500,"id":"o1"},"vendor":{"a":1},"name":"pay"}`,
		"white space":                strings.ReplaceAll(params, ":", " : "),
		"another spelling of 500":    strings.Replace(params, "500", "5.00e2", 1),
		"escapes":                    strings.Replace(params, `"o1"`, `"\u006f1"`, 1),
		"another progress token":     strings.Replace(params, `"progressToken":1`, `"progressToken":"z"`, 1),
		"no progress token":          strings.Replace(params, `"progressToken":1,`, ``, 1),
		"another trace":              strings.Replace(params, `"00-1"`, `"00-2","tracestate":"a","baggage":"b"`, 1),
		"another client, as it says": strings.Replace(params, `"x":1`, `"x":1,"io.modelcontextprotocol/clientInfo":{"name":"c"}`, 1),
	} {
		if got := hash(t, input(other)); got != want {
			t.Errorf("%s makes another action", name)
		}
	}
}

func TestEveryDifferenceInMeaningMakesAnotherAction(t *testing.T) {
	t.Parallel()
	seen := map[string]string{hash(t, input(params)): "the action itself"}
	check := func(name string, in action.Input) {
		t.Helper()
		got := hash(t, in)
		if other, ok := seen[got]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[got] = name
	}
	for name, change := range map[string][2]string{
		"an argument":             {`500`, `5000`},
		"a type":                  {`500`, `"500"`},
		"a truth":                 {`500`, `true`},
		"a large number":          {`500`, `9007199254740993`},
		"its neighbour":           {`500`, `9007199254740992`},
		"null":                    {`500`, `null`},
		"a key of another case":   {`"amount"`, `"Amount"`},
		"one more argument":       {`"amount"`, `"note":"","amount"`},
		"no arguments":            {`"arguments":{"id":"o1","amount":500},`, ``},
		"null arguments":          {`{"id":"o1","amount":500}`, `null`},
		"empty arguments":         {`{"id":"o1","amount":500}`, `{}`},
		"another member":          {`"vendor":{"a":1}`, `"vendor":{"a":2}`},
		"one more member":         {`"vendor"`, `"tenant":"x","vendor"`},
		"a task":                  {`"vendor"`, `"task":{},"vendor"`},
		"a key of _meta":          {`"x":1`, `"x":2`},
		"one more key of _meta":   {`"x":1`, `"x":1,"y":1`},
		"a key like the token":    {`"progressToken"`, `"ProgressToken"`},
		"no _meta":                {`"x":1,`, ``},
		"a token in the vendor's": {`"vendor":{"a":1}`, `"vendor":{"a":1,"progressToken":1}`},
	} {
		check(name, input(strings.Replace(params, change[0], change[1], 1)))
	}
	for name, edit := range map[string]func(*action.Input){
		"another server":          func(in *action.Input) { in.ServerUID = "u2" },
		"another endpoint":        func(in *action.Input) { in.EndpointDigest = "sha256:f" },
		"another tool definition": func(in *action.Input) { in.ToolDigest = "sha256:u" },
		"another requester":       func(in *action.Input) { in.Requester = "someone" },
		"in the name of a person": func(in *action.Input) { in.ActsFor = "alice" },
		"in the name of another":  func(in *action.Input) { in.ActsFor = "bob" },
		"another tool": func(in *action.Input) {
			in.Tool, in.Params = "Pay", []byte(strings.Replace(params, `"pay"`, `"Pay"`, 1))
		},
	} {
		in := input(params)
		edit(&in)
		check(name, in)
	}
}

func TestInputsDoNotRunIntoOneAnother(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2][2]string{{{"a:b", "c"}, {"a", "b:c"}}, {{`a","actsFor":"b`, ""}, {"a", "b"}}, {{"a\x00", "b"}, {"a", "\x00b"}}} {
		one, two := input(params), input(params)
		one.Requester, one.ActsFor = pair[0][0], pair[0][1]
		two.Requester, two.ActsFor = pair[1][0], pair[1][1]
		if hash(t, one) == hash(t, two) {
			t.Errorf("%q and %q are one action", pair[0], pair[1])
		}
	}
}

func TestHashRefusesWhatHasNoIdentity(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*action.Input){
		"no server":              func(in *action.Input) { in.ServerUID = "" },
		"no endpoint":            func(in *action.Input) { in.EndpointDigest = "" },
		"no tool digest":         func(in *action.Input) { in.ToolDigest = "" },
		"no requester":           func(in *action.Input) { in.Requester = "" },
		"a tool not of params":   func(in *action.Input) { in.Tool = "other" },
		"invalid UTF-8":          func(in *action.Input) { in.Requester = "\xff" },
		"duplicate keys":         func(in *action.Input) { in.Params = []byte(`{"name":"pay","arguments":{"a":1,"a":2}}`) },
		"a _meta that is a list": func(in *action.Input) { in.Params = []byte(`{"name":"pay","_meta":[1]}`) },
		"no params":              func(in *action.Input) { in.Params = nil },
	} {
		in := input(params)
		edit(&in)
		if got, err := action.Hash(in); err == nil {
			t.Errorf("%s has the hash %s", name, got)
		}
	}
}

func TestAHashNamesARequest(t *testing.T) {
	t.Parallel()
	h := hash(t, input(params))
	if len(h) != 71 || !strings.HasPrefix(h, "sha256:") {
		t.Fatalf("hash %q", h)
	}
	if got, want := action.RequestName("billing", h, 2), "billing-"+h[7:27]+"-2"; got != want {
		t.Errorf("RequestName = %q, want %q", got, want)
	}
}

// document draws a JSON value and writes it twice: once as it is, once with other spelling of the same.
func document(t *rapid.T, depth int) (one, two string) {
	kinds := 5
	if depth == 0 {
		kinds = 3
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		n := rapid.IntRange(-1000, 1000).Draw(t, "n")
		return fmt.Sprintf("%d", n), fmt.Sprintf("%d.0e0", n)
	case 1:
		text, err := json.Marshal(rapid.StringMatching(`[a-z<é]{0,5}`).Draw(t, "s"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text), strings.ReplaceAll(string(text), "a", `\u0061`)
	case 2:
		word := rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "word")
		return word, " " + word + "\n"
	case 3:
		var ones, twos []string
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			a, b := document(t, depth-1)
			ones, twos = append(ones, a), append(twos, b)
		}
		return "[" + strings.Join(ones, ",") + "]", "[ " + strings.Join(twos, " ,") + "]"
	default:
		return object(t, depth)
	}
}

// object draws an object; its second spelling has its members in reverse order.
func object(t *rapid.T, depth int) (one, two string) {
	var ones, twos []string
	for _, key := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 0, 4, rapid.ID[string]).Draw(t, "keys") {
		a, b := document(t, max(depth-1, 0))
		ones = append(ones, `"`+key+`":`+a)
		twos = append([]string{`"` + key + `" : ` + b}, twos...)
	}
	return "{" + strings.Join(ones, ",") + "}", "{" + strings.Join(twos, ",") + "}"
}

func TestSpellingNeverChangesHashMaskOrRadius(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		one, two := object(t, 3)
		if hash(t, input(`{"name":"pay","arguments":`+one+`}`)) != hash(t, input(`{"arguments":`+two+`,"name":"pay"}`)) {
			t.Fatalf("%s and %s are two actions", one, two)
		}
		a, errA := action.Mask([]byte(one))
		b, errB := action.Mask([]byte(two))
		if errA != nil || errB != nil || a != b {
			t.Fatalf("%s and %s look different: %+v, %+v, %v, %v", one, two, a, b, errA, errB)
		}
		if x, y := action.Radius([]byte(one), nil), action.Radius([]byte(two), nil); fmt.Sprint(x) != fmt.Sprint(y) {
			t.Fatalf("%s and %s reach differently: %v, %v", one, two, x, y)
		}
	})
}

func TestDifferentArgumentsNeverShareAHash(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		one, _ := object(t, 2)
		two, _ := object(t, 2)
		same := sameJSON(t, one, two)
		if got := hash(t, input(`{"name":"pay","arguments":`+one+`}`)) == hash(t, input(`{"name":"pay","arguments":`+two+`}`)); got != same {
			t.Fatalf("%s and %s: one action %v, want %v", one, two, got, same)
		}
	})
}

func sameJSON(t *rapid.T, one, two string) bool {
	var a, b any
	if err := json.Unmarshal([]byte(one), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(two), &b); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b)
}

func FuzzHash(f *testing.F) {
	f.Add([]byte(params))
	f.Add([]byte(`{"name":"pay","arguments":null,"_meta":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := input("")
		in.Params = raw
		if got, err := action.Hash(in); err == nil && len(got) != 71 {
			t.Fatalf("hash %q", got)
		}
	})
}

func BenchmarkHash(b *testing.B) {
	for name, in := range map[string]action.Input{
		"small":   input(params),
		"256 KiB": input(`{"name":"pay","arguments":{"text":"` + strings.Repeat("lorem ipsum ", 256<<10/12) + `"}}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := action.Hash(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestACallThatGoesOnHasTheHashOfTheOneBeforeIt(t *testing.T) {
	t.Parallel()
	first := hash(t, input(params))
	later := strings.Replace(params, `"vendor"`, `"requestState":"s","inputResponses":{"a":1},"vendor"`, 1)
	goesOn := func(params string) string {
		in := input(params)
		in.Continues = true
		return hash(t, in)
	}
	if goesOn(later) != first || goesOn(params) != first {
		t.Error("the same call, going on, is another action")
	}
	if hash(t, input(later)) == first {
		t.Error("a call with a state and answers is the action without, though nothing says that it goes on")
	}
	for _, other := range []string{strings.Replace(later, "500", "5000", 1), strings.Replace(later, `"vendor":{"a":1}`, `"vendor":{"a":2}`, 1), strings.Replace(later, `"vendor"`, `"task":{},"vendor"`, 1)} {
		if goesOn(other) == first {
			t.Errorf("%s goes on with another action", other)
		}
	}
}
