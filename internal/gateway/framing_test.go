// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ending is what becomes of a list.
type ending int

const (
	filtered ending = iota
	withholds
	breaks // the answer ends without being whole
)

// framing is one way to send a list of tools.
type framing struct {
	kind string // what it is said to be
	send func(list string) string
	post ending // of the answer to tools/list
	get  ending // of the same on a stream that replays it
	// also is what else must arrive.
	also string
	// header is sent besides.
	header []string
}

const (
	asJSON   = "application/json"
	asEvents = "text/event-stream"
)

func plain(list string) string { return list }

func event(list string) string { return "data: " + list + "\n\n" }

// messages are spoilt in what they say, and come in both kinds.
var messages = map[string]struct {
	message func(list string) string
	ending  ending
	passes  bool // on a stream nothing takes it for a list
}{
	"a list":                       {plain, filtered, false},
	"white space around it":        {func(l string) string { return " \t" + l + " \t" }, filtered, false},
	"another id":                   {func(l string) string { return strings.Replace(l, `"id":"l"`, `"id":"other"`, 1) }, filtered, false},
	"no id":                        {func(l string) string { return strings.Replace(l, `"id":"l",`, ``, 1) }, filtered, false},
	"an escaped key":               {func(l string) string { return strings.Replace(l, `"tools"`, `"\u0074ool\u0073"`, 1) }, filtered, false},
	"result and error":             {func(l string) string { return strings.TrimSuffix(l, "}") + `,"error":{"code":1,"message":"x"}}` }, filtered, false},
	"a result in a result":         {func(l string) string { return `{"jsonrpc":"2.0","id":"l","result":{"result":` + result(l) + `}}` }, withholds, true},
	"a result that is none":        {func(l string) string { return `{"jsonrpc":"2.0","id":"l","result":[` + result(l) + `]}` }, withholds, true},
	"a batch":                      {func(l string) string { return "[" + l + "]" }, withholds, false},
	"a batch of two":               {func(l string) string { return `[{"jsonrpc":"2.0","method":"x"},` + l + "]" }, withholds, false},
	"result given twice":           {func(l string) string { return strings.TrimSuffix(l, "}") + `,"result":{"tools":[]}}` }, withholds, false},
	"tools given twice":            {func(l string) string { return strings.Replace(l, `"tools":`, `"tools":[],"tools":`, 1) }, withholds, false},
	"a key that looks like tools":  {func(l string) string { return strings.Replace(l, `"tools":`, `"tools":[],"tool\u017f":`, 1) }, withholds, false},
	"a key that looks like result": {func(l string) string { return strings.Replace(l, `"result":`, `"re\u017fult":`, 1) }, withholds, false},
	"names given twice":            {func(l string) string { return strings.Replace(l, `{"name":`, `{"name":"get_invoice","name":`, 1) }, withholds, false},
	"the same tool twice":          {func(l string) string { return strings.Replace(l, `[`, `[{"name":"get_invoice"},`, 1) }, withholds, false},
	"text behind it":               {func(l string) string { return l + " x" }, withholds, false},
	"a second message behind it":   {func(l string) string { return l + l }, withholds, false},
	"half of it":                   {func(l string) string { return l[:len(l)-3] }, withholds, false},
	"a comment of JavaScript":      {func(l string) string { return "/**/" + l }, withholds, false},
	"half a surrogate pair":        {func(l string) string { return strings.Replace(l, `"hidden_tool"`, `"hidden_tool\ud800"`, 1) }, withholds, false},
	"bytes that are no UTF-8":      {func(l string) string { return strings.Replace(l, `"hidden_tool"`, "\"hidden_tool\xff\"", 1) }, withholds, false},
	"deeper than anybody reads": {func(l string) string {
		return strings.TrimSuffix(l, "}") + `,"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}"
	}, withholds, false},
	"a BOM before the message": {func(l string) string { return "\ufeff" + l }, withholds, false},
	"a list that is an object": {func(l string) string {
		return `{"jsonrpc":"2.0","id":"l","result":{"tools":{"0":{"name":"hidden_tool"}}}}`
	}, withholds, false},
	"entries that are texts":         {func(l string) string { return `{"jsonrpc":"2.0","id":"l","result":{"tools":["hidden_tool"]}}` }, withholds, false},
	"a list said to be another kind": {func(l string) string { return strings.Replace(l, `"jsonrpc":"2.0"`, `"jsonrpc":"2.0","Method":"x"`, 1) }, withholds, false},
}

func result(list string) string {
	_, after, _ := strings.Cut(list, `"result":`)
	return strings.TrimSuffix(after, "}")
}

// framings are spoilt in how they are sent.
var framings = map[string]framing{
	"split data lines":              {kind: asEvents, send: func(l string) string { return event(strings.ReplaceAll(l, `,"`, ",\ndata:\"")) }},
	"CRLF":                          {kind: asEvents, send: func(l string) string { return "data: " + l + "\r\n\r\n" }},
	"CR":                            {kind: asEvents, send: func(l string) string { return "data: " + l + "\r\r" }},
	"mixed line ends":               {kind: asEvents, send: func(l string) string { return "id: 1\rdata: " + l + "\r\n\n" }},
	"no space behind the colon":     {kind: asEvents, send: func(l string) string { return "data:" + l + "\n\n" }},
	"a BOM":                         {kind: asEvents, send: func(l string) string { return "\ufeff" + event(l) }},
	"a named event":                 {kind: asEvents, send: func(l string) string { return "event: other\nid: 7\nretry: 10\n" + event(l) }, also: "id: 7\n"},
	"comments":                      {kind: asEvents, send: func(l string) string { return ": a\n\n:b\n" + event(l) + ": c\n\n" }, also: ": c\n"},
	"a comment in the event":        {kind: asEvents, send: func(l string) string { return "data: {\n: c\ndata: " + l[1:] + "\n\n" }},
	"events without data":           {kind: asEvents, send: func(l string) string { return "\n\ndata:\n\ndata\n\nid: 1\n\n" + event(l) }},
	"a message without an id first": {kind: asEvents, send: func(l string) string { return event(`{"jsonrpc":"2.0","method":"notifications/x"}`) + event(l) }, also: "notifications/x"},
	"messages in between": {kind: asEvents, also: "notifications/z", send: func(l string) string {
		return event(`{"jsonrpc":"2.0","method":"notifications/x"}`) + event(`{"jsonrpc":"2.0","id":1,"method":"ping"}`) + event(l) + event(`{"jsonrpc":"2.0","method":"notifications/z"}`)
	}},
	"the list twice":           {kind: asEvents, send: func(l string) string { return event(l) + event(l) }},
	"no blank line at the end": {kind: asEvents, send: func(l string) string { return "data: " + l + "\n" }},
	"no line end at the end":   {kind: asEvents, send: func(l string) string { return "data: " + l }},
	"upper case and a charset": {kind: "Text/Event-Stream; Charset=UTF-8", send: event},
	"JSON, a charset":          {kind: "Application/JSON;charset=utf-8", send: plain},
	"JSON, line ends around":   {kind: asJSON, send: func(l string) string { return "\r\n" + l + "\n\n" }},
	"two messages in one event": {kind: asEvents, post: withholds, get: withholds, send: func(l string) string {
		return "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\ndata: " + l + "\n\n"
	}},
	"a message within lines of another": {kind: asEvents, post: filtered, get: filtered, send: func(l string) string { // a reader that takes one line only finds none
		return event(strings.Replace(lines(l), "FIRST", `{"jsonrpc":"2.0","id":"l","result":{"tools":[{"name":"get_invoice"}]}}`, 1))
	}},
	"a list in a comment": {kind: asEvents, send: func(l string) string {
		return ": x\u2028data: " + strings.ReplaceAll(l, "get_invoice", "hidden_tool") + "\n" + event(l)
	}},
	"a list beside the data": {kind: asEvents, send: func(l string) string {
		return "Data: " + strings.ReplaceAll(l, "get_invoice", "hidden_tool") + "\n" + event(l)
	}},
	"a list behind a space": {kind: asEvents, send: func(l string) string { return event(`{"jsonrpc":"2.0","method":"x"}`) + " data: " + l + "\n\n" }, post: withholds, get: withholds},
	"a BOM in the middle":   {kind: asEvents, send: func(l string) string { return "data:\n\n\ufeff" + event(l) }, post: withholds, get: withholds},
	"a BOM in the middle of an event": {kind: asEvents, send: func(l string) string {
		return "data:\n\n\ufeff" + strings.TrimSuffix(event(strings.ReplaceAll(l, "get_invoice", "hidden_tool")), "\n") + event(l)
	}},
	"JSON said to be events":       {kind: asEvents, send: plain, post: withholds, get: withholds},
	"events said to be JSON":       {kind: asJSON, send: event, post: withholds, get: withholds},
	"no kind":                      {kind: "", send: plain, post: withholds, get: withholds},
	"text":                         {kind: "text/plain", send: plain, post: withholds, get: withholds},
	"events said to be text":       {kind: "text/plain", send: event, post: withholds, get: withholds},
	"a kind that begins so":        {kind: "application/json-seq", send: plain, post: withholds, get: withholds},
	"both kinds":                   {kind: "application/json; also=text/event-stream", send: plain, post: withholds, get: withholds},
	"two kinds":                    {kind: asJSON, send: plain, header: []string{"Content-Type", asEvents}, post: withholds, get: withholds},
	"another charset":              {kind: "application/json; charset=utf-7", send: plain, post: withholds, get: withholds},
	"events in another charset":    {kind: "text/event-stream; charset=utf-16", send: event, post: withholds, get: withholds},
	"gzip, which nobody asked for": {kind: asJSON, send: plain, header: []string{"Content-Encoding", "gzip"}, post: withholds, get: withholds},
	"less than was said":           {kind: asJSON, send: plain, header: []string{"Content-Length", "100000"}, post: withholds, get: withholds},
	"events, less than was said":   {kind: asEvents, send: func(l string) string { return event(l)[:20] }, header: []string{"Content-Length", "100000"}, post: breaks, get: breaks},
	"an event that is too large": {kind: asEvents, send: func(l string) string {
		return event(strings.Replace(l, "hidden_tool", strings.Repeat("hidden_tool", 20000), 1))
	}, post: withholds, get: breaks},
	"a list that is too large": {kind: asJSON, send: func(l string) string {
		return strings.Replace(l, "hidden_tool", strings.Repeat("hidden_tool", 20000), 1)
	}, post: withholds, get: withholds},
	"a line that is too large":    {kind: asEvents, send: func(string) string { return ": " + strings.Repeat("hidden_tool ", 20000) + "\n" }, post: withholds, get: breaks},
	"a list without an end":       {kind: asEvents, send: func(l string) string { return strings.Repeat("data: "+l+"\n", 500) }, post: withholds, get: breaks},
	"an answer without a message": {kind: asJSON, send: func(string) string { return "" }, post: withholds, get: withholds},
	"an error page with a list":   {kind: "text/html", send: func(l string) string { return "<p>" + l }, post: withholds, get: withholds},
}

// lines spreads a list over data lines, one of which is a message by itself.
func lines(list string) string {
	return strings.TrimSuffix(list, "}") + ",\"x\":\ndata: FIRST\ndata: }"
}

func TestAListIsFilteredInEveryFramingOrWithheld(t *testing.T) {
	t.Parallel()
	all := map[string]framing{}
	for name, m := range messages {
		get := m.ending
		if m.passes {
			get = filtered + 100 // whatever passes is no list to anybody
		}
		all["JSON: "+name] = framing{kind: asJSON, send: m.message, post: m.ending, get: get}
		all["events: "+name] = framing{kind: asEvents, send: func(l string) string { return event(m.message(l)) }, post: m.ending, get: get}
	}
	maps.Copy(all, framings)
	for name, f := range all {
		for _, pieces := range []string{"at once", "byte by byte"} {
			t.Run(name+", "+pieces, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.gateway.Limits.Event = 64 << 10
				list := `{"jsonrpc":"2.0","id":"l","result":{"tools":[` + r.entries("hidden_tool", "update_invoice", "get_invoice") + `],"nextCursor":"c"}}`
				r.upstream.answers(f.handler(list, pieces == "byte by byte" && len(f.send(list)) < 8<<10))
				r.seesOf(f, http.MethodPost, f.post)
				r.seesOf(f, http.MethodGet, f.get)
			})
		}
	}
}

// seesOf asks for the list and checks what a client gets.
func (r *rig) seesOf(f framing, method string, want ending) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	body := ""
	if method == http.MethodPost {
		body = listCall
	}
	got := r.do(ctx, method, body, "Last-Event-ID", "6")
	if ctx.Err() != nil {
		r.t.Fatalf("%s hangs", method)
	}
	if want <= breaks && strings.Contains(got.body, "hidden_tool") {
		r.t.Errorf("%s shows %s", method, got.body)
	}
	shows := strings.Contains(got.body, "get_invoice") && strings.Contains(got.body, `"tidewaiter.dev/tier":"Reversible"`) && strings.Contains(got.body, `"nextCursor":"c"`)
	switch want {
	case filtered:
		if !shows || got.err != nil || !strings.Contains(got.body, f.also) {
			r.t.Errorf("%s: HTTP %d %v, the list is not there: %s", method, got.status, got.err, got.body)
		}
	case withholds:
		if strings.Contains(got.body, "get_invoice") || got.err != nil {
			r.t.Errorf("%s: HTTP %d %v, not withheld: %s", method, got.status, got.err, got.body)
		}
	case breaks:
		if got.err == nil {
			r.t.Errorf("%s: HTTP %d, passed as whole: %s", method, got.status, got.body)
		}
	}
}

// handler sends a list so.
func (f framing) handler(list string, byteByByte bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{f.kind}
		if f.kind == "" {
			w.Header()["Content-Type"] = nil
		}
		for i := 0; i < len(f.header); i += 2 {
			w.Header().Add(f.header[i], f.header[i+1])
		}
		flush := http.NewResponseController(w)
		for text := f.send(list); len(text) > 0; {
			n := len(text)
			if byteByByte {
				n = 1
			}
			if _, err := io.WriteString(w, text[:n]); err != nil {
				return
			}
			flush.Flush()
			text = text[n:]
		}
	}
}

// What is no list passes byte for byte, however it is framed.
func TestEventsPassByteForByte(t *testing.T) {
	t.Parallel()
	stream := "\ufeff: hello\r\n\r\nid: 1\r\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"id\":1,\"result\":{\"content\":[]}}\r\n\r\n" +
		"data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\r\rretry: 5\n\n"
	r := newRig(t)
	r.upstream.answers(framing{kind: asEvents, send: func(string) string { return stream }}.handler("", true))
	for method, body := range map[string]string{http.MethodGet: "", http.MethodPost: toolCall("get_invoice", `{}`)} {
		got := r.do(t.Context(), method, body)
		if diff := cmp.Diff(stream, got.body); diff != "" || got.err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", method, got.err, diff)
		}
	}
}

// Some clients take each line of data for a message. Where a line could hide tools, there is only one.
func TestAMessageThatSpeaksOfToolsIsOneLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.upstream.answers(answerWith("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"x\",\"params\":{\"tools\":1}}\n\n"))
	want := "data: {\"jsonrpc\":\"2.0\", \"method\":\"x\",\"params\":{\"tools\":1}}\n\n"
	for method, body := range map[string]string{http.MethodGet: "", http.MethodPost: toolCall("get_invoice", `{}`)} {
		if got := r.do(t.Context(), method, body); got.body != want || got.err != nil {
			t.Errorf("%s: %v %q", method, got.err, got.body)
		}
	}
}

// Some readers of events end a line also where Unicode does. In JSON such characters stand in strings alone, so a server could
// put an event of its own into one.
func TestAMessageThatCouldHideSomethingIsOneLineToEveryReader(t *testing.T) {
	t.Parallel()
	const hidden = `data: {\"jsonrpc\":\"2.0\",\"id\":\"l\",\"result\":{\"tools\":[{\"name\":\"hidden_tool\"}],\"_meta\":{\"tidewaiter.dev/decision\":{}}}}`
	for name, end := range map[string]string{
		"next line": "\u0085", "line separator": "\u2028", "paragraph separator": "\u2029",
		"vertical tab": "\v", "form feed": "\f", "file separator": "\x1c", "group separator": "\x1d", "record separator": "\x1e",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			spoilt := "x" + end + end + hidden + end + end
			for what, tc := range map[string]struct{ method, ask, answer string }{
				"a list":             {http.MethodPost, listCall, `{"jsonrpc":"2.0","id":"l","result":{"tools":[` + r.entries("get_invoice") + `],"nextCursor":"` + spoilt + `"}}`},
				"a list on a stream": {http.MethodGet, "", `{"jsonrpc":"2.0","id":"l","result":{"tools":[` + r.entries("get_invoice") + `],"nextCursor":"` + spoilt + `"}}`},
				"a read":             {http.MethodPost, toolCall("get_invoice", `{}`), `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + spoilt + `"}]}}`},
				"an effect":          {http.MethodPost, r.approved("delete_account"), `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + spoilt + `"}]}}`},
			} {
				r.upstream.answers(answerWith(asEvents, "id: 1\ndata: "+tc.answer+"\n\n"))
				got := r.do(t.Context(), tc.method, tc.ask)
				if got.err != nil || strings.Contains(got.body, end) {
					t.Errorf("%s: HTTP %d, %v: %q", what, got.status, got.err, got.body)
				}
				if valid := end > "\u0080"; valid && !strings.Contains(got.body, fmt.Sprintf(`x\u%04x\u%04[1]xdata: {`, []rune(end)[0])) {
					t.Errorf("%s has lost what it says: %q", what, got.body)
				}
			}
			harmless := "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"a" + end + "b\"}]}}\n\n"
			r.upstream.answers(answerWith(asEvents, harmless))
			if got := r.post(toolCall("get_invoice", `{}`)); got.body != harmless {
				t.Errorf("what hides nothing: %q", got.body)
			}
		})
	}
}
