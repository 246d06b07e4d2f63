// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// Policy is a ToolPolicy, compiled once; it is safe for concurrent use.
type Policy struct {
	object *v1alpha1.ToolPolicy
	// name is what verdicts call the policy.
	name string
	// baseline: it has a namespaceSelector. One that does not parse is nil and selects every namespace.
	baseline bool
	selector labels.Selector

	callers   []subject // nil for anybody
	callersAt string    // what verdicts call them
	rules     []clause
	autonomy  []autonomy
	preview   []preview
	pins      map[string][]string // digests by tool; "" for the instructions

	// tierAt names the tier overrides.
	tierAt []string

	// These find the entries of a list that name a tool.
	ruleTools, previewTools, tierTools, autonomyTools roster

	problems []Problem
}

// autonomy is an AutonomyRule with its condition compiled.
type autonomy struct {
	v1alpha1.AutonomyRule
	at       string
	baseline bool
	when     condition
}

// preview is a PreviewRule with its arguments compiled.
type preview struct {
	at     string
	call   v1alpha1.PreviewCall
	args   *expr.Program // nil for none
	broken string        // why it cannot be made, "" for no reason
	again  bool
}

// Parse compiles a policy. What cannot be compiled is never left out: it makes every call that it might speak of the
// stricter one of those that it could have meant, and Problems says what is wrong.
func Parse(object *v1alpha1.ToolPolicy) *Policy {
	spec := &object.Spec
	p := &Policy{object: object, name: "ToolPolicy/" + object.Name, baseline: spec.NamespaceSelector != nil}
	if p.baseline {
		p.name = "ToolPolicy/" + object.Namespace + "/" + object.Name
		selector, err := metav1.LabelSelectorAsSelector(spec.NamespaceSelector)
		if err != nil {
			p.problem("spec.namespaceSelector", err.Error())
		} else {
			p.selector = selector
		}
		if m := spec.Mode; m != "" && m != v1alpha1.BaselineReadOnly && m != v1alpha1.BaselineStopped {
			p.problem("spec.mode", fmt.Sprintf("%q is no mode of a baseline; it counts as Stopped", m))
		}
	}
	p.callersAt = p.names("spec.callers")
	for i, c := range spec.Callers {
		p.callers = append(p.callers, p.subject(fmt.Sprintf("spec.callers[%d]", i), c))
	}
	for i := range spec.Rules {
		p.addRule(i, &spec.Rules[i])
	}
	for _, pin := range spec.Pins {
		if p.pins == nil {
			p.pins = map[string][]string{}
		}
		p.pins[pin.Tool] = append(p.pins[pin.Tool], pin.Digest)
	}
	for i := range spec.Preview {
		p.addPreview(i, &spec.Preview[i])
	}
	for i, o := range spec.Tiers {
		p.tierAt = append(p.tierAt, p.at("tiers", i))
		if o.Tool != "" {
			p.tierTools.addName(i, o.Tool)
		} else {
			p.addGlobs(&p.tierTools, i, fmt.Sprintf("spec.tiers[%d].tools", i), o.Tools)
		}
	}
	for i, a := range spec.Autonomy {
		p.autonomyTools.addName(i, a.Tool)
		p.autonomy = append(p.autonomy, autonomy{AutonomyRule: a, at: p.at("autonomy", i), baseline: p.baseline,
			when: p.condition(fmt.Sprintf("spec.autonomy[%d].when", i), a.When)})
	}
	return p
}

func (p *Policy) addPreview(i int, r *v1alpha1.PreviewRule) {
	field := fmt.Sprintf("spec.preview[%d]", i)
	compiled := preview{at: p.at("preview", i), call: r.Call, again: r.Recheck}
	p.addGlobs(&p.previewTools, i, field+".tools", r.Tools)
	if r.Call.Args != "" {
		program, err := expr.Mapping(r.Call.Args)
		if err != nil {
			compiled.broken = err.Error()
			p.problem(field+".call.args", compiled.broken)
		} else {
			compiled.args = program
		}
	}
	p.preview = append(p.preview, compiled)
}

// addGlobs has a roster find an entry by its globs. An entry without any, or with one that is none, may name every tool.
func (p *Policy) addGlobs(r *roster, entry int, field string, globs []string) {
	if len(globs) == 0 {
		p.problem(field, "it is empty; name tools, or all of them with *")
		r.addDoubt(entry, field+" is empty")
	}
	for i, text := range globs {
		if why := flaw(text); why != "" {
			where := fmt.Sprintf("%s[%d]", field, i)
			p.problem(where, fmt.Sprintf("%q is no glob: %s", glyph.Clip(text, 128), why))
			r.addDoubt(entry, where+" is no glob")
			continue
		}
		r.addGlob(entry, text)
	}
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
func (p *Policy) Problems() []Problem { return slices.Clone(p.problems) }

func (p *Policy) problem(field, message string) {
	p.problems = append(p.problems, Problem{field, message})
}

// at names an entry of the policy, for people and receipts.
func (p *Policy) at(list string, index int) string {
	return p.names(fmt.Sprintf("spec.%s[%d]", list, index))
}

// names says what verdicts call a part of the policy, in as many bytes as a request has room for.
func (p *Policy) names(part string) string {
	const room = 256
	part = glyph.Clip(part, room/2)
	return glyph.Clip(p.name, room-len(part)-1) + " " + part
}

// Covers tells whether the policy speaks of a server. A baseline counts in the operator's namespace only; which labels
// a namespace has that the manager did not write down is not known, and then it covers the server.
func (p *Policy) Covers(server *v1alpha1.GovernedServer, operatorNamespace string) bool {
	return covers(p.object, p.selector, server, operatorNamespace)
}

// Covers tells what Policy.Covers does of a policy that is not compiled.
func Covers(object *v1alpha1.ToolPolicy, server *v1alpha1.GovernedServer, operatorNamespace string) bool {
	selector, err := metav1.LabelSelectorAsSelector(object.Spec.NamespaceSelector)
	if err != nil {
		selector = nil
	}
	return covers(object, selector, server, operatorNamespace)
}

// covers takes a selector that does not parse as nil, and has it select every namespace.
func covers(object *v1alpha1.ToolPolicy, selector labels.Selector, server *v1alpha1.GovernedServer, operatorNamespace string) bool {
	if object.Spec.NamespaceSelector == nil {
		return slices.Contains(object.Spec.Targets, server.Name) && object.Namespace == server.Namespace
	}
	if object.Namespace != operatorNamespace || operatorNamespace == "" {
		return false
	}
	return selector == nil || server.Status.NamespaceLabels == nil || selector.Matches(labels.Set(server.Status.NamespaceLabels))
}

// admits tells whether the callers of the policy name a principal.
func (p *Policy) admits(principal *expr.Principal) bool {
	return len(p.callers) == 0 || slices.ContainsFunc(p.callers, func(s subject) bool { return s.is(principal) })
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
