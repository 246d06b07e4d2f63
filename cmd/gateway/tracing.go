// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/internal/tracing"
)

// flushWithin bounds how long the last spans may take at the end.
const flushWithin = 5 * time.Second

// tracer returns what makes spans, nil without the flag, and what sends the last of them. A span that cannot be sent is
// lost and changes nothing else: the log says so.
func (o *options) tracer(ctx context.Context) (tracer *tracing.Tracer, flush func(), err error) {
	if !o.tracing {
		return nil, func() {}, nil
	}
	lost := func(err error) { log.FromContext(ctx).Error(err, "spans not sent") }
	otel.SetErrorHandler(otel.ErrorHandlerFunc(lost))
	tracer, stop, err := tracing.Export(ctx, o.name, os.Getenv)
	if err != nil {
		return nil, nil, fmt.Errorf("--tracing: %w", err)
	}
	return tracer, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
		defer cancel()
		if err := stop(ctx); err != nil {
			lost(err)
		}
	}, nil
}
