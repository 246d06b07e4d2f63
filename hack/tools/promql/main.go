// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command promql reads expressions of PromQL, a JSON list of strings, and writes what each selects: a JSON list, in the same
// order, of lists of metric names with the labels that are asked of them. It ends with an error at one that does not parse.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// selector is a metric with the labels that an expression matches on it.
type selector struct {
	Metric string   `json:"metric"`
	Labels []string `json:"labels"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var expressions []string
	if err := json.NewDecoder(in).Decode(&expressions); err != nil {
		return fmt.Errorf("read the expressions: %w", err)
	}
	found := make([][]selector, 0, len(expressions))
	for _, expression := range expressions {
		parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
		if err != nil {
			return fmt.Errorf("%s: %w", expression, err)
		}
		var selectors []selector
		parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
			vector, ok := node.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			s := selector{Metric: vector.Name}
			for _, matcher := range vector.LabelMatchers {
				if matcher.Name != model.MetricNameLabel {
					s.Labels = append(s.Labels, matcher.Name)
				}
			}
			selectors = append(selectors, s)
			return nil
		})
		found = append(found, selectors)
	}
	return json.NewEncoder(out).Encode(found)
}
