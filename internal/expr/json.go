// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"math"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// object writes the value of a mapping in canonical form.
func object(value ref.Val) ([]byte, error) {
	if _, isMap := value.(traits.Mapper); !isMap {
		return nil, errors.New("the expression gives no map, which arguments have to be")
	}
	text, err := appendJSON(nil, value)
	if err != nil {
		return nil, err
	}
	canonical, err := strictjson.Canonical(text)
	if err != nil {
		return nil, errors.New("the map has no form in strict JSON")
	}
	return canonical, nil
}

// appendJSON appends a value. Values are bounded in size and depth by then.
func appendJSON(dst []byte, value ref.Val) ([]byte, error) {
	switch v := value.(type) {
	case types.Null:
		return append(dst, "null"...), nil
	case types.Bool:
		return strconv.AppendBool(dst, bool(v)), nil
	case types.Int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case types.Uint:
		return strconv.AppendUint(dst, uint64(v), 10), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, errors.New("the map has a number in it that JSON cannot express")
		}
		return strconv.AppendFloat(dst, float64(v), 'e', -1, 64), nil
	case types.String:
		return strictjson.AppendString(dst, string(v)), nil
	case traits.Mapper:
		return appendMap(dst, v)
	case traits.Lister:
		dst = append(dst, '[')
		for it, first := v.Iterator(), true; it.HasNext() == types.True; first = false {
			if !first {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = appendJSON(dst, it.Next()); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	}
	return nil, errors.New("the map has a value in it that JSON cannot express")
}

func appendMap(dst []byte, m traits.Mapper) ([]byte, error) {
	dst = append(dst, '{')
	for it, first := m.Iterator(), true; it.HasNext() == types.True; first = false {
		key := it.Next()
		name, isString := key.(types.String)
		if !isString {
			return nil, errors.New("the map has a key in it that is not a string")
		}
		if !first {
			dst = append(dst, ',')
		}
		dst = append(strictjson.AppendString(dst, string(name)), ':')
		member, _ := m.Find(key)
		var err error
		if dst, err = appendJSON(dst, member); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}
