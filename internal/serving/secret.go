// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

const (
	// ownerLabel with the value owner is on the Secret that this package made. One without it is never written.
	ownerLabel, owner = "app.kubernetes.io/managed-by", "tidewaiter-manager"
)

// The entries of the Secret.
const (
	pathEntry      = "path-seed"
	caEntry        = "ca"
	nextEntry      = "next-ca"
	servingEntry   = "tls"
	oldEntry       = "old-ca.crt"
	nextSinceEntry = "next-ca-since"
	oldUntilEntry  = "old-ca-until"
)

var validPath = regexp.MustCompile(`^[0-9a-f]{32,64}$`)

// parse reads the entries of the Secret. What it cannot read is an error, and is never replaced.
func parse(data map[string][]byte) (state, error) {
	s := state{path: string(data[pathEntry])}
	if s.path != "" && !validPath.MatchString(s.path) {
		return state{}, errors.New(`the entry "path-seed" is not 32 to 64 hexadecimal digits`)
	}
	for _, read := range []struct {
		entry string
		into  *tls.Certificate
	}{{caEntry, &s.ca}, {servingEntry, &s.serving}, {nextEntry, &s.next}} {
		var err error
		if *read.into, err = parsePair(data, read.entry); err != nil {
			return state{}, err
		}
	}
	if (s.ca.Leaf == nil) != (s.serving.Leaf == nil) || s.ca.Leaf == nil && s.next.Leaf != nil {
		return state{}, errors.New(`the entries "ca.crt" and "tls.crt" belong together, and one is missing`)
	}
	if old := data[oldEntry]; len(old) > 0 {
		certificates, err := cert.ParseCertsPEM(old)
		if err != nil {
			return state{}, fmt.Errorf("the entry %q cannot be read: %w", oldEntry, err)
		}
		s.old = certificates[0]
	}
	var err error
	if s.nextSince, err = parseTime(data, nextSinceEntry); err != nil {
		return state{}, err
	}
	s.oldUntil, err = parseTime(data, oldUntilEntry)
	return s, err
}

// parsePair reads a certificate and its key, if they are there.
func parsePair(data map[string][]byte, entry string) (tls.Certificate, error) {
	certificate, key := data[entry+".crt"], data[entry+".key"]
	if len(certificate) == 0 && len(key) == 0 {
		return tls.Certificate{}, nil
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the entries %s.crt and %s.key cannot be read: %w", entry, entry, err)
	}
	return pair, nil
}

func parseTime(data map[string][]byte, entry string) (time.Time, error) {
	if len(data[entry]) == 0 {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, string(data[entry]))
	if err != nil {
		return time.Time{}, fmt.Errorf("the entry %q is no time: %w", entry, err)
	}
	return at, nil
}

// format writes the entries of the Secret as parse reads them.
func format(s state) (map[string][]byte, error) {
	data := map[string][]byte{pathEntry: []byte(s.path)}
	for entry, pair := range map[string]tls.Certificate{caEntry: s.ca, servingEntry: s.serving, nextEntry: s.next} {
		if pair.Leaf == nil {
			continue
		}
		certificate, key, err := encode(pair)
		if err != nil {
			return nil, err
		}
		data[entry+".crt"], data[entry+".key"] = certificate, key
	}
	if s.old != nil {
		certificate, err := cert.EncodeCertificates(s.old)
		if err != nil {
			return nil, fmt.Errorf("write the former authority: %w", err)
		}
		data[oldEntry] = certificate
	}
	for entry, at := range map[string]time.Time{nextSinceEntry: s.nextSince, oldUntilEntry: s.oldUntil} {
		if !at.IsZero() {
			data[entry] = []byte(at.UTC().Format(time.RFC3339Nano))
		}
	}
	return data, nil
}

// provided reads the certificate of a Secret that somebody else keeps, of the type kubernetes.io/tls.
func provided(secret *corev1.Secret) (tls.Certificate, error) {
	pair, err := parsePair(secret.Data, servingEntry)
	if err == nil && pair.Leaf == nil {
		err = fmt.Errorf("it has no entries %s and %s", corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return pair, err
}
