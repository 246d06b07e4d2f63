// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

const (
	// signatureHeader carries when a notification was sent and a signature for each secret of the receiver.
	signatureHeader = "Tidewaiter-Signature"
	// deliveryHeader carries the id of the notification, the same as in its body.
	deliveryHeader = "Tidewaiter-Delivery"
)

// sign returns the value of signatureHeader: t, the time in Unix seconds, and for each secret v1, HMAC-SHA256 over the
// time, a dot and the body, in hexadecimal.
func sign(secrets [][]byte, body []byte, at time.Time) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	parts := []string{"t=" + seconds}
	for _, secret := range secrets {
		parts = append(parts, "v1="+hex.EncodeToString(mac(secret, seconds, body)))
	}
	return strings.Join(parts, ",")
}

func mac(secret []byte, seconds string, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(seconds + "."))
	h.Write(body)
	return h.Sum(nil)
}
