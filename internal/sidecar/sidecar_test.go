// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

var update = flag.Bool("update", false, "write the golden files anew")

func settings() Settings {
	return Settings{
		Image: "ghcr.io/tidewaiter/tidewaiter-gateway:1", VotingRoot: "cm9vdA==", OperatorNamespace: "tidewaiter-system",
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
	}
}

func billing() v1alpha1.GovernedServer {
	return v1alpha1.GovernedServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "billing"},
		Spec: v1alpha1.GovernedServerSpec{
			Endpoint:    v1alpha1.Endpoint{URL: "http://127.0.0.1:9000/mcp"},
			CallTimeout: metav1.Duration{Duration: 2 * time.Minute},
			Gateway:     &v1alpha1.GatewaySpec{ServiceAccountName: "billing"},
		},
	}
}

func stdioBilling() v1alpha1.GovernedServer {
	return *fixture.With(billing(), func(s *v1alpha1.GovernedServer) {
		s.Spec.Endpoint = v1alpha1.Endpoint{Stdio: &v1alpha1.StdioEndpoint{Container: "server"}}
	})
}

func pod() corev1.Pod {
	return corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "billing-0", Labels: map[string]string{v1alpha1.GovernLabel: "billing"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "billing", AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "server", Image: "billing:1", Command: []string{"/bin/billing"}, Args: []string{"--port=9000"}}},
		},
	}
}

func TestAPodGetsItsGateway(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]v1alpha1.GovernedServer{"http": billing(), "stdio": stdioBilling()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := Inject(new(pod()), &server, settings())
			if err != nil {
				t.Fatal(err)
			}
			if len(result.Warnings) > 0 {
				t.Errorf("warnings for a pod without fault: %q", result.Warnings)
			}
			got, err := yaml.Marshal(result.Pod)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

func TestWhatCannotBeGovernedSafelyIsRefused(t *testing.T) {
	t.Parallel()
	type edit = func(*corev1.Pod, *v1alpha1.GovernedServer)
	server := func(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[0] }
	stdio := func(s *v1alpha1.GovernedServer) { *s = stdioBilling() }
	for name, tc := range map[string]struct {
		edit edit
		want string // "" for a pod that is taken
	}{
		"a pod without fault":             {func(*corev1.Pod, *v1alpha1.GovernedServer) {}, ""},
		"a server by its name, localhost": {func(_ *corev1.Pod, s *v1alpha1.GovernedServer) { s.Spec.Endpoint.URL = "http://localhost:9000/mcp" }, ""},
		"a server on IPv6 loopback":       {func(_ *corev1.Pod, s *v1alpha1.GovernedServer) { s.Spec.Endpoint.URL = "http://[::1]:9000/mcp" }, ""},
		"a server outside of the pod":     {func(_ *corev1.Pod, s *v1alpha1.GovernedServer) { s.Spec.Endpoint.URL = "https://mcp.example.com/mcp" }, "does not lead into the pod"},
		"a server behind a Service": {func(_ *corev1.Pod, s *v1alpha1.GovernedServer) {
			s.Spec.Endpoint = v1alpha1.Endpoint{Service: &v1alpha1.ServiceEndpoint{Name: "billing", Port: 80}}
		}, "does not lead into the pod"},
		"the network of the node":               {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) { p.Spec.HostNetwork = true }, "hostNetwork"},
		"the processes of the node":             {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) { p.Spec.HostPID = true }, "hostPID"},
		"processes that the pod shares":         {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) { p.Spec.ShareProcessNamespace = new(true) }, "shareProcessNamespace"},
		"processes that the pod does not share": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) { p.Spec.ShareProcessNamespace = new(false) }, ""},
		"Windows":                               {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, "Linux only"},
		"another ServiceAccount":                {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) { p.Spec.ServiceAccountName = "" }, `"default"`},
		"another server's label":                {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) { p.Labels[v1alpha1.GovernLabel] = "stock" }, "names"},
		"a container of the gateway's name":     {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) { server(p).Name = GatewayContainer }, "rename it"},
		"an init container of that name": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) {
			p.Spec.InitContainers = []corev1.Container{{Name: copyContainer}}
		}, "rename it"},
		"a volume of the gateway's name": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) {
			p.Spec.Volumes = []corev1.Volume{emptyFolder(tokenVolume)}
		}, "rename it"},
		"a mount of the gateway's token": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) {
			server(p).VolumeMounts = []corev1.VolumeMount{{Name: tokenVolume, MountPath: "/t"}}
		}, "take it out"},
		"a mount of the receipts": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) {
			server(p).VolumeMounts = []corev1.VolumeMount{{Name: receiptsVolume, MountPath: "/t"}}
		}, "take it out"},
		"a volume for receipts": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) { p.Spec.Volumes = []corev1.Volume{claimed()} }, ""},
		"the gateway's port": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) {
			server(p).Ports = []corev1.ContainerPort{{ContainerPort: AgentPort}}
		}, "use another"},
		"another port": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) {
			server(p).Ports = []corev1.ContainerPort{{ContainerPort: 9000}}
		}, ""},
		"the name of the gateway's port": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) {
			server(p).Ports = []corev1.ContainerPort{{Name: "tidewaiter", ContainerPort: 9000}}
		}, `the name "tidewaiter"`},
		"the name of its control port, in an init container": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) {
			p.Spec.InitContainers = []corev1.Container{{Name: "first", Ports: []corev1.ContainerPort{{Name: "tidewaiter-ctl", ContainerPort: 9000}}}}
		}, `the name "tidewaiter-ctl"`},
		"another name": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) {
			server(p).Ports = []corev1.ContainerPort{{Name: "tidewaiter-mcp", ContainerPort: 9000}}
		}, ""},
		"a command that is wrapped already": {func(p *corev1.Pod, s *v1alpha1.GovernedServer) {
			stdio(s)
			server(p).Command = append(wrapper(), server(p).Command...)
		}, "already"},
		"another container with such a command": {func(p *corev1.Pod, _ *v1alpha1.GovernedServer) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "more", Command: append(wrapper(), "sh")})
		}, "already"},
		"a server at the gateway's port": {func(_ *corev1.Pod, s *v1alpha1.GovernedServer) { s.Spec.Endpoint.URL = "http://127.0.0.1:9440/mcp" }, "use another"},
		"stdio":                          {func(_ *corev1.Pod, s *v1alpha1.GovernedServer) { stdio(s) }, ""},
		"stdio of no container":          {func(p *corev1.Pod, s *v1alpha1.GovernedServer) { stdio(s); server(p).Name = "other" }, "has no container"},
		"stdio without a command":        {func(p *corev1.Pod, s *v1alpha1.GovernedServer) { stdio(s); server(p).Command = nil }, "set command"},
		"stdio with a mount in the way": {func(p *corev1.Pod, s *v1alpha1.GovernedServer) {
			stdio(s)
			server(p).VolumeMounts = []corev1.VolumeMount{{Name: "x", MountPath: binaryFolder}}
		}, "use another path"},
		"stdio beside its port": {func(p *corev1.Pod, s *v1alpha1.GovernedServer) {
			stdio(s)
			server(p).Ports = []corev1.ContainerPort{{ContainerPort: 9443}}
		}, "use another"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := new(pod()), new(billing())
			tc.edit(p, s)
			before := p.DeepCopy()
			result, err := Inject(p, s, settings())
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want == "" && gatewayIn(result.Pod) == nil:
				t.Error("no gateway was put in")
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want a refusal with %q", err, tc.want)
			}
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("the pod that was given changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestWithoutAServerOrSettingsNothingIsInjected(t *testing.T) {
	t.Parallel()
	if _, err := Inject(new(pod()), nil, settings()); err == nil || !strings.Contains(err.Error(), `no GovernedServer "billing"`) {
		t.Errorf("no server: got %v", err)
	}
	_, err := Inject(new(pod()), new(billing()), Settings{})
	if err == nil || !strings.Contains(err.Error(), "--gateway-image") || !strings.Contains(err.Error(), "root key") {
		t.Errorf("no settings: got %v, want all that is missing", err)
	}
}

// What another tool made of the gateway may be no gateway: nobody can tell, so it is not taken.
func TestAnInjectedPodThatWasChangedIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit  func(*corev1.Pod)
		taken bool
	}{
		"nothing": {func(*corev1.Pod) {}, true},
		"a token for the copier": {func(p *corev1.Pod) {
			p.Spec.InitContainers[0].VolumeMounts = append(p.Spec.InitContainers[0].VolumeMounts, corev1.VolumeMount{Name: "kube-api-access", MountPath: tokenFolder})
		}, true},
		"resources":         {func(p *corev1.Pod) { gatewayIn(p).Resources = corev1.ResourceRequirements{} }, true},
		"a pull policy":     {func(p *corev1.Pod) { gatewayIn(p).ImagePullPolicy = corev1.PullAlways }, true},
		"another container": {func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy"}) }, true},
		"the image":         {func(p *corev1.Pod) { gatewayIn(p).Image = "evil" }, false},
		"an argument":       {func(p *corev1.Pod) { gatewayIn(p).Args = append(gatewayIn(p).Args, "--requester=me") }, false},
		"the environment": {func(p *corev1.Pod) {
			gatewayIn(p).Env = append(gatewayIn(p).Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "evil"})
		}, false},
		"a capability":                {func(p *corev1.Pod) { gatewayIn(p).SecurityContext.Capabilities.Drop = nil }, false},
		"the token":                   {func(p *corev1.Pod) { p.Spec.Volumes[0].Projected.Sources = nil }, false},
		"the gateway":                 {func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.InitContainers[:1] }, false},
		"the wrapper":                 {func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/bin/billing"} }, false},
		"the command that is wrapped": {func(p *corev1.Pod) { p.Spec.Containers[0].Command[4] = "/bin/evil" }, false},
		"a mount of the token": {func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: tokenVolume})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := stdioBilling()
			first, err := Inject(new(pod()), &server, settings())
			if err != nil {
				t.Fatal(err)
			}
			tc.edit(first.Pod)
			second, err := Inject(first.Pod, &server, settings())
			if (err == nil) != tc.taken {
				t.Fatalf("got %v, want it taken: %v", err, tc.taken)
			}
			if diff := cmp.Diff(first.Pod, second.Pod); err == nil && diff != "" {
				t.Errorf("injected again it changes (-first +second):\n%s", diff)
			}
		})
	}
}

// A pod that was injected by an older operator, or for another spec, gets what it would get now, and nothing twice.
func TestAnOlderInjectionIsReplaced(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ before, after v1alpha1.GovernedServer }{
		"by another image":       {billing(), billing()},
		"from stdio to a port":   {stdioBilling(), billing()},
		"from a port to stdio":   {billing(), stdioBilling()},
		"stdio by another image": {stdioBilling(), stdioBilling()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := settings()
			old.Image = "ghcr.io/tidewaiter/tidewaiter-gateway:0"
			first, err := Inject(new(pod()), &tc.before, old)
			if err != nil {
				t.Fatal(err)
			}
			second, err := Inject(first.Pod, &tc.after, settings())
			if err != nil {
				t.Fatal(err)
			}
			want, err := Inject(new(pod()), &tc.after, settings())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Pod, second.Pod, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-as from the bare pod +as from the older one):\n%s", diff)
			}
		})
	}
}

func TestWhatWeakensAGatewayIsSaid(t *testing.T) {
	t.Parallel()
	p, s := new(pod()), new(billing())
	p.Spec.AutomountServiceAccountToken, s.Spec.Gateway = nil, nil
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "mcp", ContainerPort: 9000}}
	p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("mcp")}}}
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8000)}}}
	result, err := Inject(p, s, settings())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`livenessProbe of container "server" dials the pod's address, where a server on loopback does not answer: use exec`,
		`spec.gateway.serviceAccountName of GovernedServer "billing" is not set: give the pod's ServiceAccount the rights of a gateway by hand`,
		`the containers of this pod share the gateway's ServiceAccount: set automountServiceAccountToken to false where they need no token`,
	}
	if diff := cmp.Diff(want, result.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestAPodIsGivenTheTimeThatItsLastCallMayTake(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		given   *int64
		timeout time.Duration
		want    int64
	}{
		"longer than the pod had":  {new(int64(30)), 2 * time.Minute, 150},
		"shorter than the pod had": {new(int64(600)), 2 * time.Minute, 600},
		"none was set":             {nil, 0, 330},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := new(pod()), new(billing())
			p.Spec.TerminationGracePeriodSeconds, s.Spec.CallTimeout.Duration = tc.given, tc.timeout
			result, err := Inject(p, s, settings())
			if err != nil {
				t.Fatal(err)
			}
			if got := *result.Pod.Spec.TerminationGracePeriodSeconds; got != tc.want {
				t.Errorf("terminationGracePeriodSeconds is %d, want %d", got, tc.want)
			}
		})
	}
}

func TestAServerStopsAfterItsLastCallUnlessItSaysOtherwise(t *testing.T) {
	t.Parallel()
	p, s := new(pod()), new(billing())
	own := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/stop"}}}
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "own", Lifecycle: &corev1.Lifecycle{PreStop: own}})
	result, err := Inject(p, s, settings())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []*corev1.LifecycleHandler{untilIdle(), own} {
		if diff := cmp.Diff(want, result.Pod.Spec.Containers[i].Lifecycle.PreStop); diff != "" {
			t.Errorf("container %d (-want +got):\n%s", i, diff)
		}
	}
}

func gatewayIn(p *corev1.Pod) *corev1.Container {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == GatewayContainer {
			return &p.Spec.InitContainers[i]
		}
	}
	return nil
}

func claimed() corev1.Volume {
	return corev1.Volume{Name: receiptsVolume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "receipts"},
	}}
}
