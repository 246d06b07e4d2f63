// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package receipt

import "time"

// uidRetention is how long a request's UID matters: a request lives 24 h at most and is kept 24 h after its end;
// one hour is for clocks that differ.
const uidRetention = 49 * time.Hour

// uidIndex remembers the requests that calls have left for. It is bounded by what people approve in uidRetention.
type uidIndex struct {
	seen  map[string]bool
	order []dispatched // oldest first
}

type dispatched struct {
	uid string
	at  time.Time
}

func newUIDIndex() *uidIndex { return &uidIndex{seen: map[string]bool{}} }

// add remembers uid and forgets what is too old by then.
func (x *uidIndex) add(uid string, at time.Time) {
	for len(x.order) > 0 && at.Sub(x.order[0].at) > uidRetention {
		delete(x.seen, x.order[0].uid)
		x.order = x.order[1:]
	}
	if x.seen[uid] {
		return
	}
	x.seen[uid] = true
	x.order = append(x.order, dispatched{uid: uid, at: at})
}

func (x *uidIndex) has(uid string) bool { return x.seen[uid] }
