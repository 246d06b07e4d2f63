// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package votingkey

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// entry is the value of a voting key's entry in the Secret; the entry's name is that of the key.
type entry struct {
	Seed      []byte    `json:"seed"`
	NotBefore time.Time `json:"notBefore"`
	UsedFrom  time.Time `json:"usedFrom,omitzero"`
	Replaced  time.Time `json:"replaced,omitzero"`
}

var (
	errNoRoot  = errors.New(`there are voting keys and no entry "root": restore the Secret from a backup`)
	errBadRoot = fmt.Errorf(`the entry "root" is not a seed of %d bytes: restore the Secret from a backup`, ed25519.SeedSize)
)

// parse reads the entries of the Secret. What it cannot read is an error: a key is never guessed, left out or replaced.
func parse(data map[string][]byte) (state, error) {
	var s state
	for name, value := range data {
		if name == vote.RootEntry {
			if len(value) != ed25519.SeedSize {
				return state{}, errBadRoot
			}
			s.root = ed25519.NewKeyFromSeed(value)
			continue
		}
		k, err := parseEntry(name, value)
		if err != nil {
			return state{}, fmt.Errorf("the entry %q cannot be read: %w: restore it from a backup, or remove it, which voids the open votes under that key", name, err)
		}
		s.keys = append(s.keys, k)
	}
	if s.root == nil && len(s.keys) > 0 {
		return state{}, errNoRoot
	}
	s.sort()
	return s, nil
}

func parseEntry(name string, value []byte) (key, error) {
	var e entry
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		return key{}, err
	}
	if len(e.Seed) != ed25519.SeedSize {
		return key{}, fmt.Errorf("its seed has %d bytes, not %d", len(e.Seed), ed25519.SeedSize)
	}
	if e.NotBefore.IsZero() {
		return key{}, errors.New("it has no notBefore")
	}
	k := key{private: ed25519.NewKeyFromSeed(e.Seed), notBefore: e.NotBefore, usedFrom: e.UsedFrom, replaced: e.Replaced}
	if k.id() != name {
		return key{}, errors.New("its name is not that of its key")
	}
	return k, nil
}

// format writes the entries of the Secret as parse reads them.
func format(s state) (map[string][]byte, error) {
	data := map[string][]byte{vote.RootEntry: s.root.Seed()}
	for _, k := range s.keys {
		value, err := json.Marshal(entry{Seed: k.private.Seed(), NotBefore: k.notBefore.UTC(), UsedFrom: k.usedFrom.UTC(), Replaced: k.replaced.UTC()})
		if err != nil {
			return nil, fmt.Errorf("write voting key %s: %w", k.id(), err)
		}
		data[k.id()] = value
	}
	return data, nil
}
