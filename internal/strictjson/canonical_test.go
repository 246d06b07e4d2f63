// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

func TestCanonicalGivesAllSpellingsOfADocumentOneForm(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ doc, want string }{
		"white space":              {" { \"a\" : [ 1 , 2 ] } ", `{"a":[1,2]}`},
		"order of names":           {`{"b":1,"a":{"d":1,"c":2}}`, `{"a":{"c":2,"d":1},"b":1}`},
		"order of elements stays":  {`[3,1,2]`, `[3,1,2]`},
		"a name before its prefix": {`{"ab":1,"a":2,"":3}`, `{"":3,"a":2,"ab":1}`},
		"names by UTF-16 units":    {`{"\ufb33":1,"😀":2,"€":3,"\r":4,"1":5}`, `{"\r":4,"1":5,"€":3,"😀":2,"` + "\ufb33" + `":1}`},
		"escapes":                  {`"\u0041\/\u000a\u001F\u20ac\u0022\u005c\u007f"`, `"A/\n\u001f€\"\\` + "\x7f" + `"`},
		"zeros behind the point":   {`[1.10,1.1,1.0,1,100,1e2,1E+2]`, `[1.1,1.1,1,1,100,100,100]`},
		"zero":                     {`[0,-0,0.0,-0e5,0e-400]`, `[0,0,0,0,0]`},
		"small numbers":            {`[0.1,0.000001,0.0000001,-12.50e-3]`, `[0.1,0.000001,1e-7,-0.0125]`},
		"large numbers":            {`[100000000000000000000,1e20,1e21,123e398]`, `[100000000000000000000,100000000000000000000,1e+21,1.23e+400]`},
		"beyond a float":           {`[9007199254740993,0.1000000000000000055511151231257827]`, `[9007199254740993,0.1000000000000000055511151231257827]`},
		"literals":                 {`[true,false,null,"true"]`, `[true,false,null,"true"]`},
		"empty":                    {`[{},[],""]`, `[{},[],""]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := strictjson.Canonical([]byte(tc.doc))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("Canonical = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestCanonicalTellsDifferentValuesApart(t *testing.T) {
	t.Parallel()
	docs := []string{
		`1`, `true`, `"1"`, `1.5`, `-1`, `null`, `[1]`, `{}`, `[]`, `""`, `9007199254740993`, `9007199254740992`, `0.1`,
		`0.10000000000000001`, `1e400`, `1e399`, strings.Repeat("9", 400), strings.Repeat("9", 399) + "8", `{"a":null}`, `{"a":{}}`,
		`"a"`, `"A"`, `"é"`, `"e\u0301"`,
	}
	seen := map[string]string{}
	for _, doc := range docs {
		got, err := strictjson.Canonical([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[string(got)]; ok {
			t.Errorf("%s and %s have one form", doc, other)
		}
		seen[string(got)] = doc
	}
}

func TestCanonicalRefusesWhatScanRefuses(t *testing.T) {
	t.Parallel()
	if got, err := strictjson.Canonical([]byte(`{"a":1,"a":1}`)); err == nil {
		t.Errorf("Canonical = %s", got)
	}
}

// number draws a JSON number of any shape that Scan accepts.
func number(t *rapid.T) string {
	return rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-3]?[0-9]{1,2})?`).Draw(t, "number")
}

func TestCanonicalNumbersAreEqualExactlyWhenTheirValuesAre(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := number(t), number(t)
		if rapid.Bool().Draw(t, "same value") {
			b = respell(t, a)
		}
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		canonicalA, errA := strictjson.Canonical([]byte(a))
		canonicalB, errB := strictjson.Canonical([]byte(b))
		if errA != nil || errB != nil {
			t.Fatalf("Canonical(%s), Canonical(%s): %v, %v", a, b, errA, errB)
		}
		if equal := x.Cmp(y) == 0; equal != bytes.Equal(canonicalA, canonicalB) {
			t.Fatalf("%s and %s: equal %v, forms %s and %s", a, b, equal, canonicalA, canonicalB)
		}
		if z, ok := new(big.Rat).SetString(string(canonicalA)); !ok || z.Cmp(x) != 0 {
			t.Fatalf("%s became %s", a, canonicalA)
		}
	})
}

// respell writes the same number another way.
func respell(t *rapid.T, number string) string {
	mantissa, exponent := number, 0
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		mantissa = number[:i]
		exponent, _ = strconv.Atoi(number[i+1:])
	}
	if !strings.Contains(mantissa, ".") {
		mantissa += "."
	}
	mantissa += strings.Repeat("0", rapid.IntRange(1, 5).Draw(t, "zeros"))
	return fmt.Sprintf("%sE%+d", mantissa, exponent)
}

func TestCanonicalNumbersOfADoubleAreThoseOfRFC8785(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) && !math.IsNaN(f) }).Draw(t, "f")
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		want := jsontext.Value(bytes.Clone(text))
		if err := want.Canonicalize(); err != nil {
			t.Fatal(err)
		}
		if got, err := strictjson.Canonical(text); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("Canonical(%s) = %s, %v, want %s", text, got, err, want)
		}
	})
}

func TestCanonicalIgnoresOrderOfNamesInLargeObjects(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.String(), 0, 60, rapid.ID[string]).Draw(t, "names")
		shuffled := rapid.Permutation(names).Draw(t, "shuffled")
		write := func(names []string) []byte {
			doc := []byte("{")
			for i, name := range names {
				if i > 0 {
					doc = append(doc, ',')
				}
				doc = append(strictjson.AppendString(doc, name), ':', '1')
			}
			return append(doc, '}')
		}
		a, err := strictjson.Canonical(write(names))
		if err != nil {
			t.Fatal(err)
		}
		b, err := strictjson.Canonical(write(shuffled))
		if err != nil || !bytes.Equal(a, b) {
			t.Fatalf("%s\n%s\n%v", a, b, err)
		}
		want := jsontext.Value(write(names))
		if err := want.Canonicalize(); err != nil || !bytes.Equal(want, a) {
			t.Fatalf("%s, jsontext %s, %v", a, want, err)
		}
	})
}

func BenchmarkCanonical(b *testing.B) {
	for name, doc := range map[string][]byte{"190 bytes": message, "4 MiB of 300,000 names": []byte(object(300_000))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if _, err := strictjson.Canonical(doc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
