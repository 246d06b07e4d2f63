// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/definitions"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// sayChanges says of every definition that drifted what is other in it, where the manager keeps both. Those who may not
// read that are told, and get the digests.
func (o *pinOptions) sayChanges(ctx context.Context, server *v1alpha1.GovernedServer, views []pinView) error {
	if !slices.ContainsFunc(views, func(v pinView) bool { return v.State == stateDrifted }) {
		return nil
	}
	kept, err := definitions.Read(ctx, o.client, server)
	if apierrors.IsForbidden(err) {
		_, err := fmt.Fprintf(o.ErrOut, "Warning: what has changed cannot be shown: %s\n", refusal(err))
		return err
	}
	if err != nil {
		return err
	}
	for i := range views {
		if views[i].State == stateDrifted {
			views[i].Changes = changes(kept, views[i])
		}
	}
	return nil
}

// changes returns a line for each change since the first accepted definition that is kept.
func changes(kept definitions.Kept, v pinView) []string {
	for _, accepted := range v.Accepted {
		var found []tool.Change
		if v.Tool == "" {
			old, known := kept.Instructions(accepted)
			now, knownNow := kept.Instructions(v.Current)
			if !known || !knownNow && v.Current != "" {
				continue
			}
			found = tool.DiffText("instructions", old, now)
		} else {
			old, known := kept.Tool(accepted)
			now, knownNow := kept.Tool(v.Current)
			if !known || !knownNow {
				continue
			}
			found = tool.Diff(old, now)
		}
		var lines []string
		for _, change := range found {
			lines = append(lines, change.String())
		}
		return lines
	}
	return nil
}
