// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/manifest"
)

// The severities of findings, as compilers call them.
const (
	severityError   = "error"
	severityWarning = "warning"
	severityNote    = "note"
)

// lintFinding is one line of lint.
type lintFinding struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Severity string `json:"severity"`
	// Object is the kind and name of what it is about, "" where that cannot be told.
	Object  string `json:"object,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

func (f lintFinding) String() string {
	text := f.Message
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	return glyph.Plain(fmt.Sprintf("%s:%d:%d: %s: %s", f.File, f.Line, f.Column, f.Severity, text))
}

func compareFindings(a, b lintFinding) int {
	return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
		strings.Compare(a.Severity, b.Severity), strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
}

// lintReport is what lint prints.
type lintReport struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Files      int    `json:"files"`
	Policies   int    `json:"policies"`
	Servers    int    `json:"servers"`
	// PassedOver counts documents of other kinds.
	PassedOver int `json:"passedOver"`
	// ToolsKnown tells whether rules were compared with the tools that they speak of.
	ToolsKnown bool          `json:"toolsKnown"`
	Errors     int           `json:"errors"`
	Warnings   int           `json:"warnings"`
	Findings   []lintFinding `json:"findings"`
}

// foundError says how many findings there are; they are printed already.
type foundError struct{ text string }

func (e foundError) Error() string { return e.text }

// lintOptions are the flags of lint.
type lintOptions struct {
	*session

	output, tools string
	live, strict  bool
}

// newLintCommand returns the verb that checks policies before they are applied.
func newLintCommand(s *session) *cobra.Command {
	o := &lintOptions{session: s}
	cmd := &cobra.Command{
		Use:   "lint FILE...",
		Short: "Check ToolPolicies and GovernedServers in files before they are applied",
		Long: `Check ToolPolicies and GovernedServers in files: everything that the API server would
refuse, and what it would take but cannot mean what its author meant. Nothing is asked of a
cluster, unless --live says so. FILE is a file, a directory (with all its *.yaml, *.yml and
*.json), or - for standard input. Other kinds are passed over.

With the tools of a server the rules are compared with the schemas of these tools, and rules
that match none are found: give a dump of tools/list with --tools, or --live.

Exit codes: 0 nothing to mend (warnings are allowed), 1 errors, with --strict also warnings,
2 a file cannot be read, or the cluster not be asked.`,
		Example: `  # In CI, with what the server answers to tools/list
  kubectl tidewaiter lint --strict --tools tools.json policies/

  # Against the servers as they are now
  kubectl tidewaiter lint --live -n shop policies/`,
		Args: usage(someFiles),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output != "text" && o.output != "json" {
				return usageError{fmt.Errorf("the output %q is neither text nor json", o.output)}
			}
			if o.tools != "" && o.live {
				return usageError{errors.New("the tools come from --tools or from --live, not from both")}
			}
			return o.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.output, "output", "o", "text", "text or json")
	flags.StringVar(&o.tools, "tools", "", "a file with the tools of the servers, as classify -f reads it; a member \"server\" beside a tool says which server has it, else all targets have it")
	flags.BoolVar(&o.live, "live", false, "take the tools from the GovernedServers of the cluster")
	flags.BoolVar(&o.strict, "strict", false, "let warnings count as errors do")
	return cmd
}

// someFiles wants the name of at least one file or directory.
func someFiles(cmd *cobra.Command, given []string) error {
	if len(given) == 0 {
		return fmt.Errorf("give a file or a directory for %s to read; none was given", cmd.Name())
	}
	return nil
}

func (o *lintOptions) run(ctx context.Context, args []string) error {
	files, err := readFiles(o.In, args, isManifest)
	if err != nil {
		return notRunError{err}
	}
	kinds, err := manifest.LoadKinds()
	if err != nil {
		return err
	}
	l := &linter{kinds: kinds, operatorNamespace: o.operatorNamespace}
	for _, f := range files {
		l.read(ctx, f)
	}
	known, err := o.knownTools(ctx, l)
	if err != nil {
		return notRunError{err}
	}
	for _, p := range l.policies {
		l.judge(p, known)
	}
	return o.report(l, len(files), known != nil)
}

// report prints what was found, and returns an error where that has to be mended.
func (o *lintOptions) report(l *linter, files int, toolsKnown bool) error {
	slices.SortFunc(l.findings, compareFindings)
	r := lintReport{
		APIVersion: viewVersion, Kind: "LintReport", Files: files, Policies: len(l.policies), Servers: len(l.servers), PassedOver: l.passedOver, ToolsKnown: toolsKnown,
		Findings: slices.Compact(append([]lintFinding{}, l.findings...)),
	}
	for _, f := range r.Findings {
		switch f.Severity {
		case severityError:
			r.Errors++
		case severityWarning:
			r.Warnings++
		}
	}
	if err := r.print(o.Out, o.output); err != nil {
		return err
	}
	if r.Errors > 0 || o.strict && r.Warnings > 0 {
		return foundError{fmt.Sprintf("%s, %s", counted(r.Errors, "error"), counted(r.Warnings, "warning"))}
	}
	return nil
}

func (r *lintReport) print(out io.Writer, format string) error {
	if format == "json" {
		return printJSON(out, r)
	}
	var text strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintln(&text, f)
	}
	fmt.Fprintf(&text, "%s: %s, %s: %s, %s\n", counted(r.Files, "file"), counted(r.Policies, "ToolPolicy"), counted(r.Servers, "GovernedServer"),
		counted(r.Errors, "error"), counted(r.Warnings, "warning"))
	if r.PassedOver > 0 {
		fmt.Fprintf(&text, "%s of other kinds passed over\n", counted(r.PassedOver, "document"))
	}
	if !r.ToolsKnown && r.Policies > 0 {
		text.WriteString("the tools are not known (--tools or --live): rules were not compared with them\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// counted is a number with its word.
func counted(n int, word string) string {
	switch {
	case n == 1:
		return "1 " + word
	case strings.HasSuffix(word, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(word, "y"))
	default:
		return fmt.Sprintf("%d %ss", n, word)
	}
}

func printJSON(out io.Writer, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := text.WriteTo(out)
	return err
}
