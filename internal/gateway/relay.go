// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/tracing"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// errNoUpstream: the endpoint of the GovernedServer cannot be used.
var errNoUpstream = errors.New("endpoint cannot be used")

// relay passes an answer of the server to the agent.
type relay struct {
	*Gateway
	server *Server
	// transform is given every message of the answer; nil passes the bytes on as they come. An answer of nil drops
	// the message. What it is given is valid for the call only.
	transform func(message []byte) []byte
	// strains says that a large message of JSON need not be whole for transform: it may pass through a wire.Strainer.
	strains bool
	// id of the message that is answered, nil without one.
	id []byte
	// pulse ends an answer on which nothing comes, nil for none; listened says that it ends in its own time.
	pulse    *pulse
	listened bool
	// audience is told when its list of tools has changed, on a stream; nil for none.
	audience *audience
	// span is that of the message, nil without one.
	span *tracing.Span
}

// run relays status, headers and body, and closes the body. An answer that breaks off breaks off for the agent too.
func (f relay) run(w http.ResponseWriter, resp *http.Response) {
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	if f.pulse != nil {
		resp.Body = f.pulse.of(resp.Body)
	}
	kind := readableAs(resp.Header)
	switch {
	case redirects(resp):
		f.refuse(w, badAnswer(isRedirect))
	case f.transform != nil && isEncoded(resp.Header):
		f.refuse(w, badAnswer("is encoded although it was not asked to be"))
	case f.transform != nil && kind == kindEvents:
		copyHeader(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		f.relayEvents(w, resp)
	case f.transform != nil && kind == kindJSON:
		f.relayJSON(w, resp)
	case f.transform != nil && resp.StatusCode < http.StatusMultipleChoices:
		f.relayNothing(w, resp)
	case contentType(resp.Header) != kindEvents && resp.ContentLength > f.Limits.Answer:
		f.refuseSize(w)
	default:
		f.relayBytes(w, resp)
	}
}

// relayEvents passes the events of an answer on.
func (f relay) relayEvents(w http.ResponseWriter, resp *http.Response) {
	sink := eventSink(w)
	if f.audience != nil && resp.StatusCode == http.StatusOK {
		var stop func()
		sink, stop = f.server.announcing(*f.audience, sink)
		defer stop()
	}
	err := pumpEvents(resp.Body, f.Limits.Event, sink, f.transform)
	switch {
	case err == nil:
	case errors.Is(err, wire.ErrEventTooLarge) && f.id != nil: // nothing of it has left
		f.Metrics.cutShort(f.server.Key, codeEventTooLarge)
		refusal := badAnswer("has an event that is larger than the gateway passes on")
		f.span.Refused(refusal.Code)
		sink(eventOf(refusal.For(f.id).Body()))
	case errors.Is(err, wire.ErrEventTooLarge):
		f.cut(codeEventTooLarge)
	case !f.idled():
		panic(http.ErrAbortHandler)
	}
}

// idled tells, of an answer that broke off, whether it is a stream that was ended here since nothing passed on it.
func (f relay) idled() bool {
	if !f.listened || !f.pulse.stopped.Load() {
		return false
	}
	f.Metrics.cutShort(f.server.Key, codeStreamIdle)
	return true
}

// relayNothing passes on what has no message in it. What has one that some client might read, under a name by which
// nobody here can, is withheld.
func (f relay) relayNothing(w http.ResponseWriter, resp *http.Response) {
	body, err := readUpTo(resp.Body, resp.ContentLength, 0)
	if err != nil || len(body) > 0 {
		f.refuse(w, badAnswer("is neither JSON nor a stream of events, and is withheld"))
		return
	}
	copyHeader(w.Header(), resp.Header)
	writeWhole(w, resp.StatusCode, nil)
}

// relayBytes passes an answer on as it is.
func (f relay) relayBytes(w http.ResponseWriter, resp *http.Response) {
	copyHeader(w.Header(), resp.Header)
	if length := resp.Header.Values("Content-Length"); len(length) == 1 {
		w.Header().Set("Content-Length", length[0]) // the bytes pass as they are
	}
	limit := f.Limits.Answer
	if contentType(resp.Header) == kindEvents {
		limit = math.MaxInt64
	}
	w.WriteHeader(resp.StatusCode)
	flush(w) //nolint:errcheck // the next write tells
	f.pump(w, resp.Body, limit, func(part []byte) ([]byte, error) { return part, nil })
}

// pump relays bytes as they come, each read flushed, so that a stream stays one.
func (f relay) pump(w http.ResponseWriter, body io.Reader, limit int64, through func([]byte) ([]byte, error)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if limit -= int64(n); limit < 0 {
			f.cut(codeAnswerTooLarge)
		}
		part, unreadable := through(buf[:n])
		if unreadable != nil {
			f.cut(codeAnswerUnreadable)
		}
		if len(part) > 0 && writeNow(w, part) != nil {
			panic(http.ErrAbortHandler) // the agent has gone, or does not read
		}
		switch {
		case err == io.EOF || err != nil && f.idled():
			return
		case err != nil:
			panic(http.ErrAbortHandler) // the agent must not take a torn answer for a whole one
		}
	}
}

// cut breaks off an answer that has begun, so that the agent does not take it for a whole one.
func (f relay) cut(reason string) {
	f.Metrics.cutShort(f.server.Key, reason)
	panic(http.ErrAbortHandler)
}

// redirects tells whether an answer sends the client somewhere else. Most clients go there by themselves, with the message
// and past the gateway.
func redirects(resp *http.Response) bool {
	return resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest && resp.StatusCode != http.StatusNotModified
}

// isRedirect says what is wrong with one, and how to mend it.
const isRedirect = "is a redirect, which is not passed on; if the MCP server is at another address, its GovernedServer has to name that"

// refuseSize stands in for an answer that is too large, of which nothing has passed.
func (f relay) refuseSize(w http.ResponseWriter) {
	f.Metrics.cutShort(f.server.Key, codeAnswerTooLarge)
	f.refuse(w, badAnswer("is larger than the gateway passes on"))
}

// refuse answers in place of the server.
func (f relay) refuse(w http.ResponseWriter, refusal *wire.Refusal) {
	f.span.Refused(refusal.Code)
	writeRefusal(w, refusal.For(f.id))
}

// badAnswer stands in for an answer that cannot be relayed.
func badAnswer(why string) *wire.Refusal {
	return &wire.Refusal{Status: http.StatusBadGateway, Code: mcp.INTERNAL_ERROR, Message: speaker + "the answer of the MCP server " + why}
}

// writeWhole answers with a whole body; the length tells the agent that there is nothing to wait for.
func writeWhole(w http.ResponseWriter, status int, body []byte) {
	if status != http.StatusNoContent && status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the agent has gone; there is nobody to tell
}

// eventSink writes events to an agent and tells whether it still listens.
func eventSink(w http.ResponseWriter) func([]byte) bool {
	flush(w) //nolint:errcheck // the next write tells
	return func(event []byte) bool { return writeNow(w, event) == nil }
}

// pumpEvents relays an event stream; an event whose message transform leaves alone goes on byte for byte. It ends when
// the stream or the sink does, and returns an error when the stream broke off.
func pumpEvents(body io.Reader, limit int64, sink func([]byte) bool, transform func([]byte) []byte) error {
	events := wire.NewSplitter(body, int(limit))
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if out := rewriteEvent(event, transform); len(out) > 0 && !sink(out) {
			return nil
		}
	}
}

// rewriteEvent returns what goes on of an event. Where the words of a list are at stake, nothing is left to a reader's own
// idea of what a line is: neither lines beside the data, nor data of several lines.
func rewriteEvent(event wire.Event, transform func([]byte) []byte) []byte {
	if event.NamesEndpoint() { // a client of the older transport would send its messages there, past the gateway
		return nil
	}
	loud := slices.ContainsFunc(event.Odd(), mightHide)
	if len(event.Data) == 0 {
		if loud {
			return nil
		}
		return event.Raw
	}
	message := transform(event.Data)
	same := len(message) == len(event.Data) && len(message) > 0 && &message[0] == &event.Data[0]
	switch {
	case message == nil:
		return nil
	case loud:
		return eventOf(message)
	case same && (!hasLineEnd(event.Data) || !mightHide(event.Data)):
		return event.Raw
	default:
		return event.WithData(oneLine(message))
	}
}

// mightHide tells whether some reader could find in a text what only a filter may let through.
func mightHide(text []byte) bool { return mightSay(text, "tools") || mightSay(text, reservedWord) }

// asciiEnds are the line ends of ASCII: in JSON some are white space, and the others stand nowhere. otherEnds are those of
// Unicode, as some readers of events have it; in JSON they stand in strings alone, where an escape means the same.
const asciiEnds = "\r\n\v\f\x1c\x1d\x1e"

var otherEnds = []struct{ is, escape []byte }{
	{[]byte("\u0085"), []byte(`\u0085`)}, {[]byte("\u2028"), []byte(`\u2028`)}, {[]byte("\u2029"), []byte(`\u2029`)},
}

// hasLineEnd tells whether some reader of events takes a text for several lines.
func hasLineEnd(text []byte) bool {
	return slices.ContainsFunc([]byte(asciiEnds), func(end byte) bool { return bytes.IndexByte(text, end) >= 0 }) || // faster than ContainsAny
		slices.ContainsFunc(otherEnds, func(end struct{ is, escape []byte }) bool { return bytes.Contains(text, end.is) })
}

// oneLine returns a JSON message as one line to every reader, since a line end would cut an event in two.
func oneLine(message []byte) []byte {
	if !hasLineEnd(message) {
		return message
	}
	line := bytes.Clone(message)
	for i, b := range line {
		if strings.IndexByte(asciiEnds, b) >= 0 {
			line[i] = ' '
		}
	}
	for _, end := range otherEnds {
		line = bytes.ReplaceAll(line, end.is, end.escape)
	}
	return line
}
