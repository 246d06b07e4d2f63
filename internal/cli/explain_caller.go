// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"regexp"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// accountPrefix begins the username of every ServiceAccount.
const accountPrefix = "system:serviceaccount:"

// account matches NAMESPACE/NAME of a ServiceAccount.
var account = regexp.MustCompile(`^([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)/([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)$`)

// principal is whose call it is: whom --as names, or the person.
func (o *explainOptions) principal(ctx context.Context) (expr.Principal, error) {
	if o.as != "" {
		return namedPrincipal(o.as, o.groups), nil
	}
	me, err := o.whoami(ctx)
	if err != nil {
		return expr.Principal{}, err
	}
	return principalOf(me.Status.UserInfo.Username, me.Status.UserInfo.Groups), nil
}

// namedPrincipal is the principal that a person means by a name. Without groups it has those that the API server gives
// to all of its kind.
func namedPrincipal(name string, groups []string) expr.Principal {
	if parts := account.FindStringSubmatch(name); parts != nil {
		name = accountPrefix + parts[1] + ":" + parts[2]
	}
	p := principalOf(name, groups)
	if len(groups) > 0 {
		return p
	}
	if p.ServiceAccount != "" {
		p.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + p.Namespace}
	}
	p.Groups = append(p.Groups, "system:authenticated")
	return p
}

// principalOf is a principal as the gateway authenticates it.
func principalOf(username string, groups []string) expr.Principal {
	p := expr.Principal{Username: username, Groups: groups}
	if rest, ok := strings.CutPrefix(username, accountPrefix); ok {
		if namespace, name, ok := strings.Cut(rest, ":"); ok && namespace != "" && name != "" && !strings.Contains(name, ":") {
			p.Namespace, p.ServiceAccount = namespace, name
		}
	}
	return p
}
