// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	// pollInterval is the time between two looks at a request. A look needs the right to get it; a watch would
	// need more than people who approve are given.
	pollInterval = 200 * time.Millisecond
	// maxTries bounds how often a write is repeated because the object changed beside it.
	maxTries = 5
)

// errNotDone is in every error of a verb that was understood, and did not get its way.
var errNotDone = errors.New("not done")

// notDone is an error with a whole sentence for the person.
func notDone(format string, args ...any) error {
	return notDoneError{text: fmt.Sprintf(format, args...)}
}

type notDoneError struct{ text string }

func (e notDoneError) Error() string { return e.text }

func (notDoneError) Is(target error) bool { return target == errNotDone }

// session is a person at a cluster.
type session struct {
	genericiooptions.IOStreams

	clock     clock.PassiveClock
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides

	client    client.Client
	namespace string
}

// addFlags adds those that every kubectl command has: --kubeconfig, --context, -n, --as and the like.
func (s *session) addFlags(flags *pflag.FlagSet) {
	s.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	flags.StringVar(&s.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "path of the kubeconfig file")
	clientcmd.BindOverrideFlags(&s.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
}

// connect reads the kubeconfig and the flags. It asks the cluster nothing.
func (s *session) connect() error {
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
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return err
	}
	// The kinds are known: discovery would cost a dozen requests, and fail where one of them does.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("ApprovalRequest"), meta.RESTScopeNamespace)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	s.client, err = client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// look connects, and shows the request that is going to be decided on.
func (s *session) look(ctx context.Context, name string) (*v1alpha1.ApprovalRequest, error) {
	if err := s.connect(); err != nil {
		return nil, err
	}
	request, err := s.get(ctx, name)
	if err != nil {
		return nil, err
	}
	return request, show(s.Out, request, s.clock.Now())
}

// get reads a request.
func (s *session) get(ctx context.Context, name string) (*v1alpha1.ApprovalRequest, error) {
	var request v1alpha1.ApprovalRequest
	err := s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, &request)
	switch {
	case apierrors.IsNotFound(err):
		return nil, notDone("there is no ApprovalRequest %s in namespace %s; those that wait there: kubectl get areq -n %s --field-selector status.phase=Pending",
			visible(name), s.namespace, s.namespace)
	case apierrors.IsForbidden(err):
		return nil, notDone("%v\nYou need the verb get: kubectl auth can-i get approvalrequests.tidewaiter.dev -n %s\nIf the request is in another namespace, name that with -n behind the name of the request.", err, s.namespace)
	case err != nil:
		return nil, fmt.Errorf("read ApprovalRequest: %w", err)
	}
	return &request, nil
}

// patchOperation is one line of a JSON patch.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// write changes the status of exactly the object that was shown: its UID and its version are part of the patch. If it
// changed beside that, mayWrite judges the newer version; one with another UID, and so perhaps another
// spec, is never written.
func (s *session) write(ctx context.Context, shown *v1alpha1.ApprovalRequest, mayWrite func(*v1alpha1.ApprovalRequest) error, change func(*v1alpha1.ApprovalRequest) []patchOperation) error {
	current := shown
	for range maxTries {
		if err := mayWrite(current); err != nil {
			return err
		}
		patch, err := json.Marshal(append([]patchOperation{
			{Op: "test", Path: "/metadata/uid", Value: shown.UID},
			{Op: "replace", Path: "/metadata/resourceVersion", Value: current.ResourceVersion},
		}, change(current)...))
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		err = s.client.Status().Patch(ctx, current.DeepCopy(), client.RawPatch(types.JSONPatchType, patch))
		if err == nil {
			return nil
		}
		newer, readErr := s.get(ctx, shown.Name)
		if readErr != nil {
			return errors.Join(fmt.Errorf("write ApprovalRequest: %w", err), readErr)
		}
		if newer.UID != shown.UID {
			return notDone("%s is another request now than the one shown above; look at it again, nothing was written", shown.Name)
		}
		if !apierrors.IsConflict(err) {
			return s.explain(err, newer, mayWrite)
		}
		current = newer
	}
	return notDone("%s changes all the time; try again", shown.Name)
}

// explain says why a write was refused. If the request moved on meanwhile, that is the reason a person understands.
func (s *session) explain(err error, newer *v1alpha1.ApprovalRequest, mayWrite func(*v1alpha1.ApprovalRequest) error) error {
	if moved := mayWrite(newer); moved != nil {
		return moved
	}
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("write ApprovalRequest: %w", err)
	}
	verbs := newer.Spec.ApproveVerbs
	if newer.CurrentPhase() == v1alpha1.PhaseAmbiguous {
		verbs = []string{v1alpha1.VerbResolve}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%v\nIt takes all of these, and not to be the requester; the answers are yours:", err)
	fmt.Fprintf(&text, "\n  kubectl auth can-i patch approvalrequests.tidewaiter.dev --subresource=status -n %s", s.namespace)
	for _, verb := range verbs {
		fmt.Fprintf(&text, "\n  kubectl auth can-i %s governedservers.tidewaiter.dev/%s --subresource=%s -n %s",
			verb, newer.Spec.ServerRef.Name, v1alpha1.AuthoritySubresource, s.namespace)
	}
	return notDone("%s", text.String())
}

// await looks at the request until settled is true of it, or the time is over.
func (s *session) await(ctx context.Context, shown *v1alpha1.ApprovalRequest, timeout time.Duration, settled func(*v1alpha1.ApprovalRequest) bool) (*v1alpha1.ApprovalRequest, error) {
	var current *v1alpha1.ApprovalRequest
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		var err error
		if current, err = s.get(ctx, shown.Name); err != nil {
			return false, err
		}
		if current.UID != shown.UID {
			return false, notDone("%s was removed meanwhile, and another request has its name", shown.Name)
		}
		return settled(current), nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, notDone("it was recorded, but the manager has not acted on it in %s; look again with: kubectl get areq %s -n %s",
			timeout, shown.Name, s.namespace)
	}
	return current, err
}
