// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ToolPolicySpec is what a team has decided about the tools of some servers.
type ToolPolicySpec struct {
	// targets are the names of one to eight GovernedServers of this namespace.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Targets []string `json:"targets,omitempty"`

	// tiers override what the classifier said. Of several overrides in force for a tool the strictest holds. All
	// of them together have at most 512 globs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.map(t, has(t.tools) ? size(t.tools) : 0).sum() <= 512",message="the tiers of a policy have at most 512 globs in tools together"
	Tiers []TierOverride `json:"tiers,omitempty"`

	// autonomy promotes tools, or keeps them attended. Over all policies Attended beats Unattended.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Autonomy []AutonomyRule `json:"autonomy,omitempty"`
}

// TierOverride is a person's word on the tier of one or more tools.
//
// +kubebuilder:validation:XValidation:rule="has(self.tools) != has(self.tool)",message="set exactly one of tools and tool"
// +kubebuilder:validation:XValidation:rule="has(self.tool) == has(self.digest)",message="tool and digest go together; status.tools of the GovernedServer has the digest"
type TierOverride struct {
	// tools are globs over tool names: * (also across /) and ?, case-sensitive, no classes. With globs a tier can
	// only be raised.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[^\[\]{}\\]+$`
	Tools []string `json:"tools,omitempty"`

	// tool is the name of one tool, with digest; this form can also lower a tier.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Tool string `json:"tool,omitempty"`

	// digest of the definition that the override was made for. An override below the classified tier is not in
	// force for any other definition.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest,omitempty"`

	// tier that the tools get.
	// +required
	Tier Tier `json:"tier,omitempty"`

	// reason is why, for those who read the policy and the receipts later.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`\S`
	Reason string `json:"reason,omitempty"`
}

// AutonomyMode says whether a tool may run without a person.
//
// +kubebuilder:validation:Enum=Unattended;Attended
type AutonomyMode string

const (
	// ModeUnattended lets calls run without a person while the promotion is in force.
	ModeUnattended AutonomyMode = "Unattended"
	// ModeAttended keeps a person on every call, whatever another policy says.
	ModeAttended AutonomyMode = "Attended"
)

// AutonomyRule promotes one definition of one tool, or keeps the tool attended.
//
// +kubebuilder:validation:XValidation:rule="self.mode == 'Attended' || has(self.digest)",message="a promotion names the digest it is made for; status.tools of the GovernedServer has it"
type AutonomyRule struct {
	// tool is the name of the tool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Tool string `json:"tool,omitempty"`

	// digest of the definition that is promoted. Attended holds for every definition and needs none.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest,omitempty"`

	// mode is Unattended or Attended. Unattended is in force only while the tool is Reversible, its digest is the
	// one named here and its record is clean; otherwise status says why it is not.
	// +required
	Mode AutonomyMode `json:"mode,omitempty"`
}

// ToolPolicyStatus says what of the policy is in force. Only the manager writes it.
type ToolPolicyStatus struct {
	// conditions are Accepted (the policy can be used as it is written) and Effective (all of it is in force).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// notInForce has a line for every override and promotion that is not in force on a server, at most 256.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	NotInForce []NotInForce `json:"notInForce,omitempty"`
}

// NotInForce says why one entry of a policy has no effect on one server.
type NotInForce struct {
	// server is the target that this line speaks of.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Server string `json:"server,omitempty"`

	// field is the entry, as a path such as spec.autonomy[0].
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Field string `json:"field,omitempty"`

	// tool that the entry names, or its globs.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Tool string `json:"tool,omitempty"`

	// reason is one word for programs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message is one sentence that says why, and what would change it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// ToolPolicy is what a team has decided about the tools of its MCP servers; made for Git.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tpol,categories=tidewaiter
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Effective",type=string,JSONPath=`.status.conditions[?(@.type=="Effective")].status`
// +kubebuilder:printcolumn:name="Targets",type=string,JSONPath=`.spec.targets`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Effective")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ToolPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what the team has decided.
	// +required
	Spec ToolPolicySpec `json:"spec,omitzero"`

	// status says what of it is in force.
	// +optional
	Status ToolPolicyStatus `json:"status,omitempty,omitzero"`
}

// ToolPolicyList is a list of ToolPolicies.
//
// +kubebuilder:object:root=true
type ToolPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ToolPolicy `json:"items"`
}
