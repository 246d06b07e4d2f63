// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	clocktesting "k8s.io/utils/clock/testing"
)

const oneReceiver = `
receivers:
- name: chat
  url: https://chat.example.com/hooks/T0K3N
  secretFiles: [chat, chat-older]
  namespaceSelector:
    matchLabels:
      tidewaiter.dev/notify: chat
`

// beside returns what stands beside a configuration.
func beside(name string) ([]byte, error) {
	files := map[string]string{
		"chat": secret + "\n", "chat-older": older, "short": "too-short", "pretty": strings.Repeat("é", 32),
		"none.crt": "no certificate",
	}
	if text, ok := files[name]; ok {
		return []byte(text), nil
	}
	return nil, errors.New("no such file")
}

func TestAConfigurationIsReadWhole(t *testing.T) {
	t.Parallel()
	got, err := ParseConfig([]byte("---\n"+oneReceiver+`
- name: everything
  url: https://audit.example.com:8443/
  secretFiles: [chat-older]
  namespaceSelector: {}
`), beside)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Name != "chat" || got[0].URL != "https://chat.example.com/hooks/T0K3N" || got[0].Roots != nil {
		t.Fatalf("ParseConfig = %+v", got)
	}
	if len(got[0].Secrets) != 2 || string(got[0].Secrets[0]) != secret || string(got[0].Secrets[1]) != older {
		t.Errorf("secrets are %q", got[0].Secrets)
	}
	labelled, plain := labels.Set{"tidewaiter.dev/notify": "chat"}, labels.Set{}
	if !got[0].Namespaces.Matches(labelled) || got[0].Namespaces.Matches(plain) {
		t.Errorf("chat selects %s", got[0].Namespaces)
	}
	if !got[1].Namespaces.Matches(labelled) || !got[1].Namespaces.Matches(plain) {
		t.Errorf("{} selects %s", got[1].Namespaces)
	}
}

func TestAConfigurationIsRefusedWithItsPositionAndHowToMendIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ old, new, want string }{
		"a field of the receiver that is unknown": {"name: chat", "name: chat\n  secret: x", "receivers[0].secret: there is no such field; the fields of a receiver are"},
		"a field in other letters":                {"url:", "URL:", "receivers[0].URL: there is no such field"},
		"a field of the file that is unknown":     {"receivers:", "retries: 3\nreceivers:", "retries: there is no such field"},
		"a field that is said twice":              {"name: chat", "name: chat\n  name: chat", `line 4: key "name" already set`},
		"a field of the selector that is unknown": {"matchLabels", "matchLabel", "receivers[0].namespaceSelector.matchLabel: there is no such field"},
		"a text in place of a list":               {"[chat, chat-older]", "chat", "receivers[0].secretFiles: a value of another type is needed here, not a JSON string"},
		"a list in place of the file":             {oneReceiver, "[]", "the whole file: a value of another type is needed here"},
		"no YAML":                                 {"receivers:", "receivers: [", "not YAML: "},
		"a second document":                       {"receivers:", "receivers: []\n---\nreceivers:", "a second YAML document"},
		"no receivers":                            {oneReceiver, "receivers: []", "receivers: there is none; name one"},
		"nothing":                                 {oneReceiver, "", "receivers: there is none; name one"},
		"too many receivers":                      {oneReceiver, "receivers:" + strings.Repeat("\n- {}", 33), "receivers: there are 33, and at most 32"},
		"a name that is no label":                 {"name: chat", "name: Chat Room", "receivers[0].name: a lowercase RFC 1123 label"},
		"no name":                                 {"name: chat", "name: ''", "receivers[0].name: "},
		"a name twice":                            {oneReceiver, oneReceiver + strings.TrimPrefix(oneReceiver, "\nreceivers:\n"), `receivers[1].name: "chat" is taken`},
		"plain HTTP":                              {"https://", "http://", "receivers[0].url: must begin with https://"},
		"no host":                                 {"chat.example.com", "", "receivers[0].url: names no host"},
		"a user in the URL":                       {"https://", "https://me:pass@", "receivers[0].url: holds a user"},
		"a fragment in the URL":                   {"T0K3N", "T0K3N#x", "receivers[0].url: has a part behind #"},
		"no URL":                                  {"https://chat", "https://chat%zz", "receivers[0].url: not a URL"},
		"no selector":                             {"  namespaceSelector:\n    matchLabels:\n      tidewaiter.dev/notify: chat\n", "", "receivers[0].namespaceSelector: missing; select namespaces by their labels, or write {} for all"},
		"a selector that cannot be":               {"notify: chat", "notify: c h a t", "receivers[0].namespaceSelector: "},
		"no secret":                               {"[chat, chat-older]", "[]", "receivers[0].secretFiles: names 0 files; name one or"},
		"three secrets":                           {"[chat,", "[chat, chat,", "receivers[0].secretFiles: names 3 files"},
		"a short secret":                          {"[chat,", "[short,", "receivers[0].secretFiles[0]: short holds 9 characters, and at least 32 are needed; make one by"},
		"a secret of other letters":               {"chat-older]", "pretty]", "receivers[0].secretFiles[1]: pretty holds other characters"},
		"a secret that is not there":              {"[chat,", "[chats,", "receivers[0].secretFiles[0]: read a file beside the configuration: no such file"},
		"a secret elsewhere":                      {"[chat,", "[../chat,", `receivers[0].secretFiles[0]: "../chat" is no name of a file beside`},
		"a CA that is not there":                  {"name: chat", "name: chat\n  caFile: ca.crt", "receivers[0].caFile: read a file beside"},
		"a CA that is none":                       {"name: chat", "name: chat\n  caFile: none.crt", "receivers[0].caFile: none.crt holds no certificate in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(oneReceiver, tc.old, tc.new, 1)
			if text == oneReceiver {
				t.Fatal("the case changes nothing")
			}
			got, err := ParseConfig([]byte(text), beside)
			if err == nil || got != nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("ParseConfig = %v, %v; want %q", got, err, tc.want)
			}
			if strings.Contains(err.Error(), "T0K3N") || strings.Contains(err.Error(), secret) {
				t.Errorf("the error repeats a secret: %v", err)
			}
		})
	}
}

func TestAConfigurationIsReadFromItsFolder(t *testing.T) {
	t.Parallel()
	e, c, m := newEndpoint(t, status(200)), clocktesting.NewFakeClock(opened), metricsOf(t)
	folder := t.TempDir()
	for name, text := range map[string]string{
		"receivers.yaml": "receivers: [{name: chat, url: '" + e.URL + "', secretFiles: [chat], caFile: ca.crt, namespaceSelector: {}}]",
		"chat":           secret + "\n",
		"ca.crt":         string(certificate(e)),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	receivers, err := ReadConfig(filepath.Join(folder, "receivers.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, newSender(receivers[0], loopback, c, m), c)
	if posts := e.got(); len(posts) != 1 || !verified([]byte(secret), posts[0].header.Get(signatureHeader), note.body, opened) {
		t.Errorf("posts are %v", posts)
	}
	if err := os.Remove(filepath.Join(folder, "chat")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"receivers.yaml", "other.yaml"} {
		if got, err := ReadConfig(filepath.Join(folder, name)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("ReadConfig(%s) = %v, %v", name, got, err)
		}
	}
}

func TestAllReceiversThatAreWrongAreNamed(t *testing.T) {
	t.Parallel()
	_, err := ParseConfig([]byte("receivers: [{name: a}, {name: B}]"), beside)
	if err == nil || !strings.Contains(err.Error(), "receivers[0].url") || !strings.Contains(err.Error(), "receivers[1].name") {
		t.Errorf("ParseConfig = %v", err)
	}
}

// FuzzParseConfig looks for a configuration that panics, or passes without what makes a receiver safe.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(oneReceiver))
	f.Add([]byte("receivers: [{name: a, url: 'https://a', secretFiles: [chat], namespaceSelector: {}}]"))
	f.Add([]byte("---\n...\n---\n&a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		receivers, err := ParseConfig(data, beside)
		if (err == nil) != (len(receivers) > 0) {
			t.Fatalf("ParseConfig = %v, %v", receivers, err)
		}
		for _, r := range receivers {
			if !strings.HasPrefix(strings.ToLower(r.URL), "https://") || r.Name == "" || r.Namespaces == nil || len(r.Secrets) == 0 {
				t.Errorf("%+v passes", r)
			}
			for _, s := range r.Secrets {
				if len(s) < minSecret {
					t.Errorf("a secret of %d bytes passes", len(s))
				}
			}
		}
	})
}
