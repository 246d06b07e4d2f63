// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/internal/fixture/login"
)

func TestBearer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		values []string
		want   string
		err    error
	}{
		"one":                              {values: []string{"Bearer abc.DEF-_~+/09=="}, want: "abc.DEF-_~+/09=="},
		"the scheme in other letters":      {values: []string{"bEARER abc"}, want: "abc"},
		"more spaces":                      {values: []string{"Bearer   abc"}, want: "abc"},
		"the longest":                      {values: []string{"Bearer " + strings.Repeat("a", maxToken)}, want: strings.Repeat("a", maxToken)},
		"none":                             {err: ErrNoToken},
		"too long":                         {values: []string{"Bearer " + strings.Repeat("a", maxToken+1)}, err: ErrInvalidToken},
		"two headers":                      {values: []string{"Bearer abc", "Bearer abc"}, err: ErrInvalidToken},
		"an empty one beside a good one":   {values: []string{"", "Bearer abc"}, err: ErrInvalidToken},
		"two in one":                       {values: []string{"Bearer abc, Bearer abc"}, err: ErrInvalidToken},
		"empty":                            {values: []string{""}, err: ErrInvalidToken},
		"no token":                         {values: []string{"Bearer "}, err: ErrInvalidToken},
		"only padding":                     {values: []string{"Bearer =="}, err: ErrInvalidToken},
		"padding within":                   {values: []string{"Bearer a=b"}, err: ErrInvalidToken},
		"no space":                         {values: []string{"Bearerabc"}, err: ErrInvalidToken},
		"a tab":                            {values: []string{"Bearer\tabc"}, err: ErrInvalidToken},
		"a space behind":                   {values: []string{"Bearer abc "}, err: ErrInvalidToken},
		"another scheme":                   {values: []string{"Basic abc"}, err: ErrInvalidToken},
		"a JWT in JSON":                    {values: []string{`Bearer {"payload":"abc"}`}, err: ErrInvalidToken},
		"a character that looks like an a": {values: []string{"Bearer \u0430bc"}, err: ErrInvalidToken},
	} {
		header := http.Header{}
		if tc.values != nil {
			header["Authorization"] = tc.values
		}
		got, err := bearer(header)
		if got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: got %q, %v, want %q, %v", name, got, err, tc.want, tc.err)
		}
	}
}

func FuzzBearer(f *testing.F) {
	for _, value := range []string{"", "Bearer abc", "bearer  a.b.c==", "Basic abc", "Bearer a\x00b", "Bearer a,b"} {
		f.Add(value, "")
	}
	f.Add("Bearer abc", "Bearer abc")
	f.Fuzz(func(t *testing.T, first, second string) {
		header := http.Header{"Authorization": {first}}
		if second != "" {
			header.Add("Authorization", second)
		}
		token, err := bearer(header)
		if err != nil {
			if token != "" {
				t.Errorf("a token comes with the refusal %v", err)
			}
			if len(first) > 40 && strings.Contains(err.Error(), first) {
				t.Errorf("the refusal holds the header: %v", err)
			}
			return
		}
		if second != "" {
			t.Error("took one of two headers")
		}
		scheme, rest, _ := strings.Cut(first, " ")
		if !strings.EqualFold(scheme, "bearer") || strings.TrimLeft(rest, " ") != token || token == "" || len(token) > maxToken {
			t.Errorf("took %q of %q", token, first)
		}
		if strings.ContainsAny(token, " \t\r\n\x00,;\"'{}") {
			t.Errorf("took a token with %q", token)
		}
	})
}

func FuzzParseKeys(f *testing.F) {
	f.Add(login.KeySet(login.EC("k1"), login.RSA("k2")))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0"},{"kty":"OKP","crv":"Ed448"},{}]}`))
	f.Add([]byte(`{"keys":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseKeys(data)
		if err != nil && keys != nil {
			t.Error("keys come with an error")
		}
		for _, key := range keys {
			if !key.IsPublic() || !key.Valid() {
				t.Errorf("took key %q, which is not a public one", key.KeyID)
			}
		}
	})
}
