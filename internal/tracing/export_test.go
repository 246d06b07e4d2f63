// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel"
)

// hung is where a collector takes spans, and never answers before the test is over.
func hung(t *testing.T) string {
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(func() { close(over); server.Close() })
	return server.URL
}

// closed is where nobody listens.
func closed(t *testing.T) string {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return "http://" + listener.Addr().String()
}

func TestACollectorThatTakesNoSpansKeepsNobodyWaiting(t *testing.T) { //nolint:paralleltest // memory is measured
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {})) // what is lost is lost
	for name, at := range map[string]func(*testing.T) string{"one that hangs": hung, "none": closed} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", at(t))
			tracer, stop, err := Export(t.Context(), "gw", func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			many := func() { // several times what the queue takes, and none of it waits
				for range 1500 {
					pass(t, tracer, message, answer)
				}
			}
			many()
			before := live()
			many()
			many()
			if grown := live() - before; grown > 4<<20 {
				t.Errorf("spans that nobody takes fill the memory: %d bytes more", grown)
			}
			soon, cancel := context.WithCancel(t.Context())
			cancel()
			if err := stop(soon); err == nil {
				t.Error("spans that nobody took were sent")
			}
		})
	}
}
