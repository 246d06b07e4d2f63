// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

const url = "  endpoint: {url: 'https://mcp.example.com/mcp'}\n"

// manifests is one rule of the schema: what it takes, what it refuses, and the words that the refusal must have.
type manifests struct {
	head    string
	takes   []string
	refuses []string
	says    string
}

func TestValidationTakesAndRefuses(t *testing.T) {
	t.Parallel()
	digest := fixture.Digest("a")
	for name, rule := range map[string]manifests{
		"endpoint is one of url, service and stdio": {serverHead,
			[]string{url, "  endpoint: {service: {name: a, port: 1}}", "  endpoint: {stdio: {container: a}}"},
			[]string{"  endpoint: {}", "  endpoint: {url: 'https://a', service: {name: a, port: 1}}", "  endpoint: {url: 'https://a', stdio: {container: a}}"},
			"exactly one of url, service and stdio"},
		"the url has no user, query or fragment": {serverHead,
			[]string{"  endpoint: {url: 'http://a:8080'}", "  endpoint: {url: 'https://[::1]:8443/a/b'}"},
			[]string{
				"  endpoint: {url: 'https://user:secret@a/mcp'}", "  endpoint: {url: 'https://user@a'}", "  endpoint: {url: 'https://a/mcp?x=1'}",
				"  endpoint: {url: 'https://a/mcp#x'}", "  endpoint: {url: 'ftp://a'}", "  endpoint: {url: 'https://'}", "  endpoint: {url: a}",
				"  endpoint: {url: 'https:///mcp'}",
			}, "url must be"},
		"tls needs https": {serverHead,
			[]string{
				"  endpoint: {url: 'https://a', tls: {serverName: a}}", "  endpoint: {service: {name: a, port: 1, scheme: https}, tls: {serverName: a}}",
			},
			[]string{"  endpoint: {url: 'http://a', tls: {serverName: a}}", "  endpoint: {service: {name: a, port: 1}, tls: {serverName: a}}"},
			"tls needs"},
		"stdio takes nothing of HTTP": {serverHead,
			[]string{"  endpoint: {stdio: {container: a}}", "  endpoint: {stdio: {container: a}, transport: StreamableHTTP}"},
			[]string{
				"  endpoint: {stdio: {container: a}, transport: SSE}", "  endpoint: {stdio: {container: a}, tls: {serverName: a}}",
				"  endpoint: {stdio: {container: a}, headers: [{name: a, value: b}]}",
			}, "stdio takes no"},
		"a public URL is scheme and host": {serverHead,
			[]string{url + "  gateway: {publicURL: 'https://a.example.com:8443'}"},
			[]string{url + "  gateway: {publicURL: 'https://a/b'}", url + "  gateway: {publicURL: a}", url + "  gateway: {publicURL: 'https://u@a'}"},
			"spec.gateway.publicURL"},
		"a standalone gateway is not in the pod of the server": {serverHead,
			[]string{
				url + "  gateway: {standalone: {}}", url + "  gateway: {standalone: {}, publicURL: 'https://a'}",
				"  endpoint: {service: {name: a, port: 1}}\n  gateway: {standalone: {}}", "  endpoint: {url: 'http://localhost.example.com/mcp'}\n  gateway: {standalone: {}}",
				"  endpoint: {url: 'http://[2001:db8::1]/mcp'}\n  gateway: {standalone: {}}", "  endpoint: {url: 'http://a/localhost'}\n  gateway: {standalone: {}}",
				"  endpoint: {url: 'http://127.0.0.1:9000'}\n  gateway: {publicURL: 'https://a'}",
			},
			[]string{
				"  endpoint: {url: 'http://127.0.0.1:9000/mcp'}\n  gateway: {standalone: {}}", "  endpoint: {url: 'https://LOCALHOST/mcp'}\n  gateway: {standalone: {}}",
				"  endpoint: {url: 'http://localhost'}\n  gateway: {standalone: {}}", "  endpoint: {url: 'http://127.1.2.3'}\n  gateway: {standalone: {}}",
				"  endpoint: {url: 'http://[::1]:9000/mcp'}\n  gateway: {standalone: {}}", "  endpoint: {url: 'http://[0:0:0:0:0:0:0:1]/'}\n  gateway: {standalone: {}}",
				"  endpoint: {url: 'http://[::ffff:127.0.0.1]/'}\n  gateway: {standalone: {}}", "  endpoint: {stdio: {container: a}}\n  gateway: {standalone: {}}",
			}, "a standalone gateway is not in the server's pod"},
		"a standalone gateway has an account of its own": {serverHead,
			[]string{url + "  gateway: {serviceAccountName: a}"}, []string{url + "  gateway: {standalone: {}, serviceAccountName: a}"}, "leave out serviceAccountName"},
		"a standalone gateway has replicas": {serverHead,
			[]string{url + "  gateway: {standalone: {replicas: 1}}", url + "  gateway: {standalone: {replicas: 32}}"},
			[]string{url + "  gateway: {standalone: {replicas: 0}}", url + "  gateway: {standalone: {replicas: 33}}"}, "spec.gateway.standalone.replicas"},
		"a service is named as Services are": {serverHead,
			[]string{"  endpoint: {service: {name: a-1, port: 65535, path: /}}"},
			[]string{
				"  endpoint: {service: {name: a.other, port: 1}}", "  endpoint: {service: {name: A, port: 1}}", "  endpoint: {service: {name: a, port: 0}}",
				"  endpoint: {service: {name: a, port: 65536}}", "  endpoint: {service: {name: a, port: 1, path: mcp}}",
				"  endpoint: {service: {name: a, port: 1, path: '/mcp?x'}}", "  endpoint: {service: {name: a, port: 1, scheme: ftp}}",
			}, "spec.endpoint.service"},
		"a transport is one of two": {serverHead,
			[]string{"  endpoint: {url: 'https://a/sse', transport: SSE}", "  endpoint: {url: 'https://a', transport: StreamableHTTP}"},
			[]string{"  endpoint: {url: 'https://a', transport: sse}", "  endpoint: {url: 'https://a', transport: ''}", "  endpoint: {url: 'https://a', transport: Auto}"},
			"spec.endpoint.transport"},
		"headers of the gateway are its own": {serverHead,
			[]string{headers("{name: X-Api-Key, value: k}"), headers("{name: authorization, secretKeyRef: {name: s, key: k}}")},
			[]string{
				headers("{name: Mcp-Session-Id, value: k}"), headers("{name: mcp-name, value: k}"), headers("{name: Host, value: k}"),
				headers("{name: Content-Length, value: '1'}"), headers("{name: TRANSFER-ENCODING, value: chunked}"),
			}, "belongs to the gateway"},
		"a header has one source": {serverHead,
			[]string{headers("{name: a, value: v}")},
			[]string{headers("{name: a}"), headers("{name: a, value: v, secretKeyRef: {name: s, key: k}}")},
			"exactly one of value and secretKeyRef"},
		"a header is no way to add another": {serverHead,
			[]string{headers("{name: a, value: \"a b\"}")},
			[]string{headers("{name: a, value: \"a\\r\\nHost: b\"}"), headers("{name: 'a b', value: v}"), headers("{name: \"a:\", value: v}")},
			"spec.endpoint.headers"},
		"hold": {serverHead, []string{url + "  approvals: {hold: 0s}", url + "  approvals: {hold: 50s}"},
			[]string{url + "  approvals: {hold: 51s}", url + "  approvals: {hold: -1s}"}, "hold must be"},
		"ttl": {serverHead, []string{url + "  approvals: {ttl: 1m}", url + "  approvals: {ttl: 24h}"},
			[]string{url + "  approvals: {ttl: 59s}", url + "  approvals: {ttl: 24h1s}"}, "ttl must be"},
		"durations are durations": {serverHead, []string{url + "  callTimeout: 1m30s"},
			[]string{url + "  callTimeout: soon", url + "  callTimeout: '30'", url + "  approvals: {ttl: 1d}"}, "spec"},
		"interval": {serverHead, []string{url + "  discovery: {interval: 10s}", url + "  discovery: {interval: 24h}"},
			[]string{url + "  discovery: {interval: 9s}", url + "  discovery: {interval: 25h}"}, "interval must be"},
		"timeout": {serverHead, []string{url + "  discovery: {timeout: 1s}", url + "  discovery: {timeout: 5m}"},
			[]string{url + "  discovery: {timeout: 0s}", url + "  discovery: {timeout: 6m}"}, "timeout must be"},
		"callTimeout": {serverHead, []string{url + "  callTimeout: 1s", url + "  callTimeout: 1h"},
			[]string{url + "  callTimeout: 0s", url + "  callTimeout: 2h"}, "callTimeout must be"},
		"counts are at least 1": {serverHead,
			[]string{url + "  approvals: {maxPending: 1}", url + "  autonomy: {cleanApprovals: 1}"},
			[]string{
				url + "  approvals: {maxPending: 0}", url + "  approvals: {maxPending: 1001}", url + "  autonomy: {cleanApprovals: 0}",
				url + "  autonomy: {cleanApprovals: -1}",
			}, "spec"},
		"enums": {serverHead, []string{url + "  mode: Enforce\n  classification: {minimumTier: Irreversible}"},
			[]string{url + "  mode: enforce", url + "  mode: ''", url + "  classification: {minimumTier: read}"}, "Unsupported value"},

		"targets": {policyHead, []string{"  targets: [a]", "  targets: [a, b, c, d, e, f, g, h]"},
			[]string{"  targets: []", "  targets: [a, b, c, d, e, f, g, h, i]", "  targets: [a, a]", "  targets: ['']"}, "spec.targets"},
		"a tier override names globs or one tool": {policyHead,
			[]string{tiers("{tools: [a_*], tier: Irreversible, reason: r}"), tiers("{tool: a, digest: '" + digest + "', tier: Read, reason: r}")},
			[]string{
				tiers("{tier: Read, reason: r}"), tiers("{tools: [a], tool: a, digest: '" + digest + "', tier: Read, reason: r}"),
			}, "exactly one of tools and tool"},
		"a tool goes with its digest": {policyHead,
			[]string{tiers("{tool: a, digest: '" + digest + "', tier: Read, reason: r}")},
			[]string{tiers("{tool: a, tier: Read, reason: r}"), tiers("{tools: [a], digest: '" + digest + "', tier: Read, reason: r}")},
			"tool and digest go together"},
		"an override has a reason": {policyHead,
			[]string{tiers("{tools: [a], tier: Irreversible, reason: ' why '}")},
			[]string{
				tiers("{tools: [a], tier: Irreversible}"), tiers("{tools: [a], tier: Irreversible, reason: ''}"),
				tiers("{tools: [a], tier: Irreversible, reason: '   '}"),
			}, "reason"},
		"globs have no classes": {policyHead,
			[]string{tiers("{tools: ['*', 'a?', 'ns/*'], tier: Irreversible, reason: r}")},
			[]string{
				tiers("{tools: ['[ab]*'], tier: Irreversible, reason: r}"), tiers("{tools: ['{a,b}'], tier: Irreversible, reason: r}"),
				tiers("{tools: [], tier: Irreversible, reason: r}"),
			}, "tools"},
		"a policy has a bounded number of globs": {policyHead,
			[]string{globs(64, 8), globs(2, 256)}, []string{globs(64, 9), globs(3, 256)}, "at most 512 globs"},
		"a denied call has no answers": {policyHead,
			[]string{inputs("{decision: Allow, inputResponses: Allow}"), inputs("{decision: RequireApproval, inputResponses: Deny}"), inputs("{decision: Deny}")},
			[]string{inputs("{decision: Deny, inputResponses: Deny}"), inputs("{decision: Allow, inputResponses: allow}"), inputs("{decision: Allow, inputResponses: ''}")},
			"inputResponses"},
		"digests are digests": {policyHead,
			[]string{autonomy("{tool: a, mode: Unattended, digest: '" + digest + "'}")},
			[]string{
				autonomy("{tool: a, mode: Unattended, digest: 'sha256:A'}"), autonomy("{tool: a, mode: Unattended, digest: ''}"),
				tiers("{tool: a, digest: '" + strings.ToUpper(digest) + "', tier: Read, reason: r}"),
			}, "digest"},
		"a promotion names its digest": {policyHead,
			[]string{autonomy("{tool: a, mode: Attended}")},
			[]string{autonomy("{tool: a, mode: Unattended}")}, "a promotion names the digest"},
		"modes of autonomy": {policyHead, []string{autonomy("{tool: a, mode: Attended}")},
			[]string{autonomy("{tool: a, mode: attended}"), autonomy("{tool: a}")}, "mode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := plane.Namespace(t)
			for i, spec := range rule.takes {
				if err := fixture.Create(t.Context(), plane.Admin, namespace, fmt.Sprintf(rule.head, fmt.Sprintf("ok-%d", i))+spec); err != nil {
					t.Errorf("refused, want taken: %s\n%v", spec, err)
				}
			}
			for _, spec := range rule.refuses {
				err := fixture.Create(t.Context(), plane.Admin, namespace, fmt.Sprintf(rule.head, "bad")+spec)
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), rule.says) {
					t.Errorf("%v, want it invalid with the words %q: %s", err, rule.says, spec)
				}
			}
		})
	}
}

func headers(entry string) string {
	return "  endpoint:\n    url: https://a\n    headers: [" + entry + "]"
}

func tiers(entry string) string { return "  targets: [a]\n  tiers: [" + entry + "]" }

// globs returns a policy of so many entries with so many globs each.
func globs(each, entries int) string {
	list := make([]string, each)
	for i := range list {
		list[i] = fmt.Sprintf("'a%d*'", i)
	}
	entry := "{tools: [" + strings.Join(list, ", ") + "], tier: Irreversible, reason: r}"
	return tiers(entry + strings.Repeat(", "+entry, entries-1))
}

// inputs is a rule without its name and tools.
func inputs(rule string) string {
	return "  targets: [a]\n  rules: [" + strings.Replace(rule, "{", "{name: r, tools: ['*'], ", 1) + "]"
}

func autonomy(entry string) string { return "  targets: [a]\n  autonomy: [" + entry + "]" }

func TestNamesOfServersBeginNamesOfRequests(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	for name, wantTaken := range map[string]bool{
		"a": true, strings.Repeat("a", 63): true, strings.Repeat("b", 64): false, "billing.eu": false,
	} {
		err := fixture.Create(t.Context(), plane.Admin, namespace, fmt.Sprintf(serverHead, name)+url)
		if taken := err == nil; taken != wantTaken || !taken && !apierrors.IsInvalid(err) {
			t.Errorf("%q: %v, want taken %t", name, err, wantTaken)
		}
	}
}

func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	admin := plane.Client(t, plane.Admin)
	for n, tc := range []struct {
		verbs []string
		ttl   int32
		taken bool
	}{
		{[]string{"approve"}, 60, true},
		{[]string{"approve", "approve-irreversible", "approve-finance", "approve-legal"}, 86400, true},
		{nil, 60, false},
		{[]string{"approve", "approve-b", "approve-c", "approve-d", "approve-e", "approve-f", "approve-g", "approve-h"}, 60, true},
		{[]string{"approve", "approve-b", "approve-c", "approve-d", "approve-e", "approve-f", "approve-g", "approve-h", "approve-i"}, 60, false},
		{[]string{"approve", "approve"}, 60, false},
		{[]string{"serve"}, 60, false},
		{[]string{"*"}, 60, false},
		{[]string{"approve"}, 59, false},
		{[]string{"approve"}, 86401, false},
	} {
		request := fixture.ApprovalRequest(namespace, "billing", n)
		request.Spec.ApproveVerbs, request.Spec.TTLSeconds = tc.verbs, tc.ttl
		err := admin.Create(t.Context(), &request)
		if taken := err == nil; taken != tc.taken || !taken && !apierrors.IsInvalid(err) {
			t.Errorf("verbs %v, ttl %d: %v, want taken %t", tc.verbs, tc.ttl, err, tc.taken)
		}
	}
}
