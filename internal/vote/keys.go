// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package vote

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// RootEntry is the entry of the ConfigMap with the root's public half. It is there for people: a gateway takes the root
// from its flag and from nowhere else.
const RootEntry = "root"

// Published is the public half of a voting key, vouched for by a root key.
type Published struct {
	Public ed25519.PublicKey
	// NotBefore is when the key is first used.
	NotBefore time.Time
}

// Keys are the published voting keys, by their names.
type Keys map[string]Published

// entry is the value of one entry of the ConfigMap.
type entry struct {
	Public    []byte `json:"public"`
	NotBefore string `json:"notBefore"`
	Signature []byte `json:"signature"`
}

// certificate is what the root signs of a voting key.
type certificate struct {
	Domain    string `json:"domain"`
	Version   int    `json:"version"`
	ID        string `json:"id"`
	Public    []byte `json:"public"`
	NotBefore string `json:"notBefore"`
}

// KeyID names a voting key: the first 16 hexadecimal digits of the SHA-256 of its public half.
func KeyID(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:8])
}

func certified(id string, public ed25519.PublicKey, notBefore string) ([]byte, error) {
	return canonical(certificate{Domain: "tidewaiter.dev/voting-key", Version: version, ID: id, Public: public, NotBefore: notBefore})
}

// Publish returns the name and the value of the ConfigMap's entry for a voting key, signed by the root.
func Publish(root ed25519.PrivateKey, key Published) (id, value string, err error) {
	id = KeyID(key.Public)
	notBefore := stamp(key.NotBefore)
	text, err := certified(id, key.Public, notBefore)
	if err != nil {
		return "", "", fmt.Errorf("write voting key %s in canonical form: %w", id, err)
	}
	out, err := json.Marshal(entry{Public: key.Public, NotBefore: notBefore, Signature: ed25519.Sign(root, text)})
	if err != nil {
		return "", "", fmt.Errorf("write voting key %s: %w", id, err)
	}
	return id, string(out), nil
}

// ParseKeys reads the entries of the ConfigMap that one of the roots has signed. What is not signed by a root is left
// out, and err says what was and why; the keys are good all the same.
func ParseKeys(data map[string]string, roots ...ed25519.PublicKey) (keys Keys, err error) {
	keys = Keys{}
	var problems []error
	for id, value := range data {
		if id == RootEntry {
			continue
		}
		key, err := parseKey(id, value, roots)
		if err != nil {
			problems = append(problems, fmt.Errorf("voting key %q: %w", id, err))
			continue
		}
		keys[id] = key
	}
	return keys, errors.Join(problems...)
}

func parseKey(id, value string, roots []ed25519.PublicKey) (Published, error) {
	var e entry
	decoder := json.NewDecoder(bytes.NewReader([]byte(value)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		return Published{}, fmt.Errorf("read: %w", err)
	}
	notBefore, err := time.Parse(time.RFC3339, e.NotBefore)
	if err != nil {
		return Published{}, fmt.Errorf("read notBefore: %w", err)
	}
	public := ed25519.PublicKey(e.Public)
	if len(public) != ed25519.PublicKeySize || KeyID(public) != id {
		return Published{}, errors.New("the name is not that of the key")
	}
	text, err := certified(id, public, e.NotBefore)
	if err != nil {
		return Published{}, err
	}
	for _, root := range roots {
		if len(root) == ed25519.PublicKeySize && ed25519.Verify(root, text, e.Signature) {
			return Published{Public: public, NotBefore: notBefore}, nil
		}
	}
	return Published{}, errors.New("no trusted root key has signed it")
}

// ParseRoot reads the public half of a root key: 32 bytes in base64, as the ConfigMap's entry "root" has it.
func ParseRoot(text string) (ed25519.PublicKey, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("a root key is base64: %w", err)
	}
	if len(raw) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("a root key has %d bytes, not %d", ed25519.PublicKeySize, len(raw))
	}
	return raw, nil
}

// FormatRoot writes the public half of a root key as ParseRoot reads it.
func FormatRoot(root ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(root) }
