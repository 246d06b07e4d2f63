// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"cmp"
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Export returns a tracer whose spans go by OTLP to where the OTEL_EXPORTER_OTLP_* variables of the environment say. It
// samples as OTEL_TRACES_SAMPLER says, by default what the agent samples and what begins here. Spans wait in a bounded
// queue; what does not fit is dropped, so that no message waits for them. stop sends those that are left.
func Export(ctx context.Context, instance string, getenv func(string) string) (t *Tracer, stop func(context.Context) error, err error) {
	exporter, err := exporterFor(ctx, cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"))
	if err != nil {
		return nil, nil, err
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "tidewaiter-gateway"), attribute.String("service.instance.id", instance)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return New(provider), provider.Shutdown, nil
}

func exporterFor(ctx context.Context, protocol string) (*otlptrace.Exporter, error) {
	switch protocol {
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, or else OTEL_EXPORTER_OTLP_PROTOCOL, is %q; http/protobuf and grpc are known", protocol)
	}
}
