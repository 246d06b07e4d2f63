// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func (r *rig) cut(reason string) float64 {
	return testutil.ToFloat64(r.gateway.Metrics.cut.WithLabelValues(billing.Namespace, billing.Name, reason))
}

// large answers with a result of that many bytes, in pieces; after some it waits.
func large(size int, said bool, wait <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		before, after := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"`, `"}],"_meta":{"tidewaiter.dev/decision":1,"x":2}}}`
		w.Header().Set("Content-Type", "application/json")
		if said {
			w.Header().Set("Content-Length", strconv.Itoa(len(before)+size+len(after)))
		}
		io.WriteString(w, before)
		chunk := strings.Repeat("x", 64<<10)
		for sent := 0; sent < size; sent += len(chunk) {
			if wait != nil && sent >= 4<<20 {
				<-wait
			}
			if _, err := io.WriteString(w, chunk[:min(len(chunk), size-sent)]); err != nil {
				return
			}
		}
		io.WriteString(w, after)
	}
}

func TestALargeResultPassesAsItComes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	arrived := make(chan struct{})
	r.upstream.answers(large(10<<20, false, arrived))
	resp, err := r.open(t.Context(), http.MethodPost, "/mcp", toolCall("get_invoice", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, 2<<20); err != nil { // while the server waits
		t.Fatal(err)
	}
	close(arrived)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(rest), `x"}],"_meta":{"x":2}}}`) || len(rest) < 8<<20 {
		t.Errorf("%v, the rest of %d bytes ends in %q", err, len(rest), rest[max(len(rest)-60, 0):])
	}
}

func TestAnswersThatAreTooLarge(t *testing.T) {
	t.Parallel()
	newLimited := func(t *testing.T, answer http.HandlerFunc) *rig {
		t.Parallel()
		r := newRig(t)
		r.gateway.Limits.Answer, r.gateway.Limits.Event = 2<<20, 1<<20
		r.upstream.answers(answer)
		return r
	}
	read, other := toolCall("get_invoice", `{}`), ping
	for name, tc := range map[string]struct {
		body   string
		answer http.HandlerFunc
		status int // 0 breaks off
		reason string
	}{
		"a read that fits":             {read, large(1900<<10, false, nil), http.StatusOK, ""},
		"a read, its length said":      {read, large(3<<20, true, nil), http.StatusBadGateway, codeAnswerTooLarge},
		"a read, its length not said":  {read, large(3<<20, false, nil), 0, codeAnswerTooLarge},
		"a read that nobody can read":  {read, answerWith("application/json", `{"jsonrpc":"2.0",`+strings.Repeat(" ", 1900<<10)+"x}"), 0, codeAnswerUnreadable},
		"a read, unreadable at once":   {read, answerWith("application/json", `[`+strings.Repeat(" ", 1900<<10)+"]"), http.StatusBadGateway, codeAnswerUnreadable},
		"another that fits":            {other, large(1900<<10, false, nil), http.StatusOK, ""},
		"another, its length said":     {other, large(3<<20, true, nil), http.StatusBadGateway, codeAnswerTooLarge},
		"another, its length not said": {other, large(3<<20, false, nil), 0, codeAnswerTooLarge},
		"a list":                       {listCall, large(1900<<10, false, nil), http.StatusBadGateway, codeAnswerTooLarge},
		"an event":                     {read, answerWith("text/event-stream", "data: "+strings.Repeat("x", 1<<20)+"\n\n"), http.StatusOK, codeEventTooLarge},
		"events that are many":         {read, answerWith("text/event-stream", strings.Repeat("data: {\"x\":\""+strings.Repeat("x", 64<<10)+"\"}\n\n", 40)+"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1}}\n\n"), http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newLimited(t, tc.answer)
			got := r.post(tc.body)
			switch {
			case tc.status == 0 && got.err == nil:
				t.Errorf("HTTP %d: what was cut passed as whole", got.status)
			case tc.status != 0 && (got.status != tc.status || got.err != nil):
				t.Errorf("HTTP %d %v, want %d: %.300s", got.status, got.err, tc.status, got.body)
			case tc.status != 0 && tc.reason != "" && !strings.Contains(got.body, `"error":{"code":-32603`):
				t.Errorf("no error that a client can read: %.300s", got.body)
			}
			if tc.reason != "" && r.cut(tc.reason) != 1 {
				t.Errorf("%v counted", r.cut(tc.reason))
			}
		})
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		reason string
	}{
		"a call with effects":           {large(1900<<10, false, nil), codeAnswerTooLarge},
		"a call with effects in events": {answerWith("text/event-stream", "data: "+strings.Repeat("x", 1<<20)+"\n\n"), codeEventTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			r := newLimited(t, tc.answer)
			body := r.approved("update_invoice")
			if got := r.post(body); got.code() != codeAmbiguous || !strings.Contains(got.body, "larger than the gateway passes on") || r.cut(tc.reason) != 1 {
				t.Errorf("%v counted, got %.300s", r.cut(tc.reason), got.body)
			}
			if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseAmbiguous {
				t.Errorf("the request is %s", phase)
			}
		})
	}
}

// A large result takes little memory. It runs alone, since it counts what is allocated, by client and server too.
func TestALargeResultTakesLittleMemory(t *testing.T) {
	r := newRig(t)
	const size = 10 << 20
	r.upstream.answers(large(size, true, nil))
	body := toolCall("get_invoice", `{}`)
	allocated := func() uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if n := r.drain(body); n < size {
			t.Fatalf("%d bytes came", n)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	allocated() // connections
	if got := allocated(); got > size/2 {
		t.Errorf("%d KiB were allocated for a result of %d KiB", got>>10, size>>10)
	}
}

// drain posts a message and throws the answer away as it comes.
func (r *rig) drain(body string) int64 {
	r.t.Helper()
	resp, err := http.Post(r.front.URL+"/mcp", "application/json", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func TestAStreamOfHTTPAndSSEEndsAtAnEventThatIsTooLarge(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	r.gateway.Limits.Event = 64 << 10
	a := r.listens()
	fits := `{"jsonrpc":"2.0","method":"x","params":"` + strings.Repeat("x", 60<<10) + `"}`
	s.say("data: " + fits + "\n\n")
	if got := a.next(); got != "data: "+fits+"\n\n" {
		t.Errorf("one that fits: %.100s", got)
	}
	s.say("data: " + fits + "\ndata: " + fits + "\n\n")
	r.until("the end is counted", func() bool { return r.cut(codeEventTooLarge) == 1 })
}
