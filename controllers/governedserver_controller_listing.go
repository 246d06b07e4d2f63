// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/classify"
	"github.com/tidewaiter/tidewaiter/internal/control"
	"github.com/tidewaiter/tidewaiter/internal/definitions"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// orderFor says how to list a server as its spec is now.
func (r *GovernedServerReconciler) orderFor(server *v1alpha1.GovernedServer, version string) order {
	spec := &v1alpha1.GovernedServer{Spec: *server.Spec.DeepCopy()}
	spec.Namespace, spec.Name = server.Namespace, server.Name
	return order{
		version:  version,
		interval: spec.Spec.Discovery.Interval.Duration,
		timeout:  spec.Spec.Discovery.Timeout.Duration,
		list:     func(ctx context.Context) (listing, *fault) { return r.list(ctx, spec) },
		watch:    func(ctx context.Context, changed func()) error { return r.watch(ctx, spec, changed) },
	}
}

// list resolves the endpoint, with Secrets as they are now, lists the tools and classifies them. Definitions are kept
// compressed and bounded, to be put away and compared: they can be large, and there are many servers.
func (r *GovernedServerReconciler) list(ctx context.Context, server *v1alpha1.GovernedServer) (listing, *fault) {
	result, err := r.discover(ctx, server)
	if err != nil {
		return listing{}, faultOf(err)
	}
	verdicts := classify.Server(result.Tools, classify.Options{TrustReadOnlyHint: server.Spec.Classification.TrustReadOnlyHint})
	said := result.Server
	got := listing{
		server:    v1alpha1.ServerInfo{Name: said.Name, Version: said.Version, ProtocolVersion: said.ProtocolVersion, InstructionsDigest: said.InstructionsDigest},
		announces: result.Announces, gaps: result.Gaps, definitions: shelve(result),
	}
	for i, d := range result.Tools {
		v := verdicts[i]
		got.tools = append(got.tools, v1alpha1.ToolStatus{
			Name: d.Name, ClassifiedTier: v.Tier, Tier: v.Tier, Source: v.Source, Reason: v.Reason, Digest: d.Digest(),
			Annotations: hintsOf(d.Annotations),
		})
	}
	return got, nil
}

// shelve compresses what a server says, its instructions first, as far as there is room.
func shelve(result discovery.Result) definitions.Kept {
	var s definitions.Shelf
	if text := result.Server.Instructions; text != "" && tool.DigestOf(text) == result.Server.InstructionsDigest {
		s.Add([]byte(text))
	}
	for _, d := range result.Tools {
		s.Add(d.Canonical())
	}
	return s.Kept
}

// hintsOf returns a server's hints about a tool, nil where it gives none.
func hintsOf(a tool.Annotations) *v1alpha1.ToolAnnotations {
	hints := v1alpha1.ToolAnnotations{
		ReadOnlyHint: a.ReadOnlyHint, DestructiveHint: a.DestructiveHint, IdempotentHint: a.IdempotentHint, OpenWorldHint: a.OpenWorldHint,
	}
	if hints == (v1alpha1.ToolAnnotations{}) {
		return nil
	}
	return &hints
}

// watch follows a server's announcements, with Secrets as they are when it begins.
func (r *GovernedServerReconciler) watch(ctx context.Context, server *v1alpha1.GovernedServer, changed func()) error {
	if r.throughGateway(server) {
		target, done, err := r.gatewayTarget(ctx, server, control.ChangesPath(client.ObjectKeyFromObject(server)))
		if err != nil {
			return err
		}
		defer done()
		return r.Through.Watch(ctx, target, changed)
	}
	target, done, err := r.target(ctx, server)
	if err != nil {
		return err
	}
	defer done()
	return r.Watch(ctx, target, changed)
}

// target returns where and how to connect; done ends what it opened.
func (r *GovernedServerReconciler) target(ctx context.Context, server *v1alpha1.GovernedServer) (target discovery.Target, done func(), err error) {
	upstream, err := endpoint.Resolve(ctx, r.Live, server, r.Allow)
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("endpoint cannot be resolved", "server", server.Namespace+"/"+server.Name, "error", cause.Error())
		}
		return discovery.Target{}, nil, err
	}
	transport := upstream.Transport()
	return discovery.Target{URL: upstream.URL, SSE: upstream.SSE, Headers: upstream.Headers, Transport: transport}, transport.CloseIdleConnections, nil
}

// faultOf puts an error into a reason and a stable sentence.
func faultOf(err error) *fault {
	if e, ok := errors.AsType[*discovery.Error](err); ok {
		return &fault{reason: reasonOf(e.Kind), message: sentence(e.Cause)}
	}
	if e, ok := errors.AsType[*endpoint.SecretError](err); ok {
		return &fault{reason: v1alpha1.ReasonSecretNotReadable, message: sentence(e.Message)}
	}
	if e, ok := errors.AsType[*endpoint.ServiceError](err); ok && errors.Is(err, netguard.ErrForbidden) {
		return &fault{reason: v1alpha1.ReasonAddressForbidden, message: sentence(e.Message)}
	} else if ok {
		return &fault{reason: v1alpha1.ReasonUnreachable, message: sentence(e.Message)}
	}
	return &fault{reason: v1alpha1.ReasonUnreachable, message: fmt.Sprintf("The server cannot be listed: %T", err)}
}

func reasonOf(kind discovery.Kind) string {
	switch kind {
	case discovery.Unauthorized:
		return v1alpha1.ReasonUnauthorized
	case discovery.AddressForbidden:
		return v1alpha1.ReasonAddressForbidden
	case discovery.ProtocolError:
		return v1alpha1.ReasonProtocolError
	case discovery.Unreachable:
		return v1alpha1.ReasonUnreachable
	default:
		return v1alpha1.ReasonUnreachable
	}
}
