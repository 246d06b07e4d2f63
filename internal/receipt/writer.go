// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/failpoint"
)

// Durability says when Append returns.
type Durability int

const (
	// Sync returns when the receipt is on disk: for everything that precedes an effect. Calls at the same time share
	// one fsync.
	Sync Durability = iota
	// Batched returns at once; the receipt is on disk within flushDelay, or sooner when many wait. It takes its place
	// in the chain then, so the returned receipt has no Seq and no hashes.
	Batched
)

const (
	// flushDelay is the longest that a batched receipt waits.
	flushDelay = 100 * time.Millisecond
	// flushAt is how many waiting receipts do not wait any longer.
	flushAt = 512
	// maxWaiting bounds the receipts that wait for a slow disk.
	maxWaiting = 4096
	// retryDelay is the time between two attempts to write again after a failure.
	retryDelay = time.Second
)

var (
	// ErrFull says that the disk is slower than the calls: refuse the call.
	ErrFull = errors.New("too many receipts wait for the disk")
	// ErrNotWritten says that receipts cannot be written for now: refuse the call. It mends by itself when the disk does.
	ErrNotWritten = errors.New("receipts cannot be written")
	// ErrClosed says that the writer was closed: refuse the call.
	ErrClosed = errors.New("receipts are closed")
)

// Options of a writer.
type Options struct {
	// Path of the file. One gateway owns it; a second one is refused.
	Path string
	// Gateway is the name that stands in every line. A file keeps the gateway it was begun with.
	Gateway string
	// Mirror gets a copy of every line once it is on disk, in order; nil for none. It must not block for long. Its
	// errors fail no call, since the file is the record, but Healthy tells of them.
	Mirror io.Writer
	// Now is the clock of the receipts.
	Now func() time.Time
}

// Writer appends receipts to the chain of one gateway. All methods may be called at the same time.
//
//	Append ──▶ waiting ──(one at a time: commit)──▶ chained ▶ written ▶ fsync ▶ mirror
//	              ▲                  │ error: Sync receipts fail their callers and leave no line,
//	              └── batched ones ──┘ batched ones stay; all is refused until a later attempt succeeds
type Writer struct {
	options Options

	queue   sync.Mutex // guards the fields of this group; never held during I/O
	waiting []*entry
	timer   *time.Timer // runs flush; nil when nothing needs it
	failure error       // why the last attempt to write failed; nil when it did not
	failed  time.Time
	refused int
	closed  bool

	disk        sync.Mutex // held for one commit; taken before queue
	file        *os.File
	size        int64 // of what is known to be on disk
	dirty       bool  // bytes beyond size may be in the file
	chain       string
	last        link
	executed    *uidIndex
	fates       *fates
	mirrorError error
	text        []byte // of the last commit, for the next one's
}

// entry is one receipt on its way to the disk. Its receipt and error are settled under Writer.disk.
type entry struct {
	receipt    Receipt
	durability Durability
	err        error
}

// Append puts a receipt on record and returns it as it was recorded. On an error the call that it speaks of must be
// refused; the receipt then stands nowhere, unless the error is the disk's own and the process ends before the next
// attempt.
func (w *Writer) Append(r Receipt, d Durability) (Receipt, error) {
	r.clip()
	e := &entry{receipt: r, durability: d}
	stamped, err := w.enqueue(e)
	if err != nil {
		return Receipt{}, err
	}
	if d == Batched {
		return stamped, nil
	}
	w.flush()
	if e.err != nil {
		return Receipt{}, e.err
	}
	return e.receipt, nil
}

// enqueue returns the receipt as it waits; from then on the entry belongs to whoever commits it.
func (w *Writer) enqueue(e *entry) (Receipt, error) {
	w.queue.Lock()
	defer w.queue.Unlock()
	switch {
	case w.closed:
		return Receipt{}, ErrClosed
	case w.failure != nil:
		w.refused++
		return Receipt{}, fmt.Errorf("%w: %w", ErrNotWritten, w.failure)
	case e.durability == Batched && len(w.waiting) >= maxWaiting:
		return Receipt{}, ErrFull
	}
	e.receipt.Time = w.options.Now().UTC()
	e.receipt.Gateway, e.receipt.Chain = w.options.Gateway, w.chain
	w.waiting = append(w.waiting, e)
	if e.durability == Batched {
		w.schedule(flushDelay)
		if len(w.waiting) == flushAt {
			w.timer.Reset(0)
		}
	}
	return e.receipt, nil
}

// schedule has flush run after delay, if it is not going to run anyway. The caller holds queue.
func (w *Writer) schedule(delay time.Duration) {
	if w.timer == nil {
		w.timer = time.AfterFunc(delay, w.flush)
	}
}

// flush writes what waits. On return everything that waited before has its answer, by this or by another flush.
func (w *Writer) flush() {
	w.disk.Lock()
	defer w.disk.Unlock()

	w.queue.Lock()
	batch, failure, failed, refused := w.waiting, w.failure, w.failed, w.refused
	w.waiting = nil
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	w.queue.Unlock()

	if len(batch) == 0 && failure == nil {
		return
	}
	if failure != nil {
		batch = slices.Insert(batch, 0, w.note(Receipt{Kind: KindRecovered, Reason: fmt.Sprintf(
			"receipts could not be written since %s, %d more calls were refused: %v", failed.Format(time.RFC3339), refused, failure)}))
	}
	err := w.commit(batch)

	w.queue.Lock()
	defer w.queue.Unlock()
	if err == nil {
		w.failure, w.refused = nil, 0
		return
	}
	if failure == nil {
		w.failed = w.options.Now().UTC()
	}
	w.failure = err
	var keep []*entry
	for _, e := range batch {
		if e.durability == Batched {
			keep = append(keep, e)
		}
		e.err = fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	w.waiting = append(keep, w.waiting...)
	if !w.closed {
		w.schedule(retryDelay)
	}
}

// note makes an entry of the writer's own, which nobody waits for.
func (w *Writer) note(r Receipt) *entry {
	r.Time, r.Gateway, r.Chain = w.options.Now().UTC(), w.options.Gateway, w.chain
	r.clip()
	return &entry{receipt: r}
}

// commit chains the batch to what is on disk, writes it with one write and one fsync, and only then moves on; after
// an error the next commit begins at the same place. The caller holds disk.
func (w *Writer) commit(batch []*entry) error {
	err := w.checkFile()
	if err != nil {
		return err
	}
	text := w.text[:0]
	ends := make([]int, 0, len(batch))
	last := w.last
	for _, e := range batch {
		if text, err = e.receipt.chainTo(last, text); err != nil {
			return err
		}
		ends = append(ends, len(text))
		last = link{seq: e.receipt.Seq, hash: e.receipt.Hash}
	}
	w.text, w.dirty = text, true
	if _, err = w.file.Write(text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err = failpoint.Sync(w.file); err != nil {
		return fmt.Errorf("fsync: %w", err)
	}
	w.dirty = false
	w.last, w.size = last, w.size+int64(len(text))
	start := 0
	for i, e := range batch {
		if e.receipt.dispatches() {
			w.executed.add(e.receipt.RequestUID, e.receipt.Time)
		}
		w.fates.note(&e.receipt)
		w.copyLine(text[start:ends[i]])
		start = ends[i]
	}
	return nil
}

var (
	errMoved   = errors.New("the file was moved or deleted: put it back, or restart the gateway to begin a new chain")
	errChanged = errors.New("someone else wrote to the file: restart the gateway, which checks the chain")
)

// checkFile makes sure that what is written now stands where the next start will look for it, after what is on disk.
func (w *Writer) checkFile() error {
	open, err := w.file.Stat()
	if err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	named, err := os.Stat(w.options.Path)
	if err != nil || !os.SameFile(open, named) {
		return errMoved
	}
	if open.Size() == w.size {
		return nil
	}
	if !w.dirty || open.Size() < w.size {
		return errChanged
	}
	if err := w.file.Truncate(w.size); err != nil {
		return fmt.Errorf("take back half a line: %w", err)
	}
	return nil
}

func (w *Writer) copyLine(line []byte) {
	if w.options.Mirror == nil {
		return
	}
	_, w.mirrorError = w.options.Mirror.Write(line)
}

// Healthy returns nil if receipts can be written, else why not. It waits for a write that is under way.
func (w *Writer) Healthy() error {
	w.queue.Lock()
	failure, closed := w.failure, w.closed
	w.queue.Unlock()
	if closed {
		return ErrClosed
	}
	if failure != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, failure)
	}
	w.disk.Lock()
	defer w.disk.Unlock()
	if w.mirrorError != nil {
		return fmt.Errorf("copy receipts: %w", w.mirrorError)
	}
	return nil
}

// Executed tells whether a call has left, or may have, on the strength of the request with this UID, as far as the
// receipts of this gateway say. It remembers for uidRetention.
func (w *Writer) Executed(requestUID string) bool {
	w.disk.Lock()
	defer w.disk.Unlock()
	return w.executed.has(requestUID)
}

// Unclear tells whether the same action left without a request before and nobody knows whether it took effect, as far
// as the receipts of this gateway say; a call that a person approved settles it. It remembers for uidRetention.
func (w *Writer) Unclear(actionHash string) bool {
	w.disk.Lock()
	defer w.disk.Unlock()
	_, found := w.fates.unclear[actionHash]
	return found
}

// Close writes what waits and gives the file free. Later calls of Append are refused.
func (w *Writer) Close() error {
	w.queue.Lock()
	if w.closed {
		w.queue.Unlock()
		return nil
	}
	w.closed = true
	w.queue.Unlock()
	w.flush()

	w.queue.Lock()
	failure := w.failure
	if w.timer != nil {
		w.timer.Stop()
	}
	w.queue.Unlock()
	w.disk.Lock()
	defer w.disk.Unlock()
	return errors.Join(failure, w.file.Close())
}
