// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	maxReceivers = 32
	// maxSecrets is a secret and the older one that it replaces.
	maxSecrets = 2
	// minSecret is the least number of characters of a secret: as many as HMAC-SHA256 has bytes.
	minSecret = 32
)

// Receiver gets notifications of the requests of some namespaces.
type Receiver struct {
	// Name is the receiver's name in logs and metrics.
	Name string
	// URL takes the notifications. It may hold a token, so it is in no log and no error.
	URL string
	// Secrets each sign every notification: the receiver's secret and, while that is changed, the one before.
	Secrets [][]byte
	// Namespaces selects the namespaces by their labels.
	Namespaces labels.Selector
	// Roots verify the receiver's certificate; nil for those of the system.
	Roots *x509.CertPool
}

// config is the file that --notify-config names.
type config struct {
	Receivers []settings `json:"receivers"`
}

type settings struct {
	Name              string                `json:"name"`
	URL               string                `json:"url"`
	SecretFiles       []string              `json:"secretFiles"`
	CAFile            string                `json:"caFile"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
}

// ReadConfig reads the file that --notify-config names, and the files beside it that it names.
func ReadConfig(path string) ([]Receiver, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the receivers of notifications: %w", err)
	}
	receivers, err := ParseConfig(data, func(name string) ([]byte, error) {
		return os.ReadFile(filepath.Join(filepath.Dir(path), name))
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return receivers, nil
}

// ParseConfig reads a configuration. read returns a file that stands beside it. Every error says where in the
// configuration something is wrong and how to mend it, and none repeats a URL or a secret.
func ParseConfig(data []byte, read func(name string) ([]byte, error)) ([]Receiver, error) {
	parsed, err := decode(data)
	if err != nil {
		return nil, err
	}
	switch n := len(parsed.Receivers); {
	case n == 0:
		return nil, errors.New("receivers: there is none; name one, or leave the flag out")
	case n > maxReceivers:
		return nil, fmt.Errorf("receivers: there are %d, and at most %d may be", n, maxReceivers)
	}
	var receivers []Receiver
	var problems []error
	names := map[string]bool{}
	for i, s := range parsed.Receivers {
		receiver, err := s.receiver(read)
		if err == nil && names[s.Name] {
			err = fmt.Errorf("name: %q is taken by another receiver; choose one of its own", s.Name)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("receivers[%d].%w", i, err))
			continue
		}
		names[s.Name] = true
		receivers = append(receivers, receiver)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return receivers, nil
}

// decode reads YAML in which nothing is unknown or said twice.
func decode(data []byte) (config, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	first, err := documents.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return config{}, fmt.Errorf("not YAML: %w", err)
	}
	if _, err := documents.Read(); !errors.Is(err, io.EOF) {
		return config{}, errors.New("there is a second YAML document; put all receivers into one list")
	}
	asJSON, err := yaml.YAMLToJSONStrict(first)
	if err != nil {
		return config{}, fmt.Errorf("not YAML: %w", err)
	}
	var parsed config
	if err := json.Unmarshal(asJSON, &parsed, json.RejectUnknownMembers(true)); err != nil {
		var wrong *json.SemanticError
		if !errors.As(err, &wrong) {
			return config{}, errors.New("not a configuration of receivers")
		}
		if errors.Is(err, json.ErrUnknownName) {
			return config{}, fmt.Errorf("%s: there is no such field; the fields of a receiver are name, url, secretFiles, caFile, namespaceSelector", position(wrong.JSONPointer))
		}
		return config{}, fmt.Errorf("%s: a value of another type is needed here, not a JSON %s", position(wrong.JSONPointer), wrong.JSONKind)
	}
	return parsed, nil
}

// position writes a JSON pointer as people write the place of a field: receivers[0].name.
func position(pointer jsontext.Pointer) string {
	var path strings.Builder
	for token := range pointer.Tokens() {
		switch _, err := strconv.ParseUint(token, 10, 32); {
		case err == nil:
			path.WriteString("[" + token + "]")
		case path.Len() > 0:
			path.WriteString("." + token)
		default:
			path.WriteString(token)
		}
	}
	if path.Len() == 0 {
		return "the whole file"
	}
	return path.String()
}

// receiver checks the settings and reads the files that they name. Its errors begin with the field.
func (s settings) receiver(read func(name string) ([]byte, error)) (Receiver, error) {
	if problems := validation.IsDNS1123Label(s.Name); len(problems) > 0 {
		return Receiver{}, fmt.Errorf("name: %s", strings.Join(problems, "; "))
	}
	if err := checkURL(s.URL); err != nil {
		return Receiver{}, fmt.Errorf("url: %w", err)
	}
	if s.NamespaceSelector == nil {
		return Receiver{}, errors.New("namespaceSelector: missing; select namespaces by their labels, or write {} for all")
	}
	namespaces, err := metav1.LabelSelectorAsSelector(s.NamespaceSelector)
	if err != nil {
		return Receiver{}, fmt.Errorf("namespaceSelector: %w", err)
	}
	secrets, err := readSecrets(s.SecretFiles, read)
	if err != nil {
		return Receiver{}, err
	}
	roots, err := readRoots(s.CAFile, read)
	if err != nil {
		return Receiver{}, fmt.Errorf("caFile: %w", err)
	}
	return Receiver{Name: s.Name, URL: s.URL, Secrets: secrets, Namespaces: namespaces, Roots: roots}, nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("not a URL; write https://HOST/PATH")
	case u.Scheme != "https":
		return errors.New("must begin with https://, since others could read what is sent")
	case u.Hostname() == "":
		return errors.New("names no host; write https://HOST/PATH")
	case u.User != nil:
		return errors.New("holds a user; take it out, the signature tells who sends")
	case u.Fragment != "":
		return errors.New("has a part behind #, which is never sent; take it out")
	}
	return nil
}

func readSecrets(files []string, read func(name string) ([]byte, error)) ([][]byte, error) {
	if n := len(files); n < 1 || n > maxSecrets {
		return nil, fmt.Errorf("secretFiles: names %d files; name one or, while the secret is changed, %d", n, maxSecrets)
	}
	var secrets [][]byte
	for i, file := range files {
		secret, err := readSecret(file, read)
		if err != nil {
			return nil, fmt.Errorf("secretFiles[%d]: %w", i, err)
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

// readSecret takes only characters that survive copying, so that the two sides have the same secret.
func readSecret(file string, read func(name string) ([]byte, error)) ([]byte, error) {
	data, err := readBeside(file, read)
	if err != nil {
		return nil, err
	}
	// Files and editors end a line where none is wanted.
	secret := bytes.TrimRight(data, "\r\n")
	if len(secret) < minSecret {
		return nil, fmt.Errorf("%s holds %d characters, and at least %d are needed; make one by: openssl rand -hex 32", file, len(secret), minSecret)
	}
	for _, c := range secret {
		if c <= ' ' || c > '~' {
			return nil, fmt.Errorf("%s holds other characters than letters, digits and signs of ASCII; make one by: openssl rand -hex 32", file)
		}
	}
	return secret, nil
}

func readRoots(file string, read func(name string) ([]byte, error)) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // nil is crypto/tls's own word for the roots of the system
	}
	data, err := readBeside(file, read)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return roots, nil
}

// readBeside reads a file of the configuration's own folder, as the keys of one mounted Secret are.
func readBeside(name string, read func(name string) ([]byte, error)) ([]byte, error) {
	if problems := validation.IsConfigMapKey(name); len(problems) > 0 {
		return nil, fmt.Errorf("%q is no name of a file beside the configuration: %s", name, strings.Join(problems, "; "))
	}
	data, err := read(name)
	if err != nil {
		return nil, fmt.Errorf("read a file beside the configuration: %w", err)
	}
	return data, nil
}
