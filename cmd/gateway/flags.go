// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/tidewaiter/tidewaiter/internal/gateway"
	"github.com/tidewaiter/tidewaiter/internal/identity"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// options are the flags of the gateway.
type options struct {
	servers           []string
	listen            string
	tls               tlsOptions
	opsListen         string
	pod               podOptions
	publicURL         string
	audiences         []string
	origins           []string
	requester         string
	tokenReview       bool
	oidc              oidcOptions
	votingRoots       []string
	operatorNamespace string
	name              string
	receipts          string
	allow             []string
	maxStaleness      time.Duration
	drain             time.Duration
	tracing           bool
	limits            limitOptions
	verbosity         int

	cluster *rest.Config
	stdout  io.Writer
}

// oidcOptions are the settings of an OIDC provider, as kube-apiserver has them.
type oidcOptions struct {
	issuerURL, caFile             string
	usernameClaim, usernamePrefix string
	groupsClaim, groupsPrefix     string
	signingAlgs                   []string
	checkTokenFile                string
}

// noCheck in place of a file says that the API server does not know the OIDC provider.
const noCheck = "none"

func (o *options) addFlags(flags *pflag.FlagSet) {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "gateway"
	}
	flags.StringArrayVar(&o.servers, "server", nil, "GovernedServer to stand in front of, as NAMESPACE/NAME; may be repeated. Agents reach it at /NAMESPACE/NAME/mcp, a single one also at /mcp")
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address that agents reach")
	o.tls.addFlags(flags)
	flags.StringVar(&o.opsListen, "ops-listen", "127.0.0.1:8081", "address of /healthz, /readyz and /metrics")
	flags.StringVar(&o.pod.controlListen, "control-listen", "", "address at which the operator, by a token of its own, asks for the tools of the server; default: none")
	flags.StringSliceVar(&o.pod.ips, "pod-ip", nil, "addresses of the pod that the gateway shares with the server, at which the server must not answer; default: nobody looks")
	flags.StringVar(&o.publicURL, "public-url", "", "scheme and host that agents reach the gateway at; with a server's path it is the audience of the tokens for that server. Default: the address of --listen, after https:// with --tls-cert-file and http:// without")
	flags.StringArrayVar(&o.audiences, "audience", nil, "audience of a token that is taken besides a server's own; may be repeated")
	flags.StringArrayVar(&o.origins, "allow-origin", nil, "origin whose pages in a browser may send requests, besides that of --public-url; may be repeated")
	flags.StringVar(&o.requester, "requester", "", "username that every call counts for, without a token; only with --listen on loopback")
	flags.BoolVar(&o.tokenReview, "token-review", false, "ask the API server about every ServiceAccount token, so that one that was revoked is refused within seconds")
	o.oidc.addFlags(flags)
	flags.StringArrayVar(&o.votingRoots, "voting-root-key", nil, "public half of the root key that vouches for voting keys, in base64: the entry root of the ConfigMap tidewaiter-voting-keys; may be repeated")
	flags.StringVar(&o.operatorNamespace, "operator-namespace", "tidewaiter-system", "namespace of the operator, which publishes the voting keys there, and where baselines count")
	flags.StringVar(&o.name, "name", hostname, "name of this gateway in requests and receipts")
	flags.StringVar(&o.receipts, "receipts", "", "file that receipts are appended to; they also go to standard output")
	flags.StringSliceVar(&o.allow, "allow-address", nil, "loopback, link-local, private or cluster addresses that may be dialled, as CIDR blocks")
	flags.DurationVar(&o.maxStaleness, "max-staleness", 5*time.Minute, "how long reads go on after the last proof that the watch of the Kubernetes API works")
	flags.DurationVar(&o.drain, "drain", 5*time.Minute, "how long calls in flight may take after a request to stop")
	flags.BoolVar(&o.tracing, "tracing", false, "send OpenTelemetry spans of messages by OTLP; where to, and which, say the OTEL_* variables of the environment")
	o.limits.addFlags(flags)
	flags.IntVarP(&o.verbosity, "v", "v", 0, "verbosity of the log; 4 shows details")
	flags.AddGoFlag(flag.CommandLine.Lookup("kubeconfig"))
}

func (o *oidcOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.issuerURL, "oidc-issuer-url", "", "OIDC provider whose tokens are taken too; set all --oidc flags as kube-apiserver has them")
	flags.StringVar(&o.caFile, "oidc-ca-file", "", "file of the CA certificates of the provider; default: those of the system")
	flags.StringVar(&o.usernameClaim, "oidc-username-claim", "", "claim that holds the username. Default: sub")
	flags.StringVar(&o.usernamePrefix, "oidc-username-prefix", "", "what stands before every username; \"-\" for nothing. Default: the issuer URL and #, and nothing with the claim email")
	flags.StringVar(&o.groupsClaim, "oidc-groups-claim", "", "claim that holds the groups")
	flags.StringVar(&o.groupsPrefix, "oidc-groups-prefix", "", "what stands before every group")
	flags.StringSliceVar(&o.signingAlgs, "oidc-signing-algs", nil, "JOSE algorithms that tokens may be signed with. Default: RS256")
	flags.StringVar(&o.checkTokenFile, "oidc-check-token-file", "", "file with a token of the provider, which the API server is asked about at every start: it must know its owner by the same username. Keep it fresh: while it has expired the gateway does not become ready. \"none\" says that the API server does not know the provider. Needed with --oidc-issuer-url")
}

// parsed are the flags once they were checked.
type parsed struct {
	allow   []netip.Prefix
	servers map[types.NamespacedName]*gateway.Server
	roots   []ed25519.PublicKey
	oidc    *identity.Issuer // nil without one
	shown   *certificate     // nil without TLS
	limits  gateway.Limits
	podIPs  []netip.Addr // none outside of a server's pod

	metadata *identity.Metadata // once it is known where agents reach the gateway
}

// maxName is what a request can hold of the name of a gateway or of a requester, in characters.
const maxName = 256

// complete tells what is missing, or could not work at any time.
func (o *options) complete() error {
	switch {
	case len(o.servers) == 0:
		return errors.New("--server is needed: NAMESPACE/NAME of the GovernedServer to stand before")
	case o.receipts == "":
		return errors.New("--receipts is needed: the file that receipts are written to")
	case len(o.votingRoots) == 0:
		return errors.New("--voting-root-key is needed: the entry root of the ConfigMap tidewaiter-voting-keys in the operator's namespace")
	case o.operatorNamespace == "":
		return errors.New("--operator-namespace is needed: the voting keys are there")
	case slices.Contains(o.audiences, ""):
		return errors.New("--audience: a token is not meant for nobody; leave the flag out")
	case o.name == "" || utf8.RuneCountInString(o.name) > maxName:
		return fmt.Errorf("--name has from 1 to %d characters: no request takes another", maxName)
	case utf8.RuneCountInString(o.requester) > maxName:
		return fmt.Errorf("--requester has at most %d characters", maxName)
	case o.maxStaleness <= 0:
		return fmt.Errorf("--max-staleness: %s is not over 0: the gateway would refuse every call", o.maxStaleness)
	case o.drain < 0:
		return fmt.Errorf("--drain: %s is not 0 or more", o.drain)
	}
	return nil
}

// check reads what can be judged without asking anybody.
func (o *options) check() (p parsed, err error) {
	if err := o.complete(); err != nil {
		return p, err
	}
	if p.podIPs, err = o.pod.check(o.requester); err != nil {
		return p, err
	}
	if p.limits, err = o.limits.check(); err != nil {
		return p, err
	}
	if p.allow, err = netguard.ParsePrefixes(o.allow); err != nil {
		return p, fmt.Errorf("--allow-address: %w", err)
	}
	if p.servers, err = o.governed(); err != nil {
		return p, fmt.Errorf("--server: %w", err)
	}
	for _, text := range o.votingRoots {
		root, err := vote.ParseRoot(text)
		if err != nil {
			return p, fmt.Errorf("--voting-root-key: %w", err)
		}
		p.roots = append(p.roots, root)
	}
	for _, origin := range o.origins {
		if u, err := url.Parse(origin); err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return p, fmt.Errorf("--allow-origin: %q is no origin, such as https://console.example.com", origin)
		}
	}
	if p.oidc, err = o.oidc.issuer(); err != nil {
		return p, err
	}
	p.shown, err = o.tls.load()
	return p, err
}

// issuer returns the OIDC provider, nil without one.
func (o *oidcOptions) issuer() (*identity.Issuer, error) {
	if o.issuerURL == "" {
		return nil, nil
	}
	if o.checkTokenFile == "" {
		return nil, errors.New("--oidc-check-token-file is needed with --oidc-issuer-url: a file, or none")
	}
	settings := identity.OIDC{
		URL: o.issuerURL, UsernameClaim: o.usernameClaim, UsernamePrefix: o.usernamePrefix,
		GroupsClaim: o.groupsClaim, GroupsPrefix: o.groupsPrefix, SigningAlgs: o.signingAlgs,
	}
	if o.caFile != "" {
		ca, err := os.ReadFile(o.caFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		settings.CA = ca
	}
	issuer, err := settings.Issuer()
	if err != nil {
		return nil, fmt.Errorf("--oidc-issuer-url: %w", err)
	}
	return issuer, nil
}

// governed makes the servers that the flags name.
func (o *options) governed() (map[types.NamespacedName]*gateway.Server, error) {
	servers := map[types.NamespacedName]*gateway.Server{}
	for _, value := range o.servers {
		namespace, name, ok := strings.Cut(value, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("%q is not NAMESPACE/NAME", value)
		}
		key := types.NamespacedName{Namespace: namespace, Name: name}
		servers[key] = &gateway.Server{Key: key, Clock: clock.RealClock{}, MaxStaleness: o.maxStaleness, List: list, Call: call}
	}
	return servers, nil
}

// metadata says what the tokens for the servers are for, and who gives them out.
func (o *options) metadata(listener net.Addr, servers map[types.NamespacedName]*gateway.Server) (*identity.Metadata, error) {
	if o.requester != "" && !listener.(*net.TCPAddr).IP.IsLoopback() {
		return nil, fmt.Errorf("--requester lets every call count for %q, so --listen must be a loopback address", o.requester)
	}
	address := o.publicURL
	if address == "" {
		if o.requester == "" && listener.(*net.TCPAddr).IP.IsUnspecified() {
			return nil, errors.New("--public-url is needed: --listen is not one address that agents could be told")
		}
		address = "http://" + listener.String()
		if o.tls.certFile != "" {
			address = "https://" + listener.String()
		}
	}
	public, err := identity.ParsePublicURL(address)
	if err != nil {
		return nil, fmt.Errorf("--public-url: %w", err)
	}
	m := &identity.Metadata{PublicURL: public}
	for key := range servers {
		m.Servers = append(m.Servers, key)
	}
	if o.oidc.issuerURL != "" {
		m.AuthorizationServers = []string{o.oidc.issuerURL}
	}
	return m, nil
}
