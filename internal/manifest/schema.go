// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/spelling"
)

// Schema is what an API server knows of the documents of one kind: their fields, their defaults and their rules.
type Schema struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
	// object tells that the documents are objects of Kubernetes, with metadata.
	object bool
}

// NewSchema compiles a schema as it stands in a CustomResourceDefinition. The documents of an object schema have the
// metadata of Kubernetes.
func NewSchema(openAPI *apiextensionsv1.JSONSchemaProps, object bool) (*Schema, error) {
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(openAPI, &props, nil); err != nil {
		return nil, fmt.Errorf("convert schema: %w", err)
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return &Schema{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit), object}, nil
}

// Check says what keeps the API server from taking the document, in the order of the file, and fills in the defaults.
// A status is left out: nobody but its owner can write one.
func (s *Schema) Check(ctx context.Context, d *Document) []Problem {
	var problems []Problem
	if s.object {
		delete(d.Value, "status")
	}
	unknown := unknownFields{document: d, skip: map[string]bool{}}
	if s.object {
		unknown.skip["metadata"], unknown.skip["status"] = true, true
		unknown.names(resolve(member(d.node, "metadata")), "metadata", metadataNames())
	}
	unknown.walk(d.node, s.structural, "", true)
	problems = append(problems, unknown.problems...)

	defaulting.Default(d.Value, s.structural)
	errs := validation.ValidateCustomResource(nil, d.Value, s.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, d.Value)...)
	if s.object {
		errs = append(errs, metadataErrors(d)...)
	}
	if len(errs) == 0 { // as in the API server: rules may rely on the schema
		ruled, _ := s.rules.Validate(ctx, nil, s.structural, d.Value, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, ruled...)
	}
	for _, err := range errs {
		problems = append(problems, d.problem(err))
	}
	slices.SortStableFunc(problems, compareProblems)
	return slices.CompactFunc(problems, func(a, b Problem) bool { return a == b })
}

// problem gives an error of the API server its place.
func (d *Document) problem(err *field.Error) Problem {
	path := strings.TrimPrefix(err.Field, "<nil>")
	shown := *err
	switch shown.BadValue.(type) {
	case string, bool, int, int32, int64, float64:
	default: // a longer value says nothing that the place does not
		shown.BadValue = field.OmitValueType{}
	}
	text := strings.ReplaceAll(strings.ReplaceAll(shown.ErrorBody(), "\n", " "), path+" in body ", "")
	return Problem{d.Place(path), clipPath(path), glyph.Plain(glyph.Clip(text, maxMessage))}
}

// metadataErrors are those that every object of Kubernetes can have.
func metadataErrors(d *Document) field.ErrorList {
	raw, err := json.Marshal(d.Value["metadata"])
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("metadata"), "", err.Error())}
	}
	var meta metav1.ObjectMeta
	if err := json.Unmarshal(raw, &meta); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return field.ErrorList{field.TypeInvalid(field.NewPath("metadata", strings.Split(wrong.Field, ".")...), field.OmitValueType{}, "must not be a "+wrong.Value)}
		}
		return field.ErrorList{field.Invalid(field.NewPath("metadata"), field.OmitValueType{}, err.Error())}
	}
	if meta.Namespace == "" {
		meta.Namespace = metav1.NamespaceDefault // kubectl puts one in
	}
	meta.GenerateName = "" // what is kept in Git has a name
	return apivalidation.ValidateObjectMeta(&meta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

func metadataNames() []string {
	var names []string
	for f := range reflect.TypeFor[metav1.ObjectMeta]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// unknownFields looks for keys that a schema does not have: the API server would drop them, and what their author meant
// would not hold.
type unknownFields struct {
	document *Document
	skip     map[string]bool
	problems []Problem
}

func (u *unknownFields) walk(n *yaml.Node, s *schema.Structural, path string, root bool) {
	n = resolve(n)
	if n == nil || s == nil {
		return
	}
	if n.Kind == yaml.SequenceNode {
		for i, item := range n.Content {
			u.walk(item, s.Items, fmt.Sprintf("%s[%d]", path, i), false)
		}
	}
	if n.Kind == yaml.MappingNode {
		open := s.XPreserveUnknownFields || s.AdditionalProperties != nil
		if !open {
			u.names(n, path, slices.Sorted(maps.Keys(s.Properties)))
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			if root && u.skip[name] {
				continue
			}
			if property, known := s.Properties[name]; known {
				u.walk(n.Content[i+1], &property, join(path, name), false)
			} else if s.AdditionalProperties != nil {
				u.walk(n.Content[i+1], s.AdditionalProperties.Structural, join(path, name), false)
			}
		}
	}
}

// names says which keys of a mapping are none of those.
func (u *unknownFields) names(n *yaml.Node, path string, known []string) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if slices.Contains(known, key.Value) {
			continue
		}
		text := fmt.Sprintf("there is no field %q here%s", glyph.Clip(key.Value, 64), spelling.Suggest(key.Value, slices.Values(known)))
		u.problems = append(u.problems, Problem{placeOf(key), clipPath(join(path, key.Value)), glyph.Plain(text)})
	}
}
