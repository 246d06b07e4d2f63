// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/controllers"
	"github.com/tidewaiter/tidewaiter/internal/admission"
	"github.com/tidewaiter/tidewaiter/internal/gateway"
	"github.com/tidewaiter/tidewaiter/internal/notify"
	"github.com/tidewaiter/tidewaiter/internal/sidecar"
)

// all of monitoring.
const all = "monitoring: {serviceMonitor: true, prometheusRule: true, dashboard: true}"

// TestAlertsAndDashboardAskForWhatThereIs parses every expression as Prometheus does, and wants every metric in it, with the
// labels that it is chosen by, to be one that a program gives.
func TestAlertsAndDashboardAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	objects := rendered(t, home, all)
	expressions := append(alerts(t, objects["PrometheusRule tidewaiter-alerts"]), panels(t, objects["ConfigMap tidewaiter-dashboard"])...)
	if len(expressions) < 25 {
		t.Fatalf("found only %d expressions", len(expressions))
	}
	known := metrics(t)
	for i, selectors := range selected(t, expressions) {
		if len(selectors) == 0 {
			t.Errorf("%s selects nothing", expressions[i])
		}
		for _, s := range selectors {
			labels, there := known[s.Metric]
			if !there {
				t.Errorf("%s: nobody gives the metric %s", expressions[i], s.Metric)
			}
			for _, label := range s.Labels {
				if !slices.Contains(labels, label) {
					t.Errorf("%s: %s has the labels %v, and not %s", expressions[i], s.Metric, labels, label)
				}
			}
		}
	}
}

func TestAnExpressionThatDoesNotParseIsFound(t *testing.T) {
	t.Parallel()
	if out, err := promql(t, []string{"sum by (le tidewaiter_votes_total"}); err == nil || !strings.Contains(err.Error(), "parse error") {
		t.Errorf("it is read as %s, error %v", out, err)
	}
}

// TestWhatIsWrittenAboutAServerCarriesItsNamespace: without honorLabels Prometheus puts that of the manager in its place.
func TestWhatIsWrittenAboutAServerCarriesItsNamespace(t *testing.T) {
	t.Parallel()
	objects := rendered(t, home, all)
	endpoints, _, err := unstructured.NestedSlice(objects["ServiceMonitor tidewaiter-metrics"].Object, "spec", "endpoints")
	if err != nil || len(endpoints) != 1 || endpoints[0].(map[string]any)["honorLabels"] != true {
		t.Errorf("endpoints %v, %v", endpoints, err)
	}
	wanted, _, _ := unstructured.NestedStringMap(objects["ServiceMonitor tidewaiter-metrics"].Object, "spec", "selector", "matchLabels")
	labels := objects["Service tidewaiter-metrics"].GetLabels()
	for key, value := range wanted {
		if labels[key] != value {
			t.Errorf("the Service has %s=%s, and the ServiceMonitor looks for %s", key, labels[key], value)
		}
	}
}

// TestGatewaysAreScraped wants the PodMonitor to look for the label and the port that gateways have.
func TestGatewaysAreScraped(t *testing.T) {
	t.Parallel()
	monitor := rendered(t, home, all)["PodMonitor tidewaiter-gateways"].Object
	anywhere, _, err := unstructured.NestedBool(monitor, "spec", "namespaceSelector", "any")
	must(t, err)
	selected, _, err := unstructured.NestedSlice(monitor, "spec", "selector", "matchExpressions")
	must(t, err)
	endpoints, _, err := unstructured.NestedSlice(monitor, "spec", "podMetricsEndpoints")
	must(t, err)
	if !anywhere || len(selected) != 1 || len(endpoints) != 1 {
		t.Fatalf("anywhere %t, %v, %v", anywhere, selected, endpoints)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: "billing", Containers: []corev1.Container{{Name: "server"}}}}
	pod.Labels = map[string]string{selected[0].(map[string]any)["key"].(string): "billing"}
	server := &v1alpha1.GovernedServer{Spec: v1alpha1.GovernedServerSpec{
		Endpoint: v1alpha1.Endpoint{URL: "http://127.0.0.1:9000/mcp"}, Gateway: &v1alpha1.GatewaySpec{ServiceAccountName: "billing"},
	}}
	server.Name = pod.Labels[v1alpha1.GovernLabel]
	injected, err := sidecar.Inject(pod, server, sidecar.Settings{Image: "gateway:1", VotingRoot: "cm9vdA==", OperatorNamespace: home})
	must(t, err)
	endpoint := endpoints[0].(map[string]any)
	if !slices.ContainsFunc(injected.Pod.Spec.InitContainers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == endpoint["port"] }) {
		t.Errorf("it asks at the port %v, and a gateway has %v", endpoint["port"], injected.Pod.Spec.InitContainers[0].Ports)
	}
	// The namespace of what a metric is about is not always that of the pod.
	if endpoint["honorLabels"] != true {
		t.Errorf("the endpoint is %v", endpoint)
	}
}

// alerts returns the expressions of the rules, each of which says what is wrong and what to do.
func alerts(t *testing.T, object *unstructured.Unstructured) []string {
	t.Helper()
	groups, _, err := unstructured.NestedSlice(object.Object, "spec", "groups")
	must(t, err)
	var found []string
	for _, group := range groups {
		rules, _, err := unstructured.NestedSlice(group.(map[string]any), "rules")
		must(t, err)
		for _, rule := range rules {
			fields := rule.(map[string]any)
			annotations, _, err := unstructured.NestedStringMap(fields, "annotations")
			must(t, err)
			severity, _, err := unstructured.NestedString(fields, "labels", "severity")
			must(t, err)
			if annotations["summary"] == "" || annotations["description"] == "" || severity == "" {
				t.Errorf("%s has the severity %q and the annotations %v", fields["alert"], severity, annotations)
			}
			found = append(found, fields["expr"].(string))
		}
	}
	return found
}

// panels returns the expressions of the dashboard, with values for the variables of Grafana.
func panels(t *testing.T, object *unstructured.Unstructured) []string {
	t.Helper()
	text, _, err := unstructured.NestedString(object.Object, "data", "tidewaiter.json")
	must(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal([]byte(text), &dashboard))
	var found []string
	for _, panel := range dashboard.Panels {
		if len(panel.Targets) == 0 {
			t.Errorf("the panel %q shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			found = append(found, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
		}
	}
	return found
}

type selector struct {
	Metric string
	Labels []string
}

func selected(t *testing.T, expressions []string) [][]selector {
	t.Helper()
	out, err := promql(t, expressions)
	if err != nil {
		t.Fatal(err)
	}
	var found [][]selector
	must(t, json.Unmarshal(out, &found))
	return found
}

// promql runs the parser of Prometheus, which is a module of its own.
func promql(t *testing.T, expressions []string) ([]byte, error) {
	t.Helper()
	for _, file := range []string{"main.go", "go.mod"} {
		if _, err := os.Stat("../../hack/tools/promql/" + file); err != nil { // for the test cache
			t.Fatal(err)
		}
	}
	in, err := json.Marshal(expressions)
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "go", "run", ".")
	cmd.Dir = "../../hack/tools/promql"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdin = bytes.NewReader(in)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, complaints.Bytes())
	}
	return out, nil // complaints are also what go run downloads
}

// metrics returns the names of all metrics, with their labels.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	r := &registry{labels: map[string][]string{
		// Of the API server.
		"apiserver_admission_webhook_rejection_count": {"name", "type", "operation", "error_type", "rejection_code"},
		// What package main of the gateway registers.
		"tidewaiter_gateway_certificate_expiry_timestamp_seconds": nil,
		"certwatcher_read_certificate_errors_total":               nil,
	}}
	_, err := gateway.NewMetrics(r)
	must(t, err)
	_, err = admission.NewMetrics(r)
	must(t, err)
	_, err = controllers.NewGovernedServerMetrics(r)
	must(t, err)
	_, err = notify.NewMetrics(r)
	must(t, err)
	must(t, r.Register(&controllers.ApprovalRequestMetrics{}))
	if len(r.labels) < 20 {
		t.Errorf("found only %v", slices.Sorted(maps.Keys(r.labels)))
	}
	return r.labels
}

// registry notes what metrics are called and labelled with.
type registry struct{ labels map[string][]string }

var description = regexp.MustCompile(`fqName: "([a-z_]+)".*variableLabels: \{([^}]*)\}`)

// Register implements prometheus.Registerer.
func (r *registry) Register(c prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc, 16)
	c.Describe(descriptions)
	close(descriptions)
	for one := range descriptions {
		parts := description.FindStringSubmatch(one.String())
		labels := strings.Split(parts[2], ",")
		r.labels[parts[1]] = labels
		for _, suffix := range []string{"_bucket", "_count", "_sum"} { // if it is a histogram
			r.labels[parts[1]+suffix] = append([]string{"le"}, labels...)
		}
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *registry) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = r.Register(c)
	}
}

// Unregister implements prometheus.Registerer.
func (r *registry) Unregister(prometheus.Collector) bool { return false }
