// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// maxEndpoint bounds the address that a server of HTTP+SSE names for messages, in bytes.
const maxEndpoint = 2048

// NamesEndpoint tells whether some client may take the block for the event of HTTP+SSE that says where messages go from
// now on: any line about the type of an event that holds the word, however it is spelt. A client may keep the type of a
// block without data for the next one.
func (e Event) NamesEndpoint() bool {
	for line := range linesOf(e.Raw) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if foldedHas(name, "event") && foldedHas(value, "endpoint") {
			return true
		}
	}
	return false
}

// foldedHas tells whether a text has a word in whatever case. Some clients trim a line, however much of it is white space.
func foldedHas(text []byte, word string) bool {
	return strings.Contains(strictjson.Fold(string(text)), word)
}

// linesOf yields the lines of a block without their ends.
func linesOf(raw []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(raw) > 0 {
			line := raw
			if i := bytes.IndexAny(raw, "\r\n"); i >= 0 {
				line, raw = raw[:i], raw[i+1:]
			} else {
				raw = nil
			}
			if !yield(line) {
				return
			}
		}
	}
}

// EndpointOf reads the first event of a stream of HTTP+SSE: the address that messages go to, absolute. It must have the
// scheme and host of the stream, so that no server can send the messages of an agent elsewhere.
func EndpointOf(e Event, stream *url.URL) (*url.URL, error) {
	if !e.Whole || typeOf(e.Raw) != "endpoint" {
		return nil, errors.New("read the endpoint of an event stream: the first event is another one")
	}
	said := string(e.Data)
	// What two parsers of URLs may read differently goes nowhere.
	if said == "" || len(said) > maxEndpoint || strings.IndexFunc(said, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' || r == '#' }) >= 0 {
		return nil, errors.New("read the endpoint of an event stream: it is no plain address")
	}
	address, err := stream.Parse(said)
	if err != nil {
		return nil, errors.New("read the endpoint of an event stream: it is no address")
	}
	if address.User != nil || address.Scheme != stream.Scheme || !strings.EqualFold(hostOf(address), hostOf(stream)) {
		return nil, errors.New("read the endpoint of an event stream: it is of another scheme or host than the stream")
	}
	return address, nil
}

// hostOf returns host and port of an address, with the default port of its scheme.
func hostOf(address *url.URL) string {
	port := address.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[address.Scheme]
	}
	return address.Hostname() + ":" + port
}

// typeOf returns the type of an event, as the standard reads it.
func typeOf(raw []byte) string {
	name := ""
	raw = bytes.TrimPrefix(raw, []byte(mark))
	for line := range linesOf(raw) {
		if field, value, _ := bytes.Cut(line, []byte(":")); string(field) == "event" {
			name = string(bytes.TrimPrefix(value, []byte(" ")))
		}
	}
	return name
}

// Incoming is a message of a server on a stream that answers come by.
type Incoming struct {
	// Response tells whether it answers a request of the client; ID identifies that request, as IDOf does.
	Response bool
	ID       string
}

// ScanIncoming reads a message of a server. On an error some client may read in it what another does not; what it
// returns beside one has the ID that the message seems to answer, "" for none.
func ScanIncoming(message []byte) (Incoming, error) {
	doc, err := scanObject(message)
	if err != nil {
		var id strictjson.Value
		if _, asks := strictjson.Salvage(message, "method"); !asks {
			id, _ = strictjson.Salvage(message, "id")
		}
		return Incoming{ID: idOf(id)}, err
	}
	env, problem := readEnvelope(doc)
	if problem == "" {
		problem = env.checkKind()
	}
	incoming := Incoming{Response: env.answers(), ID: idOf(env.id)}
	if problem != "" {
		if env.method.Exists() {
			incoming.ID = "" // ids of the two directions have nothing to do with each other
		}
		return incoming, fmt.Errorf("read a message of the server: %s", problem)
	}
	return incoming, nil
}

// IDOf returns what identifies a request, however its id is spelt; "" where the raw id is none.
func IDOf(raw []byte) string {
	id, err := strictjson.Scan(raw)
	if err != nil {
		return ""
	}
	return idOf(id)
}

func idOf(id strictjson.Value) string {
	switch {
	case !id.Exists() || !isID(id):
		return ""
	case id.Kind() == strictjson.String:
		return "string " + id.Text()
	default:
		return "number " + string(id.Raw())
	}
}

// CancelledID returns what identifies the request that a notifications/cancelled of a client is about, "" for any other
// message.
func (m *Message) CancelledID() string {
	if m.Method != string(mcp.MethodNotificationCancelled) || m.Kind != Notification {
		return ""
	}
	return idOf(m.params.Get("requestId"))
}
