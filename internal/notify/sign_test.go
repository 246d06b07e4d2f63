// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	secret = "correct-horse-battery-staple-0001"
	older  = "correct-horse-battery-staple-0000"
)

// The value was computed by another program: printf '1800000000.{}' | openssl dgst -sha256 -hmac …
func TestTheSignatureIsWhatOthersCompute(t *testing.T) {
	t.Parallel()
	want := "t=1800000000,v1=17bb9826b5d787206dac58554603073be4c053fb9adc3c8995ef327d2fc02df6"
	if got := sign([][]byte{[]byte(secret)}, []byte("{}"), time.Unix(1_800_000_000, 0)); got != want {
		t.Errorf("sign = %s, want %s", got, want)
	}
}

func TestWhatIsSignedIsVerifiedAndNoOtherBodyIs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key, body, other := rapid.SliceOf(rapid.Byte()), rapid.SliceOf(rapid.Byte()), rapid.SliceOf(rapid.Byte())
		k, b, o := key.Draw(t, "secret"), body.Draw(t, "body"), other.Draw(t, "other")
		at := time.Unix(rapid.Int64Range(0, 99_999_999_999).Draw(t, "at"), 0)
		header := sign([][]byte{k}, b, at)
		if !verified(k, header, b, at) {
			t.Fatalf("%s is not verified", header)
		}
		if string(o) != string(b) && verified(k, header, o, at) {
			t.Fatalf("%s is verified with another body", header)
		}
	})
}
