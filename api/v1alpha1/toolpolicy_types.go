// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ToolPolicySpec is what a team has decided about the tools of some servers.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.targets) != has(self.namespaceSelector)",message="set exactly one of targets and namespaceSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || has(self.namespaceSelector)",message="mode belongs to a baseline, with namespaceSelector; a single server has spec.mode of its own"
type ToolPolicySpec struct {
	// targets are the names of one to eight GovernedServers of this namespace.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Targets []string `json:"targets,omitempty"`

	// namespaceSelector makes the policy a baseline: it covers all GovernedServers of the namespaces with these
	// labels, {} those of every namespace, and no team can loosen what it says. It counts in the operator's namespace
	// only.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// mode of a baseline, ReadOnly or Stopped, holds for every server that it covers, also one that observes, at the
	// next call. Default: none.
	// +optional
	Mode BaselineMode `json:"mode,omitempty"`

	// callers are the only ones who may call tools of the targets, as far as this policy goes: it denies every call
	// of anybody else. Default: anybody.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Callers []Subject `json:"callers,omitempty"`

	// rules are looked at in their order; the first that matches a call is what this policy says of it. Where none
	// matches it says nothing. Of all policies the strictest word counts: Deny, then RequireApproval, then Allow.
	// Names are unique. All rules of a policy together have at most 512 globs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.map(r, size(r.tools)).sum() <= 512",message="the rules of a policy have at most 512 globs in tools together"
	// +kubebuilder:validation:XValidation:rule="self.all(r, self.exists_one(o, o.name == r.name))",message="every rule needs a name of its own"
	Rules []Rule `json:"rules,omitempty"`

	// pins accept definitions. A tool that a policy pins is accepted with the digests that it names and with no
	// other; where several policies pin it, each of them has to name the digest.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Pins []Pin `json:"pins,omitempty"`

	// preview has the server itself say what a call would affect, for the person who is asked. The first entry that
	// names the tool counts; of several policies that of the first by namespace and name, a baseline's before others.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Preview []PreviewRule `json:"preview,omitempty"`

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

// BaselineMode is a mode that a baseline puts on every server that it covers.
//
// +kubebuilder:validation:Enum=ReadOnly;Stopped
type BaselineMode string

// The modes of a baseline; they mean what those of a server do.
const (
	// BaselineReadOnly refuses every call of a tool that is not Read.
	BaselineReadOnly BaselineMode = "ReadOnly"
	// BaselineStopped refuses every call.
	BaselineStopped BaselineMode = "Stopped"
)

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

	// when narrows the entry to calls for which this CEL expression is true; it may use what a rule's when may. A
	// call for which it cannot be evaluated needs approval. Default: every call of the tool.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	When string `json:"when,omitempty"`
}

// SubjectKind is the kind of a subject.
//
// +kubebuilder:validation:Enum=User;Group;ServiceAccount
type SubjectKind string

// The kinds of subjects, as in RBAC.
const (
	// SubjectUser is one username.
	SubjectUser SubjectKind = "User"
	// SubjectGroup is everybody in a group.
	SubjectGroup SubjectKind = "Group"
	// SubjectServiceAccount is one ServiceAccount.
	SubjectServiceAccount SubjectKind = "ServiceAccount"
)

// Subject names callers as the gateway authenticated them.
//
// +kubebuilder:validation:XValidation:rule="(self.kind == 'ServiceAccount') == has(self.namespace)",message="a ServiceAccount, and nothing else, needs a namespace"
type Subject struct {
	// kind is User, Group or ServiceAccount.
	// +required
	Kind SubjectKind `json:"kind,omitempty"`

	// name of the user, group or ServiceAccount, exactly; there are no globs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`

	// namespace of the ServiceAccount.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// Effect is what a rule says of a call.
//
// +kubebuilder:validation:Enum=Allow;RequireApproval;Deny
type Effect string

// The effects, from least to most strict.
const (
	// EffectAllow lets the call run at once; a call of an Irreversible tool needs approval all the same.
	EffectAllow Effect = "Allow"
	// EffectRequireApproval lets the call run once persons approved it.
	EffectRequireApproval Effect = "RequireApproval"
	// EffectDeny refuses the call.
	EffectDeny Effect = "Deny"
)

// InputRule says whether a caller may answer what a server asks in the middle of a call.
//
// +kubebuilder:validation:Enum=Allow;Deny
type InputRule string

// What is said of the answers.
const (
	// InputAllow passes the answers on, though no person sees them.
	InputAllow InputRule = "Allow"
	// InputDeny refuses them, whatever another policy says.
	InputDeny InputRule = "Deny"
)

// Rule says what becomes of the calls that it matches.
//
// +kubebuilder:validation:XValidation:rule="!has(self.inputResponses) || self.decision != 'Deny'",message="a call that is denied has no inputResponses; leave the field out"
// +kubebuilder:validation:XValidation:rule="!has(self.approvals) || self.decision == 'RequireApproval'",message="approvals goes with the decision RequireApproval"
type Rule struct {
	// name of the rule, unique in the policy: what verdicts, receipts and refusals call it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// tools are globs over tool names: * (also across /) and ?, case-sensitive, no classes. ["*"] means every tool.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[^\[\]{}\\]+$`
	Tools []string `json:"tools,omitempty"`

	// subjects narrow the rule to calls of these. Default: calls of anybody.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Subjects []Subject `json:"subjects,omitempty"`

	// when narrows the rule to calls for which this CEL expression is true. It may use args (the call's arguments),
	// tool (name, tier, annotations, digest), principal (username, groups, namespace, serviceAccount, actsFor) and
	// server (name, namespace), and the extensions strings, lists, sets, math and regex. A call for which it cannot be
	// evaluated gets the stricter of what the rule says and what follows without it. Default: every call.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	When string `json:"when,omitempty"`

	// decision is Allow, RequireApproval or Deny.
	// +required
	Decision Effect `json:"decision,omitempty"`

	// approvals says who has to approve, besides what the tier asks for.
	// +optional
	Approvals *RuleApprovals `json:"approvals,omitempty"`

	// inputResponses says whether the caller may answer what the server asks in the middle of a call, Allow or Deny.
	// Those answers reach the server and nobody who approved the call has seen them. They pass if a rule says Allow and
	// no rule of any policy says Deny; those of a call of a Read tool that needs nobody always do. Default: nothing is
	// said, so that they are refused unless another policy allows them.
	// +optional
	InputResponses InputRule `json:"inputResponses,omitempty"`

	// message is told to the caller with a refusal, and to the person who is asked.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	// controls are the requirements that the rule meets, such as SOC2-CC6.1: for the receipts.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9._:/]*[A-Za-z0-9])?$`
	Controls []string `json:"controls,omitempty"`
}

// RuleApprovals says who has to approve, besides what the tier asks for.
//
// +kubebuilder:validation:MinProperties=1
type RuleApprovals struct {
	// required is how many persons must approve, from 1 to 8; where the tier or another rule asks for more, that
	// counts. Default: what the tier asks for.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Required int32 `json:"required,omitempty"`

	// verb on governedservers/authority that each of them needs, besides the tier's and never instead of it; it
	// begins with approve-. Default: none besides the tier's.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^approve-[a-z0-9-]+$`
	Verb string `json:"verb,omitempty"`
}

// Pin accepts one definition of a tool, or the server's instructions.
type Pin struct {
	// tool is the name of the tool. Without it the pin is of the server's instructions.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Tool string `json:"tool,omitempty"`

	// digest of the accepted definition; kubectl tidewaiter pin writes them.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest,omitempty"`
}

// PreviewRule has a Read tool asked about what a call would affect.
type PreviewRule struct {
	// tools are globs over the names of the tools whose calls are previewed, as in rules.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[^\[\]{}\\]+$`
	Tools []string `json:"tools,omitempty"`

	// call is the call that is made.
	// +required
	Call PreviewCall `json:"call,omitzero"`

	// recheck repeats the call just before the approved call is sent; with another answer the request is cancelled
	// and a person is asked anew. Default: false.
	// +optional
	// +kubebuilder:default=false
	Recheck bool `json:"recheck,omitempty"`
}

// PreviewCall is the call of a Read tool that shows what another call would affect.
type PreviewCall struct {
	// tool of the same server. It is called only while it is Read and the policy lets the requester call it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Tool string `json:"tool,omitempty"`

	// args is a CEL expression that gives the arguments, a map, from those of the call: {"filter": args.filter}. It
	// may use what a rule's when may. Default: no arguments.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Args string `json:"args,omitempty"`
}

// ToolPolicyStatus says what of the policy is in force. Only the manager writes it.
type ToolPolicyStatus struct {
	// conditions are Ready and Accepted (the policy can be used as it is written) and Effective (all of it is in force).
	// Stalled is there, and True, only while the policy has to be edited before it can be used: what kstatus reads as
	// a failure.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// notInForce has a line for every override, promotion, rule, pin and preview that is not in force on a server, at
	// most 256.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	NotInForce []NotInForce `json:"notInForce,omitempty"`
}

// NotInForce says why one entry of a policy has no effect on one server.
type NotInForce struct {
	// server is the target that this line speaks of; with its namespace for a baseline, and none where the line speaks
	// of all.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
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
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,priority=1
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
