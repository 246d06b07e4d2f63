// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/booth"
	"github.com/tidewaiter/tidewaiter/internal/sidecar"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
)

// berth is a namespace of the strictest Pod Security, with servers in pods and somebody who may create those.
type berth struct {
	namespace string
	author    client.Client
}

func newBerth(t *testing.T) berth {
	t.Helper()
	b := berth{namespace: plane.Namespace(t)}
	user := plane.User(t, "author-"+b.namespace)
	plane.Grant(t, b.namespace, user, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "patch"}})
	b.author = plane.Client(t, user)
	must(t, admin(t).Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}},
		merge(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)))
	for name, endpoint := range map[string]v1alpha1.Endpoint{
		"billing": {URL: "http://127.0.0.1:9000/mcp"}, "tools": {Stdio: &v1alpha1.StdioEndpoint{Container: "server"}}, "far": {URL: "https://mcp.example.com/mcp"},
	} {
		server := fixture.GovernedServer(b.namespace, name)
		server.Spec.Endpoint = endpoint
		must(t, admin(t).Create(t.Context(), &server))
	}
	return b
}

func (b berth) pod(name, governedBy string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName:           "default", // which a plugin sets that this API server does not run
			AutomountServiceAccountToken: new(false),
			SecurityContext:              &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "server", Image: "billing:1", Command: []string{"/bin/billing"},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	if governedBy != "" {
		p.Labels = map[string]string{v1alpha1.GovernLabel: governedBy}
	}
	return p
}

func gatewayIn(p *corev1.Pod) *corev1.Container {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == sidecar.GatewayContainer {
			return &p.Spec.InitContainers[i]
		}
	}
	return nil
}

// The namespace takes nothing but restricted pods, so that the gateway is one.
func TestALabelledPodGetsItsGateway(t *testing.T) {
	t.Parallel()
	b := newBerth(t)
	for _, name := range []string{"billing", "tools"} {
		p := b.pod("pod-"+name, name)
		must(t, b.author.Create(t.Context(), p))
		gateway := gatewayIn(p)
		if gateway == nil || gateway.RestartPolicy == nil || *gateway.RestartPolicy != corev1.ContainerRestartPolicyAlways || gateway.Image != booth.GatewayImage {
			t.Fatalf("%s: the gateway is %+v, want a sidecar", name, gateway)
		}
		if args := strings.Join(gateway.Args, " "); !strings.Contains(args, "--server="+b.namespace+"/"+name+" ") || !strings.Contains(args, "--voting-root-key=") || strings.Contains(args, "--voting-root-key= ") {
			t.Errorf("%s: the gateway's arguments are %s", name, args)
		}
	}
	other := b.pod("other", "")
	must(t, b.author.Create(t.Context(), other))
	if gatewayIn(other) != nil {
		t.Error("a pod without the label has a gateway")
	}
}

// What the API server adds to a pod is none of what another tool changes in the gateway: what comes back is taken as it is.
func TestWhatComesBackFromTheAPIServerIsTakenAgain(t *testing.T) {
	t.Parallel()
	b := newBerth(t)
	for _, name := range []string{"billing", "tools"} {
		p := b.pod("pod-"+name, name)
		must(t, b.author.Create(t.Context(), p))
		again := p.DeepCopy()
		again.ObjectMeta = metav1.ObjectMeta{Namespace: b.namespace, Name: p.Name + "-again", Labels: p.Labels, Annotations: p.Annotations}
		must(t, b.author.Create(t.Context(), again))
		if diff := cmp.Diff(p.Spec, again.Spec); diff != "" {
			t.Errorf("%s (-first +again):\n%s", name, diff)
		}
	}
}

func TestAPodThatCannotBeGovernedIsRefused(t *testing.T) {
	t.Parallel()
	b := newBerth(t)
	taken(t, "a pod without fault", b.author.Create(t.Context(), b.pod("good", "billing")))
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"no such server":            {b.pod("a", "nothing"), `no GovernedServer "nothing"`},
		"an empty label":            {fixture.With(*b.pod("b", ""), func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.GovernLabel: ""} }), "no GovernedServer"},
		"a server outside of it":    {b.pod("c", "far"), "does not lead into the pod"},
		"stdio without a command":   {fixture.With(*b.pod("d", "tools"), func(p *corev1.Pod) { p.Spec.Containers[0].Command = nil }), "set command"},
		"a container of its name":   {fixture.With(*b.pod("e", "billing"), func(p *corev1.Pod) { p.Spec.Containers[0].Name = sidecar.GatewayContainer }), "rename it"},
		"an injection that is none": {fixture.With(*b.pod("f", "billing"), func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.InjectedAnnotation: "sha256:0"} }), "something has changed"},
		"an image of somebody else": {b.forged(t), "something has changed"},
	} {
		if err := b.author.Create(t.Context(), tc.pod); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want a refusal with %q", name, err, tc.want)
		}
	}
}

// forged is an injected pod whose gateway has another image.
func (b berth) forged(t *testing.T) *corev1.Pod {
	t.Helper()
	p := b.pod("to-forge", "billing")
	must(t, b.author.Create(t.Context(), p))
	p.ObjectMeta = metav1.ObjectMeta{Namespace: b.namespace, Name: "forged", Labels: p.Labels, Annotations: p.Annotations}
	gatewayIn(p).Image = "evil"
	return p
}

// A pod gets its gateway when it is created. What is done to it later would take it away, or claim one that is none.
func TestAPodKeepsTheGatewayThatItGot(t *testing.T) {
	t.Parallel()
	b := newBerth(t)
	plane.Grant(t, b.namespace, plane.User(t, "author-"+b.namespace), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}})
	governed, tools, free := b.pod("governed", "billing"), b.pod("tools", "tools"), b.pod("free", "")
	faked := b.pod("faked", "")
	faked.Spec.InitContainers = []corev1.Container{{Name: sidecar.GatewayContainer, Image: "evil", SecurityContext: faked.Spec.Containers[0].SecurityContext}}
	for _, p := range []*corev1.Pod{governed, tools, free, faked} {
		must(t, b.author.Create(t.Context(), p))
	}
	if gatewayIn(governed) == nil || gatewayIn(tools) == nil || gatewayIn(free) != nil {
		t.Fatal("not the pods that are governed have a gateway")
	}
	// image patches the image of a container by its name.
	image := func(kind, name string) client.Patch {
		return client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"`+kind+`":[{"name":"`+name+`","image":"other:2"}]}}`))
	}
	label := func(key, value string) client.Patch {
		return merge(`{"metadata":{"labels":{"` + key + `":` + value + `}}}`)
	}
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		patch  client.Patch
		status bool
		taken  bool
	}{
		"a label that comes later":                {free, label(v1alpha1.GovernLabel, `"billing"`), false, false},
		"one that comes by the status":            {free, label(v1alpha1.GovernLabel, `"billing"`), true, false},
		"one for a gateway of somebody else":      {faked, label(v1alpha1.GovernLabel, `"billing"`), false, false},
		"both labels of a standalone gateway":     {free, merge(`{"metadata":{"labels":{"tidewaiter.dev/govern":"billing","tidewaiter.dev/standalone":"true"}}}`), false, false},
		"another server":                          {governed, label(v1alpha1.GovernLabel, `"tools"`), false, false},
		"the label goes":                          {governed, label(v1alpha1.GovernLabel, `null`), false, false},
		"the label goes by the status":            {governed, label(v1alpha1.GovernLabel, `null`), true, false},
		"it becomes one of a standalone gateway":  {governed, label(v1alpha1.StandaloneLabel, `"true"`), false, false},
		"the gateway's image":                     {governed, image("initContainers", sidecar.GatewayContainer), false, false},
		"the image that the gateway is copied of": {tools, image("initContainers", "tidewaiter-copy"), false, false},
		"another label":                           {governed, label("tier", `"back"`), false, true},
		"another label by the status":             {governed, label("tier", `"back"`), true, true},
		"the server's image":                      {governed, image("containers", "server"), false, true},
		"a label of a pod that is not governed":   {free, label("tier", `"back"`), false, true},
		"its image":                               {free, image("containers", "server"), false, true},
	} {
		var err error
		if tc.status {
			err = b.author.Status().Patch(t.Context(), tc.pod.DeepCopy(), tc.patch, client.DryRunAll)
		} else {
			err = b.author.Patch(t.Context(), tc.pod.DeepCopy(), tc.patch, client.DryRunAll)
		}
		if tc.taken {
			taken(t, name, err)
		} else {
			refused(t, name, podsPolicy, err)
		}
	}
}

// The pods of a standalone gateway hold no server, and start without the operator.
func TestNoPodOfAStandaloneGatewayIsInjected(t *testing.T) {
	t.Parallel()
	b := newBerth(t)
	server := fixture.GovernedServer(b.namespace, "alone")
	server.Spec.Endpoint = v1alpha1.Endpoint{URL: "https://mcp.example.com/mcp"}
	server.Spec.Gateway = &v1alpha1.GatewaySpec{Standalone: &v1alpha1.StandaloneGateway{Replicas: 1}}
	must(t, admin(t).Create(t.Context(), &server))
	settings := standalone.Settings{Gateway: sidecar.Settings{Image: booth.GatewayImage, VotingRoot: "cm9vdA==", OperatorNamespace: fixture.SystemNamespace}}
	for _, object := range standalone.Build(&server, settings) {
		d, ok := object.(*appsv1.Deployment)
		if !ok {
			continue
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "alone-1", Labels: d.Spec.Template.Labels}, Spec: d.Spec.Template.Spec}
		p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = "default", "" // which a plugin wants to exist
		must(t, b.author.Create(t.Context(), p))
		if len(p.Spec.InitContainers) > 0 || len(p.Spec.Containers) != 1 {
			t.Errorf("it has %d containers before the gateway, and %d", len(p.Spec.InitContainers), len(p.Spec.Containers))
		}
		injected := b.pod("alone-2", "alone")
		if err := b.author.Create(t.Context(), injected); err == nil || !strings.Contains(err.Error(), "does not lead into the pod") {
			t.Errorf("a pod with the label that is none of the gateway's: %v", err)
		}
	}
}

// The operator's own pods start without the operator.
func TestNoPodOfTheOperatorsNamespaceIsGoverned(t *testing.T) {
	t.Parallel()
	b := newBerth(t)
	p := b.pod("operator-"+b.namespace, "billing")
	p.Namespace, p.Spec.ServiceAccountName = fixture.SystemNamespace, v1alpha1.ManagerServiceAccount
	must(t, admin(t).Create(t.Context(), p))
	if gatewayIn(p) != nil {
		t.Error("it has a gateway")
	}
}

// Another webhook's work on the gateway is seen, since the API server asks again: what it made of it may be no gateway.
func TestWhatAnotherWebhookDoesToTheGatewayIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		patch string
		taken bool
	}{
		"resources":   {`[{"op":"add","path":"/spec/initContainers/0/resources/limits","value":{"cpu":"1"}}]`, true},
		"environment": {`[{"op":"add","path":"/spec/initContainers/0/env/-","value":{"name":"KUBERNETES_SERVICE_HOST","value":"evil"}}]`, false},
		"image":       {`[{"op":"replace","path":"/spec/initContainers/0/image","value":"evil"}]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBerth(t)
			b.meddle(t, tc.patch)
			var err error
			until(t, "the other webhook is called", func(ctx context.Context) bool {
				p := b.pod("billing", "billing")
				if err = b.author.Create(ctx, p, client.DryRunAll); err != nil {
					return true
				}
				return p.Annotations["meddled"] != ""
			})
			if tc.taken != (err == nil) || err != nil && !strings.Contains(err.Error(), "something has changed") {
				t.Errorf("got %v, want it taken: %v", err, tc.taken)
			}
		})
	}
}

// meddle installs a webhook, called after the operator's, that patches every pod of the namespace that has a gateway.
func (b berth) meddle(t *testing.T, patch string) {
	t.Helper()
	patch = strings.TrimSuffix(patch, "]") + `,{"op":"add","path":"/metadata/annotations/meddled","value":"yes"}]`
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if !strings.Contains(string(review.Request.Object.Raw), "meddled") {
			answer.Patch, answer.PatchType = []byte(patch), new(admissionv1.PatchTypeJSONPatch)
		}
		review.Request, review.Response = nil, answer
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(front.Close)
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "zz-" + b.namespace},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "meddle.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &front.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": b.namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
	must(t, admin(t).Create(t.Context(), configuration))
	t.Cleanup(func() { must(t, admin(t).Delete(context.WithoutCancel(t.Context()), configuration)) })
}
