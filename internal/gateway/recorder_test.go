// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recorder is a server that records what it gets and answers as told.
type recorder struct {
	*httptest.Server

	mu     sync.Mutex
	seen   []sent
	answer http.HandlerFunc
}

// sent is one request that reached the server.
type sent struct {
	method, target string
	header         http.Header
	body           string
}

func newRecorder(t testing.TB) *recorder {
	u := &recorder{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		u.mu.Lock()
		u.seen = append(u.seen, sent{r.Method, r.URL.String(), r.Header.Clone(), string(body)})
		answer := u.answer
		u.mu.Unlock()
		if answer == nil {
			answer = answerJSON(`{"content":[]}`)
		}
		answer(w, r)
	}))
	t.Cleanup(u.Close)
	return u
}

// answers sets what the server does from now on.
func (u *recorder) answers(answer http.HandlerFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answer = answer
}

func (u *recorder) requests() []sent {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.seen)
}

// answerJSON answers every request with a result.
// streaming answers with an event stream of what a test hands over, until it closes the channel.
func streaming(next <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		for event := range next {
			io.WriteString(w, event)
			http.NewResponseController(w).Flush()
		}
	}
}

// flooding sends whoever asks with the Last-Event-ID flood as much as can be, closes left once nobody takes it any more, and
// answers all others as otherwise does.
func flooding(left chan<- struct{}, otherwise http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, rq *http.Request) {
		if rq.Header.Get("Last-Event-ID") != "flood" {
			otherwise(w, rq)
			return
		}
		defer close(left)
		w.Header().Set("Content-Type", "text/event-stream")
		event := "data: " + strings.Repeat("x", 64<<10) + "\n\n"
		for rq.Context().Err() == nil {
			if _, err := io.WriteString(w, event); err != nil {
				return
			}
		}
	}
}

func answerJSON(result string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var message struct{ ID json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil || message.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		answerWith("application/json", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, message.ID, result))(w, r)
	}
}

func answerWith(contentType, body string) http.HandlerFunc {
	return answerStatus(http.StatusOK, contentType, body)
}

func answerStatus(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// cutOff answers with a whole header and half a body, then breaks the connection.
func cutOff(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answerWith(contentType, body)(w, r)
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}
