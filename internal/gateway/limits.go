// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import "time"

// Limits bound what a gateway takes, keeps and passes on, so that nobody's excess is more than their own trouble. Each
// is a setting of the binary.
type Limits struct {
	// Message bounds a message of an agent, in bytes.
	Message int64
	// Answer bounds an answer that passes as it comes, in bytes; a stream of events has no end of its own.
	Answer int64
	// Event bounds one event of a stream, and an answer that has to be read whole before it is relayed: a list of tools,
	// and the answer to a call with effects. In bytes.
	Event int64
	// Calls bounds the requests that are under way, of all callers; CallerCalls those of one.
	Calls, CallerCalls int
	// Streams bounds the streams that agents listen on, of all callers; CallerStreams those of one.
	Streams, CallerStreams int
	// CallerRate is how many messages one caller may send a second, after as many at once; 0 for any number.
	CallerRate int
	// Sessions bounds the MCP sessions of one server whose owners are remembered; the one that was used longest ago is
	// forgotten.
	Sessions int
	// ClientStall is how long a client may read nothing of what it is sent.
	ClientStall time.Duration
	// StreamIdle is how long nothing may pass on a stream that an agent listens on.
	StreamIdle time.Duration
	// Failures in a row of a server, after which it is left alone for Rest.
	Failures int
	Rest     time.Duration
}

// DefaultLimits are those of a gateway that was not told others.
func DefaultLimits() Limits {
	return Limits{
		Message: 4 << 20, Answer: 64 << 20, Event: 16 << 20,
		Calls: 4096, CallerCalls: 1024, Streams: 4096, CallerStreams: 1024, Sessions: 8192,
		ClientStall: 30 * time.Second, StreamIdle: 4 * time.Hour,
		Failures: 5, Rest: 10 * time.Second,
	}
}
