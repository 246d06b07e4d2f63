// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package votingkey

import (
	"crypto/ed25519"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/internal/vote"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func private(letter string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(letter, ed25519.SeedSize)))
}

// made is a key whose notBefore is that many minutes after the start.
func made(letter string, minutes int) key {
	return key{private: private(letter), notBefore: start.Add(time.Duration(minutes) * time.Minute)}
}

func (k key) used(minutes int) key {
	k.usedFrom = start.Add(time.Duration(minutes) * time.Minute)
	return k
}

func (k key) replacedAt(minutes int) key {
	k.replaced = start.Add(time.Duration(minutes) * time.Minute)
	return k
}

func TestNext(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * 60 // minutes
	for name, tc := range map[string]struct {
		keys   []key
		rotate bool
		// unpublished are keys that the ConfigMap has not.
		unpublished []string
		minute      int
		want        []key
		// same: nothing is to be written.
		same bool
	}{
		"the first key is made for now":                    {want: []key{made("n", 0)}},
		"a key that is not seen published is not used":     {keys: []key{made("a", 0)}, unpublished: []string{"a"}, minute: 5, want: []key{made("a", 0)}, same: true},
		"the first is used as soon as it is published":     {keys: []key{made("a", 0)}, minute: 5, want: []key{made("a", 0).used(5)}},
		"a key in use stays":                               {keys: []key{made("a", 0).used(0)}, minute: month - 1, want: []key{made("a", 0).used(0)}, same: true},
		"one whose life is over gets a successor":          {keys: []key{made("a", 0).used(0)}, minute: month, want: []key{made("a", 0).used(0), made("n", month+1)}},
		"one gets a successor when it is asked for":        {keys: []key{made("a", 0).used(0)}, rotate: true, minute: 7, want: []key{made("a", 0).used(0), made("n", 8)}},
		"a successor on its way is enough":                 {keys: []key{made("a", 0).used(0), made("b", 8)}, rotate: true, minute: 7, want: []key{made("a", 0).used(0), made("b", 8).used(8)}},
		"a successor is used a minute after it was seen":   {keys: []key{made("a", 0).used(0), made("b", 8)}, minute: 20, want: []key{made("a", 0).used(0), made("b", 8).used(21)}},
		"it is not used without having been seen":          {keys: []key{made("a", 0).used(0), made("b", 8)}, unpublished: []string{"b"}, minute: 500, want: []key{made("a", 0).used(0), made("b", 8)}, same: true},
		"the old one is replaced when the new one signs":   {keys: []key{made("a", 0).used(0), made("b", 8).used(8)}, minute: 8, want: []key{made("a", 0).used(0).replacedAt(8), made("b", 8).used(8)}},
		"and not before":                                   {keys: []key{made("a", 0).used(0), made("b", 8).used(8)}, minute: 7, want: []key{made("a", 0).used(0), made("b", 8).used(8)}, same: true},
		"a replaced one stays while votes under it matter": {keys: []key{made("a", 0).used(0).replacedAt(8), made("b", 8).used(8)}, minute: 8 + 25*60 - 1, want: []key{made("a", 0).used(0).replacedAt(8), made("b", 8).used(8)}, same: true},
		"and goes then":                                    {keys: []key{made("a", 0).used(0).replacedAt(8), made("b", 8).used(8)}, minute: 8 + 25*60, want: []key{made("b", 8).used(8)}},
		"a replaced one never signs again":                 {keys: []key{made("a", 0).used(0).replacedAt(8)}, minute: 9, want: []key{made("a", 0).used(0).replacedAt(8), made("n", 9)}},
		"with none in use one is made for now":             {keys: []key{made("b", 8).used(8)}, minute: 7, want: []key{made("n", 7), made("b", 8).used(8)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := state{root: private("r"), keys: tc.keys, rotate: tc.rotate}
			published, err := before.published()
			if err != nil {
				t.Fatal(err)
			}
			for _, letter := range tc.unpublished {
				delete(published, key{private: private(letter)}.id())
			}
			f := facts{published: published, now: start.Add(time.Duration(tc.minute) * time.Minute), lifetime: month * time.Minute}
			copy(f.freshKey[:], strings.Repeat("n", ed25519.SeedSize))
			after, changed := next(before, f)
			want := slices.SortedFunc(slices.Values(tc.want), older)
			if diff := cmp.Diff(want, after.keys, cmp.AllowUnexported(key{})); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
			if changed == tc.same {
				t.Errorf("changed %t", changed)
			}
			if !after.root.Equal(before.root) {
				t.Error("another root")
			}
		})
	}
}

func TestParseRefusesWhatIsNotAKey(t *testing.T) {
	t.Parallel()
	good := state{root: private("r"), keys: []key{made("a", 0).used(0), made("b", 8)}}
	data, err := format(good)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parse(data); err != nil || !cmp.Equal(good.keys, got.keys, cmp.AllowUnexported(key{})) || !got.root.Equal(good.root) {
		t.Fatalf("the honest twin: %v, %v", got, err)
	}
	id := good.keys[0].id()
	value := string(data[id])
	for name, tc := range map[string]struct {
		entry, value string
		want         string
	}{
		"a short root":        {vote.RootEntry, "short", `the entry "root" is not a seed of 32 bytes`},
		"no JSON":             {id, "x", `the entry "` + id + `" cannot be read`},
		"a member too many":   {id, strings.Replace(value, "{", `{"x":1,`, 1), "unknown field"},
		"a short seed":        {id, strings.Replace(value, `"seed":"YWFh`, `"seed":"`, 1), "its seed has 29 bytes, not 32"},
		"another key's name":  {"0011223344556677", value, "its name is not that of its key"},
		"another seed":        {id, strings.Replace(value, "YWFh", "YWFi", 1), "its name is not that of its key"},
		"no notBefore":        {id, strings.Replace(value, "notBefore", "replaced", 1), "it has no notBefore"},
		"something else here": {"tls.crt", "-----BEGIN", `the entry "tls.crt" cannot be read`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := maps.Clone(data)
			bad[tc.entry] = []byte(tc.value)
			if _, err := parse(bad); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	delete(data, vote.RootEntry)
	if _, err := parse(data); !errors.Is(err, errNoRoot) {
		t.Errorf("keys without a root: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	data, err := format(state{root: private("r"), keys: []key{made("a", 0).used(0)}})
	if err != nil {
		f.Fatal(err)
	}
	for name, value := range data {
		f.Add(name, value)
	}
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		root := private("r").Seed()
		if name == vote.RootEntry {
			root = value
		}
		s, err := parse(map[string][]byte{name: value, vote.RootEntry: root})
		if err != nil {
			return
		}
		written, err := format(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parse(written)
		if err != nil || !again.root.Equal(s.root) || len(again.keys) != len(s.keys) {
			t.Errorf("what was read is not what is written: %v", err)
		}
	})
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }
