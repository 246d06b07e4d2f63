// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// What the words of a key say of how far a call reaches. All tables hold words as tool.Words splits them.
var (
	// wideningWords make a key a flag that widens a call when it is set.
	wideningWords = []string{
		"force", "forced", "all", "recursive", "recursively", "recurse", "purge", "cascade", "cascading", "everything", "permanent",
		"permanently", "hard", "wipe", "unrestricted", "globally", "global", "prune", "destroy", "nuke",
		"dangerously", "bypass", "allnamespaces", "includeall",
	}
	// negations turn such a flag into its opposite.
	negations = []string{"no", "not", "non", "without", "skip", "disable", "disabled", "never", "dont", "prevent", "avoid", "exclude"}
	// checks are what a call reaches further without.
	checks = []string{"confirm", "confirmation", "check", "checks", "validation", "safety", "protection", "approval", "prompt", "dryrun"}

	filterWords = []string{
		"filter", "filters", "where", "query", "q", "search", "selector", "selectors", "match", "matcher", "criteria", "condition",
		"conditions", "predicate", "jql", "cql", "soql", "prefix", "pattern", "glob", "regex",
	}
	pathWords = []string{
		"path", "paths", "dir", "dirs", "directory", "directories", "folder", "folders", "file", "files", "filename", "filepath",
		"filenames", "root", "destination", "dest", "cwd", "workdir", "workspace",
	}
	limitWords   = []string{"limit", "max", "maximum", "top"}
	countWords   = []string{"count", "copies", "batch", "repeat", "times", "iterations"}
	measureWords = []string{
		"token", "tokens", "length", "size", "bytes", "age", "retry", "retries", "timeout", "seconds", "minutes", "days", "ms",
		"depth", "width", "height", "price", "amount", "word", "words", "chars", "characters", "lines",
	}
	// proseWords name texts for people, in which an asterisk is no wildcard.
	proseWords = []string{
		"body", "text", "message", "content", "contents", "description", "comment", "note", "notes", "reason", "summary", "subject",
		"title", "markdown", "html", "prompt", "instructions", "caption", "bio", "format", "currency",
	}
	// attributeWords name lists that say something of one thing.
	attributeWords = []string{
		"tag", "tags", "label", "labels", "field", "fields", "column", "columns", "scope", "scopes", "permission", "permissions",
		"include", "includes", "exclude", "excludes", "sort", "order", "orderby", "expand", "type", "types", "args", "arguments",
		"options", "features", "keywords", "values", "headers", "properties", "attributes", "formats", "languages", "categories",
		"coordinates", "position", "range", "ranges", "env", "roles", "topics", "steps", "choices",
	}
	// idWords end the key of an identifier.
	idWords = []string{"id", "uuid", "uid", "guid", "iid", "arn", "slug", "sku", "handle", "gid", "pk", "oid"}
	// nameWords end the key of something that names what a call acts on.
	nameWords = []string{
		"name", "number", "key", "ref", "sha", "commit", "branch", "url", "uri", "link", "email", "login", "user", "username", "account",
		"customer", "contact", "member", "owner", "org", "organization", "tenant", "team", "group", "repo", "repository", "project",
		"workspace", "issue", "ticket", "task", "order", "invoice", "payment", "charge", "subscription", "product", "item",
		"cluster", "namespace", "pod", "node", "deployment", "service", "container", "image", "volume", "instance", "vm", "host",
		"hostname", "server", "domain", "device", "machine", "database", "db", "schema", "table", "collection", "index", "bucket",
		"queue", "topic", "stream", "job", "pipeline", "workflow", "build", "release", "app", "application", "site", "page",
		"document", "doc", "sheet", "channel", "thread", "conversation", "event", "calendar", "board", "card", "to", "cc", "bcc",
		"recipient", "attendee", "phone", "target", "resource", "record", "row", "employee", "asset",
	}
	// bystanders make an identifier one of something that is not acted on.
	bystanders = []string{"idempotency", "trace", "span", "correlation", "nonce", "parent", "assignee", "template", "author", "category", "reviewer", "milestone", "currency"}
)

// widens tells whether a key is a flag that widens a call when it is set.
func widens(words []string) bool {
	negated := hasAny(words, negations)
	if negated && hasAny(words, checks) {
		return true
	}
	return !negated && hasAny(words, wideningWords) && !isAllDay(words)
}

// isAllDay knows the one common flag with all that widens nothing: an event of a whole day.
func isAllDay(words []string) bool {
	return slices.Contains(words, "all") && (slices.Contains(words, "day") || slices.Contains(words, "days"))
}

// truthy tells whether a value sets the flag of these words. A number sets only what is plainly a flag.
func truthy(words []string, v strictjson.Value) bool {
	switch v.Kind() {
	case strictjson.Bool:
		return v.IsTrue()
	case strictjson.Number:
		return strings.ContainsAny(string(v.Raw()), "123456789") && !identifies(words) &&
			!hasAny(words, measureWords) && !hasAny(words, limitWords) && !hasAny(words, countWords)
	case strictjson.String:
		switch strings.ToLower(strings.TrimSpace(v.Text())) {
		case "true", "yes", "y", "t", "1", "on", "all", "always", "enabled", "enable", "force", "forced", "full":
			return true
		}
		return false
	default:
		return false
	}
}

// isFilter tells whether a key says what to select.
func isFilter(words []string) bool { return hasAny(words, filterWords) && !isIdentifier(words) }

// isIdentifier tells whether a key is that of an identifier of what is acted on.
func isIdentifier(words []string) bool {
	return len(words) > 0 && slices.Contains(idWords, singular(words[len(words)-1])) && !hasAny(words, bystanders)
}

// identifies tells whether a key names what a call acts on.
func identifies(words []string) bool {
	if len(words) == 0 || hasAny(words, bystanders) {
		return false
	}
	last := singular(words[len(words)-1])
	return slices.Contains(idWords, last) || slices.Contains(nameWords, last)
}

func isPlural(words []string) bool {
	last := words[len(words)-1]
	return singular(last) != last || last == "to" || last == "cc" || last == "bcc"
}

// singular gives the singular of a word of the tables, and every other word as it is.
func singular(word string) string {
	for _, ending := range []struct{ plural, singular string }{{"ies", "y"}, {"es", ""}, {"s", ""}} {
		stem, ok := strings.CutSuffix(word, ending.plural)
		if !ok {
			continue
		}
		if stem += ending.singular; slices.Contains(idWords, stem) || slices.Contains(nameWords, stem) {
			return stem
		}
	}
	return word
}

// matchesAll tells whether a text selects everything.
func matchesAll(text string) bool {
	switch strings.ToLower(strings.Trim(text, `"'^$/`)) {
	case "*", "**", "*.*", "**/*", "%", ".*", ".+", "*:*", "all", "everything", "_all":
		return true
	}
	return false
}

// isAlwaysTrue tells whether a condition is true of everything.
func isAlwaysTrue(text string) bool {
	switch strings.Join(strings.Fields(strings.ToLower(strings.NewReplacer("=", " = ", ";", " ").Replace(text))), " ") {
	case "true", "1", "1 = 1", "1 = = 1", "'1' = '1'", "'a' = 'a'", "not false", "where 1 = 1", "where true", "{}", "[]", "null":
		return true
	}
	return false
}

// isStatement tells whether a text starts like a statement of SQL.
func isStatement(text string) bool {
	first, _, more := strings.Cut(strings.ToLower(text), " ")
	if !more {
		return false
	}
	switch first {
	case "select", "insert", "update", "delete", "drop", "alter", "create", "truncate", "merge", "grant", "revoke", "with", "mutation", "exec", "call":
		return true
	}
	return false
}

// runs tells whether a text under a key is run by a machine.
func runs(words []string, text string) bool {
	if hasAny(words, []string{"sql", "command", "commands", "cmd", "script", "shell", "bash", "javascript", "statement", "statements", "mutation", "graphql"}) {
		return strings.TrimSpace(text) != ""
	}
	// Of the other words some have another sense: a code of a country, a template by its name.
	return hasAny(words, codeWords) && strings.IndexFunc(strings.TrimSpace(text), unicode.IsSpace) >= 0
}

// isRoot tells whether a path is that of everything there is.
func isRoot(text string) bool {
	switch text {
	case "~", "~/", `\`, "*":
		return true
	case "":
		return false
	}
	if len(text) >= 2 && text[1] == ':' && strings.Trim(text[2:], `/\.*`) == "" {
		return true // a drive
	}
	text, _ = strings.CutPrefix(text, "file://")
	switch cleaned := path.Clean(strings.TrimRight(strings.ReplaceAll(text, `\`, "/"), "*")); cleaned {
	case "/", ".", "..":
		return true
	default:
		return strings.HasPrefix(cleaned, "../") && strings.Trim(cleaned, "./") == ""
	}
}
