// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"net/http"
	"strings"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// maxToken bounds a token, in bytes.
const maxToken = 16 << 10

// bearer returns the token of exactly one Authorization header; nothing else in a request says who calls.
func bearer(header http.Header) (string, error) {
	values := header.Values("Authorization")
	if len(values) == 0 {
		return "", ErrNoToken
	}
	if len(values) > 1 {
		return "", invalid("there are %d Authorization headers; send one", len(values))
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimLeft(token, " ")
	switch {
	case !strings.EqualFold(scheme, "Bearer"):
		return "", invalid("the scheme of the Authorization header is not Bearer")
	case len(token) > maxToken:
		return "", invalid("it is longer than %d bytes", maxToken)
	case !isToken68(token):
		return "", invalid("it is empty or has characters that no token has")
	}
	return token, nil
}

// isToken68 tells whether a text has the form that RFC 6750 gives a bearer token.
func isToken68(token string) bool {
	core := strings.TrimRight(token, "=")
	for i := range len(core) {
		switch c := core[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~+/", c) >= 0:
		default:
			return false
		}
	}
	return core != ""
}

// asymmetric are the algorithms of which a verifier knows only the public half.
func asymmetric() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

// parse reads a token without believing it.
func parse(token string) (*jwt.JSONWebToken, jwt.Claims, error) {
	parsed, err := jwt.ParseSigned(token, asymmetric())
	if err != nil {
		return nil, jwt.Claims{}, invalid("it is not a JWT signed with an asymmetric algorithm")
	}
	var claims jwt.Claims
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return nil, jwt.Claims{}, invalid("its claims are malformed")
	}
	return parsed, claims, nil
}
