// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// MaxName is how many bytes the name of a tool may have.
const MaxName = 128

// reservedPrefix starts the _meta keys that only the gateway writes: a list that passed one has the same digests.
const reservedPrefix = "tidewaiter.dev/"

// Parse reads one entry of a tools/list result. The entry must be strict JSON; members that are not known are kept in
// Raw and count for the digest.
func Parse(raw []byte) (Descriptor, error) {
	entry, err := strictjson.Scan(raw)
	if err != nil {
		return Descriptor{}, fmt.Errorf("read a tool: %w", err)
	}
	if entry.Kind() != strictjson.Object {
		return Descriptor{}, errors.New("read a tool: not an object")
	}
	d := Descriptor{Raw: entry.Raw()}
	var annotations strictjson.Value
	for key, value := range entry.Members() {
		switch key.Text() {
		case "name":
			d.Name, err = text(value)
		case "title":
			d.Title, err = text(value)
		case "description":
			d.Description, err = text(value)
		case "inputSchema":
			d.InputSchema, err = object(value)
		case "outputSchema":
			d.OutputSchema, err = object(value)
		case "annotations":
			annotations = value
			_, err = object(value)
		}
		if err != nil {
			return Descriptor{}, fmt.Errorf("read the %s of a tool: %w", key.Text(), err)
		}
	}
	switch {
	case d.Name == "":
		return Descriptor{}, errors.New("read a tool: it has no name")
	case len(d.Name) > MaxName:
		return Descriptor{}, fmt.Errorf("read a tool: its name has %d bytes, more than %d", len(d.Name), MaxName)
	}
	if d.Annotations, err = parseAnnotations(annotations); err != nil {
		return Descriptor{}, fmt.Errorf("read the annotations of a tool: %w", err)
	}
	canonical, err := canonicalOf(entry)
	if err != nil {
		return Descriptor{}, err
	}
	d.digest = DigestOf(canonical)
	return d, nil
}

// Digest is SHA-256 over the canonical form of everything the server says of the tool, "" for a descriptor that Parse
// did not make.
func (d Descriptor) Digest() string { return d.digest }

// Canonical is what Digest is over: all that the server says of the tool, in one spelling, so that Parse makes the same
// descriptor of it. It is nil for a descriptor that Parse did not make.
func (d Descriptor) Canonical() []byte {
	entry, err := strictjson.Scan(d.Raw)
	if err != nil || d.digest == "" {
		return nil
	}
	canonical, err := canonicalOf(entry)
	if err != nil {
		return nil
	}
	return canonical
}

// DigestOf is SHA-256 as digests are written everywhere: of the canonical form of a tool, or of instructions.
func DigestOf[T string | []byte](said T) string {
	hash := sha256.Sum256([]byte(said))
	return "sha256:" + hex.EncodeToString(hash[:])
}

// EndpointDigest is SHA-256 over the canonical form of an endpoint as JSON: literal header values count, and Secrets by
// their names. The default transport is left out, so that an endpoint from before there was another has the digest that
// it had.
func EndpointDigest(endpoint v1alpha1.Endpoint) (string, error) {
	if endpoint.Transport == v1alpha1.TransportStreamableHTTP {
		endpoint.Transport = ""
	}
	raw, err := json.Marshal(endpoint)
	if err != nil {
		return "", fmt.Errorf("write the endpoint as JSON: %w", err)
	}
	canonical, err := strictjson.Canonical(raw)
	if err != nil {
		return "", fmt.Errorf("write the canonical form of the endpoint: %w", err)
	}
	return DigestOf(canonical), nil
}

func text(v strictjson.Value) (string, error) {
	switch v.Kind() {
	case strictjson.String, strictjson.Null:
		return v.Text(), nil
	default:
		return "", errors.New("not a string")
	}
}

func object(v strictjson.Value) (json.RawMessage, error) {
	switch v.Kind() {
	case strictjson.Object:
		return v.Raw(), nil
	case strictjson.Null:
		return nil, nil
	default:
		return nil, errors.New("not an object")
	}
}

func parseAnnotations(v strictjson.Value) (Annotations, error) {
	var a Annotations
	for key, value := range v.Members() {
		var err error
		switch key.Text() {
		case "title":
			a.Title, err = text(value)
		case "readOnlyHint":
			a.ReadOnlyHint, err = boolean(value)
		case "destructiveHint":
			a.DestructiveHint, err = boolean(value)
		case "idempotentHint":
			a.IdempotentHint, err = boolean(value)
		case "openWorldHint":
			a.OpenWorldHint, err = boolean(value)
		}
		if err != nil {
			return Annotations{}, fmt.Errorf("%s: %w", key.Text(), err)
		}
	}
	return a, nil
}

func boolean(v strictjson.Value) (*bool, error) {
	switch v.Kind() {
	case strictjson.Bool:
		truth := v.IsTrue()
		return &truth, nil
	case strictjson.Null:
		return nil, nil
	default:
		return nil, errors.New("neither true nor false")
	}
}

// canonicalOf leaves out the _meta keys of the gateway, and a _meta that is then empty.
func canonicalOf(entry strictjson.Value) ([]byte, error) {
	said := []byte{'{'}
	for key, value := range entry.Members() {
		raw := value.Raw()
		if key.Is("_meta") && value.Kind() == strictjson.Object {
			if raw = serversOwn(value); len(raw) == len("{}") {
				continue
			}
		}
		said = appendMember(said, key, raw)
	}
	canonical, err := strictjson.Canonical(append(said, '}'))
	if err != nil {
		return nil, fmt.Errorf("write the canonical form of a tool: %w", err)
	}
	return canonical, nil
}

func serversOwn(meta strictjson.Value) []byte {
	own := []byte{'{'}
	for key, value := range meta.Members() {
		if !strings.HasPrefix(key.Text(), reservedPrefix) {
			own = appendMember(own, key, value.Raw())
		}
	}
	return append(own, '}')
}

func appendMember(object []byte, key strictjson.Value, value []byte) []byte {
	if len(object) > 1 {
		object = append(object, ',')
	}
	return append(append(append(object, key.Raw()...), ':'), value...)
}
