// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// speaker begins every text of the gateway, so that nobody takes it for one of the server.
const speaker = "Tidewaiter gateway: "

// undefined words that the server does not say what the tool is.
func undefined() notice {
	return notice{code: codeUndefined, retryAfter: 10,
		text: "the server cannot say right now what this tool is, so nobody can be asked about it. Nothing was executed. Send the call again later."}
}

// absent words that there is no such tool, for the caller.
func absent() notice {
	return notice{code: string(policy.ReasonToolUnknown), text: "this tool cannot be called here: it is not among the tools that were discovered, classified and accepted, and that you may call. List the tools again; a new one may be there in some minutes."}
}

const (
	noneNow  = " Nothing was executed."
	askThem  = noneNow + " Do not send it again as it is; ask the people you work for how to go on."
	tryLater = noneNow + " Ask the people you work for how to go on, or send the call again later."
)

// denial words a verdict of Deny: what was decided, why, and what to do next.
func denial(d policy.Decision) notice {
	n := notice{code: string(d.Reason)}
	switch d.Reason {
	case policy.ReasonPolicyStale:
		n.retryAfter = 30
		n.text = "the gateway has lost touch with the Kubernetes API and may not act on what it knew. Send the call again later."
	case policy.ReasonServerStopped:
		n.text = "the server is stopped" + by(d) + ": none of its tools can be called now." + says(d) + tryLater
	case policy.ReasonServerReadOnly:
		n.text = "the server is read-only now" + by(d) + ": only tools that read can be called." + says(d) + tryLater
	case policy.ReasonCallerNotAllowed:
		n.text = "you are not among those who may call tools of this server" + by(d) + "." + says(d) + askThem
	case policy.ReasonRuleDenied:
		n.text = "the policy denies this call" + by(d) + "." + says(d) + askThem
	case policy.ReasonRuleUncertain:
		n.text = "a part of the policy cannot be evaluated for this call, and the strictest that it can mean denies it" + by(d) + "." + says(d) + noneNow +
			" Send it with all arguments of the tool's schema, each of the type that it names; if that does not help, ask the people you work for."
	case policy.ReasonTooManyVerbs:
		n.text = "the policy asks for more kinds of approval than one request can hold" + by(d) + ", so the call is denied." + says(d) + askThem
	case policy.ReasonDefinitionNotAccepted:
		n.text = "what the server says of this tool is not what people have accepted" + by(d) + ", so its calls are denied until they accept it." + tryLater
	case policy.ReasonInstructionsNotAccepted:
		n.text = "the instructions that the server gives to models are not those that people have accepted" + by(d) + ", so all calls are denied until they accept them." + tryLater
	default: // what is not known is not there
		n.text = absent().text
	}
	if d.Uncertain != "" {
		n.text += " Not evaluated: " + quoted(d.Uncertain) + "."
	}
	return n
}

// by names what decided.
func by(d policy.Decision) string {
	if d.GatedBy == "" {
		return ""
	}
	return " (" + glyph.Escaped(d.GatedBy) + ")"
}

// says quotes what the rule that decided has to say.
func says(d policy.Decision) string {
	if d.Message == "" {
		return ""
	}
	return " It says: " + quoted(d.Message) + "."
}

// because quotes the reason that a person gave.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " and said: " + quoted(reason)
}

// quoted returns the words of somebody else in quotes that they cannot end.
func quoted(text string) string {
	return `"` + strings.ReplaceAll(glyph.Escaped(text), `"`, `\u0022`) + `"`
}

// tell adds what was said to the agent of a rule that asks for a person.
func tell(d policy.Decision) string {
	text := says(d)
	if d.Uncertain != "" {
		text += fmt.Sprintf(" A part of the policy could not be evaluated for this call: %s.", quoted(d.Uncertain))
	}
	return text
}
