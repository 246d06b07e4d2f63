// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// Preview is a call of a Read tool that shows what another call would affect.
type Preview struct {
	// Tool that is called, and its Arguments, a JSON object.
	Tool      string
	Arguments []byte
	// Recheck: the answer must be the same just before the previewed call is sent.
	Recheck bool
	// By names the policy and its entry.
	By string
}

// Preview returns the preview that a policy asks for before a person decides on the call, and whether there is one. With
// an error there is one, and it cannot be made; the error says why, for the person who decides.
func (s *Server) Preview(call Call) (Preview, bool, error) {
	c, known := s.tools[call.Tool]
	if !known {
		return Preview{}, false, nil
	}
	for _, p := range s.policies {
		for _, i := range p.previewTools.find(call.Tool) {
			entry := &p.preview[i]
			made := Preview{Tool: entry.call.Tool, Recheck: entry.again, By: entry.at}
			var err error
			made.Arguments, err = s.previewArguments(entry, call, c)
			return made, true, err
		}
	}
	return Preview{}, false, nil
}

// previewArguments computes the arguments of a preview that may be called.
func (s *Server) previewArguments(entry *preview, call Call, c *compiled) ([]byte, error) {
	if entry.broken != "" {
		return nil, errors.New("args does not compile: " + entry.broken)
	}
	if asked, known := s.tools[entry.call.Tool]; !known {
		return nil, fmt.Errorf("the server lists no tool %s", entry.call.Tool)
	} else if asked.standing.tier != v1alpha1.TierRead {
		return nil, fmt.Errorf("%s is %s, and only a Read tool is called for a preview", entry.call.Tool, asked.standing.tier)
	}
	arguments := []byte("{}")
	if entry.args != nil {
		e := evaluation{server: s, call: call, c: c}
		in := e.input(c.standing.tier)
		var err error
		if arguments, err = entry.args.Map(in); err != nil {
			return nil, fmt.Errorf("args cannot be evaluated: %w", err)
		}
	}
	asked := s.Decide(Call{Tool: entry.call.Tool, Arguments: expr.NewArguments(arguments), Principal: call.Principal, Freshness: call.Freshness})
	if asked.Observed != nil {
		asked = *asked.Observed
	}
	if asked.Effect != Allow {
		return nil, fmt.Errorf("the policy does not let the caller call %s: %s", entry.call.Tool, asked.Reason)
	}
	return arguments, nil
}
