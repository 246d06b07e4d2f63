// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var day = time.Date(2030, 4, 1, 9, 30, 0, 0, time.UTC)

func options(t testing.TB) Options {
	t.Helper()
	return Options{Path: filepath.Join(t.TempDir(), "receipts.jsonl"), Gateway: "harbour/gateway-0", Now: func() time.Time { return day }}
}

func open(t testing.TB, o Options) *Writer {
	t.Helper()
	w, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() }) // a test that needs its error closes by itself
	return w
}

func appendAll(t testing.TB, w *Writer, d Durability, receipts ...Receipt) {
	t.Helper()
	for _, r := range receipts {
		if _, err := w.Append(r, d); err != nil {
			t.Fatal(err)
		}
	}
}

func closeWriter(t testing.TB, w *Writer) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// read returns the receipts of a file that must be whole.
func read(t testing.TB, path string) []Receipt {
	t.Helper()
	text := readFile(t, path)
	report, err := Verify(bytes.NewReader(text))
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("chain is damaged: %v %v", report.Problems, err)
	}
	var all []Receipt
	for line := range bytes.Lines(text) {
		var r Receipt
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func kinds(receipts []Receipt) []string {
	var all []string
	for _, r := range receipts {
		all = append(all, strings.TrimSpace(string(r.Kind)+" "+r.CallID))
	}
	return all
}

func decision(id string) Receipt {
	return Receipt{
		Kind: KindDecision, CallID: id, Namespace: "harbour", Server: "cranes", Tool: "lift_box", Tier: "Reversible",
		Verdict: VerdictAllow, Request: "cranes-1", RequestUID: "uid-" + id, Requester: "crew",
	}
}

func TestAppendRecordsInOrder(t *testing.T) {
	t.Parallel()
	o := options(t)
	var mirror bytes.Buffer
	o.Mirror = &mirror
	w := open(t, o)
	got, err := w.Append(decision("a"), Sync)
	if err != nil {
		t.Fatal(err)
	}
	onDisk := read(t, o.Path)
	if diff := cmp.Diff(onDisk[1], got); diff != "" {
		t.Errorf("returned receipt is not the one on disk (-disk +returned):\n%s", diff)
	}
	want := decision("a")
	want.Schema, want.Seq, want.Gateway, want.Time = Schema, 2, o.Gateway, day
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Receipt{}, "PrevHash", "Hash", "Chain")); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}

	// What is batched before a Sync stands before it, and is on disk with it.
	appendAll(t, w, Batched, Receipt{Kind: KindDecision, CallID: "b"}, Receipt{Kind: KindDecision, CallID: "c"})
	appendAll(t, w, Sync, Receipt{Kind: KindOutcome, CallID: "a", Outcome: "Succeeded", Duration: time.Second})
	wantKinds := []string{"Opened", "Decision a", "Decision b", "Decision c", "Outcome a"}
	if diff := cmp.Diff(wantKinds, kinds(read(t, o.Path))); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(string(readFile(t, o.Path)), mirror.String()); diff != "" {
		t.Errorf("mirror is not the file (-file +mirror):\n%s", diff)
	}
	info, err := os.Stat(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode().Perm())
	}
}

func TestBatchedIsFlushedAfterTheDelay(t *testing.T) {
	t.Parallel()
	o := options(t)
	synctest.Test(t, func(t *testing.T) {
		w := open(t, o)
		appendAll(t, w, Batched, Receipt{Kind: KindDecision, CallID: "r"})
		if n := len(read(t, o.Path)); n != 1 {
			t.Fatalf("%d lines before the delay, want 1: it was not batched", n)
		}
		<-time.After(flushDelay) // by the clock of the bubble
		synctest.Wait()
		if diff := cmp.Diff([]string{"Opened", "Decision r"}, kinds(read(t, o.Path))); diff != "" {
			t.Errorf("after the delay (-want +got):\n%s", diff)
		}
		closeWriter(t, w)
	})
}

func TestBatchedDoesNotWaitWhenMany(t *testing.T) {
	t.Parallel()
	o := options(t)
	synctest.Test(t, func(t *testing.T) {
		w := open(t, o)
		for range flushAt {
			appendAll(t, w, Batched, Receipt{Kind: KindDecision})
		}
		synctest.Wait()
		if n := len(read(t, o.Path)); n != flushAt+1 {
			t.Errorf("%d lines without any time passing, want %d", n, flushAt+1)
		}
		closeWriter(t, w)
	})
}

func TestFullBufferRefusesReadsOnly(t *testing.T) {
	t.Parallel()
	o := options(t)
	w := open(t, o)
	w.disk.Lock() // the disk hangs
	for range maxWaiting {
		appendAll(t, w, Batched, Receipt{Kind: KindDecision})
	}
	_, err := w.Append(Receipt{Kind: KindDecision}, Batched)
	if !errors.Is(err, ErrFull) {
		t.Errorf("batched on a full buffer: %v, want ErrFull", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.Append(decision("a"), Sync)
		done <- err
	}()
	w.disk.Unlock() // the disk is back
	if err := <-done; err != nil {
		t.Errorf("sync on a full buffer: %v, want it to wait for the disk", err)
	}
	appendAll(t, w, Batched, Receipt{Kind: KindDecision})
	closeWriter(t, w)
	if n := len(read(t, o.Path)); n != maxWaiting+3 {
		t.Errorf("%d lines, want %d", n, maxWaiting+3)
	}
}

func TestConcurrentAppendsShareOneChain(t *testing.T) {
	t.Parallel()
	o := options(t)
	w := open(t, o)
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for j := range 25 {
				r := decision(fmt.Sprintf("%d-%d", i, j))
				d := Durability((i + j) % 2)
				got, err := w.Append(r, d)
				if err != nil {
					t.Error(err)
				}
				if d == Sync && !bytes.Contains(readFile(t, o.Path), []byte(got.Hash)) {
					t.Error("Sync returned before the line was in the file")
				}
			}
		})
	}
	group.Wait()
	closeWriter(t, w)
	if n := len(read(t, o.Path)); n != 16*25+1 {
		t.Errorf("%d lines, want %d", n, 16*25+1)
	}
}

func TestWritersKeepOutOfEachOthersFile(t *testing.T) {
	t.Parallel()
	o := options(t)
	w := open(t, o)
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "file of its own") {
		t.Errorf("second writer: %v, want a refusal that says what to do", err)
	}
	closeWriter(t, w)
	open(t, o) // control: the file is free again
	other := o
	other.Gateway = "harbour/gateway-1"
	other.Path = filepath.Join(t.TempDir(), "copy.jsonl")
	if err := os.WriteFile(other.Path, readFile(t, o.Path), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(other); err == nil || !strings.Contains(err.Error(), "file of its own") {
		t.Errorf("another gateway's file: %v, want a refusal that says what to do", err)
	}
}

func TestClosedRefuses(t *testing.T) {
	t.Parallel()
	w := open(t, options(t))
	if err := w.Healthy(); err != nil {
		t.Errorf("open writer: %v, want healthy", err)
	}
	closeWriter(t, w)
	closeWriter(t, w)
	if _, err := w.Append(decision("a"), Sync); !errors.Is(err, ErrClosed) {
		t.Errorf("append: %v, want ErrClosed", err)
	}
	if err := w.Healthy(); !errors.Is(err, ErrClosed) {
		t.Errorf("healthy: %v, want ErrClosed", err)
	}
}

// A file that is gone, for which every write still succeeds, is the failure that is easiest to miss.
func TestFailureRefusesAllUntilItIsMended(t *testing.T) {
	t.Parallel()
	o := options(t)
	synctest.Test(t, func(t *testing.T) {
		w := open(t, o)
		appendAll(t, w, Sync, decision("before"))
		appendAll(t, w, Batched, Receipt{Kind: KindDecision, CallID: "read"})
		if err := os.Rename(o.Path, o.Path+".away"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Append(decision("lost"), Sync); !errors.Is(err, ErrNotWritten) {
			t.Fatalf("sync: %v, want ErrNotWritten", err)
		}
		if _, err := w.Append(Receipt{Kind: KindDecision, CallID: "lost read"}, Batched); !errors.Is(err, ErrNotWritten) {
			t.Errorf("batched: %v, want ErrNotWritten", err)
		}
		if err := w.Healthy(); !errors.Is(err, ErrNotWritten) {
			t.Errorf("healthy: %v, want ErrNotWritten", err)
		}
		if w.Executed("uid-lost") {
			t.Error("a call that was refused counts as executed")
		}
		<-time.After(3 * retryDelay) // still broken
		if err := w.Healthy(); err == nil {
			t.Error("healthy though nothing was mended")
		}
		if err := os.Rename(o.Path+".away", o.Path); err != nil {
			t.Fatal(err)
		}
		<-time.After(retryDelay)
		synctest.Wait()
		if err := w.Healthy(); err != nil {
			t.Errorf("after it was mended: %v", err)
		}
		appendAll(t, w, Sync, decision("after"))
		all := read(t, o.Path)
		want := []string{"Opened", "Decision before", "Recovered", "Decision read", "Decision after"}
		if diff := cmp.Diff(want, kinds(all)); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
		if reason := all[2].Reason; !strings.Contains(reason, "1 more calls were refused") {
			t.Errorf("recovered: %q, want the number of refused calls", reason)
		}
		closeWriter(t, w)
	})
}

func TestForeignWriteIsNoticed(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"appended": func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("{}\n")
			return errors.Join(err, f.Close())
		},
		"cut": func(path string) error { return os.Truncate(path, 10) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			w := open(t, o)
			appendAll(t, w, Sync, decision("a"))
			if err := damage(o.Path); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Append(decision("b"), Sync); !errors.Is(err, errChanged) {
				t.Errorf("append: %v, want errChanged", err)
			}
		})
	}
}

type brokenPipe struct{ err error }

func (p *brokenPipe) Write(b []byte) (int, error) { return len(b), p.err }

func TestMirrorFailureShowsInHealthOnly(t *testing.T) {
	t.Parallel()
	o := options(t)
	pipe := &brokenPipe{err: errors.New("broken pipe")}
	o.Mirror = pipe
	w := open(t, o)
	appendAll(t, w, Sync, decision("a"))
	if err := w.Healthy(); !errors.Is(err, pipe.err) {
		t.Errorf("healthy: %v, want the mirror's error", err)
	}
	pipe.err = nil
	appendAll(t, w, Sync, decision("b"))
	if err := w.Healthy(); err != nil {
		t.Errorf("healthy: %v, want nil once the mirror is back", err)
	}
}

func BenchmarkAppend(b *testing.B) {
	for name, d := range map[string]Durability{"Sync": Sync, "Batched": Batched} {
		b.Run(name, func(b *testing.B) {
			w := open(b, options(b))
			b.ReportAllocs()
			for b.Loop() {
				appendOrWait(b, w, d)
			}
		})
		b.Run(name+"Parallel", func(b *testing.B) {
			w := open(b, options(b))
			b.SetParallelism(16)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					appendOrWait(b, w, d)
				}
			})
		})
	}
}

// appendOrWait counts a receipt only once it was taken, so that a full buffer does not look fast.
func appendOrWait(b *testing.B, w *Writer, d Durability) {
	_, err := w.Append(decision("a"), d)
	if errors.Is(err, ErrFull) {
		_, err = w.Append(decision("a"), Sync)
	}
	if err != nil {
		b.Error(err)
	}
}
