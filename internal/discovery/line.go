// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

// errTooLarge ends an answer that is longer than it may be.
var errTooLarge = errors.New("answer is too large")

// line is the transport of one session: it adds the server's headers to every request, bounds what comes back, and
// remembers why the last exchange was no success, since the MCP client keeps neither status nor cause.
type line struct {
	base    http.RoundTripper
	headers http.Header
	// endless bounds each event of a stream instead of whole answers, for streams that never end.
	endless bool
	// until is when whoever opened the session waits no longer; zero for never. The client ends a session in a time of its
	// own, which is not to come on top.
	until time.Time
	// origin is the scheme and host that everything has to go to on HTTP+SSE, where the server says where messages go;
	// "" with another transport.
	origin string

	mu     sync.Mutex
	left   int64 // bytes that all answers together may still have; unused where they are endless
	last   *exchange
	stream *exchange // the one that all answers of HTTP+SSE come by
}

// exchange is what went wrong with one request, nil where nothing did. A body may fail after its answer was read, so
// that alone is no reason to distrust an answer.
type exchange struct{ head, body *Error }

// RoundTrip implements http.RoundTripper.
func (l *line) RoundTrip(req *http.Request) (*http.Response, error) {
	if fault := l.fault(); req.Method == http.MethodDelete && fault != nil {
		// The polite end of a session is not worth waiting for on a server that fails.
		return nil, fault
	}
	if l.origin != "" && originOf(req.URL) != l.origin {
		foreign := &exchange{head: protocolError("the server wants its messages at another address than its own")}
		l.begin(foreign)
		return nil, foreign.head
	}
	stream := l.origin != "" && req.Method == http.MethodGet
	ctx := req.Context()
	if req.Method == http.MethodDelete && !l.until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, l.until)
		defer cancel() // nobody reads the answer
	}
	req = req.Clone(ctx)
	maps.Copy(req.Header, l.headers)
	resp, err := netguard.Plain(l.base.RoundTrip(req))
	if err != nil {
		l.begin(&exchange{head: dialError(err)})
		return nil, err
	}
	e := &exchange{head: statusError(resp.StatusCode)}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); stream && e.head == nil && kind != "text/event-stream" {
		e.head = protocolError("the server's answer is no event stream")
	}
	l.begin(e)
	if stream {
		l.follow(e)
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, line: l, exchange: e, left: maxAnswer, perEvent: stream || l.endless}
	return resp, nil
}

func (l *line) begin(e *exchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = e
}

func (l *line) follow(stream *exchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream = stream
}

// refusal returns why the last request got no answer or one that says no.
func (l *line) refusal() *Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		return nil
	}
	return l.last.head
}

// fault returns what went wrong with the last request, its body included, or with the stream that answers come by.
func (l *line) fault() *Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var fault *Error
	if l.last != nil {
		fault = cmp.Or(l.last.head, l.last.body)
	}
	if l.stream != nil {
		fault = cmp.Or(fault, l.stream.body)
	}
	return fault
}

func (l *line) bodyFailed(e *exchange, fault *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.body = cmp.Or(e.body, fault)
}

// bound sets what all answers from now on may have together.
func (l *line) bound(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = n
}

// take spends n bytes of the session's budget and tells whether it had them.
func (l *line) take(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left -= int64(n)
	return l.left >= 0
}

// boundedBody fails where an answer, or with perEvent one event of it, is longer than maxAnswer, and where the session
// has used up its budget.
type boundedBody struct {
	io.ReadCloser
	line     *line
	exchange *exchange
	perEvent bool
	left     int64
	// newlines counts line ends in a row; two of them end an event.
	newlines int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.perEvent {
		b.countEvents(p[:n])
	} else {
		b.left -= int64(n)
	}
	if !b.line.endless && !b.line.take(n) {
		b.left = -1
	}
	if b.left < 0 {
		b.line.bodyFailed(b.exchange, protocolError("the server's answer is too large"))
		return 0, errTooLarge
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.line.bodyFailed(b.exchange, dialError(err))
	}
	return n, err
}

// countEvents gives every event a budget of its own.
func (b *boundedBody) countEvents(data []byte) {
	for _, c := range data {
		switch c {
		case '\n':
			if b.newlines++; b.newlines >= 2 {
				b.left = maxAnswer
			}
		case '\r':
		default:
			b.newlines = 0
			b.left--
		}
		if b.left < 0 {
			return
		}
	}
}
