// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/tracing"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// arrival is one message of an agent on its way through the gateway.
type arrival struct {
	*Gateway
	caller  // whose message it is
	server  *Server
	message wire.Message
	request *http.Request
	legacy  *legacyRequest // how it goes to a server of HTTP+SSE; nil to any other
	span    *tracing.Span
}

// receive reads the message of a POST, within bounds and beyond doubt, or refuses it. As long as it arrives it takes a
// place of its caller; its bytes are held until whoever gets it frees them.
func (g *Gateway) receive(w *patient, r *http.Request, server *Server, who caller) (message wire.Message, held *holding, ok bool) {
	t, ok := g.takePlace(w, server, who, reading, nil)
	if !ok {
		return wire.Message{}, nil, false
	}
	body := &counted{r.Body, g.callers.holding(who.requester.Username, ofAll)}
	held = &body.holding
	message, code, refusal := readMessage(w.ResponseWriter, r, body, g.Limits.Message)
	t.leave()
	id := message.ID
	if refusal != nil {
		id = refusal.ID
	}
	switch {
	case !g.keepsPace(w, server, who, id):
	case held.refused != "":
		g.refuseLoad(w, server, nil, held.refused, time.Second)
	case refusal != nil:
		g.refuseMessage(w, server, code, refusal)
	default:
		return message, held, true
	}
	held.free()
	return wire.Message{}, nil, false
}

// readMessage reads a message of at most so many bytes. The body of the request itself stays in its place: net/http looks
// at it to tell whether there is more to come.
func readMessage(w http.ResponseWriter, r *http.Request, from io.ReadCloser, limit int64) (message wire.Message, code string, refusal *wire.Refusal) {
	if refusal := wire.CheckContent(r.Header); refusal != nil {
		return wire.Message{}, codeMalformed, refusal
	}
	body, code, refusal := readBody(w, from, r.ContentLength, limit)
	if refusal != nil {
		return wire.Message{}, code, refusal
	}
	message, refusal = wire.Parse(body)
	if refusal == nil {
		refusal = wire.CheckAgreement(r.Header, message)
	}
	return message, codeMalformed, refusal
}

// placeOf is what a message takes up: the stream of revisions without GET is one that an agent listens on.
func placeOf(message wire.Message) place {
	switch {
	case message.Kind != wire.Request:
		return telling
	case message.Method == string(mcp.MethodSubscriptionsListen):
		return listening
	default:
		return awaiting
	}
}

// readBody reads the body of a request, which is said to have so many bytes, and has at most so many.
func readBody(w http.ResponseWriter, from io.ReadCloser, length, limit int64) (body []byte, code string, refusal *wire.Refusal) {
	if length > limit {
		return nil, codeTooLarge, wire.TooLarge(limit)
	}
	body, err := readInto(newBuffer(int(atFirst(length, limit))), http.MaxBytesReader(w, from, limit), length, limit)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, codeTooLarge, wire.TooLarge(limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, codeTooSlow, &wire.Refusal{Status: http.StatusRequestTimeout, Code: mcp.PARSE_ERROR, Message: "the body did not arrive in time"}
	}
	if err != nil {
		return nil, codeMalformed, &wire.Refusal{Status: http.StatusBadRequest, Code: mcp.PARSE_ERROR, Message: "the body could not be read to its end"}
	}
	return body, "", nil
}

// errTooLarge: what is read has more bytes than it may.
var errTooLarge = errors.New("more bytes than may pass")

// readUpTo reads what has at most so many bytes; length is how many it is said to have, if that is known. What is said
// takes no memory before it comes, but for a little. With the error that there are more comes what was read.
func readUpTo(from io.Reader, length, limit int64) ([]byte, error) {
	return readInto(make([]byte, 0, atFirst(length, limit)+bytes.MinRead), from, length, limit)
}

// atFirst is how much memory what is read gets before it comes.
func atFirst(length, limit int64) int64 { return min(max(length, 0), limit, 64<<10) }

// readInto reads as readUpTo does, into an empty buffer.
func readInto(buf []byte, from io.Reader, length, limit int64) ([]byte, error) {
	for {
		n, err := from.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return buf, errTooLarge
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		case len(buf) == cap(buf):
			more := max(min(length, limit)-int64(len(buf)), int64(len(buf)))
			buf = slices.Grow(buf, int(more)+bytes.MinRead)
		}
	}
}
