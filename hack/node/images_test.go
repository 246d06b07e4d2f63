// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestAnImageIsItsProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "agent"), filepath.Join(dir, "agent.tar")
	if err := os.WriteFile(program, []byte("ELF"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeImage(archive, "localhost/tidewaiter/agent:e2e", program); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("localhost/tidewaiter/agent:e2e")
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(archive, &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/agent"}, config.Config.Entrypoint); diff != "" || config.Config.User != user {
		t.Errorf("runs as %s; entrypoint (-want +got):\n%s", config.Config.User, diff)
	}
	files := map[string]string{}
	content := mutate.Extract(image)
	defer content.Close()
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(data)
	}
	if diff := cmp.Diff(map[string]string{"agent": "ELF", "tmp": ""}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestWhatIsNoImageSaysWhy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	has(t, writeImage(filepath.Join(dir, "x.tar"), "Not A Name", dir), "name an image")
	has(t, writeImage(filepath.Join(dir, "x.tar"), "localhost/x:y", filepath.Join(dir, "none")), "read a program", "none")
}
