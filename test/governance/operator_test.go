// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/admission"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/serving"
	"github.com/tidewaiter/tidewaiter/internal/survey"
	"github.com/tidewaiter/tidewaiter/internal/vote"
	"github.com/tidewaiter/tidewaiter/internal/votingkey"
)

// operator is the webhook of votes with its own keys and certificates, in replicas behind one address, as cmd/manager
// wires it. Its clock is the only thing that is not as in a cluster: it runs faster, so that a month is bearable.
type operator struct {
	t     *testing.T
	site  site
	admin client.Client
	clock *testclock.FakeClock
	front net.Listener
	noise syncBuffer // what the TLS servers complain about

	mu       sync.Mutex
	replicas []*replica
	next     int
}

// replica is one manager's webhook.
type replica struct {
	address string
	serving *serving.Serving
	stop    func()
}

// syncBuffer is a buffer that many write to.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startPlane starts a control plane for one test alone.
func startPlane(t *testing.T) *fixture.ControlPlane {
	t.Helper()
	started, err := fixture.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(); err != nil {
			t.Errorf("stop the control plane: %v", err)
		}
	})
	return started
}

// startOperator puts an operator of so many replicas on a control plane; the clock goes speed times as fast as time.
func startOperator(t *testing.T, on *fixture.ControlPlane, replicas, speed int) *operator {
	t.Helper()
	o := &operator{t: t, site: site{ControlPlane: on}, admin: on.Client(t, on.Admin), clock: testclock.NewFakeClock(time.Now())}
	o.hasten(speed)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.front = front
	go o.balance()
	t.Cleanup(func() { front.Close() })
	if err := on.InstallWebhooks(t.Context(), "https://"+front.Addr().String(), nil); err != nil {
		t.Fatal(err)
	}
	for range replicas {
		o.start()
	}
	o.site.root = o.root()
	return o
}

// hasten lets the operator's clock run until the test ends.
func (o *operator) hasten(speed int) {
	const every = 50 * time.Millisecond
	ticker, ended, done := time.NewTicker(every), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				o.clock.Step(every * time.Duration(speed))
			}
		}
	}()
	o.t.Cleanup(func() { ticker.Stop(); close(ended); <-done })
}

// start adds a replica and returns when it serves.
func (o *operator) start() *replica {
	o.t.Helper()
	live := o.site.Client(o.t, o.site.Manager(o.t))
	metrics, err := admission.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		o.t.Fatal(err)
	}
	keys := &votingkey.Store{Client: live, Namespace: fixture.SystemNamespace, Clock: o.clock, Lifetime: 30 * 24 * time.Hour}
	votes := &admission.Votes{Client: live, Clock: o.clock, Key: keys.Current, Keys: keys.Published, Metrics: metrics}
	s := &serving.Serving{Client: live, Namespace: fixture.SystemNamespace, Clock: o.clock, Names: []string{"127.0.0.1"}}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	s.TLS(config)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		o.t.Fatal(err)
	}
	server := &http.Server{Handler: s.Guard(admission.Handler(votes, &admission.Policies{Survey: survey.New(live, live, policy.NewLibrary(), fixture.SystemNamespace).Of}, &admission.Pods{Client: live, OperatorNamespace: fixture.SystemNamespace})), TLSConfig: config, ErrorLog: log.New(&o.noise, "", 0)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(o.t.Context()))
	var group errgroup.Group
	group.Go(func() error { return s.Start(ctx) })
	group.Go(func() error { return keys.Start(ctx) })
	group.Go(func() error {
		if err := server.ServeTLS(listener, "", ""); err != http.ErrServerClosed {
			return err
		}
		return nil
	})
	r := &replica{address: listener.Addr().String(), serving: s}
	r.stop = sync.OnceFunc(func() {
		o.mu.Lock()
		o.replicas = slices.DeleteFunc(o.replicas, func(other *replica) bool { return other == r })
		o.mu.Unlock()
		// As at the end of a pod: no new connections come, and calls in flight are finished.
		if err := server.Shutdown(ctx); err != nil {
			o.t.Errorf("stop a replica: %v", err)
		}
		cancel()
		if err := group.Wait(); err != nil {
			o.t.Errorf("replica: %v", err)
		}
	})
	o.t.Cleanup(r.stop)
	o.until("a replica serves", func() error { return s.Ready(nil) })
	o.mu.Lock()
	o.replicas = append(o.replicas, r)
	o.mu.Unlock()
	return r
}

// balance hands connections to the replicas in turn, as a Service does.
func (o *operator) balance() {
	for {
		near, err := o.front.Accept()
		if err != nil {
			return
		}
		o.mu.Lock()
		if len(o.replicas) == 0 {
			o.mu.Unlock()
			near.Close()
			continue
		}
		o.next++
		to := o.replicas[o.next%len(o.replicas)].address
		o.mu.Unlock()
		go func() {
			defer near.Close()
			far, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer far.Close()
			go func() { io.Copy(far, near); far.(*net.TCPConn).CloseWrite() }()
			io.Copy(near, far)
		}()
	}
}

// root reads the public half of the root key, as whoever starts a gateway does.
func (o *operator) root() []byte {
	o.t.Helper()
	published := &corev1.ConfigMap{}
	var root []byte
	o.until("the voting keys are published", func() error {
		err := o.admin.Get(o.t.Context(), types.NamespacedName{Namespace: fixture.SystemNamespace, Name: v1alpha1.VotingKeys}, published)
		if err != nil {
			return err
		}
		root, err = vote.ParseRoot(published.Data[vote.RootEntry])
		return err
	})
	return root
}

// rotate asks for new keys or certificates, as the runbooks say.
func (o *operator) rotate(secret, annotation string) {
	o.t.Helper()
	s := &corev1.Secret{}
	s.Namespace, s.Name = fixture.SystemNamespace, secret
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+annotation+`":"now"}}}`))
	if err := o.admin.Patch(o.t.Context(), s, patch); err != nil {
		o.t.Fatal(err)
	}
}

// removeKey removes a voting key as the runbook says, and returns when it is published no more.
func (o *operator) removeKey(id string) {
	o.t.Helper()
	s := &corev1.Secret{}
	s.Namespace, s.Name = fixture.SystemNamespace, v1alpha1.VotingKeys
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/data/`+id+`"}]`))
	if err := o.admin.Patch(o.t.Context(), s, patch); err != nil {
		o.t.Fatal(err)
	}
	o.until("another key is published", func() error {
		published := &corev1.ConfigMap{}
		if err := o.admin.Get(o.t.Context(), types.NamespacedName{Namespace: fixture.SystemNamespace, Name: v1alpha1.VotingKeys}, published); err != nil {
			return err
		}
		if _, there := published.Data[id]; there || len(published.Data) < 2 {
			return fmt.Errorf("published: %v", published.Data)
		}
		return nil
	})
}

// bundle returns the CA bundle that the API server has for votes.
func (o *operator) bundle() string {
	o.t.Helper()
	c := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := o.admin.Get(o.t.Context(), types.NamespacedName{Name: v1alpha1.WebhookConfiguration}, c); err != nil {
		o.t.Fatal(err)
	}
	return string(c.Webhooks[0].ClientConfig.CABundle)
}

// certificate returns the certificate that a new connection to the webhook meets.
func (o *operator) certificate() string {
	o.t.Helper()
	conn, err := tls.Dial("tcp", o.front.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		o.t.Fatal(err)
	}
	defer conn.Close()
	return fmt.Sprintf("%x", conn.ConnectionState().PeerCertificates[0].Raw)
}

func (o *operator) until(what string, check func() error) {
	o.t.Helper()
	(&world{t: o.t}).eventually(what, check)
}
