// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Open takes hold of the file, checks its whole chain and goes on from its last whole line. What follows that line
// after a crash is moved to a file of its own, <path>.torn-<digest>, and recorded. A chain that is damaged anywhere
// else is not continued.
func Open(options Options) (*Writer, error) {
	_, err := os.Stat(options.Path)
	isNew := errors.Is(err, os.ErrNotExist)
	file, err := os.OpenFile(options.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open receipts: %w", err)
	}
	w := &Writer{options: options, file: file, executed: newUIDIndex(), fates: newFates()}
	if err := w.start(isNew); err != nil {
		return nil, errors.Join(fmt.Errorf("open receipts %s: %w", options.Path, err), file.Close())
	}
	return w, nil
}

func (w *Writer) start(isNew bool) error {
	if err := lock(w.file); err != nil {
		return err
	}
	if isNew {
		if err := syncDirectory(w.options.Path); err != nil {
			return err
		}
	}
	set, torn, err := w.read()
	if err != nil {
		return err
	}
	if len(torn) > 0 {
		if err := w.setAside(torn); err != nil {
			return fmt.Errorf("set a torn line aside: %w", err)
		}
	}
	if w.chain == "" {
		if w.chain, err = randomChain(); err != nil {
			return err
		}
		w.last = link{hash: genesis(w.options.Gateway, w.chain)}
	}
	batch := []*entry{w.note(Receipt{Kind: KindOpened})}
	notes, err := w.tornNotes(set)
	if err != nil {
		return fmt.Errorf("look for torn lines: %w", err)
	}
	return w.commit(append(batch, notes...))
}

// read checks the chain and gathers what the writer must know: its end, the requests it has seen, and the names of
// the torn files it has recorded.
func (w *Writer) read() (recorded []string, torn []byte, err error) {
	s := newScanner(w.file)
	for s.next() {
		if s.problem != nil {
			return nil, nil, fmt.Errorf("%s. Keep the file as evidence: move it away and start again, which begins a new chain",
				s.problem)
		}
		if s.number == 1 && s.gateway != w.options.Gateway {
			return nil, nil, fmt.Errorf("this is the record of gateway %q, not of %q: give every gateway a file of its own",
				s.gateway, w.options.Gateway)
		}
		// Only these need a look inside; a long file is read at the speed of its hashes.
		if !bytes.Contains(s.line, []byte(`"requestUID":"`)) && !bytes.Contains(s.line, []byte(`"actionHash":"`)) && !bytes.Contains(s.line, []byte(`"torn":{`)) {
			continue
		}
		var r Receipt
		if err := json.Unmarshal(s.line, &r); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", s.number, err)
		}
		if r.dispatches() && w.options.Now().Sub(r.Time) <= uidRetention {
			w.executed.add(r.RequestUID, r.Time)
		}
		w.fates.note(&r)
		if r.Torn != nil {
			recorded = append(recorded, r.Torn.File)
		}
	}
	w.fates.restart()
	w.fates.forget(w.options.Now())
	w.chain, w.last, w.size = s.chain, s.last, s.whole
	return recorded, s.torn, s.err
}

const tornInfix = ".torn-"

// setAside copies the torn end of the file beside it and cuts it off. It is named by its content, so that a crash in
// the middle of this leaves nothing that the next start does not find.
func (w *Writer) setAside(torn []byte) error {
	name := w.options.Path + tornInfix + strings.TrimPrefix(digest(torn), "sha256:")[:16]
	aside, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = aside.Write(torn)
	if err := errors.Join(err, aside.Sync(), aside.Close(), syncDirectory(name)); err != nil {
		return err
	}
	return errors.Join(w.file.Truncate(w.size), w.file.Sync())
}

// tornNotes makes a receipt of every file that was set aside and is not on record.
func (w *Writer) tornNotes(recorded []string) ([]*entry, error) {
	directory, prefix := filepath.Dir(w.options.Path), filepath.Base(w.options.Path)+tornInfix
	found, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var notes []*entry
	for _, f := range found {
		if !strings.HasPrefix(f.Name(), prefix) || slices.Contains(recorded, f.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(directory, f.Name()))
		if err != nil {
			return nil, err
		}
		notes = append(notes, w.note(Receipt{
			Kind:   KindRecovered,
			Reason: "the last line had no end, as after a crash; it was set aside",
			Torn:   &Torn{File: f.Name(), Bytes: int64(len(text)), Digest: digest(text)},
		}))
	}
	return notes, nil
}

func randomChain() (string, error) {
	random := make([]byte, 16)
	if _, err := io.ReadFull(rand.Reader, random); err != nil {
		return "", fmt.Errorf("name the chain: %w", err)
	}
	return hex.EncodeToString(random), nil
}

// syncDirectory makes the name of a new file as durable as its content.
func syncDirectory(path string) error {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
