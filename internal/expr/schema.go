// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"iter"
	"strings"

	"cel.dev/cel-go/common/types"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// sorts is a set of the sorts of values that something can be.
type sorts uint8

const (
	isNull sorts = 1 << iota
	isBool
	isNumber
	isText
	isList
	isObject
	isAnything sorts = 1<<iota - 1
)

// sortNames in the order of the bits, as a message says them.
var sortNames = []string{"null", "a boolean", "a number", "a string", "a list", "an object"}

// String lists the sorts.
func (s sorts) String() string {
	var names []string
	for i, name := range sortNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

var sortsByType = map[string]sorts{
	"null": isNull, "boolean": isBool, "number": isNumber, "integer": isNumber, "string": isText, "array": isList, "object": isObject,
}

// shape is what is known of a value before there is one.
type shape struct {
	sorts sorts
	// schema says more of what is in it, if one does.
	schema strictjson.Value
	// items is the shape of the elements of a list that no schema describes.
	items *shape
	// literal is the text that the value is, if it is written in the expression.
	literal *string
}

var anything = shape{sorts: isAnything}

// maxSchema is how large a schema may be that is looked at, in bytes.
const maxSchema = 1 << 20

// maxReferences is how many $refs lead from one to the next, after which they count as anything.
const maxReferences = 16

// schema reads the shapes of a schema document as they are asked for, so that depth and cycles of it cost nothing.
type schema struct{ root strictjson.Value }

func readSchema(document []byte) (schema, bool) {
	if len(document) > maxSchema {
		return schema{}, false
	}
	root, err := strictjson.Scan(document)
	return schema{root}, err == nil && root.Kind() == strictjson.Object
}

// shape of what a subschema describes.
func (s schema) shape(v strictjson.Value) shape {
	v, known := s.resolve(v)
	if !known {
		return anything
	}
	result := shape{sorts: declaredSorts(v), schema: v}
	for _, word := range []string{"anyOf", "oneOf"} {
		if alternatives := v.Get(word); alternatives.Exists() {
			return s.alternative(result, alternatives)
		}
	}
	return result
}

// alternative is the shape of a choice: only one between something and null says anything.
func (s schema) alternative(outer shape, alternatives strictjson.Value) shape {
	var something []strictjson.Value
	count := 0
	for a := range alternatives.Elements() {
		if count++; count > 2 {
			return anything
		}
		if declaredSorts(a) != isNull {
			something = append(something, a)
		}
	}
	if len(something) != 1 || outer.sorts != isAnything {
		return anything
	}
	inner, known := s.resolve(something[0])
	if !known || inner.Get("anyOf").Exists() || inner.Get("oneOf").Exists() {
		return anything
	}
	return shape{sorts: declaredSorts(inner) | isNull, schema: inner}
}

// resolve follows local references; a reference with anything beside it that constrains, or to elsewhere, is not known.
func (s schema) resolve(v strictjson.Value) (strictjson.Value, bool) {
	for range maxReferences {
		if v.Kind() != strictjson.Object {
			return v, false
		}
		reference := v.Get("$ref")
		if !reference.Exists() {
			return v, true
		}
		path, isLocal := strings.CutPrefix(reference.Text(), "#/")
		if !isLocal || v.Get("properties").Exists() || v.Get("type").Exists() {
			return v, false
		}
		v = s.root
		for name := range strings.SplitSeq(path, "/") {
			v = v.Get(strings.NewReplacer("~1", "/", "~0", "~").Replace(name))
		}
	}
	return v, false
}

// declaredSorts of a subschema: of its type, its const or its enum.
func declaredSorts(v strictjson.Value) sorts {
	var declared sorts
	switch t := v.Get("type"); t.Kind() {
	case strictjson.String:
		declared = sortsByType[t.Text()]
	case strictjson.Array:
		for each := range t.Elements() {
			one, known := sortsByType[each.Text()]
			if !known {
				return isAnything
			}
			declared |= one
		}
	case strictjson.None:
		if v.Get("const").Exists() {
			return sortOf(v.Get("const"))
		}
		for each := range v.Get("enum").Elements() {
			declared |= sortOf(each)
		}
	default:
	}
	if v.Get("nullable").IsTrue() {
		declared |= isNull
	}
	if declared&^isNull == 0 && v.Get("type").Text() != "null" {
		return isAnything
	}
	return declared
}

func sortOf(v strictjson.Value) sorts {
	switch v.Kind() {
	case strictjson.Null:
		return isNull
	case strictjson.Bool:
		return isBool
	case strictjson.Number:
		return isNumber
	case strictjson.String:
		return isText
	case strictjson.Array:
		return isList
	case strictjson.Object:
		return isObject
	default:
		return isAnything
	}
}

// member is the shape of a member of an object. It is not known where the object does not say what members it has.
func (s schema) member(of shape, name string) (member shape, declared bool) {
	if !of.schema.Exists() {
		return anything, true
	}
	properties := of.schema.Get("properties")
	if property := properties.Get(name); property.Exists() {
		return s.shape(property), true
	}
	return anything, properties.Kind() != strictjson.Object || isOpen(of.schema)
}

// isOpen tells whether an object may have members that its properties do not list. Servers that list properties and say
// nothing of others mean these and no others.
func isOpen(v strictjson.Value) bool {
	if more := v.Get("additionalProperties"); more.Exists() && (more.Kind() != strictjson.Bool || more.IsTrue()) {
		return true
	}
	for _, word := range []string{
		"patternProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "$dynamicRef",
	} {
		if v.Get(word).Exists() {
			return true
		}
	}
	return false
}

// names of the members that an object lists.
func names(v strictjson.Value) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range v.Get("properties").Members() {
			if !yield(name.Text()) {
				return
			}
		}
	}
}

// element is the shape of the elements of a list.
func (s schema) element(of shape) shape {
	switch {
	case of.items != nil:
		return *of.items
	case of.schema.Exists() && of.schema.Get("items").Exists() && !of.schema.Get("prefixItems").Exists():
		return s.shape(of.schema.Get("items"))
	}
	return anything
}

// texts that a value can be, where its schema lists them.
func texts(of shape) []string {
	if !of.schema.Exists() {
		return nil
	}
	if constant := of.schema.Get("const"); constant.Kind() == strictjson.String {
		return []string{constant.Text()}
	}
	var all []string
	for each := range of.schema.Get("enum").Elements() {
		if each.Kind() == strictjson.String {
			all = append(all, each.Text())
		}
	}
	return all
}

// shapeOf is what the compiler knows of a value.
func shapeOf(t *types.Type) shape {
	switch t.Kind() {
	case types.BoolKind:
		return shape{sorts: isBool}
	case types.IntKind, types.UintKind, types.DoubleKind:
		return shape{sorts: isNumber}
	case types.StringKind:
		return shape{sorts: isText}
	case types.NullTypeKind:
		return shape{sorts: isNull}
	case types.ListKind:
		items := shapeOf(t.Parameters()[0])
		return shape{sorts: isList, items: &items}
	default:
		return anything
	}
}
