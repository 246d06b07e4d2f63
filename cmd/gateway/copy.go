// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// maxCopies is what waits for a reader of standard output, in bytes: about as much as a second of many calls.
	maxCopies = 4 << 20
	// copyWithin is how long what waits may take at the end.
	copyWithin = 2 * time.Second
)

// errNoReader: somebody stopped reading standard output. Lines are missing there from then on; the file has them.
var errNoReader = errors.New("nobody reads standard output, and lines are left out of it")

// copies passes lines on to who may read slowly, or not at all, and never waits: a reader of logs that hangs must not hold
// the calls whose receipts it is sent.
type copies struct {
	to io.Writer

	mu      sync.Mutex // guards the fields below
	waiting [][]byte
	size    int
	running bool
	err     error         // of the last write
	idle    chan struct{} // closed when nothing waits any more; nil while nobody asks
}

// Write takes lines, or says why the last ones did not get there.
func (c *copies) Write(lines []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size+len(lines) > maxCopies {
		return 0, errNoReader
	}
	c.waiting = append(c.waiting, bytes.Clone(lines))
	c.size += len(lines)
	if !c.running {
		c.running = true
		go c.run()
	}
	if c.err != nil {
		return 0, c.err
	}
	return len(lines), nil
}

// run writes what waits, and ends when nothing does.
func (c *copies) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) > 0 {
		batch := bytes.Join(c.waiting, nil)
		c.waiting = nil
		c.mu.Unlock()
		_, err := c.to.Write(batch)
		c.mu.Lock()
		c.size -= len(batch)
		c.err = err
	}
	c.running = false
	if c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// flush waits for what waits, but not for ever.
func (c *copies) flush() {
	c.mu.Lock()
	if !c.running {
		c.mu.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(copyWithin):
	}
}
