// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// maxTries bounds how often a write is repeated because the object changed beside it.
const maxTries = 5

// patchOperation is one line of a JSON patch.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// write changes the status of exactly the object that was shown, and returns what became of it: its UID and its version
// are part of the patch. If it changed beside that, mayWrite judges the newer version; one with another UID, and so
// perhaps another spec, is never written.
func (s *session) write(ctx context.Context, shown *v1alpha1.ApprovalRequest, mayWrite func(*v1alpha1.ApprovalRequest) error, change func(*v1alpha1.ApprovalRequest) []patchOperation) (*v1alpha1.ApprovalRequest, error) {
	current := shown
	for range maxTries {
		if err := mayWrite(current); err != nil {
			return nil, err
		}
		patch, err := json.Marshal(append([]patchOperation{
			{Op: "test", Path: "/metadata/uid", Value: shown.UID},
			{Op: "replace", Path: "/metadata/resourceVersion", Value: current.ResourceVersion},
		}, change(current)...))
		if err != nil {
			return nil, fmt.Errorf("encode patch: %w", err)
		}
		written := current.DeepCopy()
		err = s.client.Status().Patch(ctx, written, client.RawPatch(types.JSONPatchType, patch))
		if err == nil {
			return written, nil
		}
		newer, readErr := s.get(ctx, shown.Name)
		if readErr != nil {
			return nil, errors.Join(fmt.Errorf("write ApprovalRequest: %w", err), readErr)
		}
		if newer.UID != shown.UID {
			return nil, notDone("%s is another request now than the one shown above; look at it again, nothing was written", shown.Name)
		}
		if !apierrors.IsConflict(err) {
			return nil, s.explain(err, newer, mayWrite)
		}
		current = newer
	}
	return nil, notDone("%s changes all the time; try again", shown.Name)
}

// explain says why a write was refused. If the request moved on meanwhile, that is the reason a person understands.
func (s *session) explain(err error, newer *v1alpha1.ApprovalRequest, mayWrite func(*v1alpha1.ApprovalRequest) error) error {
	if moved := mayWrite(newer); moved != nil {
		return moved
	}
	switch {
	case admissionRefused(err):
		return notDone("%s", refusal(err))
	case noWebhook.MatchString(err.Error()):
		return notDone("nothing was changed: the operator is not reachable, and nobody can vote without it; try again, " +
			"and if that does not help, whoever runs it should look at the Deployment tidewaiter-manager and its log")
	case !apierrors.IsForbidden(err):
		return fmt.Errorf("write ApprovalRequest: %w", err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s\nIt takes all of these, and not to be the requester; the answers are yours:", refusal(err))
	fmt.Fprintf(&text, "\n  kubectl auth can-i patch approvalrequests.tidewaiter.dev --subresource=status -n %s", s.namespace)
	for _, verb := range verbsFor(newer) {
		fmt.Fprintf(&text, "\n  kubectl auth can-i %s governedservers.tidewaiter.dev/%s --subresource=%s -n %s",
			verb, newer.Spec.ServerRef.Name, v1alpha1.AuthoritySubresource, s.namespace)
	}
	return notDone("%s", text.String())
}
