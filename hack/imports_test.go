// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hack holds checks on the repository itself; it builds nothing.
package hack

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tidewaiter/tidewaiter/"

// allowed lists what each package may import from this module, its tests included.
var allowed = map[string][]string{
	"api/v1alpha1":         {},
	"internal/failpoint":   {},
	"internal/glyph":       {},
	"internal/netguard":    {},
	"internal/breaker":     {},
	"internal/receipt":     {"internal/failpoint", "internal/glyph"},
	"internal/strictjson":  {},
	"internal/wire":        {"internal/strictjson"},
	"internal/tool":        {"api/v1alpha1", "internal/strictjson", "internal/glyph"},
	"internal/vote":        {"api/v1alpha1", "internal/strictjson"},
	"internal/votingkey":   {"api/v1alpha1", "internal/vote", "internal/fixture"},
	"internal/serving":     {"api/v1alpha1", "internal/fixture"},
	"internal/spelling":    {},
	"internal/expr":        {"api/v1alpha1", "internal/spelling", "internal/strictjson"},
	"internal/policy":      {"api/v1alpha1", "internal/glyph", "internal/expr", "internal/spelling"},
	"internal/admission":   {"api/v1alpha1", "internal/definitions", "internal/glyph", "internal/policy", "internal/sidecar", "internal/survey", "internal/vote", "internal/fixture"},
	"internal/approval":    {"api/v1alpha1", "internal/failpoint", "internal/fixture"},
	"internal/classify":    {"api/v1alpha1", "internal/tool"},
	"internal/manifest":    {"api/v1alpha1", "config/crd", "internal/glyph", "internal/spelling"},
	"internal/action":      {"api/v1alpha1", "internal/glyph", "internal/tool", "internal/strictjson"},
	"internal/survey":      {"api/v1alpha1", "internal/definitions", "internal/policy", "internal/tool", "internal/fixture"},
	"internal/snapshot":    {"api/v1alpha1", "internal/policy", "internal/tool", "internal/fixture"},
	"internal/flow":        {"internal/snapshot", "internal/wire"},
	"internal/identity":    {"internal/fixture/login"},
	"internal/definitions": {"api/v1alpha1", "internal/tool"},
	"internal/discovery":   {"internal/glyph", "internal/tool", "internal/netguard", "internal/strictjson", "internal/wire"},
	"internal/notify":      {"api/v1alpha1", "internal/glyph", "internal/netguard", "internal/fixture"},
	"internal/endpoint":    {"api/v1alpha1", "internal/netguard", "internal/fixture"},
	"internal/stdio":       {},
	"internal/control":     {"internal/discovery", "internal/endpoint", "internal/identity", "internal/netguard", "internal/tool"},
	"internal/sidecar":     {"api/v1alpha1", "internal/endpoint", "internal/fixture"},
	"internal/standalone":  {"api/v1alpha1", "internal/sidecar", "internal/fixture"},
	"internal/gateway": {
		"api/v1alpha1", "internal/wire", "internal/tool", "internal/action", "internal/snapshot", "internal/policy",
		"internal/approval", "internal/flow", "internal/receipt", "internal/endpoint", "internal/strictjson", "internal/fixture",
		"internal/netguard", "internal/glyph", "internal/identity", "internal/vote", "internal/expr", "internal/breaker",
		"internal/fixture/authority", "internal/fixture/collector", "internal/tracing",
		"internal/failpoint",
	},
	"internal/cli":           {"api/v1alpha1", "internal/receipt", "internal/sidecar", "internal/definitions", "internal/glyph", "internal/manifest", "internal/expr", "internal/tool", "internal/classify", "internal/action", "internal/policy", "internal/strictjson", "internal/vote", "internal/fixture"},
	"internal/fixture":       {"api/v1alpha1"},
	"internal/fixture/login": {},
	"internal/fixture/booth": {"api/v1alpha1", "internal/admission", "internal/policy", "internal/sidecar", "internal/survey", "internal/vote", "internal/fixture"},
	"controllers":            {"api/v1alpha1", "internal/failpoint", "internal/survey", "internal/definitions", "internal/glyph", "internal/control", "internal/discovery", "internal/endpoint", "internal/identity", "internal/sidecar", "internal/standalone", "internal/tool", "internal/vote", "internal/classify", "internal/policy", "internal/netguard", "internal/fixture", "internal/fixture/booth"},
	"cmd/manager":            {"api/v1alpha1", "internal/survey", "controllers", "internal/discovery", "internal/netguard", "internal/policy", "internal/admission", "internal/serving", "internal/sidecar", "internal/standalone", "internal/votingkey", "internal/notify", "internal/fixture"},
	"cmd/gateway":            {"api/v1alpha1", "internal/approval", "internal/control", "internal/discovery", "internal/endpoint", "internal/gateway", "internal/identity", "internal/netguard", "internal/policy", "internal/receipt", "internal/sidecar", "internal/standalone", "internal/stdio", "internal/tool", "internal/tracing", "internal/vote", "internal/fixture", "internal/fixture/authority", "internal/fixture/collector", "internal/fixture/booth", "internal/fixture/login"},
	"cmd/kubectl-tidewaiter": {"api/v1alpha1", "internal/survey", "controllers", "internal/definitions", "internal/cli", "internal/policy", "internal/tool", "internal/fixture", "internal/fixture/booth"},

	"internal/fixture/authority": {},
	"internal/fixture/collector": {},
	"internal/tracing":           {"internal/wire", "internal/fixture/collector"},
}

// TestImportsFollowTheMap parses the files itself: what a child process reads is not seen by the test cache.
func TestImportsFollowTheMap(t *testing.T) {
	t.Parallel()
	for pkg, may := range allowed {
		files, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s is on the map, and there is no such package (%v)", pkg, err)
		}
		for _, file := range files {
			for _, imported := range importsOf(t, file) {
				if imported != pkg && !slices.Contains(may, imported) {
					t.Errorf("%s imports %s, which the map does not allow", file, imported)
				}
			}
		}
	}
}

func TestEveryPackageIsOnTheMap(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"api", "internal", "controllers", "cmd"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.Contains(path, "testdata") {
				return err
			}
			pkg := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."+string(filepath.Separator)))
			if _, known := allowed[pkg]; !known {
				t.Errorf("%s is not on the map", pkg)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// importsOf returns the packages of this module that a file imports.
func importsOf(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for _, spec := range parsed.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if rest, ok := strings.CutPrefix(path, module); ok {
			ours = append(ours, rest)
		}
	}
	return ours
}
