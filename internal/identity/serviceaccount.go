// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// The API server's own paths: the addresses that it names are for others, and need not be reachable from here.
const (
	discoveryPath = "/.well-known/openid-configuration"
	keysPath      = "/openid/v1/jwks"
)

// serviceAccountPrefix begins the username of every ServiceAccount, and the groups that it is in.
const (
	serviceAccountPrefix = "system:serviceaccount:"
	serviceAccountsGroup = "system:serviceaccounts"
)

// ServiceAccounts returns the issuer of the ServiceAccount tokens of a cluster. It asks the API server for the issuer's
// URL, and later for its keys, as system:service-account-issuer-discovery allows every ServiceAccount.
func ServiceAccounts(ctx context.Context, cluster *rest.Config) (*Issuer, error) {
	cfg := rest.CopyConfig(cluster)
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	api, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	get := func(ctx context.Context, path string) ([]byte, error) {
		// The keys have a media type of their own.
		accept := "application/json, application/jwk-set+json"
		data, err := api.Get().AbsPath(path).SetHeader("Accept", accept).Do(ctx).Raw()
		if err != nil {
			return nil, fmt.Errorf("get %s of the API server: %w", path, err)
		}
		return data, nil
	}
	data, err := get(ctx, discoveryPath)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	var provider discovered
	if err := json.Unmarshal(data, &provider); err != nil || provider.Issuer == "" {
		return nil, fmt.Errorf("%s of the API server names no issuer", discoveryPath)
	}
	return &Issuer{
		URL:        provider.Issuer,
		algorithms: asymmetric(),
		keys:       &keySet{fetch: func(ctx context.Context) ([]byte, error) { return get(ctx, keysPath) }},
		caller:     serviceAccount,
		mapping:    `claim "sub" without a prefix`,
	}, nil
}

// discovered is what is read of an OpenID provider's configuration.
type discovered struct {
	Issuer  string `json:"issuer"`
	JWKSURI string `json:"jwks_uri"`
}

// bound is what the API server says in a token of the objects that it belongs to.
type bound struct {
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"serviceaccount"`
		Pod struct {
			Name string `json:"name"`
		} `json:"pod"`
	} `json:"kubernetes.io"`
}

// serviceAccount reads a verified ServiceAccount token.
func serviceAccount(token *jwt.JSONWebToken, claims jwt.Claims) (Caller, error) {
	var private bound
	if err := token.UnsafeClaimsWithoutVerification(&private); err != nil {
		return Caller{}, invalid("its claim kubernetes.io is malformed")
	}
	namespace, account := private.Kubernetes.Namespace, private.Kubernetes.ServiceAccount
	if namespace == "" || account.Name == "" || account.UID == "" {
		return Caller{}, invalid("it names no ServiceAccount")
	}
	if claims.Subject != serviceAccountPrefix+namespace+":"+account.Name {
		return Caller{}, invalid("its claims sub and kubernetes.io name different ServiceAccounts")
	}
	return Caller{
		Username: claims.Subject,
		Groups:   []string{serviceAccountsGroup, serviceAccountsGroup + ":" + namespace, authenticated},
		Pod:      private.Kubernetes.Pod.Name,
	}, nil
}
