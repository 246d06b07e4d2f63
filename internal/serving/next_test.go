// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

var (
	start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	names = []string{"tidewaiter-webhook.tidewaiter-system.svc", "localhost", "127.0.0.1"}
)

const day = 24 * time.Hour

// begun returns the state after the first step, at the start.
func begun(t *testing.T) state {
	t.Helper()
	s, err := state{}.take(begin, facts{now: start, names: names})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// authority returns another authority, made at the start.
func authority(t *testing.T) tls.Certificate {
	t.Helper()
	c, err := newAuthority(start)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDue(t *testing.T) {
	t.Parallel()
	edit := func(edits ...func(*testing.T, *state)) func(*testing.T) state {
		return func(t *testing.T) state {
			t.Helper()
			s := begun(t)
			for _, e := range edits {
				e(t, &s)
			}
			return s
		}
	}
	rotate := func(_ *testing.T, s *state) { s.rotate = true }
	next := func(t *testing.T, s *state) { s.next = authority(t) }
	noted := func(_ *testing.T, s *state) { s.nextSince = start }
	old := func(t *testing.T, s *state) { s.old, s.oldUntil = authority(t).Leaf, start.Add(retain) }
	for name, tc := range map[string]struct {
		state func(*testing.T) state
		facts facts
		after time.Duration
		want  step
	}{
		"nothing is there":                                {state: func(*testing.T) state { return state{} }, want: begin},
		"only the path is there":                          {state: edit(func(_ *testing.T, s *state) { *s = state{path: s.path} }), want: begin},
		"the path is missing":                             {state: edit(func(_ *testing.T, s *state) { s.path = "" }), want: begin},
		"all is well":                                     {state: edit(), facts: facts{carried: true}, after: 40 * day, want: rest},
		"the certificate has aged":                        {state: edit(), after: 61 * day, want: renew},
		"it covers too few names":                         {state: edit(), facts: facts{names: []string{"elsewhere.svc"}}, want: renew},
		"the authority has aged":                          {state: edit(), after: 244 * day, want: offer},
		"somebody asks":                                   {state: edit(rotate), want: offer},
		"somebody asks while the former is carried":       {state: edit(rotate, old), after: retain - 1, want: rest},
		"somebody asks while the next is on its way":      {state: edit(rotate, next), want: rest},
		"the next is not carried":                         {state: edit(next), after: time.Hour, want: rest},
		"the next is carried":                             {state: edit(next), facts: facts{carried: true}, want: note},
		"the next was carried for less than the lead":     {state: edit(next, noted), facts: facts{carried: true}, after: lead - 1, want: rest},
		"the next was carried for the lead":               {state: edit(next, noted), facts: facts{carried: true}, after: lead, want: turn},
		"the next is carried no more":                     {state: edit(next, noted), after: lead, want: forget},
		"the former is still needed":                      {state: edit(old), after: retain - 1, want: rest},
		"the former is needed no more":                    {state: edit(old), after: retain, want: drop},
		"the authority has ended, and can sign no more":   {state: edit(next), after: 366 * day, want: rest},
		"somebody else brings the certificate":            {state: edit(), facts: facts{provided: true}, after: 300 * day, want: rest},
		"somebody else brings it, and there is no path":   {state: func(*testing.T) state { return state{} }, facts: facts{provided: true}, want: begin},
		"somebody else brings it, and there is only that": {state: func(*testing.T) state { return state{path: "a"} }, facts: facts{provided: true}, want: rest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := tc.facts
			f.now = start.Add(tc.after)
			if f.names == nil {
				f.names = names
			}
			if got := tc.state(t).due(f); got != tc.want {
				t.Errorf("due %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNoCertificateOutlivesItsAuthority(t *testing.T) {
	t.Parallel()
	s := begun(t)
	f := facts{now: start.Add(350 * day), names: names}
	renewed, err := s.take(renew, f)
	if err != nil {
		t.Fatal(err)
	}
	if got := renewed.serving.Leaf.NotAfter; !got.Equal(s.ca.Leaf.NotAfter) {
		t.Errorf("it ends %s, its authority %s", got, s.ca.Leaf.NotAfter)
	}
	// Renewing that one gains nothing, and is not tried for ever.
	renewed.next = authority(t)
	f.now = start.Add(364 * day)
	if got := renewed.due(f); got != rest {
		t.Errorf("due %q", got)
	}
}

func TestThePathIsUnguessable(t *testing.T) {
	t.Parallel()
	a, b := begun(t), begun(t)
	if a.path == b.path || !validPath.MatchString(a.path) || len(a.path)*4 < 128 {
		t.Errorf("paths %q and %q", a.path, b.path)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	s := begun(t)
	s.next, s.nextSince = authority(t), start.Add(time.Nanosecond)
	s.old, s.oldUntil = authority(t).Leaf, start.Add(retain)
	data, err := format(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	wantBundle, _ := s.bundle()
	gotBundle, _ := got.bundle()
	if got.path != s.path || !bytes.Equal(gotBundle, wantBundle) || !got.serving.Leaf.Equal(s.serving.Leaf) ||
		!got.nextSince.Equal(s.nextSince) || !got.oldUntil.Equal(s.oldUntil) {
		t.Errorf("got %+v", got)
	}
	if certificates, err := cert.ParseCertsPEM(gotBundle); err != nil || len(certificates) != 3 {
		t.Errorf("the bundle has %d certificates, %v", len(certificates), err)
	}
	for entry, tc := range map[string]struct{ value, want string }{
		pathEntry:       {"short", `"path-seed"`},
		"ca.key":        {"", "ca.crt and ca.key"},
		"tls.crt":       {string(data["ca.crt"]), "tls.crt and tls.key"},
		"next-ca.crt":   {"x", "next-ca.crt"},
		"old-ca.crt":    {"x", "old-ca.crt"},
		"next-ca-since": {"soon", "next-ca-since"},
		"old-ca-until":  {"never", "old-ca-until"},
	} {
		was := data[entry]
		data[entry] = []byte(tc.value)
		if _, err := parse(data); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", entry, err, tc.want)
		}
		data[entry] = was
	}
	delete(data, "tls.crt")
	delete(data, "tls.key")
	if _, err := parse(data); err == nil || !strings.Contains(err.Error(), "belong together") {
		t.Errorf("without a serving certificate: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	s, err := state{}.take(begin, facts{now: start, names: names})
	if err != nil {
		f.Fatal(err)
	}
	data, err := format(s)
	if err != nil {
		f.Fatal(err)
	}
	for entry, value := range data {
		f.Add(entry, value)
	}
	f.Add("old-ca.crt", data["ca.crt"])
	f.Fuzz(func(t *testing.T, entry string, value []byte) {
		changed := map[string][]byte{entry: value}
		for name, good := range data {
			if name != entry {
				changed[name] = good
			}
		}
		got, err := parse(changed)
		if err != nil {
			return
		}
		if _, err := format(got); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

// trusts returns an error if an API server with that bundle does not trust the certificate.
func trusts(bundle []byte, leaf *x509.Certificate, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: names[0], CurrentTime: now})
	return err
}
