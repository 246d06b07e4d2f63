// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Mode says how much of its verdicts the gateway puts into force.
//
// +kubebuilder:validation:Enum=Enforce;Observe;ReadOnly;Stopped
type Mode string

// The modes of a server.
const (
	// ModeEnforce puts every verdict into force.
	ModeEnforce Mode = "Enforce"
	// ModeObserve lets every call pass that no baseline stops, and records the verdict that it would have had.
	ModeObserve Mode = "Observe"
	// ModeReadOnly refuses every call of a tool that is not Read.
	ModeReadOnly Mode = "ReadOnly"
	// ModeStopped refuses every call, and every other request but those that keep a session alive or list tools.
	ModeStopped Mode = "Stopped"
)

// Pinning says what happens to a tool whose definition is not the accepted one.
//
// +kubebuilder:validation:Enum=Report;Enforce;Off
type Pinning string

// The ways to deal with definitions that nobody accepted.
const (
	// PinningReport: its approvals and autonomy are gone, and its tier may only rise until a person accepts it.
	PinningReport Pinning = "Report"
	// PinningEnforce: besides, its calls are refused until a person accepts it.
	PinningEnforce Pinning = "Enforce"
	// PinningOff: it is classified anew, and that is all.
	PinningOff Pinning = "Off"
)

// OtherMethods says what happens to requests that are not tools/call and could make a server do or tell something.
//
// +kubebuilder:validation:Enum=Pass;Deny
type OtherMethods string

// The ways to deal with other methods.
const (
	// OtherMethodsPass relays them as they are.
	OtherMethodsPass OtherMethods = "Pass"
	// OtherMethodsDeny refuses all but those that keep a session alive or list tools.
	OtherMethodsDeny OtherMethods = "Deny"
)

// Transport is the way in which an MCP server is spoken to over HTTP.
//
// +kubebuilder:validation:Enum=StreamableHTTP;SSE
type Transport string

// The transports of MCP over HTTP.
const (
	// TransportStreamableHTTP is that of the revisions from 2025-03-26 on.
	TransportStreamableHTTP Transport = "StreamableHTTP"
	// TransportSSE is HTTP+SSE, that of revision 2024-11-05.
	TransportSSE Transport = "SSE"
)

// GovernedServerSpec says where an MCP server is and how it is governed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || !has(self.gateway.standalone) || !(has(self.endpoint.stdio) || has(self.endpoint.url) && self.endpoint.url.lowerAscii().matches('^https?://(localhost|127[.0-9]*|[[](0*:)*:?0*1[]]|[[][0:]*:ffff:127[.0-9]*[]])([:/]|$)'))",message="a standalone gateway is not in the server's pod, so endpoint.url cannot be on loopback, and not be stdio: leave out gateway.standalone, or say where else the server is"
type GovernedServerSpec struct {
	// endpoint says where the MCP server listens. Changing it ends every approval and all autonomy that was
	// earned at the old one.
	// +required
	Endpoint Endpoint `json:"endpoint,omitzero"`

	// mode says how much of its verdicts the gateway puts into force. Enforce, the default, puts all of them. Observe
	// lets every call pass and records the verdict that it would have had; what a baseline refuses or gates stays so.
	// ReadOnly refuses every call of a tool that is not Read. Stopped refuses every call, and requests such as
	// resources/read too. The mode of a baseline that covers the server holds where it is stricter.
	// +optional
	// +kubebuilder:default=Enforce
	Mode Mode `json:"mode,omitempty"`

	// pinning says what happens when the definition of a tool, or the server's instructions, are not those that were
	// accepted: at first contact, or later by the pins of a ToolPolicy. Report, the default: the tool is classified
	// anew, its approvals and autonomy are gone, and its tier may only rise. Enforce: besides, its calls are refused,
	// and with other instructions all calls. Off: it is only classified anew.
	// +optional
	// +kubebuilder:default=Report
	Pinning Pinning `json:"pinning,omitempty"`

	// otherMethods says what happens to requests such as resources/read, prompts/get and methods that the gateway
	// does not know. Pass, the default, relays them; Deny refuses all but those that keep a session alive or list
	// tools.
	// +optional
	// +kubebuilder:default=Pass
	OtherMethods OtherMethods `json:"otherMethods,omitempty"`

	// discovery says how often the server's tools are listed.
	// +optional
	// +kubebuilder:default={}
	Discovery Discovery `json:"discovery,omitempty,omitzero"`

	// classification tunes how tools get their tier.
	// +optional
	// +kubebuilder:default={}
	Classification Classification `json:"classification,omitempty,omitzero"`

	// approvals tunes how people are asked.
	// +optional
	// +kubebuilder:default={}
	Approvals Approvals `json:"approvals,omitempty,omitzero"`

	// autonomy says what a tool needs to run unattended.
	// +optional
	// +kubebuilder:default={}
	Autonomy AutonomySpec `json:"autonomy,omitempty,omitzero"`

	// callTimeout is how long the gateway waits for the end of a call that it let through, from 1s to 1h;
	// default 5m. A gated call without an answer by then is Ambiguous.
	// +optional
	// +kubebuilder:default="5m0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="callTimeout must be from 1s to 1h"
	CallTimeout metav1.Duration `json:"callTimeout,omitempty,omitzero"`

	// gateway says who enforces the verdicts.
	// +optional
	Gateway *GatewaySpec `json:"gateway,omitempty"`
}

// GatewaySpec says who enforces the verdicts.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.standalone) || !has(self.serviceAccountName)",message="a standalone gateway runs as the ServiceAccount tidewaiter-NAME, which the operator makes: leave out serviceAccountName"
type GatewaySpec struct {
	// serviceAccountName is the ServiceAccount of this namespace that the server's gateway runs as. The operator
	// gives it exactly the rights that a gateway needs, by a Role and a RoleBinding that belong to this
	// GovernedServer: the verb serve on it, and reading the Secrets that its endpoint names and that are labelled
	// for it. Without it, whoever runs the gateway gives those rights; default: none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// publicURL is scheme and host at which agents reach the gateways that the operator runs for this server, without a
	// path; with /NAMESPACE/NAME/mcp it is the audience of their tokens. Default: http://NAME.NAMESPACE.svc, as of a
	// Service with the name of this GovernedServer, and with standalone http://tidewaiter-NAME.NAMESPACE.svc, which the
	// operator makes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@\s]+$`
	PublicURL string `json:"publicURL,omitempty"`

	// standalone has the operator run the gateway as a Deployment of its own, with a Service, a PodDisruptionBudget and a
	// ServiceAccount, all of the name tidewaiter-NAME: for a server that is not in pods of its own, such as one outside
	// of the cluster. Only this gateway and nothing else of the operator then connects to the server. Default: none.
	// +optional
	Standalone *StandaloneGateway `json:"standalone,omitempty"`
}

// StandaloneGateway is a gateway that the operator runs in pods of its own.
//
// +kubebuilder:validation:MinProperties=1
type StandaloneGateway struct {
	// replicas is how many gateways there are, from 1 to 32; default 2. An approval is used once, whichever of them gets
	// the call. With one, agents reach no gateway while its node is drained.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	Replicas int32 `json:"replicas,omitempty"`
}

// Endpoint is the address of an MCP server and what the gateway presents to it.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="[has(self.url), has(self.service), has(self.stdio)].filter(x, x).size() == 1",message="set exactly one of url, service and stdio"
// +kubebuilder:validation:XValidation:rule="!has(self.stdio) || (!has(self.tls) && !has(self.headers) && self.transport == 'StreamableHTTP')",message="stdio takes no tls, no headers and no other transport than StreamableHTTP"
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || !has(self.url) || self.url.startsWith('https://')",message="tls needs a url that starts with https://"
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || !has(self.service) || self.service.scheme == 'https'",message="tls needs the scheme https"
type Endpoint struct {
	// url is the server's MCP endpoint, http or https, without user, query or fragment. It is not
	// dialled when it leads to a loopback, link-local, private or cluster address that the operator's and the
	// gateway's flag --allow-address does not list. One on loopback is in the pods with the label
	// tidewaiter.dev/govern: their gateways dial it, and the operator asks them for its tools.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@]+(/[^?#]*)?$')",message="url must be http:// or https:// with a host, and have no user, query or fragment"
	URL string `json:"url,omitempty"`

	// service names a Service of the same namespace in front of the server.
	// +optional
	Service *ServiceEndpoint `json:"service,omitempty"`

	// stdio names the container of the governed pods that runs a server which speaks MCP by its standard input and
	// output. The operator puts streamable HTTP in front of it, on the pod's own loopback; the command is that of the
	// container. It needs pods with the label tidewaiter.dev/govern.
	// +optional
	Stdio *StdioEndpoint `json:"stdio,omitempty"`

	// transport is how the server speaks MCP. StreamableHTTP, the default, is the transport of the revisions from
	// 2025-03-26 on. SSE is the older HTTP+SSE of revision 2024-11-05, for servers that know no other: the address is
	// that of the event stream, often /sse, and agents speak the same transport to the gateway.
	// +optional
	// +kubebuilder:default=StreamableHTTP
	Transport Transport `json:"transport,omitempty"`

	// headers are sent with every request to the server; the agent's own credentials never are.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Headers []Header `json:"headers,omitempty"`

	// tls says how the server's certificate is checked. Default: the system's authorities and the host of the
	// url.
	// +optional
	TLS *EndpointTLS `json:"tls,omitempty"`
}

// ServiceEndpoint names a Service in the GovernedServer's namespace.
type ServiceEndpoint struct {
	// name of the Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// port of the Service, from 1 to 65535.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// path of the endpoint; default /mcp.
	// +optional
	// +kubebuilder:default="/mcp"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^?#]*$`
	Path string `json:"path,omitempty"`

	// scheme is http, the default, or https.
	// +optional
	// +kubebuilder:default=http
	// +kubebuilder:validation:Enum=http;https
	Scheme string `json:"scheme,omitempty"`
}

// StdioEndpoint is a server that speaks MCP by its standard input and output.
type StdioEndpoint struct {
	// container is the name of the container, which must have a command in the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Container string `json:"container,omitempty"`
}

// Header is one HTTP header that the server gets, literal or from a Secret.
//
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.secretKeyRef)",message="set exactly one of value and secretKeyRef"
type Header struct {
	// name of the header. Headers of MCP (Mcp-*), of the connection and of the message's framing belong to the
	// gateway and cannot be set.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern="^[A-Za-z0-9!#$%&'*+.^`|~-]+$"
	// +kubebuilder:validation:XValidation:rule="!self.lowerAscii().startsWith('mcp-') && !(self.lowerAscii() in ['accept', 'accept-encoding', 'connection', 'content-encoding', 'content-length', 'content-type', 'host', 'keep-alive', 'last-event-id', 'origin', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade'])",message="this header belongs to the gateway"
	Name string `json:"name,omitempty"`

	// value is the literal value; visible to everyone who may read the GovernedServer.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[\t\x20-\x7e]+$`
	Value string `json:"value,omitempty"`

	// secretKeyRef names the key of a Secret of the same namespace. The Secret is read only if it carries the
	// label tidewaiter.dev/server with this GovernedServer's name.
	// +optional
	SecretKeyRef *SecretKeyRef `json:"secretKeyRef,omitempty"`
}

// SecretKeyRef names one key of a Secret in the GovernedServer's namespace.
type SecretKeyRef struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// key within the Secret's data.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// EndpointTLS says how the server's certificate is checked.
//
// +kubebuilder:validation:MinProperties=1
type EndpointTLS struct {
	// caSecretRef names a key with PEM certificates of the only authorities that are trusted. The Secret needs
	// the same label as one with a header.
	// +optional
	CASecretRef *SecretKeyRef `json:"caSecretRef,omitempty"`

	// serverName is the name that the certificate must bear; default: the host that is dialled.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`
}

// Discovery says how often and how long a server's tools are listed.
type Discovery struct {
	// interval between two listings, from 10s to 24h; default 10m. A server that announces a change is listed
	// at once.
	// +optional
	// +kubebuilder:default="10m0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="interval must be from 10s to 24h"
	Interval metav1.Duration `json:"interval,omitempty,omitzero"`

	// timeout of one whole listing, all pages, from 1s to 5m; default 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('5m')",message="timeout must be from 1s to 5m"
	Timeout metav1.Duration `json:"timeout,omitempty,omitzero"`
}

// Classification tunes how tools get their tier.
type Classification struct {
	// trustReadOnlyHint lets the server's readOnlyHint make a tool Read when its name shows neither reading nor
	// an effect; default false. A verb with effects in the name always wins.
	// +optional
	// +kubebuilder:default=false
	TrustReadOnlyHint bool `json:"trustReadOnlyHint,omitempty"`

	// minimumTier is the least strict tier that any tool of this server gets; default Read, which is no limit.
	// +optional
	// +kubebuilder:default=Read
	MinimumTier Tier `json:"minimumTier,omitempty"`
}

// Approvals tunes how people are asked.
type Approvals struct {
	// hold is how long a gated call is kept waiting for its approval before the caller is told that it is
	// pending, from 0s (tell at once) to 50s; default 45s.
	// +optional
	// +kubebuilder:default="45s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('50s')",message="hold must be from 0s to 50s"
	Hold *metav1.Duration `json:"hold,omitempty"`

	// ttl is how long a request can be approved and its approval used, from 1m to 24h; default 1h.
	// +optional
	// +kubebuilder:default="1h0m0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="ttl must be from 1m to 24h"
	TTL metav1.Duration `json:"ttl,omitempty,omitzero"`

	// maxPending is how many requests of one requester may wait at a time, from 1 to 1000; default 20. More are
	// refused.
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxPending int32 `json:"maxPending,omitempty"`

	// maxPerHour is how many requests of one requester may be opened for one tool within an hour, from 1 to 10000;
	// default 60. After denials in a row the requester also waits before the next request for the tool: one minute
	// after the first, twice as long after each further one, at most an hour.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxPerHour int32 `json:"maxPerHour,omitempty"`

	// required is how many persons must approve a call, by tier; default one each.
	// +optional
	// +kubebuilder:default={}
	Required RequiredApprovals `json:"required,omitempty,omitzero"`

	// allowServiceAccounts lets ServiceAccounts of other namespaces vote that hold the verb by name, and not by a
	// wildcard; default false: only persons vote.
	// +optional
	// +kubebuilder:default=false
	AllowServiceAccounts bool `json:"allowServiceAccounts,omitempty"`
}

// RequiredApprovals is how many persons must approve a call, by tier.
type RequiredApprovals struct {
	// reversible is the number for calls of Reversible tools, from 1 to 8; default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Reversible int32 `json:"reversible,omitempty"`

	// irreversible is the number for calls of Irreversible tools, from 1 to 8; default 1. They never need fewer than
	// calls of Reversible tools: where this is less than reversible, that number counts.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Irreversible int32 `json:"irreversible,omitempty"`
}

// AutonomySpec says what a tool needs to run unattended.
type AutonomySpec struct {
	// cleanApprovals is how many clean approvals of one definition of a Reversible tool make it Eligible, from 1
	// to 1000; default 3. A clean approval is a call that a person approved, that ran and succeeded.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	CleanApprovals int32 `json:"cleanApprovals,omitempty"`
}

// GovernedServerStatus is what the manager knows of the server. Only the manager writes it.
type GovernedServerStatus struct {
	// conditions are Ready (sums up the others), Reachable (the last listing succeeded), Classified (every listed
	// tool has a tier), PolicyAccepted (every ToolPolicy that targets the server is valid), PinsMatch (every definition is
	// the accepted one), Enforcing (every live gateway runs the current policy), BypassClosed (no gateway in the server's
	// pods has found a way around it), GatewayAuthorized (the ServiceAccount of the gateway has its rights), and
	// GatewayAvailable (a standalone gateway is ready). All are good when True.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// agentURL is where agents reach the server through its standalone gateway, and the audience of their tokens; none
	// without one.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	AgentURL string `json:"agentURL,omitempty"`

	// server is what the MCP server said of itself.
	// +optional
	Server *ServerInfo `json:"server,omitempty"`

	// counts is the number of tools in each effective tier.
	// +optional
	Counts *TierCounts `json:"counts,omitempty"`

	// lastChanged is when the list of tools, a tier or a definition last changed.
	// +optional
	LastChanged *metav1.Time `json:"lastChanged,omitempty"`

	// endpointDigest is the digest of the spec.endpoint that the tools below came from.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	EndpointDigest string `json:"endpointDigest,omitempty"`

	// tools are the server's tools with their tiers, sorted by name; at most 1,000 and 700 kB.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Tools []ToolStatus `json:"tools,omitempty"`

	// accepted are the definitions that were accepted of tools that the server now defines otherwise, or does not list
	// any more, sorted by tool; at most 1,000. Of every other tool the definition in tools is the accepted one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Accepted []AcceptedTool `json:"accepted,omitempty"`

	// namespaceLabels are the labels of the server's namespace: what baselines select by. Without them, or with more
	// than 256, every baseline covers the server.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`

	// records are the track records of tools that have one, sorted by tool; they stay when a tool disappears.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Records []ToolRecord `json:"records,omitempty"`
}

// ServerInfo is what an MCP server said of itself.
type ServerInfo struct {
	// name of the server's implementation.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`

	// version of the server's implementation.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// protocolVersion is the MCP revision that was agreed on.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	ProtocolVersion string `json:"protocolVersion,omitempty"`

	// instructionsDigest is SHA-256 over the instructions that the server gives to models; none without instructions.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	InstructionsDigest string `json:"instructionsDigest,omitempty"`

	// acceptedInstructionsDigest is that of the instructions that were accepted; none when these are they.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	AcceptedInstructionsDigest string `json:"acceptedInstructionsDigest,omitempty"`
}

// AcceptedTool is a definition of a tool that was accepted and is not the one that the server gives now.
type AcceptedTool struct {
	// tool is the name of the tool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Tool string `json:"tool,omitempty"`

	// digest of the accepted definition; none for a tool that appeared after the first listing while pinning was
	// Enforce, which nobody has accepted yet.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	Digest string `json:"digest,omitempty"`

	// tier is the strictest that the classifier gave to a definition of the tool since that one; what the tool has
	// at least until a person accepts another.
	// +required
	Tier Tier `json:"tier,omitempty"`
}

// TierCounts counts tools by effective tier.
type TierCounts struct {
	// read counts tools that run at once.
	// +optional
	Read int32 `json:"read"`
	// reversible counts tools that need approval and can earn autonomy.
	// +optional
	Reversible int32 `json:"reversible"`
	// irreversible counts tools that need approval on every call.
	// +optional
	Irreversible int32 `json:"irreversible"`
}

// TierSource says what decided a tool's tier.
//
// +kubebuilder:validation:Enum=Name;Description;Annotation;Schema;LLM;Override;Ratchet;Minimum
type TierSource string

// The sources of a tier; the reason beside it names the evidence.
const (
	// TierSourceName: a word of the tool's name, or the lack of one.
	TierSourceName TierSource = "Name"
	// TierSourceDescription: a word or phrase of the title or description.
	TierSourceDescription TierSource = "Description"
	// TierSourceAnnotation: a hint of the server.
	TierSourceAnnotation TierSource = "Annotation"
	// TierSourceSchema: a parameter of the tool.
	TierSourceSchema TierSource = "Schema"
	// TierSourceLLM: the opinion of a language model.
	TierSourceLLM TierSource = "LLM"
	// TierSourceOverride: an entry of a ToolPolicy.
	TierSourceOverride TierSource = "Override"
	// TierSourceRatchet: the tier from before a change that nobody has accepted yet.
	TierSourceRatchet TierSource = "Ratchet"
	// TierSourceMinimum: the server's minimumTier.
	TierSourceMinimum TierSource = "Minimum"
)

// Tool returns the tool of that name, nil for none.
func (s *GovernedServerStatus) Tool(name string) *ToolStatus {
	for i := range s.Tools {
		if s.Tools[i].Name == name {
			return &s.Tools[i]
		}
	}
	return nil
}

// Record returns the track record of the tool of that name, nil for none.
func (s *GovernedServerStatus) Record(tool string) *ToolRecord {
	for i := range s.Records {
		if s.Records[i].Tool == tool {
			return &s.Records[i]
		}
	}
	return nil
}

// ToolStatus is one tool of the server and its tier.
type ToolStatus struct {
	// name of the tool, as the server spells it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`

	// classifiedTier is what the classifier said.
	// +required
	ClassifiedTier Tier `json:"classifiedTier,omitempty"`

	// tier is the effective one, after overrides and minimumTier; for people, the gateway works it out anew.
	// +required
	Tier Tier `json:"tier,omitempty"`

	// source says what decided the effective tier.
	// +required
	Source TierSource `json:"source,omitempty"`

	// reason is one sentence that names the evidence for the effective tier.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`

	// digest is SHA-256 over everything the server says of the tool: what overrides, promotions and pins name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=71
	Digest string `json:"digest,omitempty"`

	// annotations are the server's hints about the tool: what rules see as tool.annotations.
	// +optional
	Annotations *ToolAnnotations `json:"annotations,omitempty"`
}

// ToolAnnotations are a server's hints about a tool. Nothing proves them.
//
// +kubebuilder:validation:MinProperties=1
type ToolAnnotations struct {
	// readOnlyHint says that the tool changes nothing. None when the server does not say.
	// +optional
	ReadOnlyHint *bool `json:"readOnlyHint,omitempty"`
	// destructiveHint says that the tool may destroy. None when the server does not say.
	// +optional
	DestructiveHint *bool `json:"destructiveHint,omitempty"`
	// idempotentHint says that calling it again changes nothing more. None when the server does not say.
	// +optional
	IdempotentHint *bool `json:"idempotentHint,omitempty"`
	// openWorldHint says that the tool deals with things outside. None when the server does not say.
	// +optional
	OpenWorldHint *bool `json:"openWorldHint,omitempty"`
}

// Autonomy is where a tool stands between always asking and running unattended.
//
// +kubebuilder:validation:Enum=None;Eligible;Unattended;Disqualified;Forbidden
type Autonomy string

const (
	// AutonomyNone: the record is not long enough yet.
	AutonomyNone Autonomy = "None"
	// AutonomyEligible: the record is clean; a person with the verb promote may promote the tool.
	AutonomyEligible Autonomy = "Eligible"
	// AutonomyUnattended: a promotion is in force; calls run without a person.
	AutonomyUnattended Autonomy = "Unattended"
	// AutonomyDisqualified: a person denied a call of this tool; it never runs unattended on this server.
	AutonomyDisqualified Autonomy = "Disqualified"
	// AutonomyForbidden: the tool is Irreversible; no record helps.
	AutonomyForbidden Autonomy = "Forbidden"
)

// ToolRecord is the track record of one tool.
type ToolRecord struct {
	// tool is the name that the record belongs to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Tool string `json:"tool,omitempty"`

	// digest of the definition that approved and failed count for.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	Digest string `json:"digest,omitempty"`

	// endpointDigest of the endpoint that approved and failed count for.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	EndpointDigest string `json:"endpointDigest,omitempty"`

	// approved counts calls that a person approved, that ran and succeeded, for this digest and endpoint.
	// +optional
	Approved int32 `json:"approved"`

	// failed counts approved calls that failed, for this digest and endpoint; one of which nothing was sent is none.
	// +optional
	Failed int32 `json:"failed"`

	// denied counts denials of this tool on this server, of any definition; it never falls.
	// +optional
	Denied int32 `json:"denied"`

	// ambiguous counts approved calls whose outcome nobody knows yet; none may be open for a clean record.
	// +optional
	Ambiguous int32 `json:"ambiguous"`

	// autonomy says where the tool stands.
	// +required
	Autonomy Autonomy `json:"autonomy,omitempty"`

	// lastDecision is when a request of this tool was last counted.
	// +optional
	LastDecision *metav1.Time `json:"lastDecision,omitempty"`

	// accounted are the UIDs of requests that are counted here and do not yet say so themselves.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=36
	Accounted []string `json:"accounted,omitempty"`
}

// GovernedServer puts an MCP server under governance: its tools are discovered, each gets a risk tier, and a
// gateway enforces it on every call.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=gsrv,categories=tidewaiter
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Read",type=integer,JSONPath=`.status.counts.read`
// +kubebuilder:printcolumn:name="Reversible",type=integer,JSONPath=`.status.counts.reversible`
// +kubebuilder:printcolumn:name="Irreversible",type=integer,JSONPath=`.status.counts.irreversible`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="the name must have at most 63 characters and no dot, since names of requests begin with it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.gateway) || !has(self.spec.gateway.standalone) || size(self.metadata.name) <= 52",message="with spec.gateway.standalone the name must have at most 52 characters, since that of a Service is made of it"
type GovernedServer struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec says where the server is and how it is governed.
	// +required
	Spec GovernedServerSpec `json:"spec,omitzero"`

	// status is what the manager knows of the server.
	// +optional
	Status GovernedServerStatus `json:"status,omitempty,omitzero"`
}

// GovernedServerList is a list of GovernedServers.
//
// +kubebuilder:object:root=true
type GovernedServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GovernedServer `json:"items"`
}
