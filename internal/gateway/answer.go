// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

func writeRefusal(w http.ResponseWriter, refusal *wire.Refusal) {
	writeJSON(w, refusal.Status, refusal.Body())
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the client has gone; there is nobody to tell
}

// writeNotReady answers while there is nothing to decide by: it asks the client to come again, and is not to be taken
// for the 404 of a session.
func writeNotReady(w http.ResponseWriter, id []byte) {
	w.Header().Set("Retry-After", "5")
	writeRefusal(w, notReady().For(id))
}

func notReady() *wire.Refusal {
	return &wire.Refusal{Status: http.StatusServiceUnavailable, Code: mcp.INTERNAL_ERROR, Message: speaker + "no policy is loaded for this server yet; send the message again in some seconds"}
}

// writeUpstreamError answers for a server that cannot be reached. It names no host.
func writeUpstreamError(w http.ResponseWriter, id []byte, err error) {
	refusal := upstreamRefusal(err)
	if r, left := errors.AsType[restingError](err); left {
		refusal.Data = retryLater(w.Header(), codeResting, r.wait)
	}
	writeRefusal(w, refusal.For(id))
}

func upstreamRefusal(err error) *wire.Refusal {
	refusal := &wire.Refusal{Status: http.StatusBadGateway, Code: mcp.INTERNAL_ERROR, Message: speaker + "the MCP server cannot be reached"}
	r, left := errors.AsType[restingError](err)
	switch {
	case left:
		refusal.Status, refusal.Message = http.StatusServiceUnavailable, speaker+resting(r.wait).text
	case errors.Is(err, errNoUpstream):
		refusal.Message = speaker + "the MCP server's endpoint cannot be used now; its GovernedServer says why"
	case errors.Is(err, context.DeadlineExceeded):
		refusal.Status, refusal.Message = http.StatusGatewayTimeout, speaker+"the MCP server did not answer in time"
	}
	return refusal
}

// notice is what the gateway says of a call in place of the server: a tool result that a model can act on, with the
// same for programs beside it.
type notice struct {
	code string
	// recorded is the code that receipts and metrics have where the caller is told less; "" for the same.
	recorded  string
	text      string
	tier      string
	rule      string
	request   string
	namespace string
	expiry    string
	// retryAfter in seconds; 0 says that sending the call again is of no use by itself.
	retryAfter int
}

// body is the JSON-RPC response that carries the notice.
func (n notice) body(id []byte, stateless bool) []byte {
	out := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	out = append(out, `,"result":{`...)
	if stateless {
		out = append(out, `"resultType":"complete",`...)
	}
	out = append(out, `"content":[{"type":"text","text":`...)
	out = strictjson.AppendString(out, speaker+n.text)
	out = append(out, `}],"isError":true,"_meta":{"tidewaiter.dev/decision":`...)
	return append(n.appendDecision(out), `}}}`...)
}

// refusal is the notice as an error of JSON-RPC, for a client that does not look for the result of a tool.
func (n notice) refusal() *wire.Refusal {
	return &wire.Refusal{Status: http.StatusOK, Code: codeByPolicy, Message: speaker + n.text, Data: n.appendDecision(nil)}
}

// appendDecision appends what the notice says for programs.
func (n notice) appendDecision(out []byte) []byte {
	out = append(out, `{"code":`...)
	out = strictjson.AppendString(out, n.code)
	for _, member := range []struct{ name, value string }{
		{"tier", n.tier}, {"rule", n.rule}, {"request", n.request}, {"namespace", n.namespace}, {"expiry", n.expiry},
	} {
		if member.value != "" {
			out = append(out, `,"`+member.name+`":`...)
			out = strictjson.AppendString(out, member.value)
		}
	}
	if n.retryAfter > 0 {
		out = append(out, `,"retryAfterSeconds":`...)
		out = strconv.AppendInt(out, int64(n.retryAfter), 10)
	}
	return append(out, '}')
}
