// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// MetadataPath is where RFC 9728 metadata is served; the path of a resource follows it.
const MetadataPath = "/.well-known/oauth-protected-resource"

// ShortPath is where a gateway with a single server answers too; clients that were given it take it for the resource.
const ShortPath = "/mcp"

// retryAfter is how long a client whose token could not be checked should wait, in seconds.
const retryAfter = "5"

// Metadata tells clients where to get a token (RFC 9728). It answers at MetadataPath and below.
type Metadata struct {
	// PublicURL is the address that agents reach the gateway at, as ParsePublicURL returns it.
	PublicURL string
	// Servers are the GovernedServers that the gateway stands in front of.
	Servers []types.NamespacedName
	// AuthorizationServers are the URLs of the OIDC issuers. Without any there is nobody to log in to, and no metadata.
	AuthorizationServers []string
}

// ParsePublicURL checks the address that agents reach a gateway at: scheme and host, without a path.
func ParsePublicURL(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "" ||
		u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", fmt.Errorf("%q is not a URL of scheme and host only, such as https://tidewaiter.example.com", address)
	}
	// Clients normalize the address of a server so, before they ask for a token that is for it.
	defaultPort := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	return u.Scheme + "://" + strings.TrimSuffix(strings.ToLower(u.Host), defaultPort), nil
}

// Resource returns the resource identifier of a server, which is the audience of the tokens for it.
func (m *Metadata) Resource(server types.NamespacedName) string {
	return m.PublicURL + resourcePath(server)
}

// URL returns the address of the metadata for Challenge, "" if there is none. path is that of the resource as the client
// knows it, since clients compare it with what the metadata say.
func (m *Metadata) URL(path string) string {
	if len(m.AuthorizationServers) == 0 {
		return ""
	}
	return m.PublicURL + MetadataPath + path
}

func resourcePath(server types.NamespacedName) string {
	return "/" + server.Namespace + "/" + server.Name + "/mcp"
}

// document is the metadata of one resource, with the names of RFC 9728.
type document struct {
	Resource               string   `json:"resource"`
	ResourceName           string   `json:"resource_name"`
	AuthorizationServers   []string `json:"authorization_servers"`
	BearerMethodsSupported []string `json:"bearer_methods_supported"`
}

// ServeHTTP answers for one server, which a gateway with a single one need not be told. It is open to everybody, pages in
// browsers too, and says nothing that a caller could not know.
func (m *Metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", "*")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions: // before a page may send MCP-Protocol-Version
		header.Set("Access-Control-Allow-Methods", "GET, HEAD")
		header.Set("Access-Control-Allow-Headers", "*")
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		header.Set("Allow", "GET, HEAD, OPTIONS")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	server, resource, ok := m.find(strings.TrimPrefix(r.URL.Path, MetadataPath))
	if !ok || len(m.AuthorizationServers) == 0 {
		http.Error(w, "no metadata here; the path is "+MetadataPath+"/NAMESPACE/NAME/mcp, on a gateway with an OIDC issuer", http.StatusNotFound)
		return
	}
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "max-age=60")
	err := json.NewEncoder(w).Encode(document{
		Resource:               resource,
		ResourceName:           server.String(),
		AuthorizationServers:   m.AuthorizationServers,
		BearerMethodsSupported: []string{"header"},
	})
	if err != nil {
		return // the client has gone
	}
}

// find returns the server whose resource has a path, and the identifier of that resource.
func (m *Metadata) find(path string) (server types.NamespacedName, resource string, ok bool) {
	if len(m.Servers) == 1 {
		switch server := m.Servers[0]; path {
		case "":
			return server, m.Resource(server), true
		case ShortPath:
			return server, m.PublicURL + ShortPath, true
		}
	}
	i := slices.IndexFunc(m.Servers, func(server types.NamespacedName) bool { return path == resourcePath(server) })
	if i < 0 {
		return types.NamespacedName{}, "", false
	}
	return m.Servers[i], m.PublicURL + path, true
}

// Challenge answers a request that Authenticate refused: with 401 and where to get a token (RFC 6750, RFC 9728), or with
// 503 where it could not be told who calls.
func Challenge(w http.ResponseWriter, resourceMetadataURL string, err error) {
	noToken, refused := errors.Is(err, ErrNoToken), errors.Is(err, ErrInvalidToken)
	if errors.Is(err, ErrUnavailable) || !noToken && !refused {
		w.Header().Set("Retry-After", retryAfter)
		http.Error(w, ErrUnavailable.Error()+"; try again later", http.StatusServiceUnavailable)
		return
	}
	parameters := []string{`realm="tidewaiter"`}
	if resourceMetadataURL != "" {
		parameters = append(parameters, `resource_metadata="`+quotable(resourceMetadataURL)+`"`)
	}
	text := "send a token in the header Authorization: Bearer"
	if refused {
		text = err.Error()
		parameters = append(parameters, `error="invalid_token"`, `error_description="`+quotable(text)+`"`)
	}
	w.Header().Set("WWW-Authenticate", "Bearer "+strings.Join(parameters, ", "))
	http.Error(w, text, http.StatusUnauthorized)
}

// quotable leaves out what may not stand in a quoted parameter (RFC 6750, section 3).
func quotable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, text)
}
