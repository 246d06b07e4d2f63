// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"flag"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/sidecar"
)

var update = flag.Bool("update", false, "write the golden files anew")

func settings() Settings {
	return Settings{
		Gateway: sidecar.Settings{
			Image: "ghcr.io/tidewaiter/tidewaiter-gateway:1", VotingRoot: "cm9vdA==", OperatorNamespace: "tidewaiter-system",
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
			},
		},
		Allow: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16")},
	}
}

func billing(edits ...func(*v1alpha1.GovernedServer)) *v1alpha1.GovernedServer {
	return fixture.With(v1alpha1.GovernedServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "billing", UID: "server-uid"},
		Spec: v1alpha1.GovernedServerSpec{
			Endpoint: v1alpha1.Endpoint{
				URL:     "https://mcp.example.com/mcp",
				Headers: []v1alpha1.Header{{Name: "Authorization", SecretKeyRef: &v1alpha1.SecretKeyRef{Name: "billing-mcp", Key: "authorization"}}},
			},
			CallTimeout: metav1.Duration{Duration: 2 * time.Minute},
			Gateway:     &v1alpha1.GatewaySpec{Standalone: &v1alpha1.StandaloneGateway{Replicas: 2}},
		},
	}, edits...)
}

// made returns the objects by what they are.
func made(t *testing.T, server *v1alpha1.GovernedServer) (account *corev1.ServiceAccount, d *appsv1.Deployment, s *corev1.Service, b *policyv1.PodDisruptionBudget) {
	t.Helper()
	for _, object := range Build(server, settings()) {
		switch object := object.(type) {
		case *corev1.ServiceAccount:
			account = object
		case *appsv1.Deployment:
			d = object
		case *corev1.Service:
			s = object
		case *policyv1.PodDisruptionBudget:
			b = object
		default:
			t.Fatalf("a %T is made", object)
		}
	}
	return account, d, s, b
}

func TestWhatAGatewayIsMadeOf(t *testing.T) {
	t.Parallel()
	var all []string
	for _, object := range Build(billing(), settings()) {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	const file = "testdata/billing.yaml"
	got := strings.Join(all, "---\n")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// Every part finds the pods, and nothing else of the server's does.
func TestAllPartsMeanTheSamePods(t *testing.T) {
	t.Parallel()
	account, d, s, b := made(t, billing())
	pod := labels.Set(d.Spec.Template.Labels)
	for what, selector := range map[string]map[string]string{
		"Deployment": d.Spec.Selector.MatchLabels, "Service": s.Spec.Selector, "PodDisruptionBudget": b.Spec.Selector.MatchLabels,
		"spread": d.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		if !labels.SelectorFromSet(selector).Matches(pod) {
			t.Errorf("%s does not select the pods: %v", what, selector)
		}
		if labels.SelectorFromSet(selector).Matches(labels.Set{v1alpha1.GovernLabel: "billing"}) {
			t.Errorf("%s selects governed pods that hold a server too: %v", what, selector)
		}
	}
	if d.Spec.Template.Spec.ServiceAccountName != account.Name {
		t.Errorf("the pods run as %q", d.Spec.Template.Spec.ServiceAccountName)
	}
	port := s.Spec.Ports[0].TargetPort.StrVal
	if !slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port && p.ContainerPort == 9440 }) {
		t.Errorf("the Service leads to the port %q", port)
	}
}

// The gateway reads the credential by its own right: what somebody may see of a pod never holds it.
func TestTheCredentialIsNoPartOfThePods(t *testing.T) {
	t.Parallel()
	_, d, _, _ := made(t, billing())
	text, err := yaml.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "billing-mcp") {
		t.Errorf("the Deployment names the Secret:\n%s", text)
	}
}

func TestTheSpecDecides(t *testing.T) {
	t.Parallel()
	type facts struct {
		replicas, stop int64
		address        string
	}
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.GovernedServer)
		want facts
	}{
		"as it is": {func(*v1alpha1.GovernedServer) {}, facts{2, 155, "http://tidewaiter-billing.shop.svc/shop/billing/mcp"}},
		"more of them": {func(s *v1alpha1.GovernedServer) { s.Spec.Gateway.Standalone.Replicas = 5 },
			facts{5, 155, "http://tidewaiter-billing.shop.svc/shop/billing/mcp"}},
		"calls that take long": {func(s *v1alpha1.GovernedServer) { s.Spec.CallTimeout.Duration = time.Hour },
			facts{2, 3635, "http://tidewaiter-billing.shop.svc/shop/billing/mcp"}},
		"another address": {func(s *v1alpha1.GovernedServer) { s.Spec.Gateway.PublicURL = "https://mcp.example.com" },
			facts{2, 155, "https://mcp.example.com/shop/billing/mcp"}},
	} {
		server := billing(tc.edit)
		_, d, _, _ := made(t, server)
		got := facts{int64(*d.Spec.Replicas), *d.Spec.Template.Spec.TerminationGracePeriodSeconds, AgentURL(server)}
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		public := "--public-url=" + strings.TrimSuffix(got.address, "/shop/billing/mcp")
		if args := d.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, public) || !slices.Contains(args, "--drain="+server.Spec.CallTimeout.Duration.String()) {
			t.Errorf("%s: the gateway is told %q", name, args)
		}
	}
	if Wanted(billing(func(s *v1alpha1.GovernedServer) { s.Spec.Gateway.Standalone = nil })) || Wanted(billing(func(s *v1alpha1.GovernedServer) { s.Spec.Gateway = nil })) {
		t.Error("one that is not asked for is wanted")
	}
}

// stored returns the objects as an API server has them: with what it added, and with labels of somebody.
func stored(t *testing.T) []client.Object {
	t.Helper()
	account, d, s, b := made(t, billing())
	account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	account.Annotations = map[string]string{"cloud": "identity"}
	d.Spec.Template.Spec.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent
	d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
	d.Labels["mine"] = "too"
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.7", []string{"10.0.0.7"}
	s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{corev1.IPv4Protocol}, new(corev1.IPFamilyPolicySingleStack)
	s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	return []client.Object{account, d, s, b}
}

func TestWhatIsAsItShouldBeStays(t *testing.T) {
	t.Parallel()
	wanted := Build(billing(), settings())
	for i, is := range stored(t) {
		if diff := cmp.Diff(is, Mend(is, wanted[i])); diff != "" {
			t.Errorf("%T (-is +mended):\n%s", is, diff)
		}
	}
}

func TestWhatWasChangedIsPutBack(t *testing.T) {
	t.Parallel()
	evil := corev1.Container{Name: "evil", VolumeMounts: []corev1.VolumeMount{{Name: "tidewaiter-token", MountPath: "/token"}}}
	pod := func(edit func(*corev1.PodSpec)) func(client.Object) {
		return func(o client.Object) {
			if d, ok := o.(*appsv1.Deployment); ok {
				edit(&d.Spec.Template.Spec)
			}
		}
	}
	service := func(edit func(*corev1.ServiceSpec)) func(client.Object) {
		return func(o client.Object) {
			if s, ok := o.(*corev1.Service); ok {
				edit(&s.Spec)
			}
		}
	}
	for name, edit := range map[string]func(client.Object){
		"a container more":        pod(func(p *corev1.PodSpec) { p.Containers = append(p.Containers, evil) }),
		"a container before it":   pod(func(p *corev1.PodSpec) { p.InitContainers = append(p.InitContainers, evil) }),
		"another argument":        pod(func(p *corev1.PodSpec) { p.Containers[0].Args = append(p.Containers[0].Args, "--requester=admin") }),
		"another image":           pod(func(p *corev1.PodSpec) { p.Containers[0].Image = "evil:1" }),
		"a command":               pod(func(p *corev1.PodSpec) { p.Containers[0].Command = []string{"sh"} }),
		"the network of the node": pod(func(p *corev1.PodSpec) { p.HostNetwork = true }),
		"a folder of the node": pod(func(p *corev1.PodSpec) {
			p.Volumes = append(p.Volumes, corev1.Volume{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}),
		"another account": pod(func(p *corev1.PodSpec) { p.ServiceAccountName = "default" }),
		"no gateways": func(o client.Object) {
			if d, ok := o.(*appsv1.Deployment); ok {
				d.Spec.Replicas = new(int32(0))
			}
		},
		"other pods":              service(func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "evil"} }),
		"a name of another place": service(func(s *corev1.ServiceSpec) { s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "evil.example" }),
		"an address outside":      service(func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"192.0.2.1"} }),
		"a port more": service(func(s *corev1.ServiceSpec) {
			s.Ports = append(s.Ports, corev1.ServicePort{Name: "control", Port: 9442, TargetPort: intstr.FromInt32(9442)})
		}),
		"every gateway may go": func(o client.Object) {
			if b, ok := o.(*policyv1.PodDisruptionBudget); ok {
				b.Spec.MaxUnavailable = new(intstr.FromString("100%"))
			}
		},
		"a token for everything that runs": func(o client.Object) {
			if a, ok := o.(*corev1.ServiceAccount); ok {
				a.AutomountServiceAccountToken = nil
			}
		},
		"no label": func(o client.Object) { o.SetLabels(map[string]string{"mine": "too"}) },
	} {
		wanted, before, changed := Build(billing(), settings()), stored(t), 0
		for i, is := range stored(t) {
			edit(is)
			if !cmp.Equal(is, before[i]) {
				changed++
			}
			got := Mend(is, wanted[i])
			want := before[i]
			maps.Copy(want.GetLabels(), is.GetLabels())
			if image, ok := is.(*appsv1.Deployment); ok && image.Spec.Template.Spec.Containers[0].Image == "evil:1" {
				want.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].ImagePullPolicy = "" // as of a new image
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %T (-want +mended):\n%s", name, is, diff)
			}
		}
		if changed == 0 {
			t.Errorf("%s: nothing was changed", name)
		}
	}
}
