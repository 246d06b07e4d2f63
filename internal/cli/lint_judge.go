// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/manifest"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// linter gathers what is wrong in files.
type linter struct {
	kinds             *manifest.Kinds
	operatorNamespace string

	policies []linted
	servers  []linted
	findings []lintFinding
	// places says where an object was first defined.
	places map[string]definedAt
	// passedOver counts the documents of other kinds.
	passedOver int
}

type definedAt struct {
	file string
	line int
}

// linted is a ToolPolicy or a GovernedServer of a file. Sound is one that the API server would take.
type linted struct {
	manifest.Object

	file  string
	sound bool
}

// name is what findings call the object.
func (l linted) name() string {
	name := l.Text("kind") + "/"
	if namespace := l.Text("metadata", "namespace"); namespace != "" {
		name += namespace + "/"
	}
	return name + l.Text("metadata", "name")
}

// read takes the objects of a file.
func (l *linter) read(ctx context.Context, f sourceFile) {
	documents, problems := manifest.Read(f.data)
	for _, p := range problems {
		l.say(f.path, severityError, "", p)
	}
	for _, d := range documents {
		object, problems := l.kinds.Object(ctx, d)
		found := linted{object, f.path, len(problems) == 0}
		name := ""
		switch {
		case object.Policy != nil:
			l.policies, name = append(l.policies, found), found.name()
		case object.Server != nil:
			l.servers, name = append(l.servers, found), found.name()
		case len(problems) == 0:
			l.passOver(f, object)
		}
		for _, p := range problems {
			l.say(f.path, severityError, name, p)
		}
		if name != "" {
			l.unique(found)
		}
	}
}

// passOver leaves out a document that is none of the two kinds. One that is no object of Kubernetes at all is an error
// where the file was named: a policy without its first lines would be nothing, and nobody would know.
func (l *linter) passOver(f sourceFile, o manifest.Object) {
	l.passedOver++
	at := o.Place("")
	switch {
	case !f.named: // directories have much else in them
	case o.Other == "":
		l.say(f.path, severityError, "", manifest.Problem{Place: at, Message: "this is no object of Kubernetes: it has neither apiVersion nor kind"})
	default:
		l.say(f.path, severityNote, "", manifest.Problem{Place: at, Message: fmt.Sprintf("passed over: the kind is %q", o.Other)})
	}
}

// unique looks for a second object of one name: the one that is applied last would replace the other. In different files
// they may be meant for different clusters.
func (l *linter) unique(o linted) {
	if l.places == nil {
		l.places = map[string]definedAt{}
	}
	name, at := o.name(), o.Place("metadata.name")
	before, found := l.places[name]
	if !found {
		l.places[name] = definedAt{o.file, at.Line}
		return
	}
	severity := severityWarning
	if before.file == o.file {
		severity = severityError
	}
	l.say(o.file, severity, name, manifest.Problem{
		Place: at, Field: "metadata.name", Message: fmt.Sprintf("this object is defined already, at %s:%d; what is applied last replaces it", before.file, before.line),
	})
}

func (l *linter) say(file, severity, object string, p manifest.Problem) {
	l.findings = append(l.findings, lintFinding{file, p.Line, p.Column, severity, object, p.Field, p.Message})
}

// judge looks at what a policy means, once it is one that the API server would take.
func (l *linter) judge(p linted, known *knownTools) {
	if !p.sound {
		return
	}
	if selector, namespace := p.Policy.Spec.NamespaceSelector, p.Policy.Namespace; selector != nil && namespace != "" && namespace != l.operatorNamespace {
		l.say(p.file, severityError, p.name(), manifest.Problem{
			Place: p.Place("metadata.namespace"), Field: "metadata.namespace",
			Message: fmt.Sprintf("a policy with namespaceSelector counts in the operator's namespace only, %s (--operator-namespace)", l.operatorNamespace),
		})
	}
	compiled := policy.Parse(p.Policy)
	for _, problem := range compiled.Problems() {
		l.sayIn(p, severityError, problem.Field, problem.Message)
	}
	if known == nil {
		known = &knownTools{}
	}
	tools, err := known.of(p.Policy)
	if err != nil {
		l.sayIn(p, severityError, "spec.targets", err.Error())
	}
	for _, f := range compiled.Check(tools) {
		message := f.Message
		if f.Line > 0 {
			message = fmt.Sprintf("%d:%d: %s", f.Line, f.Column, message)
		}
		l.sayIn(p, strings.ToLower(string(f.Severity)), f.Field, message)
	}
}

var placeInField = regexp.MustCompile(`^(\d+):(\d+): `)

// sayIn says something of a field; a line and column at the head of the message are those inside the field.
func (l *linter) sayIn(p linted, severity, field, message string) {
	at := p.Place(field)
	if inside := placeInField.FindStringSubmatch(message); inside != nil {
		line, _ := strconv.Atoi(inside[1])
		column, _ := strconv.Atoi(inside[2])
		if exact, known := p.Inside(field, line, column); known {
			at, message = exact, message[len(inside[0]):]
		}
	}
	l.say(p.file, severity, p.name(), manifest.Problem{Place: at, Field: field, Message: message})
}
