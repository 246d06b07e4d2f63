// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

const (
	// laneCount is how many notifications a receiver is sent at once; those of one request go one after another.
	laneCount = 4
	// laneLength is how many notifications of a lane wait before more are dropped.
	laneLength = 64
	// sendTimeout bounds one attempt, the answer included.
	sendTimeout = 10 * time.Second
	// maxRetries is how often a notification is sent again before it is given up.
	maxRetries = 3
	// firstPause before the first retry grows by pauseFactor, up to maxPause.
	firstPause  = 2 * time.Second
	pauseFactor = 4
	maxPause    = 30 * time.Second
	// maxAnswer bounds what is read of an answer so that its connection can be used again, in bytes.
	maxAnswer = 4 << 10
)

// sender takes the notifications of one receiver to it. What a receiver does holds up no other and nothing else.
type sender struct {
	receiver Receiver
	client   *http.Client
	clock    clock.Clock
	metrics  *Metrics
	lanes    [laneCount]chan notification
}

func newSender(receiver Receiver, allow []netip.Prefix, c clock.Clock, metrics *Metrics) *sender {
	s := &sender{receiver: receiver, clock: c, metrics: metrics, client: &http.Client{
		Transport:     netguard.Policy{Allow: allow}.Transport(&tls.Config{RootCAs: receiver.Roots}),
		CheckRedirect: netguard.NoRedirect,
		Timeout:       sendTimeout,
	}}
	for i := range s.lanes {
		s.lanes[i] = make(chan notification, laneLength)
	}
	return s
}

// enqueue never waits: what does not fit any more is dropped and counted.
func (s *sender) enqueue(ctx context.Context, n notification) {
	hash := fnv.New32a()
	hash.Write([]byte(n.request.String()))
	select {
	case s.lanes[hash.Sum32()%laneCount] <- n:
	default:
		s.end(ctx, n, dropped, errors.New("too many notifications wait for this receiver"))
	}
}

// work sends what comes along a lane until the context ends.
func (s *sender) work(ctx context.Context, lane <-chan notification) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-lane:
			s.deliver(ctx, n)
		}
	}
}

// deliver sends a notification until the receiver takes it, refuses it, or has failed often enough. What the end of
// the context cuts off is not counted: the next leader sends it again.
func (s *sender) deliver(ctx context.Context, n notification) {
	for retry := range maxRetries + 1 {
		a := s.post(ctx, n)
		if a.outcome == failed && ctx.Err() != nil {
			return
		}
		if !a.again || retry == maxRetries {
			s.end(ctx, n, a.outcome, a.err)
			return
		}
		timer := s.clock.NewTimer(pause(retry, a.after, rand.Float64()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// end counts a notification and logs it by the receiver's name.
func (s *sender) end(ctx context.Context, n notification, how outcome, err error) {
	s.metrics.ended(s.receiver.Name, n.event, how)
	log := ctrl.LoggerFrom(ctx).WithName(s.receiver.Name).WithValues("approval", n.request.String(), "reason", n.event)
	if how == delivered {
		log.V(1).Info("notification delivered")
		return
	}
	log.Error(err, "notification not delivered")
}

// answer is how one attempt went.
type answer struct {
	outcome outcome
	// again: the next attempt may go better.
	again bool
	// after is how long the receiver asks to wait; zero if it does not.
	after time.Duration
	err   error
}

// post makes one attempt, signed with its own time.
func (s *sender) post(ctx context.Context, n notification) answer {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.receiver.URL, bytes.NewReader(n.body))
	if err != nil {
		return answer{outcome: failed, err: withoutURL(err)}
	}
	now := s.clock.Now()
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "tidewaiter")
	request.Header.Set(deliveryHeader, n.id)
	request.Header.Set(signatureHeader, sign(s.receiver.Secrets, n.body, now))
	response, err := netguard.Plain(s.client.Do(request)) //nolint:bodyclose // it is closed below
	if err != nil {
		return answer{outcome: failed, again: !errors.Is(err, netguard.ErrForbidden), err: withoutURL(err)}
	}
	defer func() { _ = response.Body.Close() }() // the status has all that counts
	// Only a body that was read to its end leaves the connection for the next one.
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswer)
	return judge(response.StatusCode, response.Header.Get("Retry-After"), now)
}

// judge reads an answer. A redirect is refused: it would take the notification where nobody has configured it.
func judge(status int, retryAfter string, now time.Time) answer {
	err := fmt.Errorf("the receiver answered with status %d", status)
	switch {
	case status >= 200 && status < 300:
		return answer{outcome: delivered}
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		return answer{outcome: failed, again: true, after: wanted(retryAfter, now), err: err}
	default:
		return answer{outcome: refused, err: err}
	}
}

// wanted reads Retry-After: seconds or a date, at most maxPause; zero for what is neither.
func wanted(retryAfter string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(retryAfter, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxPause)
	}
	if at, err := http.ParseTime(retryAfter); err == nil {
		return min(max(at.Sub(now), 0), maxPause)
	}
	return 0
}

// pause returns how long to wait before a retry, counted from 0: no less than the receiver asks, and otherwise, with
// a jitter from 0 to 1, from half of the step to all of it.
func pause(retry int, asked time.Duration, jitter float64) time.Duration {
	step := firstPause
	for range retry {
		step = min(step*pauseFactor, maxPause)
	}
	return max(asked, step/2+time.Duration(jitter*float64(step/2)))
}

// withoutURL takes the URL out of an error of net/http, since it may hold a token.
func withoutURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}
