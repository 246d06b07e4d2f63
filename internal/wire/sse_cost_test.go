// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// atOnce hands over its parts, each as far as it fits at once, then waits until it may end.
type atOnce struct {
	parts [][]byte
	wait  chan struct{}
}

func (a *atOnce) Read(into []byte) (int, error) {
	if len(a.parts) == 0 {
		<-a.wait
		return 0, io.EOF
	}
	n := copy(into, a.parts[0])
	if a.parts[0] = a.parts[0][n:]; len(a.parts[0]) == 0 {
		a.parts = slices.Delete(a.parts, 0, 1) // and keeps nothing of it
	}
	return n, nil
}

// Of many small blocks that come at once, behind a large one that made room for them, each costs what it is long.
func BenchmarkSmallBlocksBehindALargeOne(b *testing.B) {
	large := []byte("data: " + strings.Repeat("x", 4<<20) + "\n\n")
	small := bytes.Repeat([]byte(":\n"), 1<<20)
	over := make(chan struct{})
	close(over)
	b.SetBytes(int64(len(large) + len(small)))
	for b.Loop() {
		events := wire.NewSplitter(&atOnce{[][]byte{append(bytes.Clone(large), small...)}, over}, 16<<20)
		blocks := 0
		for {
			if _, err := events.Next(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				b.Fatal(err)
			}
			blocks++
		}
		if blocks != 1+1<<20 {
			b.Fatalf("%d blocks", blocks)
		}
	}
}

func TestAStreamThatWaitsKeepsNoRoomOfALargeEvent(t *testing.T) { //nolint:paralleltest // memory is measured
	const streams, size = 8, 4 << 20
	live := func() int64 {
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		return int64(now.HeapAlloc)
	}
	for name, rest := range map[string]string{"nothing behind it": "", "the next one has begun": "data: "} {
		before := live()
		var kept []*wire.Splitter
		wait, ended := make(chan struct{}), make(chan int)
		for range streams {
			source := &atOnce{[][]byte{[]byte("data: " + strings.Repeat("x", size) + "\n\n" + rest)}, wait}
			events := wire.NewSplitter(source, 16<<20)
			if event, err := events.Next(); err != nil || len(event.Data) != size {
				t.Fatalf("%s: %d bytes, %v", name, len(event.Data), err)
			}
			kept = append(kept, events)
			go func() {
				event, _ := events.Next()
				ended <- len(event.Raw)
			}()
		}
		// They wait for the next event: what they keep is what the idle stream of an agent costs.
		for tries := 0; live()-before > streams*256<<10; tries++ {
			if tries == 200 {
				t.Fatalf("%s: %d streams keep %d bytes", name, streams, live()-before)
			}
			runtime.Gosched()
		}
		close(wait)
		for range streams {
			if n := <-ended; n != len(rest) {
				t.Errorf("%s: at the end %d bytes", name, n)
			}
		}
		runtime.KeepAlive(kept)
	}
}
