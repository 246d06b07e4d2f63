// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/manifest"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// testServer is a GovernedServer as the manager would know it.
type testServer struct {
	Name            string            `json:"name"`
	SpecFile        string            `json:"specFile"`
	Spec            map[string]any    `json:"spec"`
	ToolsFile       string            `json:"toolsFile"`
	NamespaceLabels map[string]string `json:"namespaceLabels"`
	// Promote has tools that an entry beside the policies promotes, with the digest that they have here: a manifest has
	// no word for that digest, and so none can get into one.
	Promote []string `json:"promote"`
	// Changed has tools whose definition is not the one that was accepted.
	Changed []string     `json:"changed"`
	Records []testRecord `json:"records"`
}

// testRecord is the track record of a tool, for the definition that it has here.
type testRecord struct {
	Tool      string `json:"tool"`
	Approved  int32  `json:"approved"`
	Failed    int32  `json:"failed"`
	Denied    int32  `json:"denied"`
	Ambiguous int32  `json:"ambiguous"`
}

// servers compiles the policies for each server of a file with tests.
func (r *suiteReader) servers(ctx context.Context, s *suite, d *manifest.Document) {
	objects := make([]v1alpha1.ToolPolicy, 0, len(s.policies)+1)
	for _, p := range s.policies {
		objects = append(objects, *p.Policy)
	}
	for i, t := range s.Servers {
		before := len(r.linter.findings)
		field := fmt.Sprintf("servers[%d]", i)
		server := r.serverObject(ctx, s, d, t, field)
		if len(r.linter.findings) > before {
			continue
		}
		r.status(s, d, t, server, field)
		if len(r.linter.findings) > before {
			continue
		}
		set := policySet{r.linter.operatorNamespace, append(objects, promoted(server, t.Promote))}
		compiled, err := set.compile(server, policy.Facts{})
		if err != nil {
			r.refuse(s, d, field, "%v", err)
			continue
		}
		s.worlds[t.Name] = compiled
	}
}

// serverObject reads the spec of a server, with the defaults that it would get in a cluster.
func (r *suiteReader) serverObject(ctx context.Context, s *suite, d *manifest.Document, t testServer, field string) *v1alpha1.GovernedServer {
	if t.SpecFile != "" {
		return r.serverOfFile(ctx, s, d, t, field+".specFile")
	}
	spec := map[string]any{"endpoint": map[string]any{"url": "https://" + t.Name + ".example/mcp"}}
	maps.Copy(spec, t.Spec)
	part := d.Spec(field+".spec", map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "GovernedServer",
		"metadata": map[string]any{"name": t.Name, "namespace": s.Namespace}, "spec": spec,
	})
	object, problems := r.linter.kinds.Object(ctx, part)
	for _, p := range problems {
		r.linter.say(s.path, severityError, "GovernedServer/"+t.Name, p)
	}
	return object.Server
}

// serverOfFile reads a server from the file that is applied.
func (r *suiteReader) serverOfFile(ctx context.Context, s *suite, d *manifest.Document, t testServer, field string) *v1alpha1.GovernedServer {
	path := beside(s.path, t.SpecFile)
	data, err := readFile(nil, path)
	if err != nil {
		r.refuse(s, d, field, "%v", err)
		return nil
	}
	read := &linter{kinds: r.linter.kinds, operatorNamespace: r.linter.operatorNamespace}
	read.read(ctx, sourceFile{path, data, true})
	for _, f := range read.findings {
		if f.Severity == severityError {
			r.linter.findings = append(r.linter.findings, f)
		}
	}
	for _, o := range read.servers {
		if o.Server.Name == t.Name {
			if o.Server.Namespace == "" {
				o.Server.Namespace = s.Namespace
			}
			return o.Server
		}
	}
	r.refuse(s, d, field, "there is no GovernedServer %s in %s", t.Name, path)
	return nil
}

// status writes what the manager would have written: the tools with their tiers, and their records.
func (r *suiteReader) status(s *suite, d *manifest.Document, t testServer, server *v1alpha1.GovernedServer, field string) {
	entries, ok := r.tools(s, d, t, field)
	if !ok {
		return
	}
	if err := list(server, entries); err != nil {
		r.refuse(s, d, field, "%v", err)
		return
	}
	status := &server.Status
	status.NamespaceLabels = map[string]string{}
	maps.Copy(status.NamespaceLabels, t.NamespaceLabels)
	listed := func(name, field string) *v1alpha1.ToolStatus {
		found := status.Tool(name)
		if found == nil {
			r.refuse(s, d, field, "the server has no tool %q", name)
		}
		return found
	}
	for i, name := range t.Changed {
		if found := listed(name, fmt.Sprintf("%s.changed[%d]", field, i)); found != nil {
			status.Accepted = append(status.Accepted, v1alpha1.AcceptedTool{Tool: name, Digest: "sha256:" + strings.Repeat("0", 64), Tier: found.ClassifiedTier})
		}
	}
	for i, name := range t.Promote {
		listed(name, fmt.Sprintf("%s.promote[%d]", field, i))
	}
	for i, record := range t.Records {
		if found := listed(record.Tool, fmt.Sprintf("%s.records[%d].tool", field, i)); found != nil {
			status.Records = append(status.Records, v1alpha1.ToolRecord{
				Tool: record.Tool, Digest: found.Digest, EndpointDigest: status.EndpointDigest,
				Approved: record.Approved, Failed: record.Failed, Denied: record.Denied, Ambiguous: record.Ambiguous,
			})
		}
	}
}

// tools reads the definitions of a server's tools.
func (r *suiteReader) tools(s *suite, d *manifest.Document, t testServer, field string) ([]tool.Entry, bool) {
	var data []byte
	if t.ToolsFile == "" {
		raw, wrong := d.JSON(field + ".tools")
		if wrong != nil {
			r.linter.say(s.path, severityError, "", *wrong)
			return nil, false
		}
		data, field = raw, field+".tools"
	} else {
		raw, err := readFile(nil, beside(s.path, t.ToolsFile))
		if err != nil {
			r.refuse(s, d, field+".toolsFile", "%v", err)
			return nil, false
		}
		data, field = raw, field+".toolsFile"
	}
	entries, err := tool.ParseList(data)
	if err != nil {
		r.refuse(s, d, field, "read tools: %v", err)
	}
	return entries, err == nil
}

// promoted is a policy that promotes tools of a server.
func promoted(server *v1alpha1.GovernedServer, tools []string) v1alpha1.ToolPolicy {
	var p v1alpha1.ToolPolicy
	p.Namespace, p.Name = server.Namespace, "promote"
	p.Spec.Targets = []string{server.Name}
	for _, name := range tools {
		if t := server.Status.Tool(name); t != nil {
			p.Spec.Autonomy = append(p.Spec.Autonomy, v1alpha1.AutonomyRule{Tool: name, Digest: t.Digest, Mode: v1alpha1.ModeUnattended})
		}
	}
	return p
}
