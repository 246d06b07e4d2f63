// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/failpoint"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

const (
	namespace = "soak"
	audience  = "soak"
	// callTimeout is that of the server: a claim whose gateway died is Ambiguous after it.
	callTimeout = 3 * time.Second
	patience    = 2 * time.Minute
)

// rights are those of the two persons, and of the gateways to the Secret with the certificate of the server.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: deciders}
rules:
- {apiGroups: [tidewaiter.dev], resources: [governedservers/authority], resourceNames: [depot, vault, annex], verbs: [approve, approve-irreversible, resolve]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: deciders}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: deciders}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ana}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: ben}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: secrets-of-gateway}
rules:
- {apiGroups: [""], resources: [secrets], resourceNames: [authority], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: secrets-of-gateway}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: secrets-of-gateway}
subjects: [{kind: ServiceAccount, name: gateway, namespace: soak}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: approvers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tidewaiter-approver}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ana}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: ben}]
`

// stage is all that the soak runs on.
type stage struct {
	o     options
	plane *fixture.ControlPlane
	admin client.Client

	server, manager *child
	gateways        []*child
	ready           map[*child]string // the address that says whether it is ready
	urls            []string          // of the gateways
	persons         []*person
	tokens          []string // of the agents
	crashes         map[string]int
}

// setStage starts everything.
func setStage(ctx context.Context, o options) (s *stage, err error) {
	s = &stage{o: o, ready: map[*child]string{}, crashes: map[string]int{}}
	defer func() {
		if err != nil {
			s.clear()
		}
	}()
	if s.plane, err = fixture.Start(ctx); err != nil {
		return s, err
	}
	if s.admin, err = fixture.NewClient(s.plane.Admin); err != nil {
		return s, err
	}
	if err := s.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return s, err
	}
	if err := fixture.Create(ctx, s.plane.Admin, namespace, rights); err != nil {
		return s, err
	}
	for i, name := range []string{"ana", "ben"} {
		cfg, err := s.plane.AddUser(name)
		if err != nil {
			return s, err
		}
		as, err := fixture.NewClient(cfg)
		if err != nil {
			return s, err
		}
		s.persons = append(s.persons, &person{client: as, chance: o.chance(100 + uint64(i)), executed: s.executions})
	}
	for i := range o.agents {
		cfg, err := s.plane.AddServiceAccount(ctx, namespace, fmt.Sprintf("agent-%d", i), audience)
		if err != nil {
			return s, err
		}
		s.tokens = append(s.tokens, cfg.BearerToken)
	}
	if err := s.startServer(ctx); err != nil {
		return s, err
	}
	if err := s.startManager(ctx); err != nil {
		return s, err
	}
	return s, s.startGateways(ctx)
}

// clear ends everything.
func (s *stage) clear() {
	for _, c := range s.children() {
		c.stop()
	}
	if s.plane != nil {
		if err := s.plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "soak: stop the control plane:", err)
		}
	}
}

func (s *stage) children() []*child {
	var all []*child
	for _, c := range append([]*child{s.manager, s.server}, s.gateways...) {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

func (s *stage) tell(format string, args ...any) {
	if s.o.verbose {
		fmt.Printf("  "+format+"\n", args...)
	}
}

func (s *stage) start(name, program string, arm func(*rand.Rand) (string, string), args ...string) (*child, error) {
	c := &child{name: name, program: program, args: args, arm: arm, chance: s.o.chance(uint64(len(s.ready)) + 10), dir: s.o.dir, tell: s.tell}
	return c, c.start()
}

// startServer starts the MCP server, a copy of this program, and has its sites governed.
func (s *stage) startServer(ctx context.Context) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var addresses []string
	for range sites {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		addresses = append(addresses, address)
	}
	s.server, err = s.start("server", self, func(chance *rand.Rand) (variable, point string) {
		when := []string{"before", "after"}[chance.IntN(2)]
		return fmt.Sprintf("%s=%s=%d", dieVariable, when, 1+chance.IntN(60)), when + "-execution"
	}, "-serve", strings.Join(addresses, ","))
	if err != nil {
		return err
	}
	pem, err := authority()
	if err != nil {
		return err
	}
	trusted := corev1.Secret{Data: map[string][]byte{"ca.crt": pem}}
	trusted.Namespace, trusted.Name, trusted.Labels = namespace, "authority", map[string]string{v1alpha1.ServerLabel: vault}
	if err := s.admin.Create(ctx, &trusted); err != nil {
		return err
	}
	for i, site := range sites {
		server := governed(site, addresses[i])
		if err := s.admin.Create(ctx, &server); err != nil {
			return err
		}
	}
	return nil
}

// governed returns the GovernedServer of a site.
func governed(site, address string) v1alpha1.GovernedServer {
	server := fixture.GovernedServer(namespace, site)
	server.Spec.Endpoint.URL = "http://" + address + pathOf(site)
	switch site {
	case vault:
		server.Spec.Endpoint.URL = "https://" + address + pathOf(site)
		server.Spec.Endpoint.TLS = &v1alpha1.EndpointTLS{CASecretRef: &v1alpha1.SecretKeyRef{Name: "authority", Key: "ca.crt"}}
	case annex:
		server.Spec.Endpoint.Transport = v1alpha1.TransportSSE
	}
	server.Spec.CallTimeout = metav1.Duration{Duration: callTimeout}
	server.Spec.Approvals = v1alpha1.Approvals{
		Hold: &metav1.Duration{Duration: 2 * time.Second}, TTL: metav1.Duration{Duration: time.Minute}, MaxPending: 500, MaxPerHour: 5000,
	}
	server.Spec.Autonomy.CleanApprovals = 1
	server.Spec.Gateway = &v1alpha1.GatewaySpec{ServiceAccountName: "gateway"}
	return server
}

func (s *stage) startManager(ctx context.Context) error {
	kubeconfig, err := s.account(ctx, fixture.SystemNamespace, v1alpha1.ManagerServiceAccount)
	if err != nil {
		return err
	}
	webhook, err := freeAddress()
	if err != nil {
		return err
	}
	health, err := freeAddress()
	if err != nil {
		return err
	}
	if err := s.plane.InstallWebhooks(ctx, "https://"+webhook, nil); err != nil {
		return err
	}
	s.manager, err = s.start("manager", filepath.Join(s.o.programs, "manager"), armed(failpoint.OfManager()),
		"--kubeconfig", kubeconfig, "--metrics-bind-address", "0", "--health-probe-bind-address", health, "--webhook-bind-address", webhook, "--allow-address", "127.0.0.0/8")
	if err != nil {
		return err
	}
	s.ready[s.manager] = "http://" + health + "/readyz"
	return s.untilReady(ctx)
}

func (s *stage) startGateways(ctx context.Context) error {
	kubeconfig, err := s.account(ctx, namespace, "gateway")
	if err != nil {
		return err
	}
	var published corev1.ConfigMap
	if err := s.admin.Get(ctx, client.ObjectKey{Namespace: fixture.SystemNamespace, Name: v1alpha1.VotingKeys}, &published); err != nil {
		return err
	}
	for _, name := range []string{"gw-a", "gw-b"} {
		listen, err := freeAddress()
		if err != nil {
			return err
		}
		ops, err := freeAddress()
		if err != nil {
			return err
		}
		args := []string{}
		for _, site := range sites {
			args = append(args, "--server", namespace+"/"+site)
		}
		c, err := s.start(name, filepath.Join(s.o.programs, "gateway"), armed(failpoint.OfGateway()), append(args,
			"--kubeconfig", kubeconfig, "--name", name, "--audience", audience, "--listen", listen, "--ops-listen", ops,
			"--voting-root-key", published.Data[vote.RootEntry], "--receipts", s.receipts(name), "--allow-address", "127.0.0.0/8", "--drain", "20s")...)
		if err != nil {
			return err
		}
		c.lose = func(chance *rand.Rand) error { return cutUnsynced(s.receipts(name), chance) }
		s.gateways = append(s.gateways, c)
		s.ready[c] = "http://" + ops + "/readyz"
		s.urls = append(s.urls, "http://"+listen)
	}
	return s.untilReady(ctx)
}

// armed has two of three lives die at one of the points.
func armed(points []failpoint.Point) func(*rand.Rand) (variable, point string) {
	return func(chance *rand.Rand) (variable, point string) {
		if chance.IntN(3) == 0 {
			return "", ""
		}
		at := points[chance.IntN(len(points))]
		order := fmt.Sprintf("%s=%s=%d", failpoint.Variable, at, 1+chance.IntN(6))
		if at == failpoint.Sending {
			order += fmt.Sprintf("+%dms", 1+chance.IntN(30))
		}
		return order, string(at)
	}
}

// cutUnsynced takes away what a loss of power might take of a file: some or all of what no fsync has covered.
func cutUnsynced(path string, chance *rand.Rand) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	synced, err := failpoint.Synced(path)
	if err != nil || synced >= info.Size() {
		return err
	}
	return os.Truncate(path, synced+chance.Int64N(info.Size()-synced))
}

func (s *stage) receipts(gateway string) string {
	return filepath.Join(s.o.dir, "receipts-"+gateway+".jsonl")
}

// account makes a ServiceAccount and its kubeconfig.
func (s *stage) account(ctx context.Context, namespace, name string) (kubeconfig string, err error) {
	var cfg *rest.Config
	if cfg, err = s.plane.AddServiceAccount(ctx, namespace, name); err != nil {
		return "", err
	}
	return s.plane.WriteKubeconfig(cfg)
}

// untilReady waits until all programs say that they are.
func (s *stage) untilReady(ctx context.Context) error {
	for c, url := range s.ready {
		if err := until(ctx, c.name+" to be ready", func(ctx context.Context) error { return probe(ctx, url) }); err != nil {
			return err
		}
	}
	return nil
}

func probe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// until waits until a check passes.
func until(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
