// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/xml"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// testReport is what test prints.
type testReport struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Passed     int          `json:"passed"`
	Failed     int          `json:"failed"`
	Tests      []testResult `json:"tests"`
	Coverage   coverage     `json:"coverage"`
}

// testResult is how one case ended.
type testResult struct {
	File       string     `json:"file"`
	Name       string     `json:"name"`
	Tool       string     `json:"tool"`
	Passed     bool       `json:"passed"`
	Verdict    string     `json:"verdict"`
	By         string     `json:"by"`
	Mismatches mismatches `json:"mismatches,omitempty"`
	// Steps are the derivation of the verdict of a case that failed.
	Steps []policy.Step `json:"steps,omitempty"`
}

// coverage says which rules decided how often.
type coverage struct {
	Rules   []*coveredRule `json:"rules"`
	Reached int            `json:"reached"`
	Percent float64        `json:"percent"`
}

// coveredRule is a rule of a policy, and how many calls it decided.
type coveredRule struct {
	File    string `json:"file"`
	Policy  string `json:"policy"`
	Rule    string `json:"rule"`
	Decided int    `json:"decided"`
}

func (r coveredRule) name() string { return r.Policy + "/" + r.Rule }

// same tells whether two name one rule of one file, whatever way they were found.
func (r coveredRule) same(o coveredRule) bool {
	return r.Policy == o.Policy && r.Rule == o.Rule && filepath.Clean(r.File) == filepath.Clean(o.File)
}

func (c *coverage) find(r coveredRule) *coveredRule {
	for _, known := range c.Rules {
		if known.same(r) {
			return known
		}
	}
	return nil
}

func (c *coverage) add(rules []coveredRule) {
	for _, r := range rules {
		if c.find(r) == nil {
			c.Rules = append(c.Rules, &r)
		}
	}
}

func (c *coverage) count(rules []coveredRule, name string) {
	for _, r := range rules {
		if r.name() == name {
			c.find(r).Decided++
			return
		}
	}
}

// sum works out the percentage; where there are no rules, none is left out.
func (c *coverage) sum() {
	c.Percent = 100
	for _, r := range c.Rules {
		if r.Decided > 0 {
			c.Reached++
		}
	}
	if len(c.Rules) > 0 {
		c.Percent = 100 * float64(c.Reached) / float64(len(c.Rules))
	}
}

func (r *testReport) print(out io.Writer, format string) error {
	switch format {
	case "json":
		return printJSON(out, r)
	case "junit":
		return r.printJUnit(out)
	default:
		return r.printText(out)
	}
}

func (r *testReport) printText(out io.Writer) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	row := func(cells ...string) {
		for i, c := range cells {
			cells[i] = glyph.Plain(c)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	row("RESULT", "FILE", "TEST", "VERDICT", "BY")
	for _, t := range r.Tests {
		result := "pass"
		if !t.Passed {
			result = "FAIL"
		}
		row(result, t.File, t.Name, t.Verdict, t.By)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, t := range r.Tests {
		if !t.Passed {
			fmt.Fprintf(&text, "\n%s", t.failure())
		}
	}
	fmt.Fprintln(&text)
	row("POLICY", "RULE", "DECIDED")
	for _, c := range r.Coverage.Rules {
		times := "never: no test reaches it"
		if c.Decided > 0 {
			times = fmt.Sprint(c.Decided)
		}
		row(c.Policy, c.Rule, times)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&text, "\n%d passed, %d failed; %d of %s reached (%.1f%%)\n", r.Passed, r.Failed, r.Coverage.Reached,
		counted(len(r.Coverage.Rules), "rule"), r.Coverage.Percent)
	_, err := io.WriteString(out, text.String())
	return err
}

// failure says what was not as expected, and how the verdict came about.
func (t *testResult) failure() string {
	var text strings.Builder
	fmt.Fprintf(&text, "FAIL %s: %s\n", glyph.Plain(t.File), glyph.Plain(t.Name))
	for _, d := range t.Mismatches {
		fmt.Fprintf(&text, "  %s: want %s, got %s\n", d.Field, glyph.Plain(d.Want), glyph.Plain(d.Got))
	}
	text.WriteString("  how the verdict came about:\n")
	for _, s := range t.Steps {
		fmt.Fprintf(&text, "    %s: %s\n", glyph.Plain(s.Source), glyph.Plain(s.Says))
	}
	return text.String()
}

// The elements of a JUnit report.
type (
	junitReport struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func (r *testReport) printJUnit(out io.Writer) error {
	report := junitReport{Tests: r.Passed + r.Failed, Failures: r.Failed}
	for _, t := range r.Tests {
		if n := len(report.Suites); n == 0 || report.Suites[n-1].Name != t.File {
			report.Suites = append(report.Suites, junitSuite{Name: t.File})
		}
		s := &report.Suites[len(report.Suites)-1]
		c := junitCase{Class: t.File, Name: t.Name}
		if s.Tests++; !t.Passed {
			s.Failures++
			c.Failure = &junitFailure{fmt.Sprintf("want %s %s, got %s", t.Mismatches[0].Field, t.Mismatches[0].Want, t.Mismatches[0].Got), t.failure()}
		}
		s.Cases = append(s.Cases, c)
	}
	text, err := xml.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s%s\n", xml.Header, text)
	return err
}
