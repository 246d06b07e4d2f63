// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
)

// blocks returns the fenced blocks of a language in a section of a page; "" are those that name none.
func blocks(file, heading, language string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, section, _ := strings.Cut(string(text), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var found []string
	var block strings.Builder
	inside, of := false, "" // a block, and of which language
	for line := range strings.Lines(section) {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && !inside:
			inside, of = true, fence
		case isFence && of == language:
			found = append(found, block.String())
			fallthrough
		case isFence:
			inside = false
			block.Reset()
		case inside:
			block.WriteString(line)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no block of %q under %q", file, language, heading)
	}
	return found, nil
}

// commands returns the lines of all blocks that name no language.
func commands(file, heading string) ([]string, error) {
	found, err := blocks(file, heading, "")
	return strings.Split(strings.TrimSpace(strings.Join(found, "")), "\n"), err
}
