// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// maxReceiptLine bounds a line that is read, in bytes; those that gateways write are far below.
const maxReceiptLine = 1 << 20

// recordFile is a file of receipts, as long as it was when it was opened: a gateway may go on writing it.
type recordFile struct {
	path string
	file *os.File
	size int64
}

// recordFiles are files of receipts that are open.
type recordFiles []recordFile

func (files recordFiles) close() {
	for _, f := range files {
		f.file.Close() //nolint:errcheck,gosec // it was only read
	}
}

func (o *simulateOptions) openRecords() (recordFiles, error) {
	var files recordFiles
	for _, path := range o.receipts {
		file, err := os.Open(path)
		if err != nil {
			files.close()
			return nil, err
		}
		files = append(files, recordFile{path: path, file: file})
		info, err := file.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is no regular file: it is read twice", glyph.Plain(path))
		}
		if err != nil {
			files.close()
			return nil, err
		}
		files[len(files)-1].size = info.Size()
	}
	return files, nil
}

func (f recordFile) reader() io.Reader { return io.NewSectionReader(f.file, 0, f.size) }

// verify checks the chain of each file, and says loudly what is wrong with it.
func (o *simulateOptions) verify(files recordFiles) error {
	var broken []error
	for _, f := range files {
		report, err := receipt.Verify(f.reader())
		if err != nil {
			return fmt.Errorf("read receipts from %s: %w", glyph.Plain(f.path), err)
		}
		faults := len(report.Problems) + report.MoreProblems
		if faults == 0 {
			continue
		}
		text := fmt.Sprintf("THE CHAIN OF %s IS BROKEN: %s, the first in %s", glyph.Plain(f.path), counted(faults, "fault"), report.Problems[0])
		if !o.acceptBroken {
			broken = append(broken, errors.New(text))
			continue
		}
		if _, err := fmt.Fprintf(o.ErrOut, "Warning: %s; what can be read of it is replayed, and proves nothing\n", text); err != nil {
			return err
		}
	}
	if len(broken) == 0 {
		return nil
	}
	return answeredError{notDone("%s\nSomebody changed it, or it was cut or lost lines: nothing was replayed. --accept-broken replays what can be read", errors.Join(broken...).Error())}
}

// recorded is one line of receipts.
type recorded struct {
	receipt.Receipt

	file string
	// unreadable: it is no receipt.
	unreadable bool
}

func (f recordFile) read(take func(recorded) error) error {
	return readRecords(f.reader(), f.path, take)
}

// readRecords gives each line to take, one after the other. A last line without an end is none.
func readRecords(source io.Reader, path string, take func(recorded) error) error {
	lines := bufio.NewReaderSize(source, 64<<10)
	for {
		line, err := readLine(lines)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read receipts from %s: %w", glyph.Plain(path), err)
		}
		r, ok := parseReceipt(line)
		if err := take(recorded{Receipt: r, file: path, unreadable: !ok}); err != nil {
			return err
		}
	}
}

var errLongLine = errors.New("a line is longer than a receipt can be")

// readLine returns the next line without its end; it is good until the next is read.
func readLine(r *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == nil && long == nil {
			return part[:len(part)-1], nil
		}
		long = append(long, part...)
		switch {
		case len(long) > maxReceiptLine:
			return nil, errLongLine
		case err == nil:
			return long[:len(long)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// parseReceipt reads one line.
func parseReceipt(line []byte) (receipt.Receipt, bool) {
	var r receipt.Receipt
	if err := json.Unmarshal(bytes.TrimSpace(line), &r); err != nil {
		return receipt.Receipt{}, false
	}
	return r, r.Schema == receipt.Schema
}
