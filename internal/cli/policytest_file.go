// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tidewaiter/tidewaiter/internal/manifest"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

//go:embed policytest.schema.yaml
var policyTestSchema []byte

// policyTest is a file with tests of policies.
type policyTest struct {
	Namespace string       `json:"namespace"`
	Policies  []string     `json:"policies"`
	Servers   []testServer `json:"servers"`
	Cases     []testCase   `json:"cases"`
}

// testCase is one call and what should become of it.
type testCase struct {
	Name   string     `json:"name"`
	Server string     `json:"server"`
	Call   testCall   `json:"call"`
	As     testCaller `json:"as"`
	Expect expected   `json:"expect"`
}

// testCall is a call of a tool; the arguments keep every digit.
type testCall struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
}

// testCaller is who calls.
type testCaller struct {
	Username       string   `json:"username"`
	ServiceAccount string   `json:"serviceAccount"`
	Groups         []string `json:"groups"`
	ActsFor        string   `json:"actsFor"`
}

// expected are the parts of a verdict that a case gives; only these are compared.
type expected struct {
	Verdict   *string          `json:"verdict"`
	Observed  *string          `json:"observed"`
	Reason    *string          `json:"reason"`
	Rule      *string          `json:"rule"`
	Tier      *string          `json:"tier"`
	Required  *int32           `json:"required"`
	Verbs     *[]string        `json:"verbs"`
	Message   *string          `json:"message"`
	Controls  *[]string        `json:"controls"`
	Uncertain *bool            `json:"uncertain"`
	Preview   *expectedPreview `json:"preview"`
}

// expectedPreview is the call that shows what another would affect.
type expectedPreview struct {
	Tool *string         `json:"tool"`
	Args json.RawMessage `json:"args"`
}

// suite is a file with tests, ready to be run.
type suite struct {
	policyTest

	path     string
	policies []linted
	worlds   map[string]*policy.Server
}

// suiteReader reads files with tests and the files that they name. What is wrong with them is a finding of the linter.
type suiteReader struct {
	schema *manifest.Schema
	linter *linter
}

func newSuiteReader(kinds *manifest.Kinds, operatorNamespace string) (*suiteReader, error) {
	var format apiextensionsv1.JSONSchemaProps
	if err := yaml.UnmarshalStrict(policyTestSchema, &format); err != nil {
		return nil, fmt.Errorf("read the format of tests: %w", err)
	}
	schema, err := manifest.NewSchema(&format, false)
	return &suiteReader{schema, &linter{kinds: kinds, operatorNamespace: operatorNamespace}}, err
}

// read reads the tests of a file. Where findings come of it, they are incomplete.
func (r *suiteReader) read(ctx context.Context, f sourceFile) []*suite {
	documents, problems := manifest.Read(f.data)
	for _, p := range problems {
		r.linter.say(f.path, severityError, "", p)
	}
	var suites []*suite
	for _, d := range documents {
		before := len(r.linter.findings)
		s := &suite{path: f.path, worlds: map[string]*policy.Server{}}
		for _, p := range r.schema.Check(ctx, d) {
			r.linter.say(f.path, severityError, "", p)
		}
		if len(r.linter.findings) > before {
			continue
		}
		if err := d.Decode(&s.policyTest); err != nil {
			r.refuse(s, d, "", "%v", err)
			continue
		}
		r.arguments(s, d)
		r.policies(ctx, s, d)
		r.servers(ctx, s, d)
		suites = append(suites, s)
	}
	if len(documents) == 0 && len(problems) == 0 {
		r.linter.say(f.path, severityError, "", manifest.Problem{Place: manifest.Place{Line: 1, Column: 1}, Message: "there is no test in this file"})
	}
	return suites
}

// refuse says what is wrong in a file with tests.
func (r *suiteReader) refuse(s *suite, d *manifest.Document, field, format string, args ...any) {
	r.linter.say(s.path, severityError, "", manifest.Problem{Place: d.Place(field), Field: field, Message: fmt.Sprintf(format, args...)})
}

// arguments takes the arguments from the text of the file, so that no digit of them is lost, and looks at what cases name.
func (r *suiteReader) arguments(s *suite, d *manifest.Document) {
	take := func(field string) json.RawMessage {
		raw, wrong := d.JSON(field)
		if wrong != nil {
			r.linter.say(s.path, severityError, "", *wrong)
		}
		return raw
	}
	for i := range s.Cases {
		c := &s.Cases[i]
		field := fmt.Sprintf("cases[%d]", i)
		c.Call.Args = take(field + ".call.args")
		if c.Expect.Preview != nil {
			c.Expect.Preview.Args = take(field + ".expect.preview.args")
		}
		switch {
		case c.Server == "" && len(s.Servers) > 1:
			r.refuse(s, d, field, "say which of the servers is called: server is needed where there are several")
		case c.Server == "":
			c.Server = s.Servers[0].Name
		case !slices.ContainsFunc(s.Servers, func(o testServer) bool { return o.Name == c.Server }):
			r.refuse(s, d, field+".server", "there is no server %q in this file", c.Server)
		}
	}
}

// policies reads the policies that the tests are of. Namespaces that they leave out are filled in.
func (r *suiteReader) policies(ctx context.Context, s *suite, d *manifest.Document) {
	read := &linter{kinds: r.linter.kinds, operatorNamespace: r.linter.operatorNamespace}
	for i, name := range s.Policies {
		field := fmt.Sprintf("policies[%d]", i)
		path := beside(s.path, name)
		data, err := readFile(nil, path)
		if err != nil {
			r.refuse(s, d, field, "%v", err)
			continue
		}
		before := len(read.policies)
		read.read(ctx, sourceFile{path, data, true})
		if len(read.policies) == before {
			r.refuse(s, d, field, "there is no ToolPolicy in %s", path)
		}
	}
	for _, p := range read.policies {
		if p.Policy.Namespace == "" {
			p.Policy.Namespace = s.Namespace
			if p.Policy.Spec.NamespaceSelector != nil {
				p.Policy.Namespace = read.operatorNamespace
			}
		}
		read.judge(p, nil)
	}
	s.policies = read.policies
	for _, f := range read.findings {
		if f.Severity == severityError {
			r.linter.findings = append(r.linter.findings, f)
		}
	}
}

// beside finds a file that another one names: relative names are relative to the folder of that one.
func beside(path, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(path), name)
}
