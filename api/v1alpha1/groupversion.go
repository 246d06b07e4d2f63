// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of the API group tidewaiter.dev, version v1alpha1; it does no I/O.
//
// +kubebuilder:object:generate=true
// +groupName=tidewaiter.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion names the API group and version of all kinds here.
var GroupVersion = schema.GroupVersion{Group: "tidewaiter.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&GovernedServer{}, &GovernedServerList{},
		&ToolPolicy{}, &ToolPolicyList{},
		&ApprovalRequest{}, &ApprovalRequestList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

const (
	// ServerLabel marks what belongs to a GovernedServer: a Secret is read for a server only if this label
	// holds the server's name, and every ApprovalRequest carries it.
	ServerLabel = "tidewaiter.dev/server"

	// GovernLabel on a pod names the GovernedServer, of its namespace, whose gateway the operator puts into the pod.
	GovernLabel = "tidewaiter.dev/govern"
	// StandaloneLabel marks the pods of a standalone gateway, which carry GovernLabel too and are not injected.
	StandaloneLabel = "tidewaiter.dev/standalone"
	// InjectedAnnotation on a pod is the digest of what the operator put into it, so that it knows its own work.
	InjectedAnnotation = "tidewaiter.dev/injected"

	// RotateAnnotation on a Secret of the operator, whatever its value, asks for a new voting key or certificate authority;
	// the write that makes it removes the annotation.
	RotateAnnotation = "tidewaiter.dev/rotate"
	// PolicyRevisionAnnotation of a Lease that a gateway keeps beside a GovernedServer says which policy revision it
	// runs; ServerLabel marks the Lease.
	PolicyRevisionAnnotation = "tidewaiter.dev/policy-revision"
	// BypassAnnotation of such a Lease says whether the server in the gateway's pod answers at the pod's address: Open or
	// Closed. None means that the gateway cannot tell.
	BypassAnnotation = "tidewaiter.dev/bypass"
	// AuthoritySubresource is the virtual subresource of governedservers that the authority verbs are checked on.
	AuthoritySubresource = "authority"
	// ManagerServiceAccount is the name of the only ServiceAccount that writes status of GovernedServers and
	// ToolPolicies, in the operator's namespace.
	ManagerServiceAccount = "tidewaiter-manager"
	// VotingKeys is the name of the ConfigMap in the operator's namespace that publishes the voting keys, and of the
	// Secret there that holds their private halves.
	VotingKeys = "tidewaiter-voting-keys"
	// WebhookConfiguration is the name of the operator's webhook configurations, and of the Secret in its namespace
	// that holds the certificates and the path of its webhook.
	WebhookConfiguration = "tidewaiter-webhook"
)

// The authority verbs on governedservers/authority; no role that Kubernetes ships includes them.
const (
	// VerbApprove lets its holder vote on requests of Reversible tools.
	VerbApprove = "approve"
	// VerbApproveIrreversible lets its holder vote on requests of Irreversible tools.
	VerbApproveIrreversible = "approve-irreversible"
	// VerbResolve lets its holder settle an Ambiguous request.
	VerbResolve = "resolve"
	// VerbServe lets its holder be the server's gateway.
	VerbServe = "serve"
	// VerbGovern lets its holder write the server, and policies that target it.
	VerbGovern = "govern"
	// VerbPromote lets its holder add or change an Unattended entry, besides govern.
	VerbPromote = "promote"
)

// ApproveVerb returns the verb that a vote on a request of this tier needs.
func (t Tier) ApproveVerb() string {
	if t.StricterThan(TierReversible) {
		return VerbApproveIrreversible
	}
	return VerbApprove
}
