// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/tidewaiter/tidewaiter/internal/gateway"
)

// rootKey is the public half of a root key: 32 bytes.
const rootKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

// given returns the options that flags make, beside those that every gateway needs.
func given(t *testing.T, flags ...string) options {
	t.Helper()
	o := options{stdout: io.Discard, cluster: &rest.Config{Host: "127.0.0.1:1"}}
	set := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
	o.addFlags(set)
	always := []string{"--server", "finance/billing", "--receipts", filepath.Join(t.TempDir(), "r.jsonl"), "--voting-root-key", rootKey, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}
	if err := set.Parse(append(always, flags...)); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAGatewayThatWouldNotKnowWhoIsWhoDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit  func(*options)
		flags []string
		want  string
	}{
		"no server":                              {edit: func(o *options) { o.servers = nil }, want: "--server"},
		"no receipts":                            {edit: func(o *options) { o.receipts = "" }, want: "--receipts"},
		"receipts in a folder that is not there": {edit: func(o *options) { o.receipts = "/nowhere/r.jsonl" }, want: "--receipts: open receipts: open /nowhere/r.jsonl"},
		"no root key":                            {edit: func(o *options) { o.votingRoots = nil }, want: "--voting-root-key is needed"},
		"a root key that is none":                {flags: []string{"--voting-root-key", "AAAA"}, want: "--voting-root-key: a root key has 32 bytes"},
		"one requester for everybody":            {flags: []string{"--requester", "crane", "--listen", "0.0.0.0:0"}, want: "--listen must be a loopback address"},
		"a requester that no request has":        {flags: []string{"--requester", strings.Repeat("a", 257)}, want: "--requester has at most 256"},
		"no namespace of the operator":           {flags: []string{"--operator-namespace", ""}, want: "--operator-namespace is needed"},
		"an audience that is nobody":             {flags: []string{"--audience", "a", "--audience", ""}, want: "--audience: a token is not meant for nobody"},
		"a gateway without a name":               {flags: []string{"--name", ""}, want: "--name has from 1 to 256"},
		"a name that no request has":             {flags: []string{"--name", strings.Repeat("a", 257)}, want: "--name has from 1 to 256"},
		"no staleness":                           {flags: []string{"--max-staleness", "0"}, want: "--max-staleness: 0s is not over 0"},
		"a drain that was over before":           {flags: []string{"--drain", "-1s"}, want: "--drain: -1s is not 0 or more"},
		"an address that is many":                {flags: []string{"--listen", "0.0.0.0:0"}, want: "--public-url is needed"},
		"a public URL with a path":               {flags: []string{"--public-url", "https://gateway.example.com/mcp"}, want: "--public-url"},
		"an origin with a path":                  {flags: []string{"--allow-origin", "https://console.example.com/"}, want: "--allow-origin"},
		"every origin":                           {flags: []string{"--allow-origin", "*"}, want: "--allow-origin"},
		"a certificate without its key":          {flags: []string{"--tls-cert-file", "tls.crt"}, want: "--tls-cert-file and --tls-private-key-file are needed together"},
		"a key without its certificate":          {flags: []string{"--tls-private-key-file", "tls.key"}, want: "--tls-cert-file and --tls-private-key-file are needed together"},
		"a certificate that is not there":        {flags: []string{"--tls-cert-file", "/nowhere", "--tls-private-key-file", "/nowhere"}, want: "--tls-cert-file and --tls-private-key-file: open /nowhere"},
		"OIDC, and names are not compared":       {flags: []string{"--oidc-issuer-url", "https://login.example.com"}, want: "--oidc-check-token-file is needed"},
		"OIDC in the clear":                      {flags: []string{"--oidc-issuer-url", "http://login.example.com", "--oidc-check-token-file", "none"}, want: "--oidc-issuer-url"},
		"OIDC with a secret for a key":           {flags: []string{"--oidc-issuer-url", "https://login.example.com", "--oidc-check-token-file", "none", "--oidc-signing-algs", "HS256"}, want: "HS256"},
		"OIDC with a CA that is not there":       {flags: []string{"--oidc-issuer-url", "https://login.example.com", "--oidc-check-token-file", "none", "--oidc-ca-file", "/nowhere"}, want: "--oidc-ca-file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := given(t, tc.flags...)
			if tc.edit != nil {
				tc.edit(&o)
			}
			if err := serve(t.Context(), o); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one about %q", err, tc.want)
			}
			if _, err := os.Stat(o.receipts); err == nil {
				t.Error("a gateway that does not start is on record")
			}
		})
	}
}

func TestALimitThatIsOutOfRangeIsRefusedWithItsRange(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--max-message=1023":                      "--max-message: 1023 is not from 1Ki to 64Mi",
		"--max-message=65Mi":                      "--max-message: 65Mi is not from 1Ki to 64Mi",
		"--max-header=1Gi":                        "--max-header: 1Gi is not from 4Ki to 1Mi",
		"--max-answer=0":                          "--max-answer: 0 is not from 64Ki to 4Gi",
		"--max-event=-1":                          "--max-event: -1 is not from 64Ki to 256Mi",
		"--max-calls=1":                           "--max-calls: 1 is not from 2 to 100000",
		"--max-calls=10 --max-calls-per-caller=6": "--max-calls-per-caller: 6 is not from 1 to 5",
		"--max-rate-per-caller=-1":                "--max-rate-per-caller: -1 is not from 0 to 1000000",
		"--max-streams=0":                         "--max-streams: 0 is not from 2 to 100000",
		"--max-streams-per-caller=0":              "--max-streams-per-caller: 0 is not from 1 to 2048",
		"--max-sessions=0":                        "--max-sessions: 0 is not from 1 to 1000000",
		"--receive-timeout=999ms":                 "--receive-timeout: 999ms is not from 1s to 10m0s",
		"--idle-timeout=0":                        "--idle-timeout: 0s is not from 1s to 1h0m0s",
		"--client-stall=1h":                       "--client-stall: 1h0m0s is not from 1s to 10m0s",
		"--stream-idle=59s":                       "--stream-idle: 59s is not from 1m0s to 24h0m0s",
		"--max-calls=2 --max-calls-per-caller=1 --max-rate-per-caller=5": "",
		"--breaker-failures=0": "--breaker-failures: 0 is not from 1 to 1000",
		"--breaker-rest=0":     "--breaker-rest: 0s is not from 1s to 10m0s",
		"":                     "",
		"--max-message=1Ki --max-header=4Ki --max-answer=4Gi": "",
	} {
		o := given(t, strings.Fields(flags)...)
		_, err := o.check()
		if got := fmt.Sprint(err); want != "" && got != want || want == "" && err != nil {
			t.Errorf("%s: %v, want %q", flags, err, want)
		}
	}
}

func TestLimitsReachTheGateway(t *testing.T) {
	t.Parallel()
	o := given(t)
	p, err := o.check()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(gateway.DefaultLimits(), p.limits); diff != "" {
		t.Errorf("by default (-want +got):\n%s", diff)
	}
	o = given(t, "--max-message=1Ki", "--max-header=8Ki", "--max-answer=1Mi", "--max-event=128Ki", "--max-rate-per-caller=7", "--receive-timeout=2s", "--idle-timeout=3s", "--client-stall=4s")
	if p, err = o.check(); err != nil {
		t.Fatal(err)
	}
	want := gateway.DefaultLimits()
	want.Message, want.Answer, want.Event, want.CallerRate, want.ClientStall = 1<<10, 1<<20, 128<<10, 7, 4*time.Second
	if diff := cmp.Diff(want, p.limits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	server := o.agentServer(nil, nil)
	got := []any{server.ReadTimeout, server.ReadHeaderTimeout, server.IdleTimeout, server.MaxHeaderBytes}
	if diff := cmp.Diff([]any{2 * time.Second, 2 * time.Second, 3 * time.Second, 8 << 10}, got); diff != "" {
		t.Errorf("the listener (-want +got):\n%s", diff)
	}
	if server.ConnContext == nil {
		t.Error("calls do not know their connection, nor whether their client has closed it")
	}
}

func TestWhatTokensAreFor(t *testing.T) {
	t.Parallel()
	key := types.NamespacedName{Namespace: "finance", Name: "billing"}
	for name, tc := range map[string]struct {
		flags     []string
		ip        net.IP
		want      string
		providers []string
	}{
		"by default the address":   {nil, net.IPv4(10, 0, 0, 7), "http://10.0.0.7:8080/finance/billing/mcp", nil},
		"by TLS":                   {[]string{"--tls-cert-file", "tls.crt", "--tls-private-key-file", "tls.key"}, net.IPv4(10, 0, 0, 7), "https://10.0.0.7:8080/finance/billing/mcp", nil},
		"the public URL":           {[]string{"--public-url", "https://Gateway.example.com/"}, net.IPv4zero, "https://gateway.example.com/finance/billing/mcp", nil},
		"with a provider":          {[]string{"--oidc-issuer-url", "https://login.example.com"}, net.IPv6loopback, "http://[::1]:8080/finance/billing/mcp", []string{"https://login.example.com"}},
		"one requester for itself": {[]string{"--requester", "crane"}, net.IPv4(127, 0, 0, 1), "http://127.0.0.1:8080/finance/billing/mcp", nil},
	} {
		o := given(t, tc.flags...)
		m, err := o.metadata(&net.TCPAddr{IP: tc.ip, Port: 8080}, map[types.NamespacedName]*gateway.Server{key: {Key: key}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, m.Resource(key)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(tc.providers, m.AuthorizationServers); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
