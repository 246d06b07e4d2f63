// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"
)

const (
	// SignatureHeader carries when a notification was sent and a signature for each secret of the receiver.
	SignatureHeader = "Tidewaiter-Signature"
	// DeliveryHeader carries the id of the notification, the same as in its body.
	DeliveryHeader = "Tidewaiter-Delivery"
	// Tolerance is how far the time of a signature may lie from the receiver's own.
	Tolerance = 5 * time.Minute

	// maxHeader and maxSignatures bound what is read of a header.
	maxHeader     = 1024
	maxSignatures = 8
)

// The refusals of Verify.
var (
	// ErrHeader: the header is not what Sign writes.
	ErrHeader = errors.New("signature header is malformed: want t=SECONDS,v1=HEX")
	// ErrTime: the signature is too old, or from the future. The clocks differ, or somebody sends it again.
	ErrTime = errors.New("time of the signature is outside of the tolerance")
	// ErrSignature: no signature fits. The secret is another one, or the body was changed on the way.
	ErrSignature = errors.New("no signature fits the body and the secret")
)

// Sign returns the value of SignatureHeader: t, the time in Unix seconds, and for each secret v1, HMAC-SHA256 over the
// time, a dot and the body, in hexadecimal.
func Sign(secrets [][]byte, body []byte, at time.Time) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	parts := []string{"t=" + seconds}
	for _, secret := range secrets {
		parts = append(parts, "v1="+hex.EncodeToString(mac(secret, seconds, body)))
	}
	return strings.Join(parts, ",")
}

// Verify tells whether one of the header's signatures was made with the secret over the body, no longer ago than the
// tolerance. Signatures of other versions than v1 are passed over.
func Verify(secret []byte, header string, body []byte, now time.Time, tolerance time.Duration) error {
	seconds, signatures, ok := parseHeader(header)
	if !ok {
		return ErrHeader
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return ErrHeader
	}
	if now.Sub(time.Unix(at, 0)).Abs() > tolerance {
		return ErrTime
	}
	want := mac(secret, seconds, body)
	for _, signature := range signatures {
		if hmac.Equal(signature, want) {
			return nil
		}
	}
	return ErrSignature
}

func mac(secret []byte, seconds string, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(seconds + "."))
	h.Write(body)
	return h.Sum(nil)
}

// parseHeader reads one time and at least one signature of version 1. The time is returned as it is written, since
// that is what was signed.
func parseHeader(header string) (seconds string, signatures [][]byte, ok bool) {
	if len(header) > maxHeader {
		return "", nil, false
	}
	for part := range strings.SplitSeq(header, ",") {
		key, value, found := strings.Cut(part, "=")
		switch {
		case !found:
			return "", nil, false
		case key == "t":
			if seconds != "" || !isSeconds(value) {
				return "", nil, false
			}
			seconds = value
		case key == "v1":
			signature, err := hex.DecodeString(value)
			if err != nil || len(signature) != sha256.Size || len(signatures) == maxSignatures {
				return "", nil, false
			}
			signatures = append(signatures, signature)
		}
	}
	return seconds, signatures, seconds != "" && len(signatures) > 0
}

// isSeconds tells whether a text is a time as Sign writes it.
func isSeconds(text string) bool {
	if text == "" || len(text) > 12 || (text[0] == '0' && text != "0") {
		return false
	}
	return strings.Trim(text, "0123456789") == ""
}
