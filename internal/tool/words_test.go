// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestWords(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{
		"":                       nil,
		"__":                     nil,
		"fetch_thing":            {"fetch", "thing"},
		"fetch-thing.v2":         {"fetch", "thing", "v", "2"},
		"fetchThing":             {"fetch", "thing"},
		"FetchThing":             {"fetch", "thing"},
		"HTTPDelete":             {"http", "delete"},
		"getHTTPResponse":        {"get", "http", "response"},
		"listVMs":                {"list", "vms"},
		"idsOfURLsOnly":          {"ids", "of", "urls", "only"},
		"userID":                 {"user", "id"},
		"markAsSeen":             {"mark", "as", "seen"},
		"drop2tables":            {"drop", "2", "tables"},
		"WordPressListPages":     {"wordpress", "list", "pages"},
		"openShift":              {"open", "shift"},
		"OpenShift_pods":         {"openshift", "pods"},
		"OpenShifter":            {"open", "shifter"},
		"SendGridMail":           {"send", "grid", "mail"},
		"PostgreSQL.runMySQL":    {"postgresql", "run", "mysql"},
		"s3_EC2_k8s":             {"s3", "ec2", "k8s"},
		"s3bucket":               {"s", "3", "bucket"},
		"auth0_fetch":            {"auth0", "fetch"},
		"repo/remove:all things": {"repo", "remove", "all", "things"},
		"a\u200bb":               {"a", "b"},
		"Überprüfen":             {"überprüfen"},
		"删除_user":                {"删除", "user"},
		"OAuthToken":             {"oauth", "token"},
		"GETUser":                {"get", "user"},
		"X":                      {"x"},
	}
	for name, want := range cases {
		if diff := cmp.Diff(want, Words(name)); diff != "" {
			t.Errorf("Words(%q) (-want +got):\n%s", name, diff)
		}
	}
}

func TestWordsLoseNoLetter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		kept := strings.Map(func(r rune) rune {
			if isWordRune(r) {
				return r
			}
			return -1
		}, name)
		if utf8.ValidString(name) && strings.Join(Words(name), "") != strings.ToLower(kept) {
			t.Fatalf("Words(%q) = %q", name, Words(name))
		}
	})
}
