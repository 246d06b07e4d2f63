// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vote says who has decided an ApprovalRequest: it signs votes, publishes the keys that do, and counts the votes
// that are valid; it does no I/O and knows no clock.
package vote

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// version is part of everything that is signed.
const version = 1

// SpecDigest identifies what a person saw: SHA-256 over the canonical JSON (RFC 8785) of the stored spec. It returns an
// error for a spec that JSON cannot express, which the API server does not store.
func SpecDigest(spec v1alpha1.ApprovalRequestSpec) (string, error) {
	canonical, err := canonical(spec)
	if err != nil {
		return "", fmt.Errorf("write the spec in canonical form: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// ballot is what a signature covers. Its domain keeps it apart from everything else that a key may sign.
type ballot struct {
	Domain     string `json:"domain"`
	Version    int    `json:"version"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	SpecDigest string `json:"specDigest"`
	Decision   string `json:"decision"`
	Reason     string `json:"reason"`
	Username   string `json:"username"`
	UserUID    string `json:"userUID"`
	Time       string `json:"time"`
}

// message returns the bytes that the signature of a vote on a request covers.
func message(r *v1alpha1.ApprovalRequest, v v1alpha1.Vote) ([]byte, error) {
	return canonical(ballot{
		Domain: "tidewaiter.dev/vote", Version: version, Namespace: r.Namespace, Name: r.Name, UID: string(r.UID),
		SpecDigest: v.SpecDigest, Decision: string(v.Decision), Reason: v.Reason, Username: v.Username, UserUID: v.UID, Time: stamp(v.Time.Time),
	})
}

// stamp writes an instant as the API server stores it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func canonical(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return strictjson.Canonical(text)
}

// Key is a voting key with its private half.
type Key struct {
	ID      string
	Private ed25519.PrivateKey
}

// Sign returns the vote with the digest of the request's stored spec, the name of the key and the signature. The time
// of the vote is cut to the second, which is what the API server stores.
func (k Key) Sign(r *v1alpha1.ApprovalRequest, v v1alpha1.Vote) (v1alpha1.Vote, error) {
	digest, err := SpecDigest(r.Spec)
	if err != nil {
		return v1alpha1.Vote{}, err
	}
	v.SpecDigest, v.KeyID, v.Time = digest, k.ID, metav1.NewTime(v.Time.Truncate(time.Second))
	text, err := message(r, v)
	if err != nil {
		return v1alpha1.Vote{}, fmt.Errorf("write the vote in canonical form: %w", err)
	}
	v.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(k.Private, text))
	return v, nil
}

// Why a vote counts for nothing; Verify wraps one of them.
var (
	// ErrUnknownKey: no published key has the name that the vote gives.
	ErrUnknownKey = errors.New("signed with a key that is not published")
	// ErrUnsigned: the vote has no signature.
	ErrUnsigned = errors.New("not signed")
	// ErrOtherSpec: the vote was given for something else than the request says.
	ErrOtherSpec = errors.New("given for another spec")
	// ErrSignature: the signature is not that of this vote on this request.
	ErrSignature = errors.New("the signature does not belong to this vote on this request")
	// ErrTime: the vote is dated outside the life of the request or of its key.
	ErrTime = errors.New("dated outside the life of the request or of its key")
	// ErrOwn: the requester, or the user it acts for, voted on its own request.
	ErrOwn = errors.New("given by who asks")
)

// Verify tells whether a vote on a request is valid: signed with a published key for exactly this object and spec, by
// somebody else than who asks, within the life of the request. It returns nil, or an error that wraps one of the
// reasons above.
func (keys Keys) Verify(r *v1alpha1.ApprovalRequest, v v1alpha1.Vote) error {
	if v.Signature == "" || v.KeyID == "" {
		return ErrUnsigned
	}
	key, known := keys[v.KeyID]
	if !known {
		return fmt.Errorf("%w: %q", ErrUnknownKey, v.KeyID)
	}
	digest, err := SpecDigest(r.Spec)
	if err != nil {
		return err
	}
	if v.SpecDigest != digest {
		return ErrOtherSpec
	}
	text, err := message(r, v)
	if err != nil {
		return err
	}
	signature, err := base64.StdEncoding.DecodeString(v.Signature)
	if err != nil || !ed25519.Verify(key.Public, text, signature) {
		return ErrSignature
	}
	at := v.Time.Time
	if at.Before(key.NotBefore) || at.Before(r.CreationTimestamp.Time) || !at.Before(r.ExpiresAt()) {
		return ErrTime
	}
	if IsRequester(r, v.Username) {
		return ErrOwn
	}
	return nil
}

// IsRequester tells whether a user asks, or is the user that the requester acts for: they never vote.
func IsRequester(r *v1alpha1.ApprovalRequest, username string) bool {
	return username == r.Spec.Requester.Username || username == r.Spec.Requester.ActsFor
}

// Tally is what the valid votes of a request come to. The zero value approves nothing.
type Tally struct {
	// Approvals are the persons who said a valid yes, in the order of their votes; who denied later as well sets Denied.
	Approvals []string
	// KeyIDs name the keys of those votes, in their order.
	KeyIDs []string
	// Denied and Dismissed tell that a valid vote says so.
	Denied, Dismissed bool
	// Void are the votes that count for nothing, each with its reason.
	Void []error
	// UnknownKey tells that a vote names a key that is not published here; it may be newer than the keys that are.
	UnknownKey bool
}

// Approved tells whether enough persons approve and nobody refuses.
func (t Tally) Approved(required int32) bool {
	return required > 0 && len(t.Approvals) >= int(required) && !t.Denied && !t.Dismissed
}

// Count counts the votes of a request. A vote that is not valid counts for nothing, each person's yes counts once, and
// one no is enough.
func (keys Keys) Count(r *v1alpha1.ApprovalRequest) Tally {
	var t Tally
	for i, v := range r.Status.Votes {
		if err := keys.Verify(r, v); err != nil {
			t.Void = append(t.Void, fmt.Errorf("vote %d: %w", i+1, err))
			t.UnknownKey = t.UnknownKey || errors.Is(err, ErrUnknownKey)
			continue
		}
		t.add(v)
	}
	return t
}

func (t *Tally) add(v v1alpha1.Vote) {
	switch v.Decision {
	case v1alpha1.DecisionApproved:
		if slices.Contains(t.Approvals, v.Username) {
			return
		}
		t.Approvals, t.KeyIDs = append(t.Approvals, v.Username), append(t.KeyIDs, v.KeyID)
	case v1alpha1.DecisionDismissed:
		t.Dismissed = true
	default: // what is not known refuses
		t.Denied = true
	}
}
