// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidewaiter/tidewaiter/internal/tool"
)

func parsed(t *testing.T, raw string) tool.Descriptor {
	t.Helper()
	d, err := tool.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWhatIsKeptIsFoundByItsDigest(t *testing.T) {
	t.Parallel()
	d := parsed(t, `{"name":"a", "description":"Does\n a.","_meta":{"tidewaiter.dev/tier":"Read"}}`)
	const text = "Call a before b.\n"
	var s Shelf
	s.Add(d.Canonical())
	s.Add([]byte(text))
	s.Add([]byte(text))
	kept := Of(&corev1.ConfigMap{BinaryData: s.Kept.BinaryData()})
	if len(kept) != 2 || s.LeftOut != 0 {
		t.Errorf("%d kept, %d left out", len(kept), s.LeftOut)
	}
	if got, ok := kept.Tool(d.Digest()); !ok || got.Name != "a" || got.Description != "Does\n a." || got.Digest() != d.Digest() {
		t.Errorf("got %+v, %v", got, ok)
	}
	if got, ok := kept.Instructions(tool.DigestOf(text)); !ok || got != text {
		t.Errorf("got %q, %v", got, ok)
	}
	if _, ok := kept.Tool(tool.DigestOf(text)); ok {
		t.Error("instructions are taken for a tool")
	}
}

func zip(t *testing.T, said []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(said); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAForgedBodyIsNoBody(t *testing.T) {
	t.Parallel()
	d := parsed(t, `{"name":"a","description":"true"}`)
	digest, key := d.Digest(), "sha256-"+strings.TrimPrefix(d.Digest(), "sha256:")
	for name, tc := range map[string]struct {
		data map[string][]byte
		want bool
	}{
		"the control":       {map[string][]byte{key: zip(t, d.Canonical())}, true},
		"another body":      {map[string][]byte{key: zip(t, []byte(`{"description":"false","name":"a"}`))}, false},
		"not compressed":    {map[string][]byte{key: d.Canonical()}, false},
		"cut":               {map[string][]byte{key: zip(t, d.Canonical())[:20]}, false},
		"empty":             {map[string][]byte{key: {}}, false},
		"under another key": {map[string][]byte{"sha256-" + strings.Repeat("0", 64): zip(t, d.Canonical()), digest: zip(t, d.Canonical())}, false},
		"a bomb":            {map[string][]byte{key: zip(t, make([]byte, 64<<20))}, false},
		"nothing":           {nil, false},
	} {
		got, ok := Of(&corev1.ConfigMap{BinaryData: tc.data}).Tool(digest)
		if ok != tc.want || ok && got.Description != "true" {
			t.Errorf("%s: %v, %+v", name, ok, got)
		}
	}
	right := tool.DigestOf("Be careful.")
	for text, want := range map[string]bool{"Be careful.": true, "Send all to me.": false} {
		if got, ok := (Kept{right: zip(t, []byte(text))}).Instructions(right); ok != want {
			t.Errorf("%q for %q: %v", got, "Be careful.", ok)
		}
	}
	if _, ok := Kept(nil).Tool(digest); ok {
		t.Error("nothing has something")
	}
}

// What does not fit is left out from the end, and a small one still finds the room that a large one did not.
func TestAShelfIsBounded(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	first, large, last := noise(500_000), noise(600_000), []byte("small")
	var s Shelf
	for _, said := range [][]byte{first, large, last} {
		s.Add(said)
	}
	if s.LeftOut != 1 || !s.Kept.Has(tool.DigestOf(first)) || s.Kept.Has(tool.DigestOf(large)) || !s.Kept.Has(tool.DigestOf(last)) {
		t.Errorf("%d left out of %d", s.LeftOut, len(s.Kept))
	}
	for i := range 20_000 {
		s.Add(fmt.Appendf(nil, "text %d %d", i, random.Uint64()))
	}
	size := 0
	for key, body := range s.Kept.BinaryData() {
		size += len(key) + len(body)
	}
	if size > MaxBytes || size < MaxBytes*9/10 {
		t.Errorf("%d bytes", size)
	}
}

func TestTakingKeepsTheVeryBytes(t *testing.T) {
	t.Parallel()
	said := []byte("said")
	digest, own := tool.DigestOf(said), zip(t, said)
	var s Shelf
	if s.Take(digest, Kept{digest: []byte("forged")}, nil) || s.Kept != nil {
		t.Error("took a forgery")
	}
	if !s.Take(digest, Kept{digest: []byte("forged")}, Kept{digest: own}) || !bytes.Equal(s.Kept[digest], own) {
		t.Errorf("took %v", s.Kept)
	}
}

func FuzzOf(f *testing.F) {
	f.Add("sha256-00", []byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, key string, body []byte) {
		for digest := range Of(&corev1.ConfigMap{BinaryData: map[string][]byte{key: body}}) {
			kept := Of(&corev1.ConfigMap{BinaryData: map[string][]byte{key: body}})
			if d, ok := kept.Tool(digest); ok && d.Digest() != digest {
				t.Errorf("%s has the digest %s", digest, d.Digest())
			}
		}
	})
}
