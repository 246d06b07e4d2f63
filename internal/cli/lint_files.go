// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/manifest"
)

// sourceFile is a file with YAML documents.
type sourceFile struct {
	// path as it is shown; - for standard input.
	path string
	data []byte
	// named tells that the command line names the file itself, and not a directory that it is in.
	named bool
}

// isManifest tells which files of a directory may hold manifests.
func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// isPolicyTest tells which files of a directory hold tests of policies.
func isPolicyTest(name string) bool {
	return strings.HasSuffix(name, "_test.yaml") || strings.HasSuffix(name, "_test.yml")
}

// readFiles reads the files that the arguments name, and of directories those that are wanted, in the order of their
// names. A file is read once.
func readFiles(stdin io.Reader, args []string, wanted func(name string) bool) ([]sourceFile, error) {
	var files []sourceFile
	seen := map[string]bool{}
	add := func(path string, named bool) error {
		clean := filepath.Clean(path)
		if seen[clean] {
			return nil
		}
		seen[clean] = true
		data, err := readFile(stdin, path)
		files = append(files, sourceFile{path, data, named})
		return err
	}
	for _, arg := range args {
		info, err := os.Stat(arg)
		switch {
		case arg == "-":
			if err := add(arg, true); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		case !info.IsDir():
			if err := add(arg, true); err != nil {
				return nil, err
			}
			continue
		}
		found := false
		err = filepath.WalkDir(arg, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !wanted(entry.Name()) {
				return err
			}
			// A pipe that nobody writes to would be read for ever; one that is named is meant.
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if !info.Mode().IsRegular() {
				return fmt.Errorf("%s is no regular file: move it out of %s, or name it to have it read", path, arg)
			}
			found = true
			return add(path, false)
		})
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fmt.Errorf("there is no file to read in %s", arg)
		}
	}
	return files, nil
}

// readFile reads a file as far as it may go; what is larger is told by who reads its text.
func readFile(stdin io.Reader, path string) ([]byte, error) {
	source := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close() //nolint:errcheck // it was only read
		source = file
	}
	data, err := io.ReadAll(io.LimitReader(source, manifest.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}
