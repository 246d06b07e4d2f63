// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestArgumentsAreLaidOut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		arguments string
		want      []string
	}{
		"none":       {"", nil},
		"an object":  {`{"a":1,"b":{"c":[true,null]}}`, []string{`{`, `  "a": 1,`, `  "b": {`, `    "c": [`, `      true,`, `      null`, `    ]`, `  }`, `}`}},
		"empty ones": {`{"a":{},"b":[ ]}`, []string{`{`, `  "a": {},`, `  "b": []`, `}`}},
		"no JSON":    {"a\nb", []string{"a", "b"}},
		"numbers that a double rounds": {
			`[9007199254740992,9007199254740993,0.1,-0,1.10,1e300,123456789012345678901234567890,0.1000000000000000055511151231257827,1e-400,1e400]`,
			[]string{
				"[", "  9007199254740992,", "  9007199254740993,   <- a double reads 9.007199254740992e+15", "  0.1,", "  -0,", "  1.10,", "  1e300,",
				"  123456789012345678901234567890,   <- a double reads 1.2345678901234568e+29",
				"  0.1000000000000000055511151231257827,   <- a double reads 0.1",
				"  1e-400,   <- a double reads 0", "  1e400   <- beyond what a double can hold", "]",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, argumentLines(tc.arguments)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALongTextIsCutWithLengthAndDigest(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 2*maxText)
	got := argumentLines(`{"x":"` + long + `"}`)[1]
	if !strings.HasPrefix(got, `  "x": "aaa`) || !strings.Contains(got, "… [514 bytes, sha256 ") || len(got) > maxText+80 {
		t.Errorf("a long text is shown as %q", got)
	}
	if other := argumentLines(`{"x":"` + long[1:] + `b"}`)[1]; other == got {
		t.Error("two long texts look the same")
	}
}

func TestTheDifferenceOfArguments(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		earlier, now string
		want         []string
		wantNot      bool
	}{
		"none": {earlier: `{"a":1,"b":[1]}`, now: `{"b":[1],"a":1}`},
		"every kind": {
			earlier: `{"amount":500,"to":["a","b"],"note":"x","old":{"deep":1}}`,
			now:     `{"amount":5000,"to":["a","c","d"],"note":"x","a/b":{}}`,
			want: []string{
				`~ /amount: 500 -> 5000`, `~ /to/1: "b" -> "c"`, `+ /to/2: "d"`, `+ /a~1b: {}`, `- /old/deep: 1`,
			},
		},
		"a number that becomes a text": {earlier: `{"a":1}`, now: `{"a":"1"}`, want: []string{`~ /a: 1 -> "1"`}},
		"neighbours beyond a double": {
			earlier: `{"a":9007199254740992}`, now: `{"a":9007199254740993}`,
			want: []string{`~ /a: 9007199254740992 -> 9007199254740993   <- a double reads 9.007199254740992e+15`},
		},
		"a scalar":        {earlier: `1`, now: `2`, want: []string{`~ (all): 1 -> 2`}},
		"what is no JSON": {earlier: `{`, now: `{}`, wantNot: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := difference(tc.earlier, tc.now)
			if diff := cmp.Diff(tc.want, got); diff != "" || ok == tc.wantNot {
				t.Errorf("ok %t; difference (-want +got):\n%s", ok, diff)
			}
		})
	}
}

// The law: no difference is shown exactly where every leaf is the same.
func TestOnlyTheSameArgumentsHaveNoDifference(t *testing.T) {
	t.Parallel()
	arguments := rapid.Custom(func(t *rapid.T) string {
		value := rapid.MapOfN(rapid.StringN(1, 3, 8), rapid.SliceOfN(rapid.IntRange(0, 3), 0, 3), 0, 4).Draw(t, "value")
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := arguments.Draw(t, "a"), arguments.Draw(t, "b")
		lines, ok := difference(a, b)
		if !ok {
			t.Fatalf("%q and %q cannot be compared", a, b)
		}
		if same := a == b; same != (len(lines) == 0) { // Marshal sorts the keys
			t.Errorf("%q and %q: %q", a, b, lines)
		}
		if len(lines) > maxDifferences+1 {
			t.Errorf("%d lines", len(lines))
		}
	})
}

func FuzzArguments(f *testing.F) {
	for _, text := range []string{`{"a":[1,{"b":null}]}`, `9007199254740993`, "{", "", "\x1b[2J", `"` + strings.Repeat("x", 300) + `"`} {
		f.Add(text, text)
	}
	f.Fuzz(func(_ *testing.T, earlier, now string) {
		argumentLines(now)
		difference(earlier, now)
	})
}
