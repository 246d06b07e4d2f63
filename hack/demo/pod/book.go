// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"
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
func (b *book) write(e execution) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write down an execution: %w", err)
	}
	if _, err := b.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write down an execution: %w", err)
	}
	return b.file.Sync()
}

// postTimeout bounds how long a server waits for the book.
const postTimeout = 5 * time.Second

// post has the book at a URL write an execution down.
func post(url string, e execution) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write down an execution: %w", err)
	}
	client := &http.Client{Timeout: postTimeout}
	response, err := client.Post(url, "application/json", bytes.NewReader(line))
	if err != nil {
		return fmt.Errorf("write down an execution: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // it is empty
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("write down an execution: the book answers %s", response.Status)
	}
	return nil
}

// keepBook is the book at a URL: it outlives the servers.
func keepBook(ctx context.Context, path, address string) error {
	book, err := openBook(path)
	if err != nil {
		return err
	}
	return listen(ctx, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e execution
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := book.write(e); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
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
