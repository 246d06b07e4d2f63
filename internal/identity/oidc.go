// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	// maxProviderAnswer bounds what is read of a provider, in bytes.
	maxProviderAnswer = 1 << 20
	maxRedirects      = 3
)

// OIDC is an OpenID Connect provider, with the settings that kube-apiserver has for one. Where the API server trusts the
// same provider they must be the same.
type OIDC struct {
	// URL is the issuer, an https URL.
	URL string
	// CA holds PEM certificates that the provider's may be signed by; nil for those of the system.
	CA []byte
	// UsernameClaim is the claim that holds the username; "" for sub. Claim email needs email_verified beside it.
	UsernameClaim string
	// UsernamePrefix stands before every username; "-" for none; "" for the URL and "#", and for none with claim email.
	UsernamePrefix string
	// GroupsClaim is the claim that holds the groups, "" for no groups; GroupsPrefix stands before each.
	GroupsClaim  string
	GroupsPrefix string
	// SigningAlgs are the JOSE algorithms that tokens may be signed with; nil for RS256.
	SigningAlgs []string
}

// Issuer checks the settings and returns the issuer. It asks the provider nothing before the first token comes.
func (o OIDC) Issuer() (*Issuer, error) {
	if u, err := url.Parse(o.URL); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("issuer URL %q is not an https URL without user, query and fragment", o.URL)
	}
	client, err := providerClient(o.CA)
	if err != nil {
		return nil, err
	}
	if o.UsernameClaim == "" {
		o.UsernameClaim = "sub"
	}
	switch {
	case o.UsernamePrefix == "-":
		o.UsernamePrefix = ""
	case o.UsernamePrefix == "" && o.UsernameClaim != "email":
		o.UsernamePrefix = o.URL + "#"
	}
	if isSystem(o.UsernamePrefix) || isSystem(o.GroupsPrefix) {
		return nil, errors.New("a prefix that begins with system: is for Kubernetes itself")
	}
	if len(o.SigningAlgs) == 0 {
		o.SigningAlgs = []string{string(jose.RS256)}
	}
	var algorithms []jose.SignatureAlgorithm
	for _, name := range o.SigningAlgs {
		if !slices.Contains(asymmetric(), jose.SignatureAlgorithm(name)) {
			return nil, fmt.Errorf("signing algorithm %q is not one of %v", name, asymmetric())
		}
		algorithms = append(algorithms, jose.SignatureAlgorithm(name))
	}
	return &Issuer{
		URL:        o.URL,
		algorithms: algorithms,
		keys:       &keySet{fetch: func(ctx context.Context) ([]byte, error) { return providerKeys(ctx, client, o.URL) }},
		caller:     o.caller,
		mapping:    fmt.Sprintf("claim %q with prefix %q", o.UsernameClaim, o.UsernamePrefix),
	}, nil
}

// caller reads a verified token. With an act claim (RFC 8693) the actor calls, for the subject of the token; of nested
// ones only the outermost is the one who calls.
func (o OIDC) caller(token *jwt.JSONWebToken, _ jwt.Claims) (Caller, error) {
	var subject map[string]any
	if err := token.UnsafeClaimsWithoutVerification(&subject); err != nil {
		return Caller{}, invalid("its claims are malformed")
	}
	username, err := o.username(subject)
	if err != nil {
		return Caller{}, err
	}
	act, delegated := subject["act"]
	if !delegated {
		groups, err := o.groups(subject)
		return Caller{Username: username, Groups: groups}, err
	}
	actor, ok := act.(map[string]any)
	if !ok {
		return Caller{}, invalid("its claim act is not an object")
	}
	if issuer, named := actor["iss"]; named && issuer != o.URL {
		return Caller{}, invalid("the actor in its claim act is of another issuer")
	}
	actorName, err := o.username(actor)
	if err != nil {
		return Caller{}, fmt.Errorf("%w (in its claim act)", err)
	}
	groups, err := o.groups(actor)
	return Caller{Username: actorName, ActsFor: username, Groups: groups}, err
}

func (o OIDC) username(claims map[string]any) (string, error) {
	name, _ := claims[o.UsernameClaim].(string)
	if name == "" {
		return "", invalid("its claim %s holds no username", o.UsernameClaim)
	}
	if o.UsernameClaim == "email" && claims["email_verified"] != true {
		return "", invalid("its claim email_verified is not true")
	}
	if isSystem(o.UsernamePrefix + name) {
		return "", invalid("its username begins with system:, which only Kubernetes gives")
	}
	return o.UsernamePrefix + name, nil
}

// groups returns the groups of a caller; the claim is a text or a list of texts.
func (o OIDC) groups(claims map[string]any) ([]string, error) {
	if o.GroupsClaim == "" {
		return []string{authenticated}, nil
	}
	var groups []string
	var values []any
	switch claim := claims[o.GroupsClaim].(type) {
	case nil:
	case []any:
		values = claim
	default:
		values = []any{claim}
	}
	for _, value := range values {
		name, ok := value.(string)
		if !ok {
			return nil, invalid("its claim %s is not a list of group names", o.GroupsClaim)
		}
		if isSystem(o.GroupsPrefix + name) {
			return nil, invalid("one of its groups begins with system:, which only Kubernetes gives")
		}
		groups = append(groups, o.GroupsPrefix+name)
	}
	return append(groups, authenticated), nil
}

func isSystem(name string) bool { return strings.HasPrefix(name, "system:") }

func providerClient(ca []byte) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if ca != nil {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(ca) {
			return nil, errors.New("the CA file of the issuer holds no PEM certificate")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "https" || len(via) > maxRedirects {
			return errors.New("redirected to a URL without https, or too often")
		}
		return nil
	}}, nil
}

// providerKeys reads a provider's keys from where its configuration says that they are.
func providerKeys(ctx context.Context, client *http.Client, issuer string) ([]byte, error) {
	data, err := providerGet(ctx, client, strings.TrimSuffix(issuer, "/")+discoveryPath)
	if err != nil {
		return nil, err
	}
	var provider discovered
	if err := json.Unmarshal(data, &provider); err != nil {
		return nil, fmt.Errorf("the configuration of issuer %s is not JSON", issuer)
	}
	if provider.Issuer != issuer {
		return nil, fmt.Errorf("the configuration of issuer %s is that of %q", issuer, provider.Issuer)
	}
	if !strings.HasPrefix(provider.JWKSURI, "https://") {
		return nil, fmt.Errorf("the configuration of issuer %s has no https jwks_uri", issuer)
	}
	return providerGet(ctx, client, provider.JWKSURI)
}

func providerGet(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err // names method and URL
	}
	defer response.Body.Close() //nolint:errcheck // read to its end or given up
	data, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, maxProviderAnswer))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", address, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: status %d", address, response.StatusCode)
	}
	return data, nil
}
