// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// methods counts the messages that reach the server, by method.
type methods struct {
	mu   sync.Mutex
	seen map[string]int // guarded by mu
}

func (m *methods) note(w http.ResponseWriter, r *http.Request, next http.Handler) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var message struct{ Method string }
	if json.Unmarshal(body, &message) == nil && message.Method != "" {
		m.mu.Lock()
		m.seen[message.Method]++
		m.mu.Unlock()
	}
	next.ServeHTTP(w, r)
}

func (m *methods) count(method string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[method]
}

// Case 117: other methods neither get around a stop, nor around otherMethods, nor around callers.
func TestOtherMethodsGetAroundNothing(t *testing.T) {
	t.Parallel()
	governed := []string{"resources/read", "prompts/get", "completion/complete", "resources/subscribe", "tasks/result", "vendor/run"}
	free := []string{"ping", "tools/list", "resources/list", "prompts/list"}
	for name, tc := range map[string]struct {
		edit func(*world)
		code string
	}{
		"mode Stopped":       {func(w *world) { w.govern(func(s *v1alpha1.GovernedServerSpec) { s.Mode = v1alpha1.ModeStopped }) }, "ServerStopped"},
		"a baseline stopped": {func(w *world) { w.baseline(func(s *v1alpha1.ToolPolicySpec) { s.Mode = v1alpha1.BaselineStopped }) }, "ServerStopped"},
		"otherMethods Deny": {func(w *world) {
			w.govern(func(s *v1alpha1.GovernedServerSpec) { s.OtherMethods = v1alpha1.OtherMethodsDeny })
		}, "MethodDenied"},
		"callers": {func(w *world) {
			w.policy("callers", func(s *v1alpha1.ToolPolicySpec) {
				s.Callers = []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "another"}}
			})
		}, "CallerNotAllowed"},
		"nothing (the control)": {func(*world) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tellAtOnce)
			reached := &methods{seen: map[string]int{}}
			w.intercept = reached.note
			d := w.openDoor("gw")
			send := func(method string) answer {
				return d.post(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"uri":"file:///a","name":"a","taskId":"t"}}`, method))
			}
			tc.edit(w)
			if tc.code != "" {
				w.eventually("it is refused", func() error { return wantMethodRefused(send("vendor/refused"), tc.code) })
			}
			for _, method := range governed {
				got := send(method)
				if tc.code == "" {
					if reached.count(method) != 1 {
						t.Errorf("%s did not reach the server: %s", method, got.raw)
					}
					continue
				}
				if err := wantMethodRefused(got, tc.code); err != nil || reached.count(method) != 0 {
					t.Errorf("%s reached the server %d times: %v", method, reached.count(method), err)
				}
				d.recorded(method, func(r receipt.Receipt) bool {
					return r.Method == method && r.Verdict == receipt.VerdictDeny && r.Code == tc.code
				})
			}
			for _, method := range free {
				before := reached.count(method)
				if got := send(method); reached.count(method) != before+1 {
					t.Errorf("%s did not reach the server: %s", method, got.raw)
				}
			}
			if err := d.initialize(); err != nil {
				t.Errorf("a session: %v", err)
			}
		})
	}
}

func wantMethodRefused(a answer, code string) error {
	var refusal struct {
		Error struct {
			Code int
			Data struct{ Code string }
		}
	}
	if err := json.Unmarshal([]byte(a.raw), &refusal); err != nil || refusal.Error.Code != -32010 || refusal.Error.Data.Code != code {
		return fmt.Errorf("not refused with %s: %s", code, a.raw)
	}
	return nil
}
