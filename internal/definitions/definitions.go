// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package definitions keeps what servers say of their tools, and their instructions, in ConfigMaps: to show what has
// changed, and to check expressions against schemas. Everything is found by its digest, and counts only if it has that
// digest: who writes a ConfigMap can take definitions away, and forge none. Nothing that is decided rests on it.
package definitions

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

const (
	// MaxBytes is how much a ConfigMap keeps, keys and compressed definitions together.
	MaxBytes = 900_000
	// maxOne is how long one definition may be, in bytes: what discovery takes, and some for another spelling.
	maxOne = 2 << 20
)

// ConfigMapName is the name of the ConfigMap for the server of a name, which has at most 63 characters.
func ConfigMapName(server string) string { return "tidewaiter-definitions-" + server }

// Kept are compressed definitions and instructions by their digests. A nil one is empty.
type Kept map[string][]byte

// Read returns what is kept for a server; where there is no ConfigMap, nothing.
func Read(ctx context.Context, reader client.Reader, server *v1alpha1.GovernedServer) (Kept, error) {
	var object corev1.ConfigMap
	key := types.NamespacedName{Namespace: server.Namespace, Name: ConfigMapName(server.Name)}
	if err := reader.Get(ctx, key, &object); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", key.Name, err)
	}
	return Of(&object), nil
}

// Of returns what a ConfigMap keeps.
func Of(object *corev1.ConfigMap) Kept {
	kept := Kept{}
	for key, body := range object.BinaryData {
		if hash, ok := strings.CutPrefix(key, "sha256-"); ok {
			kept["sha256:"+hash] = body
		}
	}
	return kept
}

// BinaryData is what a ConfigMap holds to keep them.
func (k Kept) BinaryData() map[string][]byte {
	data := make(map[string][]byte, len(k))
	for digest, body := range k {
		data[strings.Replace(digest, ":", "-", 1)] = body
	}
	return data
}

// Tool returns the definition of a tool with that digest.
func (k Kept) Tool(digest string) (tool.Descriptor, bool) {
	body, ok := k.open(digest)
	if !ok {
		return tool.Descriptor{}, false
	}
	d, err := tool.Parse(body)
	return d, err == nil && d.Digest() == digest
}

// Instructions returns the instructions of a server with that digest.
func (k Kept) Instructions(digest string) (string, bool) {
	body, ok := k.open(digest)
	return string(body), ok
}

// Has tells whether there is something with that digest.
func (k Kept) Has(digest string) bool {
	_, ok := k.open(digest)
	return ok
}

// open returns what has that digest, and nothing that has another.
func (k Kept) open(digest string) ([]byte, bool) {
	body := k[digest]
	if len(body) == 0 {
		return nil, false
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, false
	}
	said, err := io.ReadAll(io.LimitReader(unzipped, maxOne+1))
	if err != nil || len(said) > maxOne || tool.DigestOf(said) != digest {
		return nil, false
	}
	return said, true
}

// Shelf fills up to MaxBytes, in the order in which it is given things: what comes last is left out first.
type Shelf struct {
	// Kept is what found room.
	Kept Kept
	// LeftOut counts what found none.
	LeftOut int

	used   int
	zipper *gzip.Writer
}

// Add keeps a definition in its canonical form, or instructions, if there is room.
func (s *Shelf) Add(said []byte) {
	digest := tool.DigestOf(said)
	if _, there := s.Kept[digest]; there {
		return
	}
	var zipped bytes.Buffer
	if s.zipper == nil {
		s.zipper = gzip.NewWriter(&zipped)
	}
	s.zipper.Reset(&zipped)
	if _, err := s.zipper.Write(said); err != nil || s.zipper.Close() != nil || len(said) > maxOne {
		s.LeftOut++
		return
	}
	s.put(digest, zipped.Bytes())
}

// Take keeps what others keep under that digest, if there is room; it tells whether one of them has it.
func (s *Shelf) Take(digest string, from ...Kept) bool {
	if _, there := s.Kept[digest]; there {
		return true
	}
	for _, k := range from {
		if k.Has(digest) {
			s.put(digest, k[digest])
			return true
		}
	}
	return false
}

func (s *Shelf) put(digest string, zipped []byte) {
	size := len(digest) + len(zipped)
	if s.used+size > MaxBytes {
		s.LeftOut++
		return
	}
	if s.Kept == nil {
		s.Kept = Kept{}
	}
	s.used += size
	s.Kept[digest] = zipped
}
