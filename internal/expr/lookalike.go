// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// errLookalike: an expression reads n, the arguments have N, and a server may take the one for the other. What the
// expression sees is then not known to be what the server sees.
var errLookalike = errors.New("the arguments have a name that a server may take for one that the expression reads")

// reads are the names that an expression looks up in the arguments: directly, and anywhere in them.
type reads struct{ direct, anywhere []string }

// readsOf collects them. Where keys are worked out or gone through, every text of the expression may be one.
func readsOf(root ast.Expr) reads {
	var r reads
	computed := false
	var literals []string
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.SelectKind:
			r.add(e.AsSelect().Operand(), e.AsSelect().FieldName())
		case ast.ComprehensionKind:
			computed = true
		case ast.LiteralKind:
			if text, isText := literalString(e); isText {
				literals = append(literals, text)
			}
		case ast.CallKind:
			computed = r.call(e.AsCall()) || computed
		default:
		}
	}))
	if computed {
		r.anywhere = append(r.anywhere, literals...)
	}
	return r
}

// call adds the name that an index or the operator in looks up, and tells whether it is worked out.
func (r *reads) call(call ast.CallExpr) (computed bool) {
	args := call.Args()
	var key, of ast.Expr
	switch call.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		of, key = args[0], args[1]
	case operators.In:
		key, of = args[0], args[1]
	default:
		return false
	}
	name, isText := literalString(key)
	if isText {
		r.add(of, name)
	}
	return !isText
}

// add takes a name that is looked up in the value of an expression. Names of the other variables are no arguments.
func (r *reads) add(of ast.Expr, name string) {
	root := of
	for root.Kind() == ast.SelectKind {
		root = root.AsSelect().Operand()
	}
	if root.Kind() == ast.IdentKind {
		switch variable := strings.TrimPrefix(root.AsIdent(), "."); {
		case variable == "args" && root == of:
			r.direct = append(r.direct, name)
			return
		case variable == "tool" || variable == "principal" || variable == "server":
			return
		}
	}
	r.anywhere = append(r.anywhere, name)
}

// spellings are the names that arguments have, by what they fold to: the one spelling, or several.
type spellings map[string]string

// several marks that names which fold alike are spelt in more than one way. No name in JSON is invalid UTF-8.
const several = "\xff"

func (s spellings) add(name string) {
	folded := strictjson.Fold(name)
	if known, found := s[folded]; found && known != name {
		name = several
	}
	s[folded] = name
}

// differ tells whether one of the names is spelt otherwise in the arguments, or in more than one way.
func (s spellings) differ(names []string) bool {
	for _, name := range names {
		if spelt, found := s[strictjson.Fold(name)]; found && spelt != name {
			return true
		}
	}
	return false
}

// names of the members of an object, and of all that is in it.
func spellingsOf(v strictjson.Value) (direct, anywhere spellings) {
	direct, anywhere = spellings{}, spellings{}
	for key, member := range v.Members() {
		direct.add(key.Text())
		anywhere.add(key.Text())
		anywhere.within(member)
	}
	return direct, anywhere
}

func (s spellings) within(v strictjson.Value) {
	switch v.Kind() {
	case strictjson.Object:
		for key, member := range v.Members() {
			s.add(key.Text())
			s.within(member)
		}
	case strictjson.Array:
		for element := range v.Elements() {
			s.within(element)
		}
	default:
	}
}
