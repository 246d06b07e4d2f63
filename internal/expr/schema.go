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

const (
	// maxReferences is how many $refs lead from one to the next, after which they count as anything.
	maxReferences = 16
	// maxReference is how long a $ref may be, in bytes, that is followed.
	maxReference = 1024
)

// schema reads the shapes of a schema document as they are asked for, so that depth and cycles of it cost nothing. What
// it looked at it remembers by its place: an expression may mention an argument hundreds of times, and strangers write
// schemas.
type schema struct {
	root    strictjson.Value
	members map[int]map[string]strictjson.Value
	shapes  map[int]shape
}

func readSchema(document []byte) (schema, bool) {
	if len(document) > maxSchema {
		return schema{}, false
	}
	root, err := strictjson.Scan(document)
	return schema{root, map[int]map[string]strictjson.Value{}, map[int]shape{}}, err == nil && root.Kind() == strictjson.Object
}

// get returns a member of an object, one that does not exist where there is none.
func (s schema) get(of strictjson.Value, name string) strictjson.Value {
	if of.Kind() != strictjson.Object {
		return strictjson.Value{}
	}
	members, known := s.members[of.Start()]
	if !known {
		members = map[string]strictjson.Value{}
		for key, value := range of.Members() {
			members[key.Text()] = value
		}
		s.members[of.Start()] = members
	}
	return members[name]
}

// shape of what a subschema describes.
func (s schema) shape(v strictjson.Value) shape {
	if !v.Exists() {
		return anything
	}
	known, found := s.shapes[v.Start()]
	if !found {
		known = s.work(v)
		s.shapes[v.Start()] = known
	}
	return known
}

// work works a shape out.
func (s schema) work(v strictjson.Value) shape {
	v, known := s.resolve(v)
	if !known {
		return anything
	}
	result := shape{sorts: s.declaredSorts(v), schema: v}
	for _, word := range []string{"anyOf", "oneOf"} {
		if alternatives := s.get(v, word); alternatives.Exists() {
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
		if s.declaredSorts(a) != isNull {
			something = append(something, a)
		}
	}
	if len(something) != 1 || outer.sorts != isAnything {
		return anything
	}
	inner, known := s.resolve(something[0])
	if !known || s.get(inner, "anyOf").Exists() || s.get(inner, "oneOf").Exists() {
		return anything
	}
	return shape{sorts: s.declaredSorts(inner) | isNull, schema: inner}
}

// pointer undoes the escapes of a JSON pointer (RFC 6901).
var pointer = strings.NewReplacer("~1", "/", "~0", "~")

// resolve follows local references; a reference with anything beside it that constrains, or to elsewhere, is not known.
func (s schema) resolve(v strictjson.Value) (strictjson.Value, bool) {
	for range maxReferences {
		if v.Kind() != strictjson.Object {
			return v, false
		}
		reference := s.get(v, "$ref")
		if !reference.Exists() {
			return v, true
		}
		if len(reference.Raw()) > maxReference {
			return v, false
		}
		path, isLocal := strings.CutPrefix(reference.Text(), "#/")
		if !isLocal || s.get(v, "properties").Exists() || s.get(v, "type").Exists() {
			return v, false
		}
		v = s.root
		for name := range strings.SplitSeq(path, "/") {
			if v = s.get(v, pointer.Replace(name)); !v.Exists() {
				return v, false
			}
		}
	}
	return v, false
}

// declaredSorts of a subschema: of its type, its const or its enum.
func (s schema) declaredSorts(v strictjson.Value) sorts {
	var declared sorts
	switch t := s.get(v, "type"); t.Kind() {
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
		if s.get(v, "const").Exists() {
			return sortOf(s.get(v, "const"))
		}
		for each := range s.get(v, "enum").Elements() {
			declared |= sortOf(each)
		}
	default:
	}
	if s.get(v, "nullable").IsTrue() {
		declared |= isNull
	}
	if declared&^isNull == 0 && s.get(v, "type").Text() != "null" {
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
	properties := s.get(of.schema, "properties")
	if property := s.get(properties, name); property.Exists() {
		return s.shape(property), true
	}
	return anything, properties.Kind() != strictjson.Object || s.isOpen(of.schema)
}

// isOpen tells whether an object may have members that its properties do not list. Servers that list properties and say
// nothing of others mean these and no others.
func (s schema) isOpen(v strictjson.Value) bool {
	if more := s.get(v, "additionalProperties"); more.Exists() && (more.Kind() != strictjson.Bool || more.IsTrue()) {
		return true
	}
	for _, word := range []string{
		"patternProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "$dynamicRef",
	} {
		if s.get(v, word).Exists() {
			return true
		}
	}
	return false
}

// names of the members that an object lists.
func (s schema) names(v strictjson.Value) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range s.get(v, "properties").Members() {
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
	case of.schema.Exists() && s.get(of.schema, "items").Exists() && !s.get(of.schema, "prefixItems").Exists():
		return s.shape(s.get(of.schema, "items"))
	}
	return anything
}

// texts that a value can be, where its schema lists them.
func (s schema) texts(of shape) []string {
	if !of.schema.Exists() {
		return nil
	}
	if constant := s.get(of.schema, "const"); constant.Kind() == strictjson.String {
		return []string{constant.Text()}
	}
	var all []string
	for each := range s.get(of.schema, "enum").Elements() {
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
