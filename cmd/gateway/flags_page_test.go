// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// The page that says how to run the gateway lists its flags, each with its default.
func TestThePageListsTheFlags(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `?(.*?)`? ?\\|").FindAllStringSubmatch(string(page), -1) {
		listed[row[1]] = row[2]
	}
	flags := map[string]string{}
	set := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
	(&options{}).addFlags(set)
	set.VisitAll(func(f *pflag.Flag) {
		flags[f.Name] = f.DefValue
		if f.DefValue == "[]" { // an empty list
			flags[f.Name] = ""
		}
	})
	flags["name"] = "name of the host"
	if diff := cmp.Diff(flags, listed); diff != "" {
		t.Errorf("docs/gateway.md (-flags +page):\n%s", diff)
	}
}
