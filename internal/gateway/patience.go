// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// patient writes to an agent that may stall for so long: a client that reads nothing must not keep what is read for it.
type patient struct {
	http.ResponseWriter
	conn  http.ResponseController
	stall time.Duration
	// shared tells of a connection with several streams: there a deadline ends also a stream that has nothing to send.
	shared bool
	set    time.Time // when the deadline was set last
	// stalled is told once that the client read nothing for as long.
	stalled func()
}

func newPatient(w http.ResponseWriter, r *http.Request, stall time.Duration) *patient {
	p := &patient{ResponseWriter: w, conn: *http.NewResponseController(w), stall: stall, shared: r.ProtoMajor > 1}
	if !p.shared {
		p.await() // what another request on the connection left behind is over
	}
	return p
}

// end gives the client time for what the server sends once the handler has returned.
func (p *patient) end() { p.await() }

// await gives the client time for the next write. A writer without deadlines has none.
func (p *patient) await() {
	now := time.Now() //nolint:forbidigo // a deadline of the operating system
	if now.Sub(p.set) < p.stall/8 {
		return // near enough
	}
	p.set = now
	p.conn.SetWriteDeadline(now.Add(p.stall)) //nolint:errcheck // see above
}

// done takes the deadline away where it would end more than a write.
func (p *patient) done(err error, since time.Time) {
	if p.shared {
		p.set = time.Time{}
		p.conn.SetWriteDeadline(time.Time{}) //nolint:errcheck // as above
	}
	now := time.Now() //nolint:forbidigo // it was the operating system that waited
	if err != nil && p.stalled != nil && now.Sub(since) >= p.stall/2 {
		p.stalled()
		p.stalled = nil
	}
}

// Unwrap lets an http.ResponseController reach the connection.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// patientChunk is how much a client has to read within its time.
const patientChunk = 64 << 10

// Write sends bytes.
func (p *patient) Write(bytes []byte) (n int, err error) {
	for chunk := range slices.Chunk(bytes, patientChunk) {
		p.await()
		since := p.set
		sent, err := p.ResponseWriter.Write(chunk)
		p.done(err, since)
		n += sent
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// FlushError sends what was kept back. A writer that cannot flush still gets the bytes.
func (p *patient) FlushError() error {
	p.await()
	since := p.set
	err := p.conn.Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	p.done(err, since)
	return err
}

// writeNow writes, and has the client get it at once. A writer that cannot flush still gets the bytes.
func writeNow(w http.ResponseWriter, bytes []byte) error {
	if _, err := w.Write(bytes); err != nil {
		return err
	}
	return flush(w)
}

// flush has the client get at once what was written, if the writer can.
func flush(w http.ResponseWriter) error {
	err := http.NewResponseController(w).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// pulse ends what waits for a server that sends nothing for so long.
type pulse struct {
	timer   *time.Timer
	after   time.Duration
	stopped atomic.Bool
}

// withPulse returns a context that ends when the pulse stops; end frees what it holds.
func withPulse(ctx context.Context, after time.Duration) (_ context.Context, p *pulse, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	p = &pulse{after: after}
	p.timer = time.AfterFunc(after, func() {
		p.stopped.Store(true)
		cancel(context.DeadlineExceeded)
	})
	return ctx, p, func() {
		p.timer.Stop()
		cancel(nil)
	}
}

// of returns a body whose every byte is a sign of life.
func (p *pulse) of(body io.ReadCloser) io.ReadCloser { return beating{body, p} }

type beating struct {
	io.ReadCloser
	pulse *pulse
}

// Read reads from the body.
func (b beating) Read(bytes []byte) (int, error) {
	n, err := b.ReadCloser.Read(bytes)
	if n > 0 {
		b.pulse.timer.Reset(b.pulse.after)
	}
	return n, err
}

// explain returns why the server was given up, if that was for its silence.
func (p *pulse) explain(err error) error {
	if p.stopped.Load() {
		return context.DeadlineExceeded
	}
	return err
}
