// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kyaml "sigs.k8s.io/yaml"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/config/crd"
	"github.com/tidewaiter/tidewaiter/internal/spelling"
)

// Kinds are the kinds that an object can be read as.
type Kinds struct {
	policy, server *Schema
	// names are all kinds of the group, those included that nobody keeps in Git.
	names []string
}

// LoadKinds compiles the schemas of the CustomResourceDefinitions that are installed.
func LoadKinds() (*Kinds, error) {
	k := &Kinds{names: []string{"ApprovalRequest", "GovernedServer", "ToolPolicy"}}
	var err error
	if k.policy, err = schemaOf("toolpolicies"); err != nil {
		return nil, err
	}
	k.server, err = schemaOf("governedservers")
	return k, err
}

func schemaOf(plural string) (*Schema, error) {
	name := "bases/" + v1alpha1.GroupVersion.Group + "_" + plural + ".yaml"
	text, err := crd.Bases.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := kyaml.Unmarshal(text, &definition); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	for _, v := range definition.Spec.Versions {
		if v.Name == v1alpha1.GroupVersion.Version {
			return NewSchema(v.Schema.OpenAPIV3Schema, true)
		}
	}
	return nil, fmt.Errorf("%s has no version %s", name, v1alpha1.GroupVersion.Version)
}

// Object is what a document is: one of the two, or neither where it is something else.
type Object struct {
	*Document

	Policy *v1alpha1.ToolPolicy
	Server *v1alpha1.GovernedServer
	// Other is the kind of what is neither, "" where the document names none.
	Other string
}

// Object reads a document with the defaults of its kind. What it is is told also where there are problems, as far as it
// can be read.
func (k *Kinds) Object(ctx context.Context, d *Document) (Object, []Problem) {
	o := Object{Document: d}
	version, kind := d.Text("apiVersion"), d.Text("kind")
	group, err := schema.ParseGroupVersion(version)
	at := func(field, format string, args ...any) []Problem {
		return []Problem{{d.Place(field), field, fmt.Sprintf(format, args...)}}
	}
	switch {
	case version == "" && kind == "":
		return o, nil
	case version == "" || kind == "":
		return o, at("", "an object of Kubernetes has apiVersion and kind; this has only one of them")
	case err != nil:
		return o, at("apiVersion", "this is no version of an API: %q was expected", v1alpha1.GroupVersion)
	case group.Group != v1alpha1.GroupVersion.Group:
		o.Other = kind
		return o, k.foreign(d, version, kind)
	case group.Version != v1alpha1.GroupVersion.Version:
		return o, at("apiVersion", "there is no version %q of %s: only %s is known", group.Version, group.Group, v1alpha1.GroupVersion.Version)
	case kind == "ToolPolicy":
		o.Policy = &v1alpha1.ToolPolicy{}
		return o, decode(ctx, d, k.policy, o.Policy)
	case kind == "GovernedServer":
		o.Server = &v1alpha1.GovernedServer{}
		return o, decode(ctx, d, k.server, o.Server)
	case slices.Contains(k.names, kind):
		o.Other = kind
		return o, nil
	}
	return o, at("kind", "%s has no kind %q%s", v1alpha1.GroupVersion, kind, spelling.Suggest(kind, slices.Values(k.names)))
}

// foreign refuses an object of another group that bears the name of one of the kinds: nobody would enforce it.
func (k *Kinds) foreign(d *Document, version, kind string) []Problem {
	if !slices.Contains(k.names, kind) {
		return nil
	}
	return []Problem{{d.Place("apiVersion"), "apiVersion", fmt.Sprintf("a %s is of %s, and this says %q", kind, v1alpha1.GroupVersion, version)}}
}

// decode checks a document and reads it into an object.
func decode(ctx context.Context, d *Document, s *Schema, into any) []Problem {
	problems := s.Check(ctx, d)
	if err := d.Decode(into); err != nil && len(problems) == 0 {
		return []Problem{{d.Place(""), "", strings.ReplaceAll(err.Error(), "\n", " ")}}
	}
	return problems
}

// Decode reads the document into a Go value by its JSON names.
func (d *Document) Decode(into any) error {
	raw, err := json.Marshal(d.Value)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
