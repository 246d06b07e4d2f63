// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// write is an update of an ApprovalRequest as the API server tells of it.
type write struct {
	user   authenticationv1.UserInfo
	dryRun bool
	// stored is the object before the write, sent what the client wants it to be. On the status, spec and metadata of
	// sent are what the client wrote there, and are dropped: nothing but its status and its version is read.
	stored, sent *v1alpha1.ApprovalRequest
	// raw is sent as it came.
	raw []byte
}

// maxObject bounds an object that is read, in bytes. A whole request has some 60 kB, half of it managedFields; reading
// millions of votes that the schema would refuse afterwards costs a hundred times their size.
const maxObject = 512 << 10

// readWrite takes only an update of a request on the given subresource, in the one version that there is.
func readWrite(req admission.Request, subresource string) (write, error) {
	if req.Operation != admissionv1.Update || req.Resource.Group != v1alpha1.GroupVersion.Group ||
		req.Resource.Version != v1alpha1.GroupVersion.Version || req.Resource.Resource != "approvalrequests" || req.SubResource != subresource {
		return write{}, errors.New("this webhook is for updates of approvalrequests of " + v1alpha1.GroupVersion.String() + " and their status; mend its configuration")
	}
	if req.UserInfo.Username == "" {
		return write{}, errors.New("the review names no user")
	}
	w := write{user: req.UserInfo, dryRun: ptr.Deref(req.DryRun, false), raw: req.Object.Raw}
	var err error
	if w.stored, err = decode(req.OldObject.Raw); err != nil {
		return write{}, fmt.Errorf("read the stored request: %w", err)
	}
	if w.sent, err = decode(req.Object.Raw); err != nil {
		return write{}, fmt.Errorf("read the request that was sent: %w", err)
	}
	return w, nil
}

// decode reads names as they are spelled, as the API server does.
func decode(raw []byte) (*v1alpha1.ApprovalRequest, error) {
	switch {
	case len(raw) == 0:
		return nil, errors.New("there is none")
	case len(raw) > maxObject:
		return nil, fmt.Errorf("it has %d bytes, and no ApprovalRequest has more than %d", len(raw), maxObject)
	}
	request := &v1alpha1.ApprovalRequest{}
	if err := utiljson.Unmarshal(raw, request); err != nil {
		return nil, err
	}
	return request, nil
}

// instant returns the time of a write, in whole seconds as the API server stores it. It is never before the creation of
// the request, which another clock told.
func (w write) instant(now time.Time) metav1.Time {
	if created := w.stored.CreationTimestamp.Time; now.Before(created) {
		now = created
	}
	return metav1.NewTime(now.Truncate(time.Second))
}

// vote returns the writer's vote, not yet signed.
func (w write) vote(decision v1alpha1.Decision, at metav1.Time) v1alpha1.Vote {
	return v1alpha1.Vote{
		Username: w.user.Username, UID: w.user.UID, Decision: decision, Reason: w.sent.Status.Reason, Time: at,
	}
}

// stamped returns a resolution as the writer's, whatever the client says of who and when.
func (w write) stamped(r v1alpha1.Resolution, at metav1.Time) v1alpha1.Resolution {
	r.By, r.Time = w.user.Username, at
	return r
}

// accept answers with the status as it is to be stored. The patch replaces the status whole, so that no place in a list
// is ever counted out; members of it that this version does not know stay as they came.
func accept(w write, o outcome) admission.Response {
	patch, err := replaceStatus(w.raw, o.status)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	answer := admission.Allowed("")
	answer.Patch, answer.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
	if o.warning != "" {
		answer = answer.WithWarnings(o.warning)
	}
	return answer
}

// ours returns the members of a status that this webhook writes.
func ours() []string { return []string{"phase", "decision", "reason", "votes", "resolution"} }

func replaceStatus(raw []byte, status v1alpha1.ApprovalRequestStatus) ([]byte, error) {
	var sent struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if err := utiljson.Unmarshal(raw, &sent); err != nil {
		return nil, fmt.Errorf("read the status that was sent: %w", err)
	}
	text, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("write the status: %w", err)
	}
	var members map[string]json.RawMessage
	if err := utiljson.Unmarshal(text, &members); err != nil {
		return nil, fmt.Errorf("read the status that was written: %w", err)
	}
	for _, name := range ours() {
		delete(sent.Status, name)
		if value, ok := members[name]; ok {
			sent.Status[name] = value
		}
	}
	return json.Marshal([]map[string]any{{"op": "add", "path": "/status", "value": sent.Status}})
}
