// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// chain returns the lines of a whole chain of six receipts, each with its line feed.
func chain(t testing.TB) [][]byte {
	t.Helper()
	o := options(t)
	w := open(t, o)
	appendAll(t, w, Sync, decision("a"), decision("b"), decision("c"), decision("d"), decision("e"))
	closeWriter(t, w)
	return bytes.SplitAfter(bytes.TrimSuffix(readFile(t, o.Path), []byte("\n")), []byte("\n"))
}

// forge changes a line and gives it a hash that fits, as one would who knows the schema.
func forge(t *testing.T, line []byte, edit func(*Receipt)) []byte {
	t.Helper()
	var r Receipt
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatal(err)
	}
	edit(&r)
	forged, err := r.chainTo(link{seq: r.Seq - 1, hash: r.PrevHash}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return forged
}

func TestVerifyTellsFaultsApart(t *testing.T) {
	t.Parallel()
	deny := func(r *Receipt) { r.Verdict = VerdictDeny }
	for name, tc := range map[string]struct {
		damage func(t *testing.T, l [][]byte) [][]byte
		want   []string
	}{
		"whole chain (control)": {
			damage: func(_ *testing.T, l [][]byte) [][]byte { return l },
		},
		"altered": {
			damage: func(_ *testing.T, l [][]byte) [][]byte {
				l[2] = bytes.Replace(l[2], []byte("Allow"), []byte("Deny"), 1)
				return l
			},
			want: []string{"line 3: Altered: receipt 3 does not fit its own hash"},
		},
		"altered and hashed anew": {
			damage: func(t *testing.T, l [][]byte) [][]byte { l[2] = forge(t, l[2], deny); return l },
			want:   []string{"line 4: BrokenLink: receipt 4 does not name the hash of receipt 3"},
		},
		"missing": {
			damage: func(_ *testing.T, l [][]byte) [][]byte { return append(l[:2], l[4:]...) },
			want:   []string{"line 3: Missing: receipts 3 to 4 are not here"},
		},
		"head cut off": {
			damage: func(_ *testing.T, l [][]byte) [][]byte { return l[2:] },
			want:   []string{"line 1: Missing: the chain begins with receipt 3"},
		},
		"missing and numbered anew": {
			damage: func(t *testing.T, l [][]byte) [][]byte {
				forged := forge(t, l[4], func(r *Receipt) { r.Seq = 4 })
				return [][]byte{l[0], l[1], l[2], forged}
			},
			want: []string{"line 4: BrokenLink: receipt 4 does not name the hash of receipt 3"},
		},
		"swapped": {
			damage: func(_ *testing.T, l [][]byte) [][]byte { l[2], l[3] = l[3], l[2]; return l },
			want: []string{
				"line 3: Missing: receipts 3 to 3 are not here",
				"line 4: BrokenLink: receipt 3 stands after receipt 4",
				"line 5: Missing: receipts 4 to 4 are not here",
			},
		},
		"repeated": {
			damage: func(_ *testing.T, l [][]byte) [][]byte { return append(l[:3], l[2:]...) },
			want:   []string{"line 4: BrokenLink: receipt 3 stands after receipt 3"},
		},
		"another gateway's first line": {
			damage: func(t *testing.T, l [][]byte) [][]byte {
				l[0] = forge(t, l[0], func(r *Receipt) { r.Gateway = "harbour/other" })
				return l[:1]
			},
			want: []string{"line 1: BrokenLink: the first receipt does not begin the chain of its gateway"},
		},
		"forged append": {
			damage: func(t *testing.T, l [][]byte) [][]byte {
				return append(l, forge(t, l[5], func(r *Receipt) { r.Seq = 7 }))
			},
			want: []string{"line 7: BrokenLink: receipt 7 does not name the hash of receipt 6"},
		},
		"unreadable": {
			damage: func(_ *testing.T, l [][]byte) [][]byte { l[2] = []byte("{}\n"); return l },
			want:   []string{"line 3: Unreadable: this is no tidewaiter.dev/receipt/v1"},
		},
		"blank line": {
			damage: func(_ *testing.T, l [][]byte) [][]byte { l[2] = []byte("\n"); return l },
			want:   []string{"line 3: Unreadable: this is no tidewaiter.dev/receipt/v1"},
		},
		"torn tail": {
			damage: func(_ *testing.T, l [][]byte) [][]byte { l[5] = l[5][:40]; return l },
			want:   []string{"line 6: TornTail: 40 bytes without the end of a line"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := chain(t)
			lines[5] = append(lines[5], '\n')
			report, err := Verify(bytes.NewReader(bytes.Join(tc.damage(t, lines), nil)))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range report.Problems {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// A tail cut at the end of a line cannot show in the file itself: the last number and hash are there to compare.
func TestVerifyReportsTheEndOfTheChain(t *testing.T) {
	t.Parallel()
	lines := chain(t)
	var last Receipt
	if err := json.Unmarshal(lines[4], &last); err != nil {
		t.Fatal(err)
	}
	report, err := Verify(bytes.NewReader(bytes.Join(lines[:5], nil)))
	if err != nil {
		t.Fatal(err)
	}
	want := Report{Gateway: "harbour/gateway-0", Chain: last.Chain, Receipts: 5, LastSeq: 5, LastHash: last.Hash}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestVerifyBoundsItsReport(t *testing.T) {
	t.Parallel()
	report, err := Verify(strings.NewReader(strings.Repeat("x\n", 3*maxProblems)))
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) != maxProblems || report.MoreProblems != 2*maxProblems {
		t.Errorf("%d problems and %d more, want %d and %d", len(report.Problems), report.MoreProblems, maxProblems, 2*maxProblems)
	}
	if _, err := Verify(strings.NewReader(strings.Repeat("x", 2*maxLine))); err == nil {
		t.Error("a line without end was read into memory")
	}
}

func TestCrashAtEveryByteOfTheLastLine(t *testing.T) {
	t.Parallel()
	lines := chain(t)
	head, tail := bytes.Join(lines[:5], nil), lines[5]
	for cut := range len(tail) + 1 { // the last one lacks only its line feed
		o := options(t)
		if err := os.WriteFile(o.Path, append(bytes.Clone(head), tail[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		w := open(t, o)
		appendAll(t, w, Sync, decision("next"))
		closeWriter(t, w)
		all := read(t, o.Path)
		if cut == 0 {
			if len(all) != 7 {
				t.Errorf("cut at the line's end: %d lines, want 7", len(all))
			}
			continue
		}
		wantTorn := &Torn{Bytes: int64(cut), Digest: digest(tail[:cut])}
		wantTorn.File = "receipts.jsonl.torn-" + wantTorn.Digest[7:23]
		if len(all) != 8 || all[6].Kind != KindRecovered {
			t.Fatalf("cut at %d: %v", cut, kinds(all))
		}
		if diff := cmp.Diff(wantTorn, all[6].Torn); diff != "" {
			t.Errorf("cut at %d (-want +got):\n%s", cut, diff)
		}
		if !bytes.Equal(readFile(t, filepath.Join(filepath.Dir(o.Path), wantTorn.File)), tail[:cut]) {
			t.Errorf("cut at %d: the torn line was not kept", cut)
		}
		if !bytes.HasPrefix(readFile(t, o.Path), head) {
			t.Errorf("cut at %d: whole lines were touched", cut)
		}
	}
}

// The crash may also come while the torn line is being set aside: what was moved is recorded by the next start, once.
func TestTornLineIsRecordedOnce(t *testing.T) {
	t.Parallel()
	o := options(t)
	closeWriter(t, open(t, o))
	if err := os.WriteFile(o.Path+".torn-0123456789abcdef", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	closeWriter(t, open(t, o))
	closeWriter(t, open(t, o))
	want := []string{"Opened", "Opened", "Recovered", "Opened"}
	if diff := cmp.Diff(want, kinds(read(t, o.Path))); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestOpenDoesNotContinueADamagedChain(t *testing.T) {
	t.Parallel()
	lines := chain(t)
	lines[2] = forge(t, lines[2], func(r *Receipt) { r.Requester = "somebody" })
	o := options(t)
	damaged := append(bytes.Join(lines, nil), '\n')
	if err := os.WriteFile(o.Path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(o)
	if err == nil {
		t.Fatal("a damaged chain was continued")
	}
	for _, part := range []string{o.Path, "line 4: BrokenLink", "move it away"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if !bytes.Equal(damaged, readFile(t, o.Path)) {
		t.Error("the evidence was touched")
	}
}

func TestHostileTextStaysOnOneLine(t *testing.T) {
	t.Parallel()
	name := "x\ny|z=]\x1b[31m\u202edecoy\u2066\u200b\u2028\u009b\U000e0041\x7f\u3164\ufe0f\u2800 ok"
	o := options(t)
	w := open(t, o)
	appendAll(t, w, Sync, Receipt{Kind: KindDecision, Tool: name, Verdict: VerdictDeny}, Receipt{Kind: KindDecision, Tool: "größe", Verdict: VerdictDeny})
	text := string(readFile(t, o.Path))
	if n := strings.Count(text, "\n"); n != 3 {
		t.Errorf("%d lines, want 3", n)
	}
	for _, r := range strings.ReplaceAll(text, "\n", "") {
		if !unicode.IsPrint(r) || strings.ContainsRune("\u3164\ufe0f\u2800", r) {
			t.Errorf("%U stands unescaped", r)
		}
	}
	if !strings.Contains(text, `x\ny|z=]\u001b[31m\u202edecoy\u2066\u200b\u2028\u009b\udb40\udc41\u007f\u3164\ufe0f\u2800 ok`) {
		t.Errorf("the marks are not visible in %s", text)
	}
	if all := read(t, o.Path); all[1].Tool != name || all[2].Tool != "größe" {
		t.Errorf("read back %q and %q", all[1].Tool, all[2].Tool)
	}
}

func TestLongTextIsCutWithItsDigest(t *testing.T) {
	t.Parallel()
	o := options(t)
	w := open(t, o)
	long, fits := strings.Repeat("a", 3<<20), strings.Repeat("b", maxText)
	appendAll(t, w, Sync, Receipt{Kind: KindDecision, Tool: long, Reason: fits})
	got := read(t, o.Path)[1]
	want := fmt.Sprintf("%s… (%d bytes, %s)", long[:keptText], len(long), digest([]byte(long)))
	if got.Tool != want || got.Reason != fits {
		t.Errorf("tool %q, reason of %d bytes", got.Tool, len(got.Reason))
	}
}

func FuzzVerify(f *testing.F) {
	// A chain with a fixed name, since every process of the fuzzer makes the seed anew.
	const gateway, name = "harbour/gateway-0", "0123456789abcdef"
	var whole []byte
	last := link{hash: genesis(gateway, name)}
	for _, r := range []Receipt{{Kind: KindOpened}, decision("a"), decision("b")} {
		r.Gateway, r.Chain, r.Time = gateway, name, day
		line, err := r.chainTo(last, nil)
		if err != nil {
			f.Fatal(err)
		}
		whole, last = append(whole, line...), link{seq: r.Seq, hash: r.Hash}
		f.Add(bytes.Clone(whole))
	}
	f.Add([]byte(seqField + "1" + prevField + strings.Repeat("a", digestLength) + hashField + strings.Repeat("b", digestLength) + `"}` + "\n"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		report, err := Verify(bytes.NewReader(text))
		if err != nil || len(report.Problems) > 0 || report.Receipts == 0 {
			return
		}
		// The fuzzer cannot hash: what it gets through is a beginning of the seed.
		if !bytes.HasPrefix(whole, text) {
			t.Errorf("accepted %q", text)
		}
	})
}
