// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// loopback lets the tests' receivers be dialled.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// post is what a receiver got.
type post struct {
	header http.Header
	body   string
}

// endpoint is a receiver behind a real socket, with TLS.
type endpoint struct {
	*httptest.Server
	mu    sync.Mutex
	posts []post
}

// newEndpoint answers the nth request, from 1, by answer.
func newEndpoint(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		e.posts = append(e.posts, post{header: r.Header, body: string(body)})
		n := len(e.posts)
		e.mu.Unlock()
		answer(n, w, r)
	}))
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) got() []post {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]post(nil), e.posts...)
}

// receiver returns the endpoint as a configured receiver of all namespaces.
func (e *endpoint) receiver(name string) Receiver {
	roots := x509.NewCertPool()
	roots.AddCert(e.Certificate())
	return Receiver{Name: name, URL: e.URL + "/hooks/T0K3N", Secrets: [][]byte{[]byte(secret)}, Namespaces: labels.Everything(), Roots: roots}
}

// certificate returns the endpoint's certificate in PEM.
func certificate(e *endpoint) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw})
}

func status(codes ...int) func(int, http.ResponseWriter, *http.Request) {
	return func(n int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(codes[min(n, len(codes))-1]) }
}

// metricsOf returns fresh metrics.
func metricsOf(t *testing.T) *Metrics {
	t.Helper()
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func count(m *Metrics, receiver string, event Event, how outcome) int {
	return int(testutil.ToFloat64(m.notifications.WithLabelValues(receiver, string(event), string(how))))
}

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 2*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("%s: not within 30 s", what)
	}
}

var note = notification{
	id: "0b1c.Opened", event: EventOpened, request: types.NamespacedName{Namespace: "shop", Name: "billing-1"}, body: []byte(`{"event":"Opened"}`),
}

// deliver delivers the note and steps over every pause.
func deliver(t *testing.T, s *sender, c *clocktesting.FakeClock) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); s.deliver(t.Context(), note) }()
	until(t, "the end of the delivery", func() bool {
		select {
		case <-done:
			return true
		default:
			if c.HasWaiters() {
				c.Step(maxPause)
			}
			return false
		}
	})
}

func TestAnAnswerDecidesWhetherANotificationIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		codes []int
		posts int
		want  outcome
	}{
		"taken at once":                        {[]int{204}, 1, delivered},
		"taken with a body":                    {[]int{200}, 1, delivered},
		"an error, then taken":                 {[]int{503, 200}, 2, delivered},
		"too many requests, then taken":        {[]int{429, 200}, 2, delivered},
		"a time-out of the receiver":           {[]int{408, 200}, 2, delivered},
		"taken at the last attempt":            {[]int{500, 502, 504, 200}, 4, delivered},
		"an error at every attempt":            {[]int{500}, 4, failed},
		"a wrong path is not tried again":      {[]int{404, 200}, 1, refused},
		"a refusal is not tried again":         {[]int{401, 200}, 1, refused},
		"gone for good":                        {[]int{410, 200}, 1, refused},
		"a refusal after an error ends it":     {[]int{500, 400, 200}, 2, refused},
		"what is no answer to a POST is none":  {[]int{304, 200}, 1, refused},
		"a redirect without an address is one": {[]int{302, 200}, 1, refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, c, m := newEndpoint(t, status(tc.codes...)), clocktesting.NewFakeClock(opened), metricsOf(t)
			deliver(t, newSender(e.receiver("chat"), loopback, c, m), c)
			if got := e.got(); len(got) != tc.posts {
				t.Errorf("%d posts, want %d", len(got), tc.posts)
			}
			want := fmt.Sprintf(`
# HELP tidewaiter_notifications_total Notifications by receiver, event and outcome; each counts once, however often it was tried.
# TYPE tidewaiter_notifications_total counter
tidewaiter_notifications_total{event="Opened",outcome=%q,receiver="chat"} 1
`, tc.want)
			if err := testutil.CollectAndCompare(m.notifications, strings.NewReader(want)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEveryAttemptIsSignedAnewUnderTheSameID(t *testing.T) {
	t.Parallel()
	e, c := newEndpoint(t, status(500, 200)), clocktesting.NewFakeClock(opened)
	receiver := e.receiver("chat")
	receiver.Secrets = append(receiver.Secrets, []byte(older))
	deliver(t, newSender(receiver, loopback, c, metricsOf(t)), c)
	posts := e.got()
	if len(posts) != 2 {
		t.Fatalf("%d posts", len(posts))
	}
	for i, p := range posts {
		at := opened.Add(time.Duration(i) * maxPause)
		header := p.header.Get(signatureHeader)
		if !strings.HasPrefix(header, fmt.Sprintf("t=%d,", at.Unix())) {
			t.Errorf("attempt %d was not signed when it was made: %s", i, header)
		}
		for _, s := range []string{secret, older} {
			if !verified([]byte(s), header, []byte(p.body), at) {
				t.Errorf("attempt %d, %s: not verified", i, s)
			}
		}
		if verified([]byte("another-secret-of-32-characters!"), header, []byte(p.body), at) {
			t.Errorf("attempt %d: a secret that the receiver does not have fits", i)
		}
		if p.header.Get(deliveryHeader) != note.id || p.header.Get("Content-Type") != "application/json" || p.body != string(note.body) {
			t.Errorf("attempt %d: %v %s", i, p.header, p.body)
		}
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := newEndpoint(t, status(200))
	for _, code := range []int{301, 302, 303, 307, 308} {
		e := newEndpoint(t, func(_ int, w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, code) })
		c, m := clocktesting.NewFakeClock(opened), metricsOf(t)
		receiver := e.receiver("chat")
		receiver.Roots.AddCert(elsewhere.Certificate())
		deliver(t, newSender(receiver, loopback, c, m), c)
		if len(elsewhere.got()) != 0 || len(e.got()) != 1 || count(m, "chat", EventOpened, refused) != 1 {
			t.Errorf("%d: %d posts elsewhere, %d here", code, len(elsewhere.got()), len(e.got()))
		}
	}
}

func TestAReceiverThatCannotBeTrustedOrReachedGetsNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit  func(*Receiver, *endpoint)
		allow []netip.Prefix
		posts int
		want  outcome
	}{
		"its twin that can":                     {func(*Receiver, *endpoint) {}, loopback, 1, delivered},
		"a certificate that nobody vouches for": {func(r *Receiver, _ *endpoint) { r.Roots = nil }, loopback, 0, failed},
		"an address that is not listed":         {func(*Receiver, *endpoint) {}, nil, 0, failed},
		"nobody listens":                        {func(_ *Receiver, e *endpoint) { e.Close() }, loopback, 0, failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, c, m := newEndpoint(t, status(200)), clocktesting.NewFakeClock(opened), metricsOf(t)
			receiver := e.receiver("chat")
			tc.edit(&receiver, e)
			deliver(t, newSender(receiver, tc.allow, c, m), c)
			if len(e.got()) != tc.posts || count(m, "chat", EventOpened, tc.want) != 1 {
				t.Errorf("%d posts, and not %s", len(e.got()), tc.want)
			}
		})
	}
}

func TestAnAddressThatMayNotBeDialledIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	e, m := newEndpoint(t, status(200)), metricsOf(t)
	c := clocktesting.NewFakeClock(opened)
	newSender(e.receiver("chat"), nil, c, m).deliver(t.Context(), note) // would wait for ever at a pause
	if count(m, "chat", EventOpened, failed) != 1 {
		t.Error("not counted as failed")
	}
}

func TestAnErrorNamesNoURL(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, status(200))
	receiver := e.receiver("chat")
	e.Close()
	a := newSender(receiver, loopback, clocktesting.NewFakeClock(opened), metricsOf(t)).post(t.Context(), note)
	if a.err == nil || strings.Contains(a.err.Error(), "T0K3N") {
		t.Errorf("post = %v", a.err)
	}
	receiver.URL = "https://chat.example.com/\x7f/T0K3N"
	a = newSender(receiver, loopback, clocktesting.NewFakeClock(opened), metricsOf(t)).post(t.Context(), note)
	if a.err == nil || strings.Contains(a.err.Error(), "T0K3N") {
		t.Errorf("post = %v", a.err)
	}
}

// hang answers when its client has gone.
func hang(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func TestASlowReceiverIsGivenUpAfterTheTimeout(t *testing.T) {
	t.Parallel()
	e, c, m := newEndpoint(t, hang), clocktesting.NewFakeClock(opened), metricsOf(t)
	s := newSender(e.receiver("chat"), loopback, c, m)
	if s.client.Timeout != 10*time.Second {
		t.Errorf("an attempt may take %s", s.client.Timeout)
	}
	s.client.Timeout = 50 * time.Millisecond
	deliver(t, s, c)
	if count(m, "chat", EventOpened, failed) != 1 {
		t.Error("not counted as failed")
	}
}

func TestAnAttemptThatTheEndCutsOffIsNotCounted(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n <= maxRetries {
			w.WriteHeader(500)
			return
		}
		hang(n, w, r)
	})
	c, m := clocktesting.NewFakeClock(opened), metricsOf(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	go func() { defer close(done); newSender(e.receiver("chat"), loopback, c, m).deliver(ctx, note) }()
	until(t, "the last attempt", func() bool {
		if c.HasWaiters() {
			c.Step(maxPause)
		}
		return len(e.got()) == maxRetries+1
	})
	stop()
	<-done
	if got := testutil.CollectAndCount(m.notifications); got != 0 {
		t.Errorf("%d counted", got)
	}
}

func TestADeadReceiverHoldsUpNeitherTheCallerNorAnother(t *testing.T) {
	t.Parallel()
	dead, alive := newEndpoint(t, hang), newEndpoint(t, status(200))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	m := metricsOf(t)
	c := clocktesting.NewFakeClock(opened)
	w := &watch{senders: []*sender{newSender(dead.receiver("dead"), loopback, c, m), newSender(alive.receiver("alive"), loopback, c, m)}}
	var workers sync.WaitGroup
	for _, s := range w.senders {
		for _, lane := range s.lanes {
			workers.Go(func() { s.work(ctx, lane) })
		}
	}
	const all = laneCount*laneLength + laneCount + 100
	for i := range all {
		n := note
		n.request.Name = fmt.Sprintf("billing-%d", i)
		w.send(ctx, n, nil)
		if i%laneLength == 0 {
			until(t, "the receiver that is alive", func() bool { return len(alive.got()) == i+1 })
		}
	}
	until(t, "all of the receiver that is alive", func() bool { return count(m, "alive", EventOpened, delivered) == all })
	until(t, "the attempts at the dead receiver", func() bool { return len(dead.got()) == laneCount })
	if got := count(m, "dead", EventOpened, dropped); got < 100 || got > all {
		t.Errorf("%d dropped of %d", got, all)
	}
	if got := count(m, "alive", EventOpened, dropped); got != 0 {
		t.Errorf("%d dropped of the receiver that is alive", got)
	}
	stop()
	workers.Wait()
	if got := count(m, "dead", EventOpened, failed); got != 0 {
		t.Errorf("%d counted as failed that the stop cut off", got)
	}
}

func TestNotificationsOfOneRequestGoOneAfterAnother(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, status(500, 200))
	ctx, stop := context.WithCancel(t.Context())
	m := metricsOf(t)
	c := clocktesting.NewFakeClock(opened)
	s := newSender(e.receiver("chat"), loopback, c, m)
	var workers sync.WaitGroup
	for _, lane := range s.lanes {
		workers.Go(func() { s.work(ctx, lane) })
	}
	defer workers.Wait()
	defer stop()
	first, second := note, note
	second.event, second.body = "Denied", []byte("second")
	s.enqueue(ctx, first)
	s.enqueue(ctx, second)
	until(t, "the pause of the first", c.HasWaiters)
	if got := e.got(); len(got) != 1 {
		t.Fatalf("%d posts while the first is tried again", len(got))
	}
	c.Step(maxPause)
	until(t, "both", func() bool { return count(m, "chat", "Denied", delivered) == 1 })
	if got := e.got(); len(got) != 3 || got[1].body != string(note.body) || got[2].body != "second" {
		t.Errorf("posts are %v", got)
	}
}

func TestRetryAfterIsHonouredWithinBounds(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"7": 7 * time.Second, "0": 0, "86400": maxPause, "99999999999999999999": 0, "-5": 0, "": 0, "soon": 0, "1.5": 0,
		"Mon, 30 Nov 2026 12:00:09 GMT": 9 * time.Second, "Mon, 30 Nov 2026 11:00:00 GMT": 0, "Tue, 01 Dec 2026 12:00:00 GMT": maxPause,
	} {
		if got := judge(503, value, opened).after; got != want {
			t.Errorf("Retry-After: %s is %s, want %s", value, got, want)
		}
	}
	e := newEndpoint(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "25")
		w.WriteHeader(map[bool]int{true: 429, false: 200}[n == 1])
	})
	c, m := clocktesting.NewFakeClock(opened), metricsOf(t)
	s := newSender(e.receiver("chat"), loopback, c, m)
	done := make(chan struct{})
	go func() { defer close(done); s.deliver(t.Context(), note) }()
	until(t, "the pause", c.HasWaiters)
	c.Step(25*time.Second - 1)
	if !c.HasWaiters() {
		t.Error("sent again before the time that the receiver asks for")
	}
	c.Step(1)
	<-done
	if len(e.got()) != 2 || count(m, "chat", EventOpened, delivered) != 1 {
		t.Errorf("%d posts", len(e.got()))
	}
}

func TestPausesGrowWithinTheirBounds(t *testing.T) {
	t.Parallel()
	steps := []time.Duration{2 * time.Second, 8 * time.Second, 30 * time.Second}
	rapid.Check(t, func(t *rapid.T) {
		retry := rapid.IntRange(0, maxRetries-1).Draw(t, "retry")
		jitter := rapid.Float64Range(0, 1).Draw(t, "jitter")
		asked := time.Duration(rapid.Int64Range(0, int64(maxPause)).Draw(t, "asked"))
		got := pause(retry, asked, jitter)
		if low, high := max(asked, steps[retry]/2), max(asked, steps[retry]); got < low || got > high {
			t.Fatalf("pause = %s, want %s to %s", got, low, high)
		}
	})
	if cmp.Compare(pause(0, 0, 0), pause(0, 0, 1)) != -1 {
		t.Error("there is no jitter")
	}
}
