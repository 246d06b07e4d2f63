// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	secret = "correct-horse-battery-staple-0001"
	older  = "correct-horse-battery-staple-0000"
)

func TestVerifyTakesWhatSignWroteAndNothingElse(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	body := []byte(`{"event":"Opened"}`)
	header := Sign([][]byte{[]byte(secret)}, body, at)
	both := Sign([][]byte{[]byte(secret), []byte(older)}, body, at)
	signature := strings.TrimPrefix(header, "t=1800000000,")
	for name, tc := range map[string]struct {
		secret, header, body string
		now                  time.Time
		want                 error
	}{
		"at once":                                     {header: header},
		"at the end of the window":                    {header: header, now: at.Add(Tolerance)},
		"a second after the window":                   {header: header, now: at.Add(Tolerance + time.Second), want: ErrTime},
		"at the start of the window":                  {header: header, now: at.Add(-Tolerance)},
		"a second before the window":                  {header: header, now: at.Add(-Tolerance - time.Second), want: ErrTime},
		"with another secret":                         {secret: older, header: header, want: ErrSignature},
		"with the new secret during rotation":         {header: both},
		"with the older secret during rotation":       {secret: older, header: both},
		"another body":                                {header: header, body: `{"event":"Denied"}`, want: ErrSignature},
		"another time beside the signature":           {header: "t=1800000001," + signature, want: ErrSignature},
		"the same time written in another way":        {header: "t=01800000000," + signature, want: ErrHeader},
		"a signature of a version to come beside it":  {header: header + ",v2=abc"},
		"a signature of a version to come alone":      {header: "t=1800000000,v2=abc", want: ErrHeader},
		"no time":                                     {header: signature, want: ErrHeader},
		"two times":                                   {header: "t=1800000000," + header, want: ErrHeader},
		"a negative time":                             {header: "t=-1," + signature, want: ErrHeader},
		"no header":                                   {header: "", want: ErrHeader},
		"a signature that was cut":                    {header: header[:len(header)-2], want: ErrHeader},
		"a signature that is no hexadecimal":          {header: header[:len(header)-1] + "x", want: ErrHeader},
		"a part that is none":                         {header: header + ",", want: ErrHeader},
		"more signatures than anyone needs":           {header: header + strings.Repeat(","+signature, 8), want: ErrHeader},
		"a header that is too long":                   {header: header + ",v2=" + strings.Repeat("a", 1024), want: ErrHeader},
		"as many signatures as are read, ours at end": {header: "t=1800000000," + strings.Repeat("v1="+strings.Repeat("0", 64)+",", 7) + signature},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, content, now := secret, string(body), at
			if tc.secret != "" {
				key = tc.secret
			}
			if tc.body != "" {
				content = tc.body
			}
			if !tc.now.IsZero() {
				now = tc.now
			}
			if got := Verify([]byte(key), tc.header, []byte(content), now, Tolerance); !errors.Is(got, tc.want) {
				t.Errorf("Verify = %v, want %v", got, tc.want)
			}
		})
	}
}

// The value was computed by another program: printf '1800000000.{}' | openssl dgst -sha256 -hmac …
func TestTheSignatureIsWhatOthersCompute(t *testing.T) {
	t.Parallel()
	want := "t=1800000000,v1=17bb9826b5d787206dac58554603073be4c053fb9adc3c8995ef327d2fc02df6"
	if got := Sign([][]byte{[]byte(secret)}, []byte("{}"), time.Unix(1_800_000_000, 0)); got != want {
		t.Errorf("Sign = %s, want %s", got, want)
	}
}

func TestWhatIsSignedIsVerifiedAndNoOtherBodyIs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key, body, other := rapid.SliceOf(rapid.Byte()), rapid.SliceOf(rapid.Byte()), rapid.SliceOf(rapid.Byte())
		k, b, o := key.Draw(t, "secret"), body.Draw(t, "body"), other.Draw(t, "other")
		at := time.Unix(rapid.Int64Range(0, 99_999_999_999).Draw(t, "at"), 0)
		header := Sign([][]byte{k}, b, at)
		if err := Verify(k, header, b, at, 0); err != nil {
			t.Fatalf("Verify(%s) = %v", header, err)
		}
		if err := Verify(k, header, o, at, 0); string(o) != string(b) && !errors.Is(err, ErrSignature) {
			t.Fatalf("another body: Verify(%s) = %v", header, err)
		}
	})
}

// FuzzVerify looks for a header that panics, or that is taken without holding the signature.
func FuzzVerify(f *testing.F) {
	at := time.Unix(1_800_000_000, 0)
	body := []byte("{}")
	f.Add(Sign([][]byte{[]byte(secret), []byte(older)}, body, at))
	f.Add("t=1800000000,v1=" + strings.Repeat("0", 2*sha256.Size))
	f.Add("t=1,t=2,v1=,v2,=")
	f.Fuzz(func(t *testing.T, header string) {
		if Verify([]byte(secret), header, body, at, Tolerance) != nil {
			return
		}
		seconds, signatures, ok := parseHeader(header)
		if !ok || len(signatures) == 0 {
			t.Fatalf("%q is taken and not read", header)
		}
		want := hex.EncodeToString(mac([]byte(secret), seconds, body))
		if !strings.Contains(strings.ToLower(header), want) || !strings.Contains(header, fmt.Sprintf("t=%s", seconds)) {
			t.Errorf("%q is taken without %s", header, want)
		}
	})
}
