// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// ofGateway is the name of all that a standalone gateway is made of.
const ofGateway = "tidewaiter-billing"

// alone shows the gateway in pods of its own, before a server that takes a credential.
func alone(e *e2e) []step {
	t := e.team("alone")
	const note = `{"invoiceId":"2026-9","note":"alone"}`
	return []step{
		{"a team has a server that takes a credential, and the operator runs two gateways for it", func(ctx context.Context) (string, error) {
			if out, err := t.applyFile(ctx, "alone.yaml"); err != nil {
				return out, err
			}
			if out, err := t.ready(ctx); err != nil {
				return out, err
			}
			return t.gateways(ctx, 2)
		}},
		{"status says where agents call, and that nobody can see whether there is a way around", func(ctx context.Context) (string, error) {
			server, err := t.server(ctx)
			if err != nil {
				return "", err
			}
			if want := "http://" + ofGateway + "." + t.Namespace + ".svc/" + t.Namespace + "/billing/mcp"; server.Status.AgentURL != want {
				return server.Status.AgentURL, fmt.Errorf("want %s", want)
			}
			return t.bypass(ctx, metav1.ConditionUnknown)
		}},
		{"the server refuses the agent, which has no credential", func(ctx context.Context) (string, error) {
			out, err := t.get(ctx, "billing-mcp."+t.Namespace+".svc", 80)
			if err == nil && !strings.Contains(out, "401") {
				err = errors.New("it answers otherwise")
			}
			return out, err
		}},
		{"control: through the gateway a read runs at once", func(ctx context.Context) (string, error) {
			got, err := t.expects(ctx, "get_invoice", `{"invoiceId":"2026-9"}`, "")
			return got.Text, err
		}},
		{"the agent's ServiceAccount does not read the credential", func(ctx context.Context) (string, error) {
			out, err := t.readsCredential(ctx, "agent")
			return refusal(out, err, "forbidden")
		}},
		{"control: that of the gateways does", func(ctx context.Context) (string, error) { return t.readsCredential(ctx, ofGateway) }},
		{"the agent reaches no other port of a gateway", func(ctx context.Context) (string, error) {
			ip, err := t.gatewayAddress(ctx)
			if err != nil {
				return "", err
			}
			control, err := t.closed(ctx, ip, 9442)
			if err != nil {
				return control, err
			}
			metrics, err := t.closed(ctx, ip, 9441)
			return control + metrics, err
		}},
		{"control: that for agents it does", func(ctx context.Context) (string, error) {
			ip, err := t.gatewayAddress(ctx)
			if err != nil {
				return "", err
			}
			return t.answers(ctx, ip, 9440)
		}},
		{"a call with effects waits, and alice approves it", func(ctx context.Context) (string, error) {
			got, err := t.expects(ctx, "update_invoice", note, "ApprovalPending")
			if err != nil {
				return got.Text, err
			}
			if out, err := t.letApprove(ctx); err != nil {
				return out, err
			}
			return t.approve(ctx, "alone")
		}},
		{"both gateways are exchanged meanwhile", func(ctx context.Context) (string, error) {
			if out, err := e.kubectl(ctx, "rollout", "restart", "deployment/"+ofGateway, "--namespace="+t.Namespace); err != nil {
				return out, err
			}
			return e.kubectl(ctx, "rollout", "status", "deployment/"+ofGateway, "--namespace="+t.Namespace, "--timeout=120s")
		}},
		{"the agent sends the same call again, and it runs once", func(ctx context.Context) (string, error) {
			got, err := t.expects(ctx, "update_invoice", note, "")
			if err != nil {
				return got.Text, err
			}
			return t.executed(ctx, "update_invoice", "note", "alone", 1)
		}},
		{"a gateway that somebody takes away comes back", func(ctx context.Context) (string, error) {
			if out, err := e.kubectl(ctx, "scale", "deployment/"+ofGateway, "--replicas=0", "--namespace="+t.Namespace); err != nil {
				return out, err
			}
			return t.gateways(ctx, 2)
		}},
		{"without spec.gateway nothing of it is left", func(ctx context.Context) (string, error) {
			if out, err := e.kubectl(ctx, "patch", "governedserver/billing", "--namespace="+t.Namespace, "--type=json", `--patch=[{"op":"remove","path":"/spec/gateway"}]`); err != nil {
				return out, err
			}
			return t.nothingLeft(ctx)
		}},
		{"asked for again it is there again, to be uninstalled with the rest", func(ctx context.Context) (string, error) {
			if out, err := t.applyFile(ctx, "alone.yaml"); err != nil {
				return out, err
			}
			return t.gateways(ctx, 2)
		}},
	}
}

// gateways waits until that many are ready.
func (t team) gateways(ctx context.Context, want int32) (seen string, err error) {
	err = t.until(ctx, func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		if err := t.admin.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: ofGateway}, d); err != nil {
			return err
		}
		seen = fmt.Sprintf("%d gateways are ready, %d are asked for", d.Status.ReadyReplicas, *d.Spec.Replicas)
		if d.Status.ReadyReplicas != want || *d.Spec.Replicas != want {
			return errors.New(seen)
		}
		return nil
	})
	if err != nil {
		return seen, err
	}
	return t.kubectl(ctx, "get", "deployments,services,serviceaccounts,poddisruptionbudgets,networkpolicies,pods", "--namespace="+t.Namespace)
}

// gatewayAddress is that of one of their pods.
func (t team) gatewayAddress(ctx context.Context) (string, error) {
	pods := &corev1.PodList{}
	if err := t.admin.List(ctx, pods, client.InNamespace(t.Namespace), client.MatchingLabels{v1alpha1.StandaloneLabel: "true"}); err != nil {
		return "", err
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && pod.Status.PodIP != "" {
			return pod.Status.PodIP, nil
		}
	}
	return "", errors.New("no gateway has an address")
}

// readsCredential tries, as a ServiceAccount.
func (t team) readsCredential(ctx context.Context, account string) (string, error) {
	return t.kubectl(ctx, "get", "secret/billing-mcp", "--namespace="+t.Namespace, "--output=name", "--as=system:serviceaccount:"+t.Namespace+":"+account,
		"--as-group=system:serviceaccounts", "--as-group=system:serviceaccounts:"+t.Namespace, "--as-group=system:authenticated")
}

// nothingLeft waits until all that the operator made for the gateway has gone, its pods too.
func (t team) nothingLeft(ctx context.Context) (out string, err error) {
	err = t.until(ctx, func(ctx context.Context) (err error) {
		out, err = t.kubectl(ctx, "get", "deployments,services,serviceaccounts,poddisruptionbudgets,networkpolicies,roles,rolebindings,pods", "--namespace="+t.Namespace, "--output=name")
		if err == nil && strings.Contains(out, ofGateway) {
			return errors.New("it is still there")
		}
		return err
	})
	return out, err
}
