package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
)

var builtinKinds = map[string]string{"Deployment": "apps/v1", "Pod": "v1", "Service": "v1", "ConfigMap": "v1"}

func gv(version string) schema.GroupVersion {
	out, err := schema.ParseGroupVersion(version)
	check(err)
	return out
}

// builtinTypes reads the OpenAPI documents of the Kubernetes module.
func builtinTypes() managedfields.TypeConverter {
	where, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	check(err)
	models := map[string]*spec.Schema{}
	for _, name := range []string{"api__v1_openapi.json", "apis__apps__v1_openapi.json"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(where)), "api/openapi-spec/v3", name))
		check(err)
		document := &spec3.OpenAPI{}
		check(json.Unmarshal(text, document))
		for name, model := range document.Components.Schemas {
			models[name] = model
		}
	}
	types, err := managedfields.NewTypeConverter(models, false)
	check(err)
	return types
}

func encodeBuiltin(version string, in runtime.Object) object {
	external, err := legacyscheme.Scheme.ConvertToVersion(in, gv(version))
	check(err)
	text, err := json.Marshal(external)
	check(err)
	return parse(string(text))
}

func newBuiltin(kind string, types managedfields.TypeConverter) *target {
	scheme := legacyscheme.Scheme
	hub := func(version string) schema.GroupVersion {
		return schema.GroupVersion{Group: gv(version).Group, Version: runtime.APIVersionInternal}
	}
	gvk := func(version string) schema.GroupVersionKind { return gv(version).WithKind(kind) }
	decode := func(version string, in object) runtime.Object {
		text, err := json.Marshal(in)
		check(err)
		out, _, err := legacyscheme.Codecs.UniversalDecoder(hub(version)).Decode(text, nil, nil)
		check(err)
		return out
	}
	return &target{
		gvk: gvk,
		manager: func(version, subresource string) *managedfields.FieldManager {
			fm, err := managedfields.NewDefaultFieldManager(types, scheme, scheme, scheme, gvk(version), hub(version),
				subresource, filters(subresource, version))
			check(err)
			return fm
		},
		empty: func(version string) runtime.Object {
			out, err := scheme.New(gvk(version))
			check(err)
			out.GetObjectKind().SetGroupVersionKind(gvk(version))
			return out
		},
		decode: decode,
		encode: encodeBuiltin,
		complete: func(version string, in runtime.Object) runtime.Object {
			return decode(version, encodeBuiltin(version, in))
		},
	}
}

// zeroValues returns an empty object of each kind.
func zeroValues() object {
	out := object{}
	for _, kind := range sortedKeys(builtinKinds) {
		version := builtinKinds[kind]
		empty, err := legacyscheme.Scheme.New(gv(version).WithKind(kind))
		check(err)
		out[kind] = encodeBuiltin(version, empty)
	}
	return out
}

// decoded adds the defaults to the body of a write, as the server's decoder does.
func decoded(t *target, write func(object) *step) func(object) *step {
	return func(live object) *step {
		s := write(live)
		s.Input = t.encode(s.Version, t.decode(s.Version, s.Input))
		return s
	}
}

func builtinScenarios() []scenario {
	types := builtinTypes()
	targets := map[string]*target{}
	for kind := range builtinKinds {
		targets[kind] = newBuiltin(kind, types)
	}
	of := func(kind, text string) object {
		out := parse(text)
		out["apiVersion"], out["kind"] = builtinKinds[kind], kind
		if out["metadata"] == nil {
			out["metadata"] = object{}
		}
		out["metadata"].(object)["name"] = "x"
		return out
	}
	deployment := func(replicas, container string) object {
		return of("Deployment", `{"metadata":{"labels":{"app":"x"}},"spec":{`+replicas+`"selector":{"matchLabels":{"app":"x"}},
			"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[`+container+`]}}}}`)
	}
	web := `{"name":"web","image":"nginx:1","ports":[{"containerPort":80}],"env":[{"name":"A","value":"1"}]}`
	side := `{"name":"side","image":"side:1","resources":{"limits":{"cpu":"1"}}}`
	d := targets["Deployment"]
	container := func(live object) object {
		return live["spec"].(object)["template"].(object)["spec"].(object)["containers"].([]any)[0].(object)
	}
	p, s, c := targets["Pod"], targets["Service"], targets["ConfigMap"]
	pod := func(text string) object { return of("Pod", text) }
	service := func(text string) object { return of("Service", text) }
	config := func(text string) object { return of("ConfigMap", text) }
	return []scenario{
		{name: "created", kind: "Deployment", target: d, writes: []func(object) *step{
			decoded(d, create("kubectl-create", deployment(`"replicas":2,`, web))),
			decoded(d, edit("kubectl-edit", "", func(live object) { container(live)["image"] = "nginx:2" })),
			decoded(d, edit("controller", "status", set(int64(2), "status", "replicas"))),
			apply("alice", false, deployment("", web)),
			apply("alice", true, deployment("", web+","+side)),
			apply("alice", true, deployment("", side)),
			decoded(d, edit("hpa", "", set(int64(5), "spec", "replicas"))),
		}},
		{name: "applied", kind: "Deployment", target: d, writes: []func(object) *step{
			apply("alice", false, deployment(`"replicas":2,`, web)),
			apply("bob", false, deployment("", side)),
			decoded(d, edit("hpa", "", set(int64(5), "spec", "replicas"))),
			apply("alice", false, deployment(`"replicas":2,`, web)),
			apply("alice", false, deployment("", web)),
			apply("bob", false, of("Deployment", `{"spec":{"template":{"spec":{"containers":[{"name":"web","ports":[{"containerPort":80,"name":"http"}]}]}}}}`)),
			apply("bob", false, of("Deployment", `{"metadata":{"annotations":{"a":"b"}}}`)),
			apply("alice", false, deployment("", `{"name":"web","image":"nginx:3"}`)),
		}},
		{name: "pod", kind: "Pod", target: p, writes: []func(object) *step{
			decoded(p, create("uma", pod(`{"metadata":{"labels":{"a":"b"},"ownerReferences":[{"apiVersion":"v1","kind":"X","name":"n","uid":"1"}]},
				"spec":{"containers":[{"name":"a","image":"a:1","env":[{"name":"N","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}],
				"tolerations":[{"key":"k","operator":"Exists"}],"nodeSelector":{"x":"y"},"volumes":[{"name":"v","emptyDir":{}}]}}`))),
			decoded(p, edit("kubelet", "status", set([]any{object{"type": "Ready", "status": "True"}}, "status", "conditions"))),
			decoded(p, edit("kubelet", "status", set("Running", "status", "phase"))),
			apply("alice", false, pod(`{"metadata":{"labels":{"c":"d"},"finalizers":["x/y"]},"spec":{"containers":[{"name":"a","image":"a:1"}]}}`)),
			apply("alice", false, pod(`{"spec":{"containers":[{"name":"a","image":"a:2"}],"volumes":[{"name":"v","hostPath":{"path":"/x"}}]}}`)),
			decoded(p, edit("uma", "", func(live object) { delete(live["metadata"].(object), "labels") })),
		}},
		{name: "service", kind: "Service", target: s, writes: []func(object) *step{
			apply("alice", false, service(`{"spec":{"selector":{"a":"b"},"ports":[{"port":80,"name":"http"},{"port":80,"protocol":"UDP","name":"quic"}]}}`)),
			apply("bob", false, service(`{"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":"web"}]}}`)),
			apply("alice", false, service(`{"spec":{"selector":{"a":"c"},"ports":[{"port":80,"name":"http"}]}}`)),
			decoded(s, edit("uma", "", set([]any{object{"port": int64(81), "name": "x"}}, "spec", "ports"))),
			apply("alice", false, service(`{"spec":{"selector":{"a":"c"},"ports":[{"port":80,"name":"http"}]}}`)),
		}},
		{name: "config map", kind: "ConfigMap", target: c, writes: []func(object) *step{
			decoded(c, create("uma", config(`{"data":{"a":"1","b":"2"},"binaryData":{"x":"eHg="}}`))),
			apply("alice", false, config(`{"data":{"a":"1","c":"3"}}`)),
			apply("alice", false, config(`{"data":{"a":"2"}}`)),
			apply("alice", true, config(`{"data":{"a":"2"},"immutable":false}`)),
			decoded(c, edit("uma", "", func(live object) { delete(live, "data") })),
			apply("alice", true, config(`{"data":{}}`)),
			apply("alice", true, config(`{"data":{"z":1}}`)),
			apply("alice", true, config(`{"dat":{"z":"1"}}`)),
		}},
	}
}
