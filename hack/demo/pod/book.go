// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// book is where a server writes what it executes: it outlives the process, and several of them share one file.
type book struct{ file *os.File }

// execution is a line of a book.
type execution struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
}

func openBook(path string) (*book, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the book of executions: %w", err)
	}
	return &book{file}, nil
}

// write puts an execution on disk.
func (b *book) write(tool string, arguments map[string]any) error {
	line, err := json.Marshal(execution{tool, arguments})
	if err != nil {
		return fmt.Errorf("write down an execution: %w", err)
	}
	if _, err := b.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write down an execution: %w", err)
	}
	return b.file.Sync()
}

// printFile prints a book; one that nobody has opened yet is empty.
func printFile(stdout io.Writer, path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	_, err = io.Copy(stdout, file)
	return err
}
