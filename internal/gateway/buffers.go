// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"math/bits"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// Messages of these sizes, in bytes, come into memory that is used again: smaller ones cost nothing, larger ones are few,
// and what waits for a person must not hold much more than it needs.
const (
	leastReused = 4 << 10
	mostReused  = 64 << 10
)

// reused is memory of messages that have passed, by the power of two of its size.
var reused [17]sync.Pool

// newBuffer returns an empty buffer with room for a message of so many bytes and a little more.
func newBuffer(length int) []byte {
	if length < leastReused || length+bytes.MinRead > mostReused {
		return make([]byte, 0, length+bytes.MinRead)
	}
	class := bits.Len(uint(length + bytes.MinRead - 1))
	if buffer, ok := reused[class].Get().(*[]byte); ok {
		return *buffer
	}
	return make([]byte, 0, 1<<class)
}

// reuse gives up the memory of a message, to be used for another. It is emptied at once: whoever looks at it later, which
// would be a mistake, gets nothing of this caller's nor of the next one's, and the race detector tells.
func reuse(message []byte) {
	size := cap(message)
	if size < leastReused || size > mostReused || size&(size-1) != 0 {
		return
	}
	clear(message)
	message = message[:0]
	reused[bits.Len(uint(size-1))].Put(&message)
}

// written counts how often a request was given to a transport, how often it was written to the server, and how often that
// failed. Only of one that was written once, and whole, is it certain that nobody reads the body any more: a transport
// may still do so when it has the answer, or an error.
type written struct{ given, whole, failed atomic.Int32 }

// watch counts one more transport, and what its connections tell.
func (w *written) watch(trace *httptrace.ClientTrace) {
	w.given.Add(1)
	trace.WroteRequest = func(info httptrace.WroteRequestInfo) {
		if info.Err != nil {
			w.failed.Add(1)
			return
		}
		w.whole.Add(1)
	}
}

// once tells whether the request was written a single time.
func (w *written) once() bool {
	return w.given.Load() == 1 && w.whole.Load() == 1 && w.failed.Load() == 0
}
