// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// receive reads the message of a POST, within bounds and beyond doubt.
func (g *Gateway) receive(w http.ResponseWriter, r *http.Request) (message wire.Message, code string, refusal *wire.Refusal) {
	if refusal := wire.CheckContent(r.Header); refusal != nil {
		return wire.Message{}, codeMalformed, refusal
	}
	body, code, refusal := readBody(w, r, g.Limits.Message)
	if refusal != nil {
		return wire.Message{}, code, refusal
	}
	message, refusal = wire.Parse(body)
	if refusal == nil {
		refusal = wire.CheckAgreement(r.Header, message)
	}
	return message, codeMalformed, refusal
}

// readBody reads the body of a request, of at most so many bytes.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, code string, refusal *wire.Refusal) {
	if r.ContentLength > limit {
		return nil, codeTooLarge, wire.TooLarge(limit)
	}
	body, err := readUpTo(http.MaxBytesReader(w, r.Body, limit), r.ContentLength, limit)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, codeTooLarge, wire.TooLarge(limit)
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
	buf := make([]byte, 0, min(max(length, 0), limit, 64<<10)+bytes.MinRead)
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
