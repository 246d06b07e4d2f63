// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/manifest"
)

// manifests are the policies and servers of files, each as the API server would take it.
type manifests struct {
	files             []sourceFile
	policies, servers []linted
}

// readManifests reads files, and refuses all of them where the API server would refuse anything in them: an answer about
// half of what is to be applied is none. What names no namespace is of the one given.
func readManifests(ctx context.Context, stdin io.Reader, paths []string, namespace string) (manifests, error) {
	if len(paths) == 0 {
		return manifests{}, nil
	}
	files, err := readFiles(stdin, paths, isManifest)
	if err != nil {
		return manifests{}, err
	}
	kinds, err := manifest.LoadKinds()
	if err != nil {
		return manifests{}, err
	}
	l := &linter{kinds: kinds}
	for _, f := range files {
		l.read(ctx, f)
	}
	var wrong []error
	for _, f := range l.findings {
		if f.Severity == severityError {
			wrong = append(wrong, errors.New(f.String()))
		}
	}
	if len(wrong) > 0 {
		return manifests{}, fmt.Errorf("%w; kubectl tidewaiter lint says all that is wrong", wrong[0])
	}
	for i := range l.policies {
		l.policies[i].Policy.Namespace = cmp.Or(l.policies[i].Policy.Namespace, namespace)
	}
	for i := range l.servers {
		l.servers[i].Server.Namespace = cmp.Or(l.servers[i].Server.Namespace, namespace)
	}
	return manifests{files, l.policies, l.servers}, nil
}

// over returns the policies with those of the files in the place of those of the same name.
func (m manifests) over(set policySet) policySet {
	for _, p := range m.policies {
		set = set.with(*p.Policy)
	}
	return set
}

// targeting returns the policies of the files that name a server as a target.
func (m manifests) targeting(server *v1alpha1.GovernedServer) []linted {
	var all []linted
	for _, p := range m.policies {
		if !isBaseline(p.Policy) && (policySet{}).covers(p.Policy, server) {
			all = append(all, p)
		}
	}
	return all
}
