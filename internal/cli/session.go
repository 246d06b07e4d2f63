// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// session is a person at a cluster.
type session struct {
	genericiooptions.IOStreams

	clock     clock.PassiveClock
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	dryRun    dryRun

	// operatorNamespace is where baselines are.
	operatorNamespace string
	// saidUncounted: the person was told that baselines are not counted.
	saidUncounted bool

	client    client.WithWatch
	namespace string
}

// addFlags adds those that every kubectl command has: --kubeconfig, --context, -n, --as and the like; and where the
// operator is.
func (s *session) addFlags(flags *pflag.FlagSet) {
	s.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	flags.StringVar(&s.operatorNamespace, "operator-namespace", "tidewaiter-system", "namespace of the operator, where the baselines are")
	flags.StringVar(&s.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "path of the kubeconfig file")
	clientcmd.BindOverrideFlags(&s.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
}

// addDryRunFlag adds --dry-run to a verb that writes; server is always one of its values.
func (s *session) addDryRunFlag(flags *pflag.FlagSet, further ...string) {
	s.dryRun.value = dryRunNone
	// Each verb has a flag of its own: they do not take the same values.
	flag := &dryRunFlag{into: &s.dryRun, allowed: append([]string{dryRunNone, dryRunServer}, further...)}
	flags.Var(flag, "dry-run", strings.Join(flag.allowed, ", ")+"; server asks the API server what would happen, and changes nothing")
}

const (
	dryRunNone   = "none"
	dryRunServer = "server"
)

// dryRunFlag is --dry-run of one verb.
type dryRunFlag struct {
	into    *dryRun
	allowed []string
}

// Set reads the value.
func (f *dryRunFlag) Set(value string) error {
	if !slices.Contains(f.allowed, value) {
		return fmt.Errorf("it is one of %s", strings.Join(f.allowed, ", "))
	}
	f.into.value = value
	return nil
}

// String returns the value.
func (f *dryRunFlag) String() string {
	if f.into == nil { // pflag asks the zero value for its default
		return dryRunNone
	}
	return f.into.value
}

// Type says what kind of value it is.
func (*dryRunFlag) Type() string { return "string" }

// dryRun is the value of --dry-run.
type dryRun struct{ value string }

// suffix is what kubectl, too, puts behind what a dry run prints.
func (d *dryRun) suffix() string {
	if d.value == dryRunServer {
		return " (server dry run)"
	}
	return ""
}

// connect reads the kubeconfig and the flags, once. It asks the cluster nothing.
func (s *session) connect() error {
	if s.client != nil {
		return nil
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(s.rules, &s.overrides)
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return errors.New("no kubeconfig was found, or it names no cluster: give --kubeconfig, or set KUBECONFIG")
	}
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	if s.namespace, _, err = loader.Namespace(); err != nil {
		return fmt.Errorf("read namespace: %w", err)
	}
	// As kubectl does: a person asks for a page of things at once, and then for nothing.
	config.QPS, config.Burst = 50, 300
	config.WarningHandlerWithContext = &warnings{out: s.ErrOut}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	server := s.dryRun.value == dryRunServer
	s.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: knownKinds(), DryRun: &server})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// readNamespace reads the namespace of the flags and of the kubeconfig, if there is one, and nothing else.
func (s *session) readNamespace() error {
	var err error
	s.namespace, _, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(s.rules, &s.overrides).Namespace()
	switch {
	case clientcmd.IsEmptyConfig(err):
		s.namespace = cmp.Or(s.overrides.Context.Namespace, metav1.NamespaceDefault)
	case err != nil:
		return fmt.Errorf("read namespace: %w", err)
	}
	return nil
}

// knownKinds are the kinds that the verbs use: discovery would cost a dozen requests, and fail where one of them does.
func knownKinds() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ApprovalRequest", "GovernedServer", "ToolPolicy"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	return mapper
}

// colours tells whether what is printed may have colours.
func (s *session) colours() bool { return printers.AllowsColorOutput(s.Out) }

// get reads a request.
func (s *session) get(ctx context.Context, name string) (*v1alpha1.ApprovalRequest, error) {
	var request v1alpha1.ApprovalRequest
	err := s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, &request)
	switch {
	case apierrors.IsNotFound(err):
		return nil, notDone("there is no ApprovalRequest %s in namespace %s; if it is in another one, name that with -n; those that wait: kubectl tidewaiter pending -A",
			glyph.Plain(name), s.namespace)
	case apierrors.IsForbidden(err):
		return nil, s.lacks(err, fmt.Sprintf("You need the verb get: kubectl auth can-i get approvalrequests.tidewaiter.dev -n %s\n"+
			"If the request is in another namespace, name that with -n behind the name of the request.", s.namespace))
	case err != nil:
		return nil, fmt.Errorf("read ApprovalRequest: %w", err)
	}
	return &request, nil
}

// lacks says which right is missing: the one that the verb needs, or the one to act as somebody else.
func (s *session) lacks(err error, needed string) error {
	if as := s.overrides.AuthInfo.Impersonate; as != "" && strings.Contains(err.Error(), "cannot impersonate") {
		needed = fmt.Sprintf("With --as you act as %s: you need the verb impersonate on that user", glyph.Plain(as))
	}
	return notDone("%s\n%s", refusal(err), needed)
}
