// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"slices"
	"strings"
	"unicode"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// The masking rules are these tables; a change to them is a change of Version.

// secretWords make a key secret-looking wherever they stand in it.
var secretWords = []string{
	"password", "passwd", "pwd", "passphrase", "passcode", "secret", "secrets", "credential", "credentials", "apikey",
	"authorization", "bearer", "cookie", "cookies", "otp", "totp", "cvv", "cvc", "ssn", "jwt", "privatekey", "accesskey",
	"accesstoken", "refreshtoken", "clientsecret",
}

// secretPairs make a key secret-looking where they stand side by side.
var secretPairs = [][2]string{
	{"api", "key"}, {"private", "key"}, {"access", "key"}, {"signing", "key"}, {"encryption", "key"}, {"auth", "key"},
	{"card", "number"}, {"pin", "code"}, {"security", "code"}, {"account", "key"}, {"auth", "header"}, {"pass", "word"},
}

// notTokens are words beside which a token is a place in a list or a measure.
var notTokens = []string{"page", "next", "continuation", "cursor", "sync", "max", "min", "limit", "count", "budget", "number", "num", "total", "usage", "previous", "prev"}

// secretKey tells whether values under a key are not for showing.
func secretKey(key string) bool {
	words := tool.Words(key)
	for i, word := range words {
		if slices.Contains(secretWords, word) {
			return true
		}
		if i > 0 && slices.Contains(secretPairs, [2]string{words[i-1], word}) {
			return true
		}
		if (word == "token" || word == "tokens") && !hasAny(words, notTokens) {
			return true
		}
	}
	return len(words) == 1 && (words[0] == "auth" || words[0] == "pin")
}

// secretStarts are the beginnings of tokens that their issuers made recognizable.
var secretStarts = []string{
	"ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "sk-", "sk_live_", "sk_test_", "rk_live_", "xoxb-", "xoxp-",
	"xoxa-", "xoxs-", "xapp-", "AKIA", "ASIA", "AIza", "ya29.", "npm_", "pypi-", "dckr_pat_", "SG.", "hf_", "shpat_", "hvs.",
	"dop_v1_", "AGE-SECRET-KEY-", "eyJ",
}

// secretShaped tells whether a text holds what looks like a secret wherever it stands.
func secretShaped(text string) bool {
	if strings.Contains(text, "PRIVATE KEY-----") || hasUserInfo(text) {
		return true
	}
	scheme := ""
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune("\"'`=,;<>()[]{}:&?", r)
	}) {
		// The shortest of the known tokens has 20 bytes, and none is without a digit.
		if long := len(word) >= 16 && strings.ContainsAny(word, "0123456789"); long {
			if strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "basic") {
				return true
			}
			for _, start := range secretStarts {
				if len(word) >= 20 && strings.HasPrefix(word, start) {
					return true
				}
			}
		}
		scheme = word
	}
	return false
}

// hasUserInfo tells whether a text holds a URL with a password.
func hasUserInfo(text string) bool {
	for {
		_, rest, found := strings.Cut(text, "://")
		if !found {
			return false
		}
		authority := rest
		if end := strings.IndexAny(rest, "/?# \t\n\"'"); end >= 0 {
			authority = rest[:end]
		}
		if at := strings.LastIndexByte(authority, '@'); at > 0 && strings.Contains(authority[:at], ":") {
			return true
		}
		text = rest
	}
}

// codeWords name arguments that hold what a machine will run.
var codeWords = []string{"sql", "query", "queries", "command", "commands", "cmd", "script", "code", "statement", "statements", "expression", "program", "shell", "bash", "javascript", "python", "jq", "template", "mutation", "graphql", "payload"}

// codeKey tells whether texts under a key are run.
func codeKey(key string) bool {
	return hasAny(tool.Words(key), codeWords)
}

func hasAny(words, table []string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(table, word) })
}

// appendVisible appends text as a JSON string in which everything that does not print, has no width, or turns the
// direction of text stands as an escape.
func appendVisible(dst []byte, text string) []byte {
	start := 0
	dst = append(dst, '"')
	for i, r := range text {
		if r < ' ' || glyph.Visible(r) {
			continue // what JSON escapes anyway is left to it
		}
		dst = appendInner(dst, text[start:i])
		dst = glyph.AppendEscape(dst, r)
		start = i + len(string(r))
	}
	return append(appendInner(dst, text[start:]), '"')
}

// appendInner appends text as it stands between the quotes of a JSON string.
func appendInner(dst []byte, text string) []byte {
	quoted := len(dst)
	dst = strictjson.AppendString(dst, text)
	copy(dst[quoted:], dst[quoted+1:])
	return dst[:len(dst)-2]
}
