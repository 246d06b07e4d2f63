// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

const page = "../../docs/notifications.md"

// verified tells whether a notification was signed with the secret within five minutes of now.
func verified(secret []byte, header string, body []byte, now time.Time) bool {
	parts := strings.Split(header, ",")
	seconds, found := strings.CutPrefix(parts[0], "t=")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if !found || err != nil || now.Sub(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	want := "v1=" + hex.EncodeToString(mac.Sum(nil))
	return slices.ContainsFunc(parts[1:], func(part string) bool { return hmac.Equal([]byte(part), []byte(want)) })
}

// The page shows the function above to the letter.
func TestTheDocumentedReceiverTakesWhatIsSentAndNothingElse(t *testing.T) {
	t.Parallel()
	text, source := readFile(t, page), readFile(t, "docs_test.go")
	_, code, _ := strings.Cut(text, "```go\n")
	code, _, _ = strings.Cut(code, "```")
	if code == "" || !strings.Contains(source, code) {
		t.Errorf("%s shows another receiver than is tested here:\n%s", page, code)
	}
	body := []byte(`{"event":"Opened"}`)
	both := sign([][]byte{[]byte(secret), []byte(older)}, body, opened)
	for name, tc := range map[string]struct {
		secret, header, body string
		now                  time.Time
		want                 bool
	}{
		"the secret":                {secret, both, string(body), opened, true},
		"the older secret":          {older, both, string(body), opened.Add(5 * time.Minute), true},
		"another secret":            {"another", both, string(body), opened, false},
		"another body":              {secret, both, "{}", opened, false},
		"sent again after the time": {secret, both, string(body), opened.Add(5*time.Minute + time.Second), false},
		"another time":              {secret, strings.Replace(both, "t=1", "t=2", 1), string(body), opened, false},
		"no header":                 {secret, "", string(body), opened, false},
	} {
		if got := verified([]byte(tc.secret), tc.header, []byte(tc.body), tc.now); got != tc.want {
			t.Errorf("%s: verified = %t", name, got)
		}
	}
}

// The Secret of the page, with secrets filled in, is a configuration.
func TestTheDocumentedConfigurationIsRead(t *testing.T) {
	t.Parallel()
	_, manifest, _ := strings.Cut(readFile(t, page), "```yaml\n")
	manifest, _, _ = strings.Cut(manifest, "```")
	var object struct {
		StringData map[string]string `json:"stringData"`
	}
	if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(t, status(200))
	got, err := ParseConfig([]byte(object.StringData["receivers.yaml"]), func(name string) ([]byte, error) {
		if _, ok := object.StringData[name]; !ok {
			t.Errorf("the Secret has no key %s", name)
		}
		if strings.HasSuffix(name, ".crt") {
			return certificate(e), nil
		}
		return []byte(secret), nil
	})
	if err != nil || len(got) != 2 || got[1].Roots == nil {
		t.Errorf("ParseConfig = %v, %v", got, err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
