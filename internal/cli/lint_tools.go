// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/classify"
	"github.com/tidewaiter/tidewaiter/internal/definitions"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// knownServer is a server with its tools, and where the schemas of these are.
type knownServer struct {
	object *v1alpha1.GovernedServer
	schema func(tool, digest string) []byte
}

// knownTools are the servers that policies are compared with.
type knownTools struct {
	set     policySet
	servers []knownServer
}

// of returns the tools of the servers that a policy covers, as they stand with all policies counted.
func (k *knownTools) of(p *v1alpha1.ToolPolicy) ([]policy.CheckedTool, error) {
	var all []policy.CheckedTool
	for _, s := range k.servers {
		if !k.set.covers(p, s.object) {
			continue
		}
		compiled, err := k.set.compile(s.object, policy.Facts{})
		if err != nil {
			return nil, err
		}
		all = append(all, compiled.Checked(s.schema)...)
	}
	return all, nil
}

// knownTools returns the servers whose tools the flags name, nil where they name none.
func (o *lintOptions) knownTools(ctx context.Context, l *linter) (*knownTools, error) {
	if o.live {
		if err := o.connect(); err != nil {
			return nil, err
		}
	}
	set := policySet{operatorNamespace: o.operatorNamespace}
	for _, p := range l.policies {
		if p.sound {
			p.Policy.Namespace = cmp.Or(p.Policy.Namespace, o.namespace) // as kubectl apply has it
			set.objects = append(set.objects, *p.Policy)
		}
	}
	switch {
	case o.tools != "":
		return o.dumpedTools(l, set)
	case o.live:
		return o.liveTools(ctx, set)
	}
	return nil, nil
}

// dumpedTools gives the tools of a file to the servers that policies target, with the specs that the files have for them.
func (o *lintOptions) dumpedTools(l *linter, set policySet) (*knownTools, error) {
	data, err := readFile(o.In, o.tools)
	if err != nil {
		return nil, err
	}
	entries, err := tool.ParseList(data)
	if err != nil {
		return nil, fmt.Errorf("read tools from %s: %w", o.tools, err)
	}
	known := &knownTools{set: set}
	for _, object := range l.governed() {
		if err := list(object, entries); err != nil {
			return nil, err
		}
		known.servers = append(known.servers, knownServer{object, schemasOf(entries)})
	}
	return known, nil
}

// governed returns the servers of the files, those that policies only name, and one for baselines where there is none.
func (l *linter) governed() []*v1alpha1.GovernedServer {
	var all []*v1alpha1.GovernedServer
	add := func(namespace, name string) {
		if !slices.ContainsFunc(all, func(s *v1alpha1.GovernedServer) bool { return s.Namespace == namespace && s.Name == name }) {
			all = append(all, &v1alpha1.GovernedServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
		}
	}
	for _, s := range l.servers {
		if s.sound {
			all = append(all, s.Server)
		}
	}
	for _, p := range l.policies {
		if p.sound {
			for _, target := range p.Policy.Spec.Targets {
				add(p.Policy.Namespace, target)
			}
		}
	}
	if len(all) == 0 {
		add("", "server")
	}
	return all
}

// list gives a server the tools that a list has for it, as the manager does when it sees them first.
func list(server *v1alpha1.GovernedServer, entries []tool.Entry) error {
	var descriptors []tool.Descriptor
	for _, e := range entries {
		if e.Server == "" || e.Server == server.Name {
			descriptors = append(descriptors, e.Descriptor)
		}
	}
	digest, err := tool.EndpointDigest(server.Spec.Endpoint)
	if err != nil {
		return fmt.Errorf("digest endpoint of %s: %w", server.Name, err)
	}
	server.Status.EndpointDigest = digest
	verdicts := classify.Server(descriptors, classify.Options{
		TrustReadOnlyHint: server.Spec.Classification.TrustReadOnlyHint, MinimumTier: server.Spec.Classification.MinimumTier,
	})
	server.Status.Tools = nil
	for i, d := range descriptors {
		server.Status.Tools = append(server.Status.Tools, statusOf(d, verdicts[i]))
	}
	return nil
}

// statusOf is what the manager writes of a tool when it sees it first.
func statusOf(d tool.Descriptor, verdict classify.Verdict) v1alpha1.ToolStatus {
	t := v1alpha1.ToolStatus{
		Name: d.Name, ClassifiedTier: verdict.Tier, Tier: verdict.Tier, Source: verdict.Source, Reason: verdict.Reason, Digest: d.Digest(),
	}
	hints := v1alpha1.ToolAnnotations{
		ReadOnlyHint: d.Annotations.ReadOnlyHint, DestructiveHint: d.Annotations.DestructiveHint,
		IdempotentHint: d.Annotations.IdempotentHint, OpenWorldHint: d.Annotations.OpenWorldHint,
	}
	if hints != (v1alpha1.ToolAnnotations{}) {
		t.Annotations = &hints
	}
	return t
}

func schemasOf(entries []tool.Entry) func(tool, digest string) []byte {
	schemas := map[string][]byte{}
	for _, e := range entries {
		schemas[e.Digest()] = e.InputSchema
	}
	return func(_, digest string) []byte { return schemas[digest] }
}

// liveTools reads the servers that the policies cover, and the definitions that are kept of their tools. Other policies
// of these servers count too, and baselines: what one of them raises, another cannot promote.
func (o *lintOptions) liveTools(ctx context.Context, set policySet) (*knownTools, error) {
	known := &knownTools{set: set}
	namespaces := set.namespaces()
	if !slices.Contains(namespaces, metav1.NamespaceAll) && !slices.Contains(namespaces, o.operatorNamespace) {
		baselines, err := o.readBaselines(ctx)
		if apierrors.IsForbidden(err) {
			err = o.uncounted(refusal(err))
		}
		if err != nil {
			return nil, err
		}
		known.set.objects = append(known.set.objects, slices.DeleteFunc(baselines, set.has)...)
	}
	for _, namespace := range namespaces {
		var servers v1alpha1.GovernedServerList
		if err := o.client.List(ctx, &servers, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list GovernedServers: %s", refusal(err))
		}
		var policies v1alpha1.ToolPolicyList
		if err := o.client.List(ctx, &policies, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list ToolPolicies: %s", refusal(err))
		}
		known.set.objects = append(known.set.objects, slices.DeleteFunc(policies.Items, set.has)...)
		for i := range servers.Items {
			server := &servers.Items[i]
			kept, err := definitions.Read(ctx, o.client, server)
			if err != nil {
				return nil, fmt.Errorf("read the definitions that are kept for %s: %s", server.Name, refusal(err))
			}
			known.servers = append(known.servers, knownServer{server, func(_, digest string) []byte {
				d, _ := kept.Tool(digest)
				return d.InputSchema
			}})
		}
	}
	return known, nil
}

// has tells whether a policy of that name is among the policies.
func (set policySet) has(p v1alpha1.ToolPolicy) bool {
	return slices.ContainsFunc(set.objects, func(o v1alpha1.ToolPolicy) bool { return o.Namespace == p.Namespace && o.Name == p.Name })
}

// namespaces returns those that the policies speak of, all of them ("") where one is a baseline.
func (set policySet) namespaces() []string {
	var all []string
	for i := range set.objects {
		switch p := &set.objects[i]; {
		case isBaseline(p):
			return []string{metav1.NamespaceAll}
		case !slices.Contains(all, p.Namespace):
			all = append(all, p.Namespace)
		}
	}
	return all
}
