// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMemoryOfAMessageIsEmptiedBeforeItIsUsedAgain(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 64, leastReused, 16 << 10, mostReused - bytes.MinRead, mostReused, 1 << 20} {
		buffer := newBuffer(length)
		if len(buffer) != 0 || cap(buffer) < length+bytes.MinRead || cap(buffer) > 2*length+mostReused {
			t.Errorf("for %d bytes: length %d, capacity %d", length, len(buffer), cap(buffer))
		}
		message := append(buffer, strings.Repeat("s", length)...)
		reuse(message)
		kept := length >= leastReused && length+bytes.MinRead <= mostReused
		if left := bytes.Count(message, []byte("s")); kept && left != 0 || !kept && left != length {
			t.Errorf("for %d bytes: %d are left, used again: %t", length, left, kept)
		}
	}
}

// What a message grew into as it came may have any size: whoever is given it again must have room for what was asked for.
func TestMemoryOfAnySizeMakesRoomForWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, leastReused - 1, leastReused, leastReused + 1, 6000, 8 << 10, 8<<10 + 1, mostReused - 1, mostReused, mostReused + 1, 2 * mostReused} {
		for range 64 { // a pool may lose what it is given
			reuse(make([]byte, size))
		}
		for length := leastReused; length <= 2*mostReused; length += leastReused {
			if buffer := newBuffer(length - bytes.MinRead); len(buffer) != 0 || cap(buffer) < length {
				t.Errorf("after one of %d bytes, for %d: length %d, capacity %d", size, length, len(buffer), cap(buffer))
			}
		}
	}
}

// TestMemoryIsInUseUntilAMessageIsWritten has a server answer before it has read the message.
func TestMemoryIsInUseUntilAMessageIsWritten(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe() // what is not read is not written
	t.Cleanup(func() { near.Close() })
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
	var count written
	var trace httptrace.ClientTrace
	count.watch(&trace)
	whole := make(chan struct{})
	told := trace.WroteRequest
	trace.WroteRequest = func(info httptrace.WroteRequestInfo) { told(info); close(whole) }
	read := make(chan struct{})
	go func() {
		in := bufio.NewReaderSize(far, 16)
		rq, err := http.ReadRequest(in)
		if err != nil {
			t.Error(err)
		}
		io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
		<-read
		io.Copy(io.Discard, rq.Body)
		io.WriteString(far, "{}")
	}()
	rq, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &trace), http.MethodPost, "http://server/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("x"), mostReused)
	rq.Body, rq.ContentLength = io.NopCloser(bytes.NewReader(body)), mostReused
	resp, err := transport.RoundTrip(rq)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if count.once() {
		t.Error("the message counts as written while the server has most of it to read")
	}
	close(read)
	select {
	case <-whole:
	case <-time.After(30 * time.Second):
		t.Fatal("the message is never written")
	}
	if !count.once() {
		t.Error("the message does not count as written when the server has read it")
	}
}

func TestMemoryOfAMessageThatWasSentTwiceIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(first, second httptrace.ClientTrace)
		given   int
		want    bool
	}{
		"one that was written":          {func(first, _ httptrace.ClientTrace) { first.WroteRequest(httptrace.WroteRequestInfo{}) }, 1, true},
		"one of which nothing is known": {func(_, _ httptrace.ClientTrace) {}, 1, false},
		"one that was written in part": {func(first, _ httptrace.ClientTrace) {
			first.WroteRequest(httptrace.WroteRequestInfo{Err: io.ErrShortWrite})
		}, 1, false},
		"one whose second writing is not over":    {func(first, _ httptrace.ClientTrace) { first.WroteRequest(httptrace.WroteRequestInfo{}) }, 2, false},
		"one whose first writing may not be over": {func(_, second httptrace.ClientTrace) { second.WroteRequest(httptrace.WroteRequestInfo{}) }, 2, false},
		"one that one transport wrote, after a fault": {func(first, _ httptrace.ClientTrace) {
			first.WroteRequest(httptrace.WroteRequestInfo{Err: io.EOF})
			first.WroteRequest(httptrace.WroteRequestInfo{})
		}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var count written
			var traces [2]httptrace.ClientTrace
			for i := range tc.given {
				count.watch(&traces[i])
			}
			if tc.happens(traces[0], traces[1]); count.once() != tc.want {
				t.Errorf("counts as written once: %t", count.once())
			}
		})
	}
}

// eager is a transport that answers when it has read half of the body; the rest it reads later, as the contract of
// http.RoundTripper allows.
type eager struct {
	next <-chan struct{}
	got  chan<- string
}

func (e eager) RoundTrip(rq *http.Request) (*http.Response, error) {
	half := make([]byte, rq.ContentLength/2)
	if _, err := io.ReadFull(rq.Body, half); err != nil {
		return nil, err
	}
	httptrace.ContextClientTrace(rq.Context()).GotConn(httptrace.GotConnInfo{})
	go func() {
		<-e.next
		rest, _ := io.ReadAll(rq.Body)
		rq.Body.Close()
		e.got <- string(half) + string(rest)
	}()
	const answer = `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`
	return &http.Response{
		Request: rq, StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(answer)),
		Body: io.NopCloser(strings.NewReader(answer)),
	}, nil
}

func TestAnAnswerThatComesEarlyFreesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got, next := make(chan string, 1), make(chan struct{})
	r.server.upstream.Load().pool.RegisterProtocol("http", eager{next, got})
	message := toolCall("get_invoice", fmt.Sprintf(`{"data":"%s"}`, strings.Repeat("x", 60<<10)))
	if answer := r.post(message); answer.status != http.StatusOK {
		t.Errorf("HTTP %d %s %v", answer.status, answer.body, answer.err)
	}
	close(next)
	if body := <-got; body != message {
		t.Errorf("the transport read %d bytes, and they are not those of the message", len(body))
	}
}

// TestMessagesDoNotMix sends large calls of many agents at once, to a server that answers some of them before it reads.
func TestMessagesDoNotMix(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serves(func(w http.ResponseWriter, rq *http.Request) {
		early := rq.Header.Get("X-Early") != ""
		conn := http.NewResponseController(w)
		if err := conn.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		if early {
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[`)
			conn.Flush()
		}
		body, err := io.ReadAll(rq.Body)
		if err != nil {
			t.Error(err)
		}
		if !early {
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[`)
		}
		_, mine, _ := strings.Cut(string(body), `"whose":"`)
		mine, _, _ = strings.Cut(mine, `"`)
		if want := toolCall("get_invoice", argumentsOf(mine)); string(body) != want {
			t.Errorf("a message of %s has %d bytes, want %d, and they are not all its own", mine, len(body), len(want))
		}
		fmt.Fprintf(w, `{"type":"text","text":"%s"}]}}`, mine)
	})
	var all sync.WaitGroup
	for agent := range 16 {
		all.Go(func() {
			for i := range 8 {
				mine := fmt.Sprintf("agent %d", agent)
				headers := []string{}
				if i%3 == 0 {
					headers = append(headers, "X-Early", "yes")
				}
				answer := r.post(toolCall("get_invoice", argumentsOf(mine)), headers...)
				if !strings.Contains(answer.body, `"text":"`+mine+`"`) {
					t.Errorf("%s got %s", mine, answer.body)
				}
			}
		})
	}
	all.Wait()
}

// argumentsOf returns arguments whose size and every byte are those of an agent.
func argumentsOf(agent string) string {
	number := len(agent) + int(agent[len(agent)-1])%8
	return fmt.Sprintf(`{"whose":"%s","data":"%s"}`, agent, strings.Repeat(string(rune('a'+number%26)), number<<10))
}

// serves has the calls go to a server that a test writes itself, and returns it.
func (r *rig) serves(handler http.HandlerFunc) *httptest.Server {
	server := httptest.NewServer(handler)
	r.t.Cleanup(server.Close)
	old := r.server.upstream.Load()
	up := old.own()
	up.URL = server.URL + "/mcp"
	r.server.Dial(&up, old.digest)
	return server
}
