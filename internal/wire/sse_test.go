// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// event is an Event that outlives the next one.
type event struct {
	Raw, Data     string
	Whole, Marked bool
}

func split(t testing.TB, source io.Reader, limit int) ([]event, error) {
	t.Helper()
	s := wire.NewSplitter(source, limit)
	var events []event
	for {
		e, err := s.Next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		if len(e.Raw) == 0 {
			t.Fatal("an event without a byte")
		}
		events = append(events, event{Raw: string(e.Raw), Data: string(e.Data), Whole: e.Whole, Marked: e.Marked})
	}
}

func TestAStreamIsSplitIntoItsEvents(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stream string
		want   []event
	}{
		"nothing":                      {"", nil},
		"line feeds":                   {"data: a\n\ndata: b\n\n", []event{{"data: a\n\n", "a", true, false}, {"data: b\n\n", "b", true, false}}},
		"CRLF":                         {"id: 1\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []event{{"id: 1\r\ndata: a\r\n\r\n", "a", true, false}, {"data: b\r\n\r\n", "b", true, false}}},
		"CR":                           {"data: a\r\rdata: b\r\r", []event{{"data: a\r\r", "a", true, false}, {"data: b\r\r", "b", true, false}}},
		"mixed":                        {"data: a\r\n\ndata: b\n\r", []event{{"data: a\r\n\n", "a", true, false}, {"data: b\n\r", "b", true, false}}},
		"several data lines":           {"data: {\ndata:  \"a\":1\ndata\ndata:}\n\n", []event{{"data: {\ndata:  \"a\":1\ndata\ndata:}\n\n", "{\n \"a\":1\n\n}", true, false}}},
		"one space only is taken away": {"data:  a\n\n", []event{{"data:  a\n\n", " a", true, false}}},
		"a byte order mark":            {"\ufeffdata: a\n\n", []event{{"\ufeffdata: a\n\n", "a", true, true}}},
		"a mark further on is text":    {"data: a\n\n\ufeffdata: b\n\n", []event{{"data: a\n\n", "a", true, false}, {"\ufeffdata: b\n\n", "", true, false}}},
		"a named event":                {"event: message\nid: 7\nretry: 10\ndata: a\n\n", []event{{"event: message\nid: 7\nretry: 10\ndata: a\n\n", "a", true, false}}},
		"comments go on at once":       {": ping\n:\n\ndata: a\n\n", []event{{": ping\n", "", true, false}, {":\n", "", true, false}, {"\n", "", true, false}, {"data: a\n\n", "a", true, false}}},
		"a comment inside an event":    {"data: a\n: c\ndata: b\n\n", []event{{"data: a\n: c\ndata: b\n\n", "a\nb", true, false}}},
		"an id alone":                  {"id: 1\n\n", []event{{"id: 1\n\n", "", true, false}}},
		"names are exact":              {"Data: a\n data: b\ndatax: c\n\n", []event{{"Data: a\n data: b\ndatax: c\n\n", "", true, false}}},
		"no blank line at the end":     {"data: a\n\ndata: b\n", []event{{"data: a\n\n", "a", true, false}, {"data: b\n", "b", false, false}}},
		"no line end at the end":       {"data: a", []event{{"data: a", "a", false, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := split(t, strings.NewReader(tc.stream), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSplittingDoesNotDependOnHowBytesArrive(t *testing.T) {
	t.Parallel()
	const stream = "\ufeffid: 1\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\n: c\r\ndata: b\r\rdata: c\n\n"
	byByte, err := split(t, iotest.OneByteReader(strings.NewReader(stream)), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if got := relayed(byByte); got != stream {
		t.Errorf("relayed %q", got)
	}
	if diff := cmp.Diff([]string{"{\"a\":\n1}", "b", "c"}, filtered(byByte)); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

func TestAnEventIsHandedOutBeforeTheNextOneStarts(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	s := wire.NewSplitter(r, 1<<20)
	go func() { _, _ = io.WriteString(w, "data: a\r\n\r") }()
	if e, err := s.Next(); err != nil || string(e.Data) != "a" {
		t.Fatalf("Next = %q, %v", e.Data, err)
	}
	go func() { _, _ = io.WriteString(w, "\ndata: b\r\n\r\n") }()
	if e, err := s.Next(); err != nil || string(e.Data) != "b" || string(e.Raw) != "\ndata: b\r\n\r\n" {
		t.Fatalf("Next = %q of %q, %v", e.Data, e.Raw, err)
	}
}

func TestAnEventOverTheLimitEndsTheStream(t *testing.T) {
	t.Parallel()
	fits := "data: " + strings.Repeat("x", 92) + "\n\n"
	for name, tc := range map[string]struct {
		stream string
		want   error
	}{
		"many that fit":          {strings.Repeat(fits, 50), nil},
		"one byte more":          {strings.Replace(fits, "x", "xx", 1), wire.ErrEventTooLarge},
		"a line that never ends": {strings.Repeat("x", 101), wire.ErrEventTooLarge},
		"many short lines":       {strings.Repeat("data: x\n", 20), wire.ErrEventTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, source := range []io.Reader{strings.NewReader(tc.stream), iotest.OneByteReader(strings.NewReader(tc.stream))} {
				if _, err := split(t, source, 100); !errors.Is(err, tc.want) {
					t.Errorf("error %v, want %v", err, tc.want)
				}
			}
		})
	}
}

func TestABrokenStreamIsAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("reset")
	source := io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken))
	got, err := split(t, source, 1<<20)
	if !errors.Is(err, broken) || len(got) != 1 {
		t.Errorf("events %v, error %v", got, err)
	}
}

func TestWithDataKeepsEveryOtherLine(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"id: 1\nevent: e\ndata: {\ndata: }\nretry: 5\n\n": "id: 1\nevent: e\ndata: [1]\nretry: 5\n\n",
		"data:a\r\n\r\n":     "data: [1]\r\n\r\n",
		"id: 1\rdata: a\r\r": "id: 1\rdata: [1]\r\r",
		"\ndata: a\n\n":      "\ndata: [1]\n\n",
		"\ufeffdata: a\n\n":  "\ufeffdata: a\n\n", // no data line but at the start of a stream
		"data: a":            "data: [1]",
		": c\n":              ": c\n",
	} {
		if got := string(wire.Event{Raw: []byte(raw)}.WithData([]byte("[1]"))); got != want {
			t.Errorf("WithData of %q = %q, want %q", raw, got, want)
		}
	}
	marked := wire.Event{Raw: []byte("\ufeffdata: a\n\ufeffdata: b\n\n"), Marked: true}
	if got := string(marked.WithData([]byte("[1]"))); got != "data: [1]\n\ufeffdata: b\n\n" {
		t.Errorf("WithData behind a mark = %q", got)
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add([]byte("\ufeffid: 1\r\ndata: a\r\ndata: b\r\n\r\n: c\r\rdata\n\n"))
	f.Add([]byte("data: a\r\r\n\ndata"))
	f.Add([]byte("\xef\xbb"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, err := split(t, bytes.NewReader(stream), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		byByte, err := split(t, iotest.OneByteReader(bytes.NewReader(stream)), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := relayed(whole), relayed(byByte); a != string(stream) || b != string(stream) {
			t.Fatalf("%q was relayed as %q and %q", stream, a, b)
		}
		if diff := cmp.Diff(filtered(whole), filtered(byByte)); diff != "" {
			t.Fatalf("data of %q depends on how it arrives:\n%s", stream, diff)
		}
		for _, e := range whole {
			again, err := split(t, bytes.NewReader(wire.Event{Raw: []byte(e.Raw), Marked: e.Marked}.WithData([]byte("x"))), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if data := filtered(again); e.Data != "" && (len(data) != 1 || data[0] != "x") {
				t.Fatalf("%q with other data holds %q", e.Raw, data)
			}
		}
	})
}

func relayed(events []event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Raw)
	}
	return b.String()
}

// filtered is what a client would act on.
func filtered(events []event) []string {
	var data []string
	for _, e := range events {
		if e.Data != "" {
			data = append(data, e.Data)
		}
	}
	return data
}

func BenchmarkSplitter(b *testing.B) {
	stream := bytes.Repeat([]byte("event: message\ndata: "+strings.Repeat("x", 1000)+"\n\n"), 1000)
	b.ReportAllocs()
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		s := wire.NewSplitter(bytes.NewReader(stream), 1<<20)
		for {
			if _, err := s.Next(); err != nil {
				break
			}
		}
	}
}
