// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// The kinds of answers that have messages in them.
const (
	kindJSON   = "application/json"
	kindEvents = "text/event-stream"
)

// readableAs tells how every client reads an answer, "" where one may read it otherwise than another: by another header
// of the same name, another name in the same header, or another encoding.
func readableAs(h http.Header) string {
	values := h.Values("Content-Type")
	if len(values) != 1 {
		return ""
	}
	if values[0] == kindJSON || values[0] == kindEvents { // few say more
		return values[0]
	}
	kind, params, err := mime.ParseMediaType(values[0])
	if err != nil || !slices.Contains([]string{"", "utf-8", "us-ascii"}, strings.ToLower(params["charset"])) {
		return ""
	}
	others := strings.ToLower(values[0])
	if kind == kindJSON && !strings.Contains(others, kindEvents) || kind == kindEvents && !strings.Contains(others, kindJSON) {
		return kind
	}
	return ""
}

// maxWhole is how much of an answer of JSON is read whole, in bytes, where it need not be.
const maxWhole = 1 << 20

// relayJSON passes one message on: whole, or, where that will do, as it comes.
func (f relay) relayJSON(w http.ResponseWriter, resp *http.Response) {
	limit, atOnce := f.Limits.Event, f.Limits.Event
	if f.strains {
		limit, atOnce = f.Limits.Answer, min(maxWhole, f.Limits.Answer)
	}
	if resp.ContentLength > limit {
		f.refuseSize(w)
		return
	}
	body, err := readUpTo(resp.Body, resp.ContentLength, atOnce)
	switch {
	case err == nil:
		copyHeader(w.Header(), resp.Header)
		writeWhole(w, resp.StatusCode, f.transform(body))
	case !errors.Is(err, errTooLarge):
		f.refuse(w, badAnswer("broke off"))
	case limit > atOnce:
		f.strain(w, resp, body)
	default:
		f.refuseSize(w)
	}
}

// strain passes a large message on as it comes; begun was read of it.
func (f relay) strain(w http.ResponseWriter, resp *http.Response, begun []byte) {
	var strainer wire.Strainer
	passed, err := strainer.Feed(begun)
	if err != nil {
		f.Metrics.cutShort(f.server.Key, codeAnswerUnreadable)
		f.refuse(w, badAnswer("cannot be read beyond doubt and is withheld"))
		return
	}
	copyHeader(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if _, err := w.Write(passed); err != nil {
		panic(http.ErrAbortHandler) // the agent has gone, or does not read
	}
	f.pump(w, resp.Body, f.Limits.Answer-int64(len(begun)), strainer.Feed)
	if strainer.End() != nil {
		f.cut(codeAnswerUnreadable)
	}
}
