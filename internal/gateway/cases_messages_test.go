// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestNumbersAreJudgedByTheirExactValue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	long := "0." + strings.Repeat("1", 399)
	for _, n := range []string{"401 digits", "an exponent of 401"} {
		number := map[string]string{"401 digits": strings.Repeat("9", 401), "an exponent of 401": "1e401"}[n]
		if got := r.post(toolCall("update_invoice", `{"lines":[{"n":`+number+`}]}`)); got.status != 400 || !strings.Contains(got.body, "/params/arguments/lines/0/n") {
			t.Errorf("%s: HTTP %d, without a pointer to it: %s", n, got.status, got.body)
		}
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("people are asked %d times about what was refused", n)
	}
	r.post(toolCall("update_invoice", `{"n":1.10}`))
	r.decide(v1alpha1.DecisionApproved)
	for _, n := range []string{"1.100000000000000001", `"1.1"`, "1.2", long} {
		if got := r.post(toolCall("update_invoice", `{"n":`+n+`}`)); got.code() != codePending {
			t.Errorf("%s, where 1.10 was approved: %s", n, got.body)
		}
	}
	r.nothingSent()
	same := toolCall("update_invoice", `{"n":11e-1}`)
	if got := r.post(same); got.code() != "" || got.status != http.StatusOK {
		t.Errorf("another spelling of 1.10: %s", got.body)
	}
	exact := toolCall("get_invoice", `{"n":`+long+`}`)
	if got := r.post(exact); got.status != http.StatusOK {
		t.Errorf("400 digits: HTTP %d %s", got.status, got.body)
	}
	r.ran(same, exact)
}

func TestAnEscapedMethodIsJudgedAsTheServerReadsIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	escaped := func(name string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools\u002fcall","params":{"name":"` + name + `","arguments":{"n":1}}}`
	}
	if got := r.post(escaped(`\u0064elete_account`)); got.code() != codePending || r.request().Spec.Tool != "delete_account" {
		t.Errorf("got %s", got.body)
	}
	r.nothingSent()
	if got := r.post(escaped("get_invoice")); got.status != http.StatusOK {
		t.Errorf("a read: HTTP %d %s", got.status, got.body)
	}
	r.ran(escaped("get_invoice"))
}

func TestAnswersOfTheGatewayBearTheIDOfTheCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range []string{`0`, `"0"`, `"a\"\u00e9"`, `900719925474099267890123`, `-1`} {
		for _, name := range []string{"delete_account", "other", ""} {
			body := `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `"}}`
			if got := r.post(body); !strings.Contains(got.body, `"id":`+id+`,`) {
				t.Errorf("%s: %s", body, got.body)
			}
		}
	}
	r.nothingSent()
	body := `{"jsonrpc":"2.0","id":"a\"\u00e9","method":"tools/call","params":{"name":"get_invoice"}}`
	if got := r.post(body); got.status != http.StatusOK {
		t.Errorf("a read: HTTP %d %s", got.status, got.body)
	}
	r.ran(body)
}

// raw sends bytes as they are and returns the status of the answer, without waiting until all bytes are taken.
func (r *rig) raw(head string, body io.Reader) int {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.front.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+head+"\r\n\r\n")
		io.Copy(conn, body)
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.t.Errorf("%s: no answer: %v", head, err)
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// endless is a chunked body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	return copy(p, "1000\r\n"+strings.Repeat(" ", 0x1000)+"\r\n"), nil
}

func TestBodiesThatCannotBeJudgedAreRefusedBeforeTheyAreRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := toolCall("get_invoice", `{"n":1}`)
	for name, tc := range map[string]struct {
		head string
		body io.Reader
		want int
	}{
		"a negative length":          {"Content-Length: -1", strings.NewReader(body), 400},
		"two lengths":                {"Content-Length: 5\r\nContent-Length: 6", strings.NewReader(body), 400},
		"chunks without an end":      {"Transfer-Encoding: chunked", endless{}, 413},
		"more than may come":         {"Content-Length: 10000000", strings.NewReader(""), 413},
		"packed, and nothing of it":  {"Content-Length: 10000000\r\nContent-Encoding: gzip", strings.NewReader(""), 415},
		"packed on the way":          {"Transfer-Encoding: gzip, chunked", strings.NewReader(""), 501},
		"a length beside the chunks": {"Content-Length: 3\r\nTransfer-Encoding: chunked", strings.NewReader("0\r\n\r\n"), 400},
	} {
		if got := r.raw(tc.head, tc.body); got != tc.want {
			t.Errorf("%s: HTTP %d, want %d", name, got, tc.want)
		}
	}
	r.nothingSent()
	chunk := strconv.FormatInt(int64(len(body)), 16) + "\r\n" + body + "\r\n0\r\n\r\n"
	if got := r.raw("Transfer-Encoding: chunked", strings.NewReader(chunk)); got != http.StatusOK {
		t.Errorf("a read in one chunk: HTTP %d", got)
	}
	r.ran(body)
}

func TestNoWordHasACallRepeated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// Go's own client repeats what bears this header, on a connection that it used before.
	up := r.server.upstream.Load().Upstream
	up.Headers = http.Header{"Idempotency-Key": {"k"}}
	r.server.Dial(&up, r.server.Snapshot().EndpointDigest)
	call := func(n string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_account","arguments":{"n":` + n + `},"_meta":{"retries":3,"retryOnTimeout":true}}}`
	}
	send := func(body, want string) {
		t.Helper()
		if got := r.post(body, "Idempotency-Key", "agent", "X-Retry", "3", "X-Envoy-Max-Retries", "3"); got.code() != want || got.status != http.StatusOK {
			t.Errorf("HTTP %d, code %q, want %q: %s", got.status, got.code(), want, got.body)
		}
	}
	for _, n := range []string{"1", "2"} {
		send(call(n), codePending)
	}
	for _, request := range r.requests() {
		r.cast(&request, votingKey, "alice", v1alpha1.DecisionApproved)
		request.Status.Decision, request.Status.Phase = v1alpha1.DecisionApproved, v1alpha1.PhaseApproved
		if err := r.api.Status().Update(t.Context(), &request); err != nil {
			t.Fatal(err)
		}
	}
	send(call("1"), "")
	r.upstream.answers(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for range 3 {
		send(call("2"), codeAmbiguous)
	}
	r.ran(call("1"), call("2"))
}

func TestAToolThatIsHiddenIsAnsweredAsOneThatIsAbsent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() {
		r.listed = append(r.listed, describe(t, "wipe_ledger", "x")) // the server has it, the manager does not know it
	})
	if _, err := r.server.define(t.Context(), "update_invoice"); err != nil {
		t.Fatal(err)
	}
	hidden, absent := r.post(toolCall("wipe_ledger", `{}`)), r.post(toolCall("zzzz_nothing", `{}`))
	if hidden.status != absent.status || hidden.body != absent.body || hidden.code() != "ToolUnknown" {
		t.Errorf("hidden: %d %s\nabsent: %d %s", hidden.status, hidden.body, absent.status, absent.body)
	}
	for _, d := range r.listed {
		if strings.Contains(absent.body, d.Name) {
			t.Errorf("the answer names %s: %s", d.Name, absent.body)
		}
	}
	r.nothingSent()
	// Once the manager knows it, people are asked.
	r.edit(func() {
		known := r.listed[len(r.listed)-1]
		r.governed.Status.Tools = append(r.governed.Status.Tools, v1alpha1.ToolStatus{
			Name: known.Name, ClassifiedTier: v1alpha1.TierIrreversible, Tier: v1alpha1.TierIrreversible, Digest: known.Digest()})
	})
	if got := r.post(toolCall("wipe_ledger", `{}`)); got.code() != codePending {
		t.Errorf("discovered: %s", got.body)
	}
}
