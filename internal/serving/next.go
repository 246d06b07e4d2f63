// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
)

const (
	// lead is how long both configurations carry a new authority before its certificate is served: every API server
	// has seen it by then.
	lead = time.Minute
	// retain is how long a former authority stays in the configurations: every replica serves by the new one by then.
	retain = 10 * time.Minute
	// pathBytes is the length of the secret part of the path.
	pathBytes = 16
	// pathPeriod is how long a path is the one that is written into the configurations. An API server tells the path to
	// whoever writes a vote while the webhook cannot be reached, so none may be good for long.
	pathPeriod = 10 * time.Minute
)

// pathsAt returns the secret parts of the path that are good at an instant: the one of this period, which the
// configurations get, the next one, for clocks that are ahead, and the former one, for what is under way.
func pathsAt(seed string, now time.Time) (current, next, former string) {
	period := now.Unix() / int64(pathPeriod/time.Second)
	at := func(n int64) string {
		h := hmac.New(sha256.New, []byte(seed))
		fmt.Fprintf(h, "tidewaiter.dev/webhook-path %d", n)
		return hex.EncodeToString(h.Sum(nil)[:pathBytes])
	}
	return at(period), at(period + 1), at(period - 1)
}

// state is what the Secret says. The way of an authority:
//
//	next ──▶ in both configurations ──▶ ca, signs what is served ──▶ old, still in the configurations ──▶ gone
//	         (nextSince)      lead                                   (oldUntil)                    retain
type state struct {
	// path is what the secret parts of the webhook's path are made from, in hexadecimal digits.
	path string
	// ca signs what is served. Without one there is no Leaf, and likewise with next.
	ca, serving tls.Certificate
	next        tls.Certificate
	// nextSince is since when both configurations are seen to carry next; zero: they are not.
	nextSince time.Time
	// old is nil without one.
	old      *x509.Certificate
	oldUntil time.Time
	// rotate tells that somebody asks for a new authority.
	rotate bool
}

// bundle returns every authority that a served certificate may be of, in an order that does not change with their roles.
func (s state) bundle() ([]byte, error) {
	var all []*x509.Certificate
	for _, c := range []*x509.Certificate{s.ca.Leaf, s.next.Leaf, s.old} {
		if c != nil {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *x509.Certificate) int { return bytes.Compare(a.Raw, b.Raw) })
	return cert.EncodeCertificates(all...)
}

// step is one change of the state.
type step string

const (
	// rest: nothing is due.
	rest step = ""
	// begin makes what is missing: the path, and an authority with what it signs.
	begin step = "Begun"
	// offer makes the next authority, for the configurations to carry.
	offer step = "NextAuthority"
	// note says that both configurations carry it, and forget that they do not any more.
	note   step = "NextAuthorityKnown"
	forget step = "NextAuthorityForgotten"
	// turn serves by the next authority; the former one is still carried.
	turn step = "AuthorityReplaced"
	// drop lets go of the former one.
	drop step = "FormerAuthorityDropped"
	// renew serves a new certificate by the same authority.
	renew step = "CertificateRenewed"
)

// facts are what due goes by, beside the state.
type facts struct {
	// provided tells that somebody else brings the certificate.
	provided bool
	// carried tells that both configurations carry the bundle of the state. They were read before the state and before now.
	carried bool
	now     time.Time
	names   []string
}

// due returns the one step that comes next.
func (s state) due(f facts) step {
	offered, noted := s.next.Leaf != nil, !s.nextSince.IsZero()
	switch {
	case s.path == "", s.ca.Leaf == nil && !f.provided:
		return begin
	case f.provided:
		return rest
	case offered && noted && !f.carried:
		return forget
	case offered && !noted && f.carried:
		return note
	case offered && noted && !s.nextSince.Add(lead).After(f.now):
		return turn
	case s.old != nil && !s.oldUntil.After(f.now):
		return drop
	case !offered && s.old == nil && (s.rotate || aged(s.ca.Leaf, f.now)):
		return offer
	case s.stale(f):
		return renew
	}
	return rest
}

// stale tells whether the authority can and should sign another serving certificate.
func (s state) stale(f facts) bool {
	if !s.ca.Leaf.NotAfter.After(f.now) {
		return false
	}
	// One that ends with its authority is not made better by another.
	old := aged(s.serving.Leaf, f.now) && s.serving.Leaf.NotAfter.Before(s.ca.Leaf.NotAfter)
	return old || !covers(s.serving.Leaf, f.names)
}

// take returns the state after a step.
func (s state) take(what step, f facts) (state, error) {
	var err error
	switch what {
	case begin:
		return s.begun(f)
	case offer:
		s.rotate = false
		s.next, err = newAuthority(f.now)
	case note:
		s.nextSince = f.now
	case forget:
		s.nextSince = time.Time{}
	case turn:
		s.old, s.oldUntil = s.ca.Leaf, f.now.Add(retain)
		s.ca, s.next, s.nextSince = s.next, tls.Certificate{}, time.Time{}
		s.serving, err = newServing(s.ca, f.names, f.now)
	case drop:
		s.old, s.oldUntil = nil, time.Time{}
	case renew:
		s.serving, err = newServing(s.ca, f.names, f.now)
	case rest:
	}
	return s, err
}

func (s state) begun(f facts) (state, error) {
	if s.path == "" {
		path := make([]byte, pathBytes)
		_, _ = rand.Read(path) // never fails
		s.path = hex.EncodeToString(path)
	}
	if s.ca.Leaf != nil || f.provided {
		return s, nil
	}
	var err error
	if s.ca, err = newAuthority(f.now); err != nil {
		return state{}, err
	}
	s.serving, err = newServing(s.ca, f.names, f.now)
	s.rotate = false
	return s, err
}
