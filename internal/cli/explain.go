// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	*session
	*output

	arguments string
	as        string
	groups    []string
}

func newExplainCommand(s *session) *cobra.Command {
	o := &explainOptions{session: s}
	cmd := &cobra.Command{
		Use:   "explain SERVER TOOL",
		Short: "Tell what would become of a call, and how that is come to",
		Long: `Tell the verdict on a call of a tool, what it rests on, what people would have to do, and step
by step how it is come to: in the words of the receipt that a refused call leaves. Nothing is
called, asked or written.

--as and --as-group name whose call it is. They act as nobody: what is read is read as
yourself. NAMESPACE/NAME is short for a ServiceAccount. Without --as-group these are the groups
that the API server gives to everybody of that kind. Default: your own call.
Without --args the arguments are not known: where a rule looks at them, the verdict is what
all of them could come to.

It is judged by what the manager has written down. A gateway may know more: a denial of this
second, or a definition that it has seen first.

Exit codes: 0 told, whatever the verdict, 2 could not ask, or not understood.`,
		Example: `  kubectl tidewaiter explain billing refund_invoice --args '{"invoice":"inv_17","amount":900}'
  kubectl tidewaiter explain billing refund_invoice --as agents/bookkeeper --args @call.json`,
		Args:              usage(serverAndTool),
		ValidArgsFunction: s.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			return unasked(o.run(cmd.Context(), args[0], args[1], cmd.Flag("args").Changed))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.arguments, "args", "", "the arguments, a JSON object; @FILE is that file, - is standard input")
	// Flags of the verb hide those of the same name that would act as somebody else.
	flags.StringVar(&o.as, "as", "", "the username whose call it is, or NAMESPACE/NAME of a ServiceAccount; default yourself")
	flags.StringArrayVar(&o.groups, "as-group", nil, "a group of theirs; may be given several times")
	o.output = addOutputFlags(cmd, "text")
	return cmd
}

// explanation is what explain prints as data.
type explanation struct {
	Server    string            `json:"server"`
	Tool      string            `json:"tool"`
	Principal explainedCaller   `json:"principal"`
	Arguments bool              `json:"argumentsKnown"`
	Verdict   explainedVerdict  `json:"verdict"`
	Observed  *explainedVerdict `json:"observed,omitempty"`
	// Strictest and Loosest are what the verdict can be where it depends on arguments that are not known.
	Strictest string        `json:"strictest,omitempty"`
	Loosest   string        `json:"loosest,omitempty"`
	Revision  string        `json:"policyRevision"`
	Steps     []policy.Step `json:"steps"`
}

// explainedCaller is whose call it is.
type explainedCaller struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups,omitempty"`
}

// explainedVerdict is a verdict as data; its words are those of receipts.
type explainedVerdict struct {
	Verdict           string        `json:"verdict"`
	Code              policy.Reason `json:"code"`
	Tier              v1alpha1.Tier `json:"tier,omitempty"`
	Why               string        `json:"reason,omitempty"`
	GatedBy           string        `json:"gatedBy,omitempty"`
	RequiredApprovals int32         `json:"requiredApprovals,omitempty"`
	ApproveVerbs      []string      `json:"approveVerbs,omitempty"`
	Message           string        `json:"message,omitempty"`
	Controls          []string      `json:"controls,omitempty"`
	Uncertain         string        `json:"uncertain,omitempty"`
}

func verdictOf(d policy.Decision) explainedVerdict {
	return explainedVerdict{
		Verdict: d.Effect.String(), Code: d.Reason, Tier: d.Tier, Why: d.Why, GatedBy: d.GatedBy, RequiredApprovals: d.RequiredApprovals,
		ApproveVerbs: d.Verbs, Message: d.Message, Controls: d.Controls, Uncertain: d.Uncertain,
	}
}

func (o *explainOptions) run(ctx context.Context, serverName, tool string, hasArguments bool) error {
	if err := o.complete(); err != nil {
		return err
	}
	arguments, err := o.readArguments(hasArguments)
	if err != nil {
		return err
	}
	if o.as == "" && len(o.groups) > 0 {
		return usageError{errors.New("--as-group goes with --as")}
	}
	if err := o.connect(); err != nil {
		return err
	}
	principal, err := o.principal(ctx)
	if err != nil {
		return err
	}
	server, err := o.server(ctx, serverName)
	if err != nil {
		return err
	}
	if err := warnOfStale(o.ErrOut, server); err != nil {
		return err
	}
	policies, err := o.policies(ctx)
	if err != nil {
		return err
	}
	compiled, err := policies.compile(server, policy.Facts{})
	if err != nil {
		return err
	}
	e := explain(compiled, policy.Call{Tool: tool, Arguments: arguments, Principal: principal, Freshness: policy.Fresh}, server.Name)
	if !o.forPeople() {
		return printView(o.output, o.Out, "Explanation", &e)
	}
	p := newPage(o.colours())
	e.write(p)
	return p.print(o.Out)
}

// explain asks for the verdict, and for its derivation.
func explain(compiled *policy.Server, call policy.Call, server string) explanation {
	d := compiled.Decide(call)
	e := explanation{
		Server: server, Tool: call.Tool, Arguments: call.Arguments != nil, Revision: d.Revision,
		Principal: explainedCaller{Username: call.Principal.Username, Groups: call.Principal.Groups},
		Verdict:   verdictOf(d), Steps: compiled.Explain(call),
	}
	if d.Observed != nil {
		observed := verdictOf(*d.Observed)
		e.Observed = &observed
	}
	if strictest, loosest := compiled.Range(call.Tool, call.Principal); !e.Arguments && d.Uncertain != "" && strictest != loosest {
		e.Strictest, e.Loosest = strictest.String(), loosest.String()
	}
	return e
}

// readArguments reads --args; what is not given is not known.
func (o *explainOptions) readArguments(given bool) (*expr.Arguments, error) {
	if !given {
		return expr.UnknownArguments(), nil
	}
	text := []byte(o.arguments)
	path, isFile := strings.CutPrefix(o.arguments, "@")
	if isFile || o.arguments == "-" {
		if !isFile {
			path = "-"
		}
		var err error
		if text, err = readFile(o.In, path); err != nil {
			return nil, err
		}
	}
	return parseArguments(text)
}

// parseArguments takes what a gateway would take: an object on which no two parsers can differ.
func parseArguments(text []byte) (*expr.Arguments, error) {
	v, err := strictjson.Scan(text)
	if err != nil {
		return nil, usageError{fmt.Errorf("--args cannot be read: %w", err)}
	}
	if v.Kind() != strictjson.Object {
		return nil, usageError{errors.New("--args is no JSON object")}
	}
	return expr.NewArguments(v.Raw()), nil
}

// printView prints one view as data.
func printView(o *output, out io.Writer, kind string, view any) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(view)
	if err != nil {
		return err
	}
	object["apiVersion"], object["kind"] = viewVersion, kind
	return o.printer.PrintObj(&unstructured.Unstructured{Object: object}, out)
}

// write shows the explanation to a person.
func (e explanation) write(p *page) {
	p.line("Call:", "%s on %s, by %s", e.Tool, e.Server, e.Principal.Username)
	if len(e.Principal.Groups) > 0 {
		p.line("Groups:", "%s", strings.Join(e.Principal.Groups, ", "))
	}
	if !e.Arguments {
		p.line("Arguments:", "not given, so not known")
	}
	v := e.Verdict
	switch {
	case e.Strictest != "":
		p.line("Verdict:", "cannot tell without the arguments: from %s to %s; what follows is the strictest", e.Loosest, e.Strictest)
	default:
		p.line("Verdict:", "%s (%s)", v.Verdict, v.Code)
	}
	if e.Observed != nil {
		p.line("Observe:", "the server only observes; without that the verdict would be %s (%s), by %s", e.Observed.Verdict, e.Observed.Code, e.Observed.GatedBy)
	}
	if v.Tier != "" {
		p.line("Tier:", "%s: %s", v.Tier, v.Why)
	}
	if v.GatedBy != "" {
		p.line("Decided by:", "%s", v.GatedBy)
	}
	if v.Message != "" {
		p.line("Message:", "%s", v.Message)
	}
	if len(v.Controls) > 0 {
		p.line("Controls:", "%s", strings.Join(v.Controls, ", "))
	}
	if v.Uncertain != "" {
		p.line("Uncertain:", "%s", v.Uncertain)
	}
	p.line("To do:", "%s", e.toDo())
	p.line("Policy:", "%s", e.Revision)
	p.line("Steps:", "%d, in the order in which they are made", len(e.Steps))
	for i, step := range e.Steps {
		p.indented([]string{fmt.Sprintf("%2d. %s: %s", i+1, step.Source, step.Says)})
	}
}

// toDo says what people have to do before the call can run.
func (e explanation) toDo() string {
	v := e.Verdict
	switch {
	case v.Verdict == policy.Allow.String():
		return "nothing: the call runs without a person"
	case v.Verdict == policy.RequireApproval.String():
		return fmt.Sprintf("%s with %s on governedservers/%s: kubectl approve NAME, once it is asked",
			counted(int(v.RequiredApprovals), "approval"), and(v.ApproveVerbs), e.Server)
	case v.Code == policy.ReasonToolUnknown:
		return fmt.Sprintf("look which tools the server lists: kubectl tidewaiter tools %s", e.Server)
	case v.Code == policy.ReasonDefinitionNotAccepted || v.Code == policy.ReasonInstructionsNotAccepted:
		return fmt.Sprintf("review what has changed and accept it: kubectl tidewaiter pin %s --check", e.Server)
	case v.GatedBy != "" && strings.HasPrefix(v.GatedBy, "ToolPolicy/"):
		return "nobody can approve it; who may govern there can change " + glyph.Plain(v.GatedBy)
	default:
		return fmt.Sprintf("nobody can approve it; who may govern %s can change what refuses it", e.Server)
	}
}
