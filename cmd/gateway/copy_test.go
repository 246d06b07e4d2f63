// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// Nobody reads the standard output of a gateway: receipts are on record all the same, the gateway says so of itself, and
// when somebody reads again, lines arrive whole and in their order.
func TestAStandardOutputThatNobodyReadsHoldsNoCall(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	lines := &copies{to: write}
	writer, err := receipt.Open(receipt.Options{Path: filepath.Join(t.TempDir(), "r.jsonl"), Gateway: "gw", Mirror: lines, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for !errors.Is(writer.Healthy(), errNoReader) {
			for i := range 512 {
				durability := receipt.Batched
				if i == 511 {
					durability = receipt.Sync
				}
				if _, err := writer.Append(receipt.Receipt{Kind: receipt.KindDecision, Reason: strings.Repeat("x", 400)}, durability); err != nil {
					done <- err
					return
				}
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("receipts wait for whoever reads standard output, or the gateway does not say that nobody does")
	}
	go func() {
		lines.flush()
		write.Close()
	}()
	before := -1
	for scan := bufio.NewScanner(read); scan.Scan(); {
		line := scan.Text()
		var seq int
		if _, err := fmt.Sscanf(line[strings.Index(line, `"seq":`):], `"seq":%d`, &seq); err != nil || !strings.HasSuffix(line, "}") || seq <= before {
			t.Fatalf("%d after %d, %v: %.100s", seq, before, err, line)
		}
		before = seq
	}
	if before < 0 {
		t.Error("nothing arrived")
	}
	if _, err := lines.Write([]byte("x")); err != nil { // what became of it shows at the next
		t.Errorf("there is room again: %v", err)
	}
	lines.flush()
	if _, err := lines.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a standard output that is closed: %v", err)
	}
	if err := writer.Close(); err != nil {
		t.Error(err)
	}
}
