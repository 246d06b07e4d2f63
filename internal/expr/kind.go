// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"reflect"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// kind is the type of a variable that has fixed fields.
type kind struct {
	name   string
	fields map[string]*types.FieldType
}

var (
	annotationsKind = &kind{"tool.annotations", map[string]*types.FieldType{
		"readOnlyHint":    hint(func(a *v1alpha1.ToolAnnotations) *bool { return a.ReadOnlyHint }),
		"destructiveHint": hint(func(a *v1alpha1.ToolAnnotations) *bool { return a.DestructiveHint }),
		"idempotentHint":  hint(func(a *v1alpha1.ToolAnnotations) *bool { return a.IdempotentHint }),
		"openWorldHint":   hint(func(a *v1alpha1.ToolAnnotations) *bool { return a.OpenWorldHint }),
	}}
	toolKind = &kind{"tool", map[string]*types.FieldType{
		"name":   text(func(t *Tool) string { return t.Name }),
		"tier":   text(func(t *Tool) string { return string(t.Tier) }),
		"digest": text(func(t *Tool) string { return t.Digest }),
		"annotations": field(annotationsKind.celType(),
			func(t *Tool) bool { return t.Annotations != nil }, func(t *Tool) any { return t.Annotations }),
	}}
	principalKind = &kind{"principal", map[string]*types.FieldType{
		"username":       text(func(p *Principal) string { return p.Username }),
		"namespace":      text(func(p *Principal) string { return p.Namespace }),
		"serviceAccount": text(func(p *Principal) string { return p.ServiceAccount }),
		"actsFor":        text(func(p *Principal) string { return p.ActsFor }),
		"groups": field(types.NewListType(types.StringType),
			func(p *Principal) bool { return len(p.Groups) > 0 }, func(p *Principal) any { return p.Groups }),
	}}
	serverKind = &kind{"server", map[string]*types.FieldType{
		"name":      text(func(s *Server) string { return s.Name }),
		"namespace": text(func(s *Server) string { return s.Namespace }),
	}}
)

// kinds by the name of the type, which is also the path at which a value of it is found.
var kinds = map[string]*kind{
	annotationsKind.name: annotationsKind, toolKind.name: toolKind, principalKind.name: principalKind, serverKind.name: serverKind,
}

// typePrefix keeps the names of the types apart from those of the variables.
const typePrefix = "tidewaiter."

func (k *kind) celType() *types.Type { return types.NewObjectType(typePrefix + k.name) }

func (k *kind) fieldNames() []string {
	names := make([]string, 0, len(k.fields))
	for name := range k.fields {
		names = append(names, name)
	}
	return names
}

func kindOf(typeName string) (*kind, bool) {
	if len(typeName) <= len(typePrefix) || typeName[:len(typePrefix)] != typePrefix {
		return nil, false
	}
	k, found := kinds[typeName[len(typePrefix):]]
	return k, found
}

// field describes a field of a T; the evaluator hands over the T itself or the record around it.
func field[T any](of *types.Type, isSet func(*T) bool, get func(*T) any) *types.FieldType {
	open := func(target any) (*T, error) {
		if r, isRecord := target.(*record); isRecord {
			target = r.value
		}
		if t, isT := target.(*T); isT && t != nil {
			return t, nil
		}
		return nil, errors.New("no such field")
	}
	return &types.FieldType{
		Type: of,
		IsSet: func(target any) bool {
			t, err := open(target)
			return err == nil && isSet(t)
		},
		GetFrom: func(target any) (any, error) {
			t, err := open(target)
			if err != nil {
				return nil, err
			}
			return get(t), nil
		},
	}
}

func text[T any](get func(*T) string) *types.FieldType {
	return field(types.StringType, func(t *T) bool { return get(t) != "" }, func(t *T) any { return types.String(get(t)) })
}

// hint is a field that the server may leave out; reading it then is an error, for its default is not ours to give.
func hint(get func(*v1alpha1.ToolAnnotations) *bool) *types.FieldType {
	f := field(types.BoolType,
		func(a *v1alpha1.ToolAnnotations) bool { return get(a) != nil },
		func(a *v1alpha1.ToolAnnotations) any { return *get(a) })
	read := f.GetFrom
	f.GetFrom = func(target any) (any, error) {
		if !f.IsSet(target) {
			return nil, errAbsentHint
		}
		return read(target)
	}
	return f
}

// typed lays the kinds over the types that the libraries brought along.
func typed(env *cel.Env) (*cel.Env, error) {
	provided := provider{env.CELTypeProvider()}
	env, err := cel.CustomTypeAdapter(adapter{env.CELTypeAdapter()})(env)
	if err != nil {
		return nil, fmt.Errorf("set the adapter: %w", err)
	}
	return cel.CustomTypeProvider(provided)(env)
}

// provider knows the kinds. Nothing can make a value of one: a provider that is not asked for NewValue has none.
type provider struct{ types.Provider }

func (p provider) FindStructType(name string) (*types.Type, bool) {
	if k, found := kindOf(name); found {
		return types.NewTypeTypeWithParam(k.celType()), true
	}
	return p.Provider.FindStructType(name)
}

func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	if k, found := kindOf(name); found {
		return k.fieldNames(), true
	}
	return p.Provider.FindStructFieldNames(name)
}

func (p provider) FindStructFieldType(name, fieldName string) (*types.FieldType, bool) {
	if k, found := kindOf(name); found {
		f, found := k.fields[fieldName]
		return f, found
	}
	return p.Provider.FindStructFieldType(name, fieldName)
}

// adapter turns what Input holds into values of the evaluator.
type adapter struct{ types.Adapter }

func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case *Tool:
		return &record{toolKind, v}
	case *Principal:
		return &record{principalKind, v}
	case *Server:
		return &record{serverKind, v}
	case *v1alpha1.ToolAnnotations:
		return &record{annotationsKind, v}
	case inexact:
		return types.WrapErr(errInexact)
	case map[string]any:
		if _, marked := v[inexactMark]; marked {
			return types.WrapErr(errInexact)
		}
	}
	return a.Adapter.NativeToValue(value)
}

// record is a value with fixed fields, where an expression uses it as a whole.
type record struct {
	kind  *kind
	value any
}

var _ traits.FieldTester = (*record)(nil)

func (r *record) lookup(index ref.Val) (*types.FieldType, bool) {
	name, isString := index.(types.String)
	f, found := r.kind.fields[string(name)]
	return f, found && isString
}

// Get reads a field.
func (r *record) Get(index ref.Val) ref.Val {
	f, found := r.lookup(index)
	if !found {
		return types.NewErr("no such field")
	}
	value, err := f.GetFrom(r.value)
	if err != nil {
		return types.WrapErr(err)
	}
	return adapter{types.DefaultTypeAdapter}.NativeToValue(value)
}

// IsSet tells whether a field has a value.
func (r *record) IsSet(index ref.Val) ref.Val {
	f, found := r.lookup(index)
	if !found {
		return types.NewErr("no such field")
	}
	return types.Bool(f.IsSet(r.value))
}

// ConvertToNative is not offered: a record is only read.
func (r *record) ConvertToNative(reflect.Type) (any, error) {
	return nil, errors.New("not convertible")
}

// ConvertToType gives the type, and nothing else.
func (r *record) ConvertToType(to ref.Type) ref.Val {
	if to == types.TypeType {
		return r.kind.celType()
	}
	return types.NewErr("type conversion error")
}

// Equal compares by identity: an expression sees one record of each kind.
func (r *record) Equal(other ref.Val) ref.Val {
	o, isRecord := other.(*record)
	return types.Bool(isRecord && o.value == r.value)
}

// Type is the kind's.
func (r *record) Type() ref.Type { return r.kind.celType() }

// Value is what Input holds.
func (r *record) Value() any { return r.value }
