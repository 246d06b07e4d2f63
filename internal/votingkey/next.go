// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package votingkey

import (
	"cmp"
	"crypto/ed25519"
	"slices"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/vote"
)

const (
	// lead is how long a key is published before it is used: every gateway has seen it by then.
	lead = time.Minute
	// afterlife is how long a key stays published after another has replaced it: a request lives for 24 hours at most,
	// and clocks differ.
	afterlife = 25 * time.Hour
)

// seed is what an Ed25519 key is made of.
type seed = [ed25519.SeedSize]byte

// key is a voting key. Its life:
//
//	made ──▶ published ──▶ seen published ──▶ used ──▶ replaced ──▶ removed
//	         (ConfigMap)   (usedFrom)                  (replaced)
//
// A key that nobody has seen published has no usedFrom, and is never used.
type key struct {
	private ed25519.PrivateKey
	// notBefore is signed with the key: no vote under it is older.
	notBefore time.Time
	// usedFrom is when it begins to sign votes.
	usedFrom time.Time
	// replaced is when another was first seen to sign in its place; from then on it never signs again.
	replaced time.Time
}

func (k key) public() ed25519.PublicKey { return k.private.Public().(ed25519.PublicKey) }

func (k key) id() string { return vote.KeyID(k.public()) }

// signs tells whether votes may be signed with the key now.
func (k key) signs(now time.Time) bool {
	return k.replaced.IsZero() && !k.usedFrom.IsZero() && !k.usedFrom.After(now) && !k.notBefore.After(now)
}

// state is what the Secret says.
type state struct {
	// root is nil before anything was made.
	root ed25519.PrivateKey
	// keys are sorted from the oldest to the newest.
	keys []key
	// rotate tells that somebody asks for a new key.
	rotate bool
}

// current returns the newest key that signs now.
func (s state) current(now time.Time) (key, bool) {
	for _, k := range slices.Backward(s.keys) {
		if k.signs(now) {
			return k, true
		}
	}
	return key{}, false
}

// published returns the entries of the ConfigMap: they follow from the Secret, and from nothing else.
func (s state) published() (map[string]string, error) {
	data := map[string]string{vote.RootEntry: vote.FormatRoot(s.root.Public().(ed25519.PublicKey))}
	for _, k := range s.keys {
		id, value, err := vote.Publish(s.root, vote.Published{Public: k.public(), NotBefore: k.notBefore})
		if err != nil {
			return nil, err
		}
		data[id] = value
	}
	return data, nil
}

// facts are what next goes by, beside the state.
type facts struct {
	// published are the entries of the ConfigMap. They were read before the state and before now.
	published map[string]string
	now       time.Time
	lifetime  time.Duration
	// freshRoot and freshKey are random; they are used if a key is to be made.
	freshRoot, freshKey seed
}

// next returns the state that the Secret should have, and whether it differs. The keys that the ConfigMap has as the
// state says are seen published by this.
func next(s state, f facts) (after state, changed bool) {
	after = state{root: s.root, keys: slices.Clone(s.keys)}
	changed = s.rotate
	if after.root == nil {
		after.root, changed = ed25519.NewKeyFromSeed(f.freshRoot[:]), true
	}
	changed = after.see(f) || changed
	changed = after.retire(f.now) || changed
	if notBefore, due := after.due(f, s.rotate); due {
		after.keys = append(after.keys, key{private: ed25519.NewKeyFromSeed(f.freshKey[:]), notBefore: notBefore.Truncate(time.Second)})
		changed = true
	}
	after.sort()
	return after, changed
}

// see notes when the keys that are seen published will sign: after the lead, or at once if nothing else does.
func (s *state) see(f facts) (changed bool) {
	from := f.now
	if _, inUse := s.current(f.now); inUse {
		from = from.Add(lead)
	}
	for i, k := range s.keys {
		if _, seen := f.published[k.id()]; seen && k.usedFrom.IsZero() {
			s.keys[i].usedFrom, changed = latest(from, k.notBefore), true
		}
	}
	return changed
}

// retire notes which keys another has replaced, and removes those that no open vote can be signed with.
func (s *state) retire(now time.Time) (changed bool) {
	if current, inUse := s.current(now); inUse {
		for i, k := range s.keys {
			if k.replaced.IsZero() && !k.usedFrom.IsZero() && older(k, current) < 0 {
				s.keys[i].replaced, changed = now, true
			}
		}
	}
	before := len(s.keys)
	s.keys = slices.DeleteFunc(s.keys, func(k key) bool {
		return !k.replaced.IsZero() && !k.replaced.Add(afterlife).After(now)
	})
	return changed || len(s.keys) < before
}

// due tells whether a key is to be made, and its notBefore.
func (s *state) due(f facts, asked bool) (notBefore time.Time, due bool) {
	current, inUse := s.current(f.now)
	if !inUse {
		// One that was just made, and is on its way into the ConfigMap, will do.
		coming := slices.ContainsFunc(s.keys, func(k key) bool {
			return k.replaced.IsZero() && k.usedFrom.IsZero() && !k.notBefore.After(f.now)
		})
		return f.now, !coming
	}
	coming := slices.ContainsFunc(s.keys, func(k key) bool { return older(current, k) < 0 })
	old := !current.usedFrom.Add(f.lifetime).After(f.now)
	return f.now.Add(lead), !coming && (asked || old)
}

func (s *state) sort() { slices.SortFunc(s.keys, older) }

// older compares keys from the oldest to the newest.
func older(a, b key) int {
	return cmp.Or(a.notBefore.Compare(b.notBefore), cmp.Compare(a.id(), b.id()))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
