// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"io"
)

// weight is of which messages the bytes are counted.
type weight int

const (
	// ofAll: everything that arrives or is under way.
	ofAll weight = iota
	// ofEffects: calls with effects. What is made of such a message takes several times its size.
	ofEffects
	weighed
)

const (
	maxUnderWay = 128 << 20
	maxHeld     = 64 << 20
)

// maxWeight bounds the bytes of the messages of all callers; one caller has half of it.
var maxWeight = [weighed]int64{ofAll: maxUnderWay, ofEffects: maxHeld}

// holding are bytes of a caller that are counted until they are free.
type holding struct {
	callers *callers
	load    *load
	weight  weight
	size    int64
	refused string // the code by which more was refused
}

// holding begins to count bytes for a caller, of whom something is under way.
func (c *callers) holding(name string, w weight) holding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return holding{callers: c, load: c.of(name), weight: w}
}

// grow counts more bytes, if so many may be held: a single message may be as large as all. It tells whether they may.
func (h *holding) grow(n int64) bool {
	c, most := h.callers, maxWeight[h.weight]
	c.mu.Lock()
	defer c.mu.Unlock()
	switch own := h.load.held[h.weight]; {
	case own > h.size && own+n > most/2:
		h.refused = codeTooManyCalls
		return false
	case c.held[h.weight]+n > most:
		h.refused = codeBusy
		return false
	}
	h.count(n)
	return true
}

// free gives them all back.
func (h *holding) free() {
	h.callers.mu.Lock()
	defer h.callers.mu.Unlock()
	h.count(-h.size)
}

// count changes what is counted; who calls it holds mu.
func (h *holding) count(n int64) {
	h.size += n
	h.load.held[h.weight] += n
	h.callers.held[h.weight] += n
}

// holds is how many bytes are held.
func (c *callers) holds(w weight) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[w]
}

// errNoRoom: what is read would take more memory than there is for its caller, or for all.
var errNoRoom = errors.New("no room for more bytes")

// counted is a body whose bytes are counted as they come.
type counted struct {
	io.ReadCloser
	holding
}

// Read reads from the body.
func (c *counted) Read(bytes []byte) (int, error) {
	n, err := c.ReadCloser.Read(bytes)
	if n > 0 && !c.grow(int64(n)) {
		return 0, errNoRoom
	}
	return n, err
}
