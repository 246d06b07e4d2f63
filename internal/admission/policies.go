// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/survey"
)

const (
	// maxPolicy bounds a policy that is read, in bytes: more than an API server stores.
	maxPolicy = 2 << 20
	// maxWarnings and maxWarning bound what is said of one: more, or longer ones, an API server cuts where it likes.
	maxWarnings, maxWarning = 10, 255
	// surveyTime is how long the cluster is looked at. The API server waits 3 seconds.
	surveyTime = 2 * time.Second
)

// Policies warns whoever writes a ToolPolicy of what cannot be meant as it is written. It refuses nothing, and nothing
// depends on it.
type Policies struct {
	// Survey finds what a policy meets in the cluster.
	Survey func(context.Context, *policy.Policy) (*survey.Survey, error)
}

// hint answers the write of a policy.
func (p *Policies) hint(ctx context.Context, req admission.Request) admission.Response {
	answer := admission.Allowed("")
	if len(req.Object.Raw) == 0 || len(req.Object.Raw) > maxPolicy {
		return answer
	}
	written := &v1alpha1.ToolPolicy{}
	if err := utiljson.Unmarshal(req.Object.Raw, written); err != nil {
		return answer
	}
	written.Namespace = req.Namespace
	written.UID = "" // what is only tried stands for no version that is stored
	parsed := policy.Parse(written)
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	found, err := p.Survey(ctx, parsed)
	if err != nil {
		log.FromContext(ctx).Error(err, "policy not compared with the cluster")
		found = &survey.Survey{Findings: parsed.Check(nil)}
	}
	return answer.WithWarnings(warnings(parsed.Problems(), found)...)
}

// warnings says what cannot be meant: the mistakes first, then what only has no effect.
func warnings(problems []policy.Problem, found *survey.Survey) []string {
	var all []string
	if found.Misplaced {
		all = append(all, "spec.namespaceSelector counts in the operator's namespace only: here the policy has no effect")
	}
	for _, problem := range problems {
		all = append(all, problem.String())
	}
	for _, severity := range []policy.Severity{policy.SeverityError, policy.SeverityWarning} {
		for _, f := range found.Findings {
			if f.Severity == severity {
				all = append(all, f.String())
			}
		}
	}
	if more := len(all) - maxWarnings; more > 0 {
		all = append(all[:maxWarnings-1], fmt.Sprintf("and %d more; kubectl tidewaiter lint shows all", more+1))
	}
	for i := range all {
		all[i] = glyph.Clip(all[i], maxWarning)
	}
	return all
}
