// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types. All are good when True, but Stalled.
const (
	// ConditionReady of a GovernedServer sums up the other conditions: GatewayAuthorized where spec.gateway names a
	// ServiceAccount or is standalone, GatewayAvailable where it is standalone, PinsMatch where spec.pinning is Enforce, Enforcing never. Of a ToolPolicy it is what Accepted is.
	ConditionReady = "Ready"
	// ConditionStalled of a ToolPolicy is there only while the policy has to be edited before it can be used. It is not
	// good when True since kstatus, and what is built on it, knows it so.
	ConditionStalled = "Stalled"
	// ConditionPinsMatch of a GovernedServer: the definition of every tool, and the instructions, are those that were
	// accepted.
	ConditionPinsMatch = "PinsMatch"
	// ConditionEnforcing of a GovernedServer: every live gateway runs the current policy. It informs and decides nothing.
	ConditionEnforcing = "Enforcing"
	// ConditionReachable of a GovernedServer: the last listing of its tools succeeded.
	ConditionReachable = "Reachable"
	// ConditionClassified of a GovernedServer: every tool that it listed has a tier.
	ConditionClassified = "Classified"
	// ConditionPolicyAccepted of a GovernedServer: every ToolPolicy that targets it can be used as written.
	ConditionPolicyAccepted = "PolicyAccepted"
	// ConditionGatewayAuthorized of a GovernedServer that names a ServiceAccount for its gateway, or has a standalone one:
	// the account has the rights of a gateway of this server.
	ConditionGatewayAuthorized = "GatewayAuthorized"
	// ConditionGatewayAvailable of a GovernedServer with a standalone gateway: at least one of them is ready.
	ConditionGatewayAvailable = "GatewayAvailable"
	// ConditionBypassClosed of a GovernedServer in pods: no live gateway has found that the server answers at the address
	// of its pod, besides on loopback.
	ConditionBypassClosed = "BypassClosed"
	// ConditionAccepted of a ToolPolicy: it can be used as it is written.
	ConditionAccepted = "Accepted"
	// ConditionEffective of a ToolPolicy: all of it is in force.
	ConditionEffective = "Effective"
	// ConditionAccounted of an ApprovalRequest: it is counted in the records of its server.
	ConditionAccounted = "Accounted"
)

// Reasons of conditions and events; each says what the user should do.
const (
	// ReasonReady: nothing to do.
	ReasonReady = "Ready"
	// ReasonListed: nothing to do; the tools were listed.
	ReasonListed = "Listed"
	// ReasonUnreachable: check that the server runs, and its address; the message has the cause.
	ReasonUnreachable = "Unreachable"
	// ReasonUnauthorized: the server refused the credentials; check the Secret of the header.
	ReasonUnauthorized = "Unauthorized"
	// ReasonAddressForbidden: the address may not be dialled; list it with --allow-address if it should be.
	ReasonAddressForbidden = "AddressForbidden"
	// ReasonSecretNotReadable: create the Secret or its key, or label it for this server.
	ReasonSecretNotReadable = "SecretNotReadable"
	// ReasonProtocolError: the server does not speak MCP as it should; the message has the place.
	ReasonProtocolError = "ProtocolError"
	// ReasonNotListedYet: wait for the first listing.
	ReasonNotListedYet = "NotListedYet"
	// ReasonStale: the tools are those of an earlier listing; mend what Reachable says.
	ReasonStale = "Stale"
	// ReasonClassified: nothing to do; every tool has a tier.
	ReasonClassified = "Classified"
	// ReasonTruncated: the server lists more than is kept; what is left out is refused. Split the server.
	ReasonTruncated = "Truncated"
	// ReasonAccepted: nothing to do; the policy can be used as written.
	ReasonAccepted = "Accepted"
	// ReasonPolicyRejected: mend the policies that the message names.
	ReasonPolicyRejected = "PolicyRejected"
	// ReasonInvalid: mend the policy as the message says.
	ReasonInvalid = "Invalid"
	// ReasonInForce: nothing to do; the whole policy is in force.
	ReasonInForce = "InForce"
	// ReasonPartlyInForce: read status.notInForce.
	ReasonPartlyInForce = "PartlyInForce"
	// ReasonGranted: nothing to do; the gateway's ServiceAccount has its rights.
	ReasonGranted = "Granted"
	// ReasonNotGrantedYet: wait for the manager to give the gateway's ServiceAccount its rights.
	ReasonNotGrantedYet = "NotGrantedYet"
	// ReasonRoleConflict: delete or rename the Role or RoleBinding that the message names, or give the rights by hand.
	ReasonRoleConflict = "RoleConflict"
	// ReasonPinned: nothing to do; every definition is the accepted one.
	ReasonPinned = "Pinned"
	// ReasonDrifted: review what the Events say has changed, then accept it with kubectl tidewaiter pin.
	ReasonDrifted = "Drifted"
	// ReasonEnforced: nothing to do; every live gateway runs the current policy.
	ReasonEnforced = "Enforced"
	// ReasonCatchingUp: some live gateways do not run the current policy yet; look at them if it lasts.
	ReasonCatchingUp = "CatchingUp"
	// ReasonNoGateway: no gateway of the server is alive; start one.
	ReasonNoGateway = "NoGateway"
	// ReasonNetworkPolicyConflict: delete or rename the NetworkPolicy that the message names; until then none admits only
	// the gateway to the governed pods.
	ReasonNetworkPolicyConflict = "NetworkPolicyConflict"
	// ReasonDirectPathClosed: nothing to do; the server does not answer at the address of its pod.
	ReasonDirectPathClosed = "DirectPathClosed"
	// ReasonDirectPathOpen: have the server listen on 127.0.0.1 only; it answers at the address of its pod.
	ReasonDirectPathOpen = "DirectPathOpen"
	// ReasonDirectPathUnknown: the server is not in a pod of its gateways, which cannot see whether it answers others; have
	// it refuse whoever lacks the credentials that its endpoint names.
	ReasonDirectPathUnknown = "DirectPathUnknown"
	// ReasonAvailable: nothing to do; at least one standalone gateway is ready.
	ReasonAvailable = "Available"
	// ReasonUnavailable: no standalone gateway is ready; the message has the Deployment's own words, or look at its pods.
	ReasonUnavailable = "Unavailable"
	// ReasonNotDeployedYet: wait for the operator to make the standalone gateway.
	ReasonNotDeployedYet = "NotDeployedYet"
	// ReasonObjectConflict: delete or rename the objects that the message names, which are not the operator's; until then
	// there is no standalone gateway.
	ReasonObjectConflict = "ObjectConflict"
	// ReasonWrongNamespace: move the baseline to the operator's namespace, or give it targets.
	ReasonWrongNamespace = "WrongNamespace"
	// ReasonCounted: nothing to do; the request is counted.
	ReasonCounted = "Counted"
	// ReasonFirstContact: the tools that were listed first are trusted as they are; look them over.
	ReasonFirstContact = "FirstContact"
	// ReasonToolsChanged: tools came, went or changed their definition; look at status.tools.
	ReasonToolsChanged = "ToolsChanged"
	// ReasonInstructionsChanged: the server gives models other instructions; read them, then accept them by a pin.
	ReasonInstructionsChanged = "InstructionsChanged"
	// ReasonDefinitionsNotKept: delete or rename the ConfigMap that the message names; until then nothing can show what
	// has changed in a tool.
	ReasonDefinitionsNotKept = "DefinitionsNotKept"
	// ReasonEligible: a tool has a clean record; promote it in a ToolPolicy if it should run unattended.
	ReasonEligible = "Eligible"
	// ReasonUnattended: a promotion came into force.
	ReasonUnattended = "Unattended"
	// ReasonRevoked: a tool that ran unattended needs approval again.
	ReasonRevoked = "Revoked"
)

// Reasons of status.notInForce of a ToolPolicy.
const (
	// NotInForceServerMissing: there is no such GovernedServer.
	NotInForceServerMissing = "ServerNotFound"
	// NotInForceToolUnknown: the server lists no such tool.
	NotInForceToolUnknown = "ToolUnknown"
	// NotInForceNeedsDigest: a lower tier needs the form with tool and digest.
	NotInForceNeedsDigest = "NeedsDigest"
	// NotInForceDigestDiffers: the tool's definition is another one now.
	NotInForceDigestDiffers = "DigestDiffers"
	// NotInForceIrreversible: an Irreversible tool never runs unattended.
	NotInForceIrreversible = "Irreversible"
	// NotInForceRead: a Read tool needs no promotion.
	NotInForceRead = "Read"
	// NotInForceRecord: the record is not clean, or not long enough.
	NotInForceRecord = "RecordNotClean"
	// NotInForceAttended: another entry keeps the tool attended.
	NotInForceAttended = "Attended"
	// NotInForceStricter: a stricter override or the server's minimumTier holds.
	NotInForceStricter = "StricterHolds"
	// NotInForceInvalid: the entry cannot be used as it is written.
	NotInForceInvalid = "Invalid"
	// NotInForceTypeMismatch: the expression does not fit the schema of a tool that the entry names.
	NotInForceTypeMismatch = "TypeMismatch"
	// NotInForceUnreachable: an earlier rule of the policy matches every call that this one does.
	NotInForceUnreachable = "Unreachable"
	// NotInForceNotRead: the tool that a preview calls is not Read.
	NotInForceNotRead = "NotRead"
)
