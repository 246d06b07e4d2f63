// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// word matches a code or reason: one word of ASCII letters that begins with a capital.
var word = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

func TestEveryCodeOfTheGatewayIsDocumented(t *testing.T) {
	t.Parallel()
	inCode := map[string]bool{}
	for _, file := range parseFolder(t, "../internal/gateway") {
		ast.Inspect(file, func(n ast.Node) bool {
			for _, code := range codesIn(n) {
				inCode[code] = true
			}
			return true
		})
	}
	for name, value := range constants(t, "../internal/policy") {
		if strings.HasPrefix(name, "Reason") {
			inCode[value] = true
		}
	}
	if len(inCode) < 20 {
		t.Fatalf("found only %d codes in the sources: %v", len(inCode), slices.Sorted(maps.Keys(inCode)))
	}
	page := read(t, "../docs/errors.md")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(page, -1) {
		if word.MatchString(row[1]) {
			documented[row[1]] = true
		}
	}
	same(t, "docs/errors.md", inCode, documented)
}

// codesIn returns the codes that a node gives an answer, a receipt or a metric.
func codesIn(n ast.Node) []string {
	var found []string
	add := func(e ast.Expr) {
		if text, ok := literal(e); ok && word.MatchString(text) {
			found = append(found, text)
		}
	}
	switch n := n.(type) {
	case *ast.KeyValueExpr: // notice{code: "…"}
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "code" {
			add(n.Value)
		}
	case *ast.ValueSpec: // const codePending = "…"
		for i, name := range n.Names {
			if strings.HasPrefix(name.Name, "code") && i < len(n.Values) {
				add(n.Values[i])
			}
		}
	case *ast.AssignStmt: // r.Verdict, r.Code = …, "…"
		for i, left := range n.Lhs {
			field, ok := left.(*ast.SelectorExpr)
			if ok && field.Sel.Name == "Code" && len(n.Lhs) == len(n.Rhs) {
				add(n.Rhs[i])
			}
		}
	case *ast.CallExpr: // Metrics.decided(…, "…")
		if f, ok := n.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "decided" || f.Sel.Name == "refused") && len(n.Args) > 0 {
			add(n.Args[len(n.Args)-1])
		}
	}
	return found
}

func TestEveryConditionAndReasonIsDocumented(t *testing.T) {
	t.Parallel()
	var pages string
	for _, page := range kindPages() {
		pages += read(t, page)
	}
	all := constants(t, "../api/v1alpha1")
	checked := 0
	for name, value := range all {
		if !strings.HasPrefix(name, "Condition") && !strings.HasPrefix(name, "Reason") && !strings.HasPrefix(name, "NotInForce") &&
			!strings.HasPrefix(name, "Phase") && !strings.HasPrefix(name, "Cancel") && !strings.HasPrefix(name, "Outcome") {
			continue
		}
		checked++
		if !strings.Contains(pages, "`"+value+"`") {
			t.Errorf("no page of a kind says what %s, `%s`, means", name, value)
		}
	}
	if checked < 40 {
		t.Errorf("found only %d conditions and reasons", checked)
	}
}

func TestEveryFieldIsDocumented(t *testing.T) {
	t.Parallel()
	for plural, page := range kindPages() {
		text := read(t, page)
		names := map[string]bool{}
		for _, span := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
			for _, name := range regexp.MustCompile(`[A-Za-z]+`).FindAllString(span[1], -1) {
				names[name] = true
			}
		}
		var crd map[string]any
		if err := yaml.Unmarshal([]byte(read(t, "../config/crd/bases/tidewaiter.dev_"+plural+".yaml")), &crd); err != nil {
			t.Fatal(err)
		}
		fields := properties(crd)
		if len(fields) < 10 {
			t.Errorf("found only %d fields of %s", len(fields), plural)
		}
		for _, field := range fields {
			if !names[field] {
				t.Errorf("%s does not name the field %s", page, field)
			}
		}
	}
}

// properties returns the names of all properties of spec and status of a CRD, but those of conditions, which Kubernetes
// documents.
func properties(node any) []string {
	var found []string
	switch node := node.(type) {
	case []any:
		for _, element := range node {
			found = append(found, properties(element)...)
		}
	case map[string]any:
		for key, value := range node {
			members, ok := value.(map[string]any)
			if key != "properties" || !ok {
				found = append(found, properties(value)...)
				continue
			}
			for name, property := range members {
				switch name {
				case "apiVersion", "kind", "metadata", "spec", "status":
				default:
					found = append(found, name)
				}
				if name != "conditions" {
					found = append(found, properties(property)...)
				}
			}
		}
	}
	return found
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	t.Parallel()
	links := 0
	for _, page := range pages(t) {
		text := read(t, page)
		for _, match := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which is not there", page, match[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", page, match[1])
			}
		}
	}
	if links < 20 {
		t.Errorf("found only %d links", links)
	}
}

// anchors returns the names of the headings of a page, as GitHub makes them.
func anchors(page string) []string {
	var names []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, heading[1]))
	}
	return names
}

// kindPages maps the plural of each kind to its page.
func kindPages() map[string]string {
	return map[string]string{
		"governedservers":  "../docs/api/governedserver.md",
		"toolpolicies":     "../docs/api/toolpolicy.md",
		"approvalrequests": "../docs/api/approvalrequest.md",
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"../README.md", "../CONTRIBUTING.md"}
	err := filepath.WalkDir("../docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// parseFolder parses the Go files of a folder, but its tests.
func parseFolder(t *testing.T, folder string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// constants returns the constants of a folder that are plain strings.
func constants(t *testing.T, folder string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, file := range parseFolder(t, folder) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				if i < len(spec.Values) {
					if text, ok := literal(spec.Values[i]); ok {
						found[name.Name] = text
					}
				}
			}
			return true
		})
	}
	return found
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

func same(t *testing.T, page string, inCode, documented map[string]bool) {
	t.Helper()
	for _, code := range slices.Sorted(maps.Keys(inCode)) {
		if !documented[code] {
			t.Errorf("%s has no row for the code %s", page, code)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(documented)) {
		if !inCode[code] {
			t.Errorf("%s has a row for %s, which nothing gives", page, code)
		}
	}
}
