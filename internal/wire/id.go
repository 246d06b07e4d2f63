// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import "bytes"

// SameID tells whether two raw ids identify one request, however they are spelt: a server that reads an id and writes it
// again may write other escapes than the client did. Numbers are never taken for strings, nor rounded ones for each other.
func SameID(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	id := IDOf(a)
	return id != "" && id == IDOf(b)
}
