// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package vote

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

var (
	born    = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	root    = ed25519.NewKeyFromSeed([]byte(strings.Repeat("r", 32)))
	private = ed25519.NewKeyFromSeed([]byte(strings.Repeat("v", 32)))
	other   = ed25519.NewKeyFromSeed([]byte(strings.Repeat("o", 32)))
)

func half(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func signingKey(k ed25519.PrivateKey) Key { return Key{ID: KeyID(half(k)), Private: k} }

func published(k ed25519.PrivateKey) Keys {
	return Keys{KeyID(half(k)): {Public: half(k), NotBefore: born.Add(-time.Hour)}}
}

func request() *v1alpha1.ApprovalRequest {
	r := &v1alpha1.ApprovalRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "billing-1", UID: "u-1", CreationTimestamp: metav1.NewTime(born)}}
	r.Spec.Tool, r.Spec.Arguments, r.Spec.TTLSeconds = "refund", `{"amount":5}`, 3600
	r.Spec.Requester = v1alpha1.Requester{Username: "agent", ActsFor: "carol"}
	return r
}

func cast(t *testing.T, r *v1alpha1.ApprovalRequest, username string, decision v1alpha1.Decision) v1alpha1.Vote {
	t.Helper()
	v, err := signingKey(private).Sign(r, v1alpha1.Vote{Username: username, UID: "id-" + username, Decision: decision, Time: metav1.NewTime(born.Add(time.Minute))})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAVoteIsValidOnlyForWhatItWasGivenFor(t *testing.T) {
	t.Parallel()
	// The twin: what the webhook signed is valid.
	if err := published(private).Verify(request(), cast(t, request(), "alice", v1alpha1.DecisionApproved)); err != nil {
		t.Fatalf("an honest vote: %v", err)
	}
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.ApprovalRequest, *v1alpha1.Vote)
		want error
	}{
		"another namespace":       {func(r *v1alpha1.ApprovalRequest, _ *v1alpha1.Vote) { r.Namespace = "team-b" }, ErrSignature},
		"another name":            {func(r *v1alpha1.ApprovalRequest, _ *v1alpha1.Vote) { r.Name = "billing-2" }, ErrSignature},
		"restored with a new UID": {func(r *v1alpha1.ApprovalRequest, _ *v1alpha1.Vote) { r.UID = "u-2" }, ErrSignature},
		"another spec":            {func(r *v1alpha1.ApprovalRequest, _ *v1alpha1.Vote) { r.Spec.Arguments = `{"amount":5000}` }, ErrOtherSpec},
		"another preview": {func(r *v1alpha1.ApprovalRequest, _ *v1alpha1.Vote) {
			r.Spec.Preview = &v1alpha1.Preview{Tool: "count_rows", Result: "matches 1 row"}
		}, ErrOtherSpec},
		"another spec and digest": {func(r *v1alpha1.ApprovalRequest, v *v1alpha1.Vote) {
			r.Spec.Arguments = `{"amount":5000}`
			v.SpecDigest, _ = SpecDigest(r.Spec)
		}, ErrSignature},
		"another decision":   {func(_ *v1alpha1.ApprovalRequest, v *v1alpha1.Vote) { v.Decision = v1alpha1.DecisionDenied }, ErrSignature},
		"another reason":     {func(_ *v1alpha1.ApprovalRequest, v *v1alpha1.Vote) { v.Reason = "because I was told to" }, ErrSignature},
		"another person":     {func(_ *v1alpha1.ApprovalRequest, v *v1alpha1.Vote) { v.Username = "bob" }, ErrSignature},
		"another user id":    {func(_ *v1alpha1.ApprovalRequest, v *v1alpha1.Vote) { v.UID = "" }, ErrSignature},
		"another time":       {func(_ *v1alpha1.ApprovalRequest, v *v1alpha1.Vote) { v.Time = metav1.NewTime(v.Time.Add(time.Second)) }, ErrSignature},
		"no signature":       {func(_ *v1alpha1.ApprovalRequest, v *v1alpha1.Vote) { v.Signature = "" }, ErrUnsigned},
		"no key":             {func(_ *v1alpha1.ApprovalRequest, v *v1alpha1.Vote) { v.KeyID = "" }, ErrUnsigned},
		"no base64":          {func(_ *v1alpha1.ApprovalRequest, v *v1alpha1.Vote) { v.Signature = "!" }, ErrSignature},
		"a key of nobody":    {func(_ *v1alpha1.ApprovalRequest, v *v1alpha1.Vote) { v.KeyID = "00" }, ErrUnknownKey},
		"after the expiry":   {resigned("alice", born.Add(time.Hour)), ErrTime},
		"before the request": {resigned("alice", born.Add(-time.Second)), ErrTime},
		"before its key":     {resigned("alice", born.Add(-2*time.Hour)), ErrTime},
		"by the requester":   {resigned("agent", born.Add(time.Minute)), ErrOwn},
		"by who it acts for": {resigned("carol", born.Add(time.Minute)), ErrOwn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request()
			v := cast(t, r, "alice", v1alpha1.DecisionApproved)
			tc.edit(r, &v)
			if err := published(private).Verify(r, v); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			r.Status.Votes = []v1alpha1.Vote{v}
			if tally := published(private).Count(r); tally.Approved(1) || len(tally.Approvals) > 0 || len(tally.Void) != 1 {
				t.Errorf("it counts: %+v", tally)
			}
		})
	}
}

// resigned has an honest key sign a vote that no honest webhook signs.
func resigned(username string, at time.Time) func(*v1alpha1.ApprovalRequest, *v1alpha1.Vote) {
	return func(r *v1alpha1.ApprovalRequest, v *v1alpha1.Vote) {
		v.Username, v.Time = username, metav1.NewTime(at)
		*v, _ = signingKey(private).Sign(r, *v)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	yes, no, later := v1alpha1.DecisionApproved, v1alpha1.DecisionDenied, v1alpha1.DecisionDismissed
	type said struct {
		who  string
		what v1alpha1.Decision
	}
	for name, tc := range map[string]struct {
		votes []said
		want  Tally
		// approved by one, by two
		one, two bool
	}{
		"nobody":                     {},
		"one":                        {votes: []said{{"alice", yes}}, want: Tally{Approvals: []string{"alice"}}, one: true},
		"one person twice":           {votes: []said{{"alice", yes}, {"alice", yes}}, want: Tally{Approvals: []string{"alice"}}, one: true},
		"two":                        {votes: []said{{"alice", yes}, {"bob", yes}}, want: Tally{Approvals: []string{"alice", "bob"}}, one: true, two: true},
		"one no ends it":             {votes: []said{{"alice", yes}, {"bob", yes}, {"dan", no}}, want: Tally{Approvals: []string{"alice", "bob"}, Denied: true}},
		"a yes taken back":           {votes: []said{{"alice", yes}, {"alice", no}}, want: Tally{Approvals: []string{"alice"}, Denied: true}},
		"not now":                    {votes: []said{{"alice", yes}, {"bob", later}}, want: Tally{Approvals: []string{"alice"}, Dismissed: true}},
		"a word that nobody gave":    {votes: []said{{"alice", yes}, {"bob", "Perhaps"}}, want: Tally{Approvals: []string{"alice"}, Denied: true}},
		"spelt otherwise is another": {votes: []said{{"alice", yes}, {"Alice", yes}}, want: Tally{Approvals: []string{"alice", "Alice"}}, one: true, two: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request()
			for _, s := range tc.votes {
				r.Status.Votes = append(r.Status.Votes, cast(t, r, s.who, s.what))
			}
			got := published(private).Count(r)
			for range tc.want.Approvals {
				tc.want.KeyIDs = append(tc.want.KeyIDs, signingKey(private).ID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tally (-want +got):\n%s", diff)
			}
			if got.Approved(1) != tc.one || got.Approved(2) != tc.two || got.Approved(0) {
				t.Errorf("approved by one %t, by two %t, by none %t", got.Approved(1), got.Approved(2), got.Approved(0))
			}
		})
	}
}

func TestKeysAreThoseThatARootVouchesFor(t *testing.T) {
	t.Parallel()
	id, value, err := Publish(root, Published{Public: half(private), NotBefore: born})
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]string{id: value, RootEntry: FormatRoot(half(root))}
	keys, err := ParseKeys(data, half(other), half(root))
	if err != nil || !keys[id].NotBefore.Equal(born) || !keys[id].Public.Equal(half(private)) {
		t.Fatalf("an honest key: %v, %v", keys, err)
	}
	forged, forgedValue, err := Publish(other, Published{Public: half(other), NotBefore: born})
	if err != nil {
		t.Fatal(err)
	}
	for name, entries := range map[string]map[string]string{
		"signed by another root": {forged: forgedValue},
		"under another name":     {"0011223344556677": value},
		"used earlier":           {id: strings.Replace(value, "2026-11-01", "2026-10-01", 1)},
		"another key":            {id: strings.Replace(value, `"public":"`, `"public":"A`, 1)},
		"no JSON":                {id: "x"},
		"no date":                {id: `{"public":"","notBefore":"soon","signature":""}`},
		"a member too many":      {id: strings.Replace(value, "{", `{"x":1,`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, err := ParseKeys(entries, half(root))
			if err == nil || len(keys) != 0 {
				t.Errorf("got %v, %v", keys, err)
			}
		})
	}
	if keys, err := ParseKeys(data); err == nil || len(keys) != 0 {
		t.Errorf("without a root: %v, %v", keys, err)
	}
	if got, err := ParseRoot(FormatRoot(half(root))); err != nil || !got.Equal(half(root)) {
		t.Errorf("root: %v, %v", got, err)
	}
	for _, bad := range []string{"", "AA==", "not base64"} {
		if _, err := ParseRoot(bad); err == nil {
			t.Errorf("%q is taken for a root", bad)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	id, value, err := Publish(root, Published{Public: half(private), NotBefore: born})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(id, value)
	f.Add("root", "x")
	f.Fuzz(func(t *testing.T, name, text string) {
		keys, _ := ParseKeys(map[string]string{name: text}, half(root))
		for got, key := range keys {
			if got != id || !key.Public.Equal(half(private)) || !key.NotBefore.Equal(born) {
				t.Errorf("a key that the root never signed: %s %v", got, key)
			}
		}
	})
}

func TestAVoteIsNotOlderThanItsKey(t *testing.T) {
	t.Parallel()
	vote := cast(t, request(), "alice", v1alpha1.DecisionApproved) // a minute after the request
	for notBefore, want := range map[time.Duration]error{time.Minute: nil, time.Minute + time.Second: ErrTime} {
		keys := Keys{KeyID(half(private)): {Public: half(private), NotBefore: born.Add(notBefore)}}
		if err := keys.Verify(request(), vote); !errors.Is(err, want) {
			t.Errorf("under a key from %s after the request: %v, want %v", notBefore, err, want)
		}
	}
}
