// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package classify

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// Bounds on what is read of a schema; what is beyond them takes Read away.
const (
	maxSchema = 1 << 20 // bytes
	maxNodes  = 20_000  // subschemas, references followed included
	maxDepth  = 12      // objects, lists and alternatives within each other
	maxValues = 1_000   // actions that one parameter chooses from
)

// maxWord is how many bytes the name or a value of a parameter may have to say anything.
const maxWord = 256

// bySchema judges the parameters of a tool, which can only raise: the actions
// they choose from, the code they take, the flags that widen or make final.
func bySchema(raw json.RawMessage, shown proof) Verdict {
	if len(raw) == 0 {
		return Verdict{}
	}
	unread := Verdict{Tier: v1alpha1.TierReversible, Source: v1alpha1.TierSourceSchema}
	if len(raw) > maxSchema {
		unread.Reason = "The input schema is too large to be read whole"
		return unread
	}
	var root any
	if err := json.Unmarshal(raw, &root); err != nil {
		unread.Reason = "The input schema is not valid JSON"
		return unread
	}
	s := scan{shown: shown, root: root, nodes: maxNodes, followed: set{}}
	s.schema(root, place{})
	if s.cut {
		unread.Reason = "The input schema is too large or too deep to be read whole"
		return s.worst.strictest(unread)
	}
	return s.worst
}

// scan walks a schema and keeps the strictest verdict.
type scan struct {
	shown proof
	root  any
	worst Verdict
	nodes int
	cut   bool
	// followed are the references walked so far: once each is enough, and ends cycles.
	followed set
}

// place is where in the arguments a subschema stands.
type place struct {
	path   string
	depth  int
	inList bool
	// hasAddress is set when a parameter beside it takes an address to call.
	hasAddress bool
}

// schema walks one subschema: its properties, list items and alternatives.
func (s *scan) schema(node any, at place) {
	at.depth++
	s.nodes--
	if s.nodes < 0 || at.depth > maxDepth {
		s.cut = true
		return
	}
	object := s.resolve(node)
	if object == nil || s.repeats(node) {
		return
	}
	properties, _ := object["properties"].(map[string]any)
	inner := at
	inner.hasAddress = slices.ContainsFunc(slices.Collect(maps.Keys(properties)), isAddress)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		within := inner
		within.path = strings.TrimPrefix(at.path+"."+key, ".")
		s.property(key, s.resolve(properties[key]), within)
		s.schema(properties[key], within)
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		for _, alternative := range list(object[keyword]) {
			s.schema(alternative, at)
		}
	}
	if items, ok := object["items"]; ok {
		at.inList = true
		s.schema(items, at)
	}
}

// repeats tells whether a reference was walked before, and notes it.
func (s *scan) repeats(node any) bool {
	object, _ := node.(map[string]any)
	reference, ok := object["$ref"].(string)
	if !ok {
		return false
	}
	before := s.followed[reference]
	s.followed[reference] = true
	return before
}

// resolve returns the object of a subschema, a reference within the schema followed.
func (s *scan) resolve(node any) map[string]any {
	for range maxDepth {
		object, _ := node.(map[string]any)
		reference, ok := object["$ref"].(string)
		if !ok {
			return object
		}
		path, ok := strings.CutPrefix(reference, "#/")
		if !ok {
			return object
		}
		node = s.root
		for key := range strings.SplitSeq(path, "/") {
			parent, _ := node.(map[string]any)
			node = parent[key]
		}
	}
	return nil
}

// property judges one parameter by its name, type and values.
func (s *scan) property(key string, schema map[string]any, at place) {
	split := tool.Words(key)
	if len(split) == 0 || len(key) > maxWord {
		return
	}
	values := s.values(schema)
	switch {
	case isMethod(split) && (len(values) == 0 && at.hasAddress && isText(schema) || hasWritingMethod(values)):
		if !s.stores() {
			s.found(v1alpha1.TierIrreversible, at, "chooses the HTTP method of a request")
		}
	case len(values) > 0 && chooses[strings.Join(split, " ")] || chooses[split[len(split)-1]] && len(split) > 1 && actionWords[split[len(split)-1]]:
		s.choice(values, manners[split[len(split)-1]], at)
	case len(values) == 0 && isText(schema) && !at.inList && s.runs(split, schema):
		s.found(v1alpha1.TierIrreversible, at, "takes free code or commands")
	case isFlag(schema):
		s.flag(split, at)
	}
}

// choice judges a parameter that chooses what the tool does: the worst choice
// counts. On a tool that reads, a manner that is a noun as often proves nothing.
func (s *scan) choice(values []string, manner bool, at place) {
	if len(values) > maxValues {
		s.cut = true
		return
	}
	for _, value := range values {
		action := parse(tool.Words(value), "")
		shown := action.judge()
		if len(action.effects) == 0 || slices.ContainsFunc(action.tokens, func(t token) bool { return t.form == participle }) {
			continue // what only reads, or names an event: build_failed
		}
		if verb := action.tokens[action.effects[0]].verb; s.shown.tier == v1alpha1.TierRead && (taking[verb] || manner && isHomograph(verb)) {
			continue
		}
		if at.inList {
			shown.tier = v1alpha1.TierReversible // a list of steps says what a whole is made of
		}
		s.found(shown.tier, at, "may be "+quote(value))
	}
}

// flag judges a switch that makes an effect final. On a tool that reads, an
// adjective is a filter.
func (s *scan) flag(split []string, at place) {
	first, last := split[0], split[len(split)-1]
	switch {
	case finalVerbs[first] || finalVerbs[last]:
		s.found(v1alpha1.TierIrreversible, at, "is a switch that makes the effect final")
	case s.shown.tier == v1alpha1.TierRead:
	case finalManners[first] || finalManners[last]:
		s.found(v1alpha1.TierIrreversible, at, "is a switch that makes the effect final")
	case !s.stores() && len(split) == 1 && forceFlags[first]:
		s.found(v1alpha1.TierIrreversible, at, "is a switch that overrides a safeguard")
	}
}

// runs tells whether a text parameter is code that the tool runs rather than keeps.
func (s *scan) runs(split []string, schema map[string]any) bool {
	last := split[len(split)-1]
	if s.stores() {
		return false
	}
	if codeParameters[last] {
		return true
	}
	if last == "query" || last == "statement" {
		description, _ := schema["description"].(string)
		return saysSQL(proseWords(description[:min(len(description), maxProse)]))
	}
	return last == "code" && len(split) == 1 && (s.shown.word == "" || s.shown.running)
}

// stores tells whether the name says that the tool only keeps what it is given.
func (s *scan) stores() bool { return s.shown.storing && s.shown.tier == v1alpha1.TierReversible }

func saysSQL(split []string) bool {
	return slices.Contains(split, "sql") && !slices.Contains(split, "like")
}

func (s *scan) found(tier v1alpha1.Tier, at place, what string) {
	s.worst = s.worst.strictest(Verdict{Tier: tier, Source: v1alpha1.TierSourceSchema, Reason: "The parameter " + quote(at.path) + " " + what})
}

// values returns the texts a parameter is limited to, alternatives included.
func (s *scan) values(schema map[string]any) []string {
	var texts []string
	add := func(object map[string]any) {
		for _, value := range append(list(object["enum"]), object["const"]) {
			if text, ok := value.(string); ok && text != "" && len(text) <= maxWord {
				texts = append(texts, text)
			}
		}
	}
	add(schema)
	for _, keyword := range []string{"anyOf", "oneOf", "allOf"} {
		for _, alternative := range list(schema[keyword]) {
			add(s.resolve(alternative))
		}
	}
	if items := s.resolve(schema["items"]); items != nil {
		add(items)
	}
	return texts
}

func list(value any) []any {
	items, _ := value.([]any)
	return items
}

// isText tells whether a parameter takes free text, or a list of it; no type at all takes anything.
func isText(schema map[string]any) bool {
	switch kind := schema["type"].(type) {
	case nil:
		return true
	case string:
		if kind == "array" {
			items, _ := schema["items"].(map[string]any)
			return items == nil || items["type"] == nil || items["type"] == "string"
		}
		return kind == "string"
	case []any:
		return slices.Contains(kind, any("string"))
	}
	return false
}

func isFlag(schema map[string]any) bool {
	if schema["type"] == "boolean" {
		return true
	}
	return slices.ContainsFunc(append(list(schema["anyOf"]), list(schema["type"])...), func(alternative any) bool {
		object, _ := alternative.(map[string]any)
		return alternative == "boolean" || object["type"] == "boolean"
	})
}

func isAddress(key string) bool {
	split := tool.Words(key)
	return len(split) > 0 && addresses[split[len(split)-1]]
}

func isMethod(split []string) bool {
	switch strings.Join(split, " ") {
	case "method", "http method", "request method", "http verb", "verb":
		return true
	}
	return false
}

func hasWritingMethod(values []string) bool {
	return slices.ContainsFunc(values, func(value string) bool {
		switch strings.ToUpper(value) {
		case "POST", "PUT", "PATCH", "DELETE":
			return true
		}
		return false
	})
}

// chooses are parameters whose values are what the tool does.
var chooses = phraseSet(
	"action", "actions", "operation", "operations", "op", "mode", "command", "subcommand", "sub command", "cmd", "method", "verb",
	"action type", "operation type", "request type", "resource action",
)

// manners choose how a tool does something as often as what.
var manners = words(`mode method`)

// taking are choices that on a tool that reads only say in what form it answers.
var taking = words(`download export print render`)

// actionWords choose also behind another word: issue_action.
var actionWords = words(`action operation subcommand`)

// finalVerbs and finalManners are switches that leave nothing to put back.
var finalVerbs = words(`purge prune wipe erase destroy`)

var finalManners = words(`permanent permanently hard`)

// forceFlags override a safeguard.
var forceFlags = words(`force cascade overwrite`)

// codeParameters take what is run.
var codeParameters = words(`sql command commands cmd script javascript js shell bash python powershell cypher psql`)

// addresses are parameters that say where a request goes.
var addresses = words(`url uri endpoint path href`)

func phraseSet(texts ...string) set {
	s := set{}
	for _, text := range texts {
		s[text] = true
	}
	return s
}
