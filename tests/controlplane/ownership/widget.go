package main

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const widgetMeta = `{"type":"object","properties":{
 "name":{"type":"string"},"namespace":{"type":"string"},"uid":{"type":"string"},
 "labels":{"type":"object","additionalProperties":{"type":"string"}},
 "annotations":{"type":"object","additionalProperties":{"type":"string"}},
 "finalizers":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},
 "ownerReferences":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["uid"],
  "items":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"uid":{"type":"string"},"name":{"type":"string"}}}},
 "managedFields":{"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"object"}}}}`

const widgetSpec = `{"type":"object","properties":{
 "replicas":{"type":"integer"},"name":{"type":"string"},"flag":{"type":"boolean"},
 "port":{"x-kubernetes-int-or-string":true},
 "labels":{"type":"object","additionalProperties":{"type":"string"}LABELS},
 "selector":{"type":"object","additionalProperties":{"type":"string"},"x-kubernetes-map-type":"atomic"},
 "config":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"a":{"type":"string"},"b":{"type":"number"}}},
 "list":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"atomic"},
 "tags":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"TAGS"},
 "numbers":{"type":"array","items":{"type":"integer"},"x-kubernetes-list-type":"set"},
 "ports":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port","protocol"],
  "items":{"type":"object","properties":{"port":{"type":"integer"},"protocol":{"type":"string","default":"TCP"},
   "name":{"type":"string"},"opts":{"type":"object","additionalProperties":{"type":"string"}}}}},
 "containers":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
  "items":{"type":"object","properties":{"name":{"type":"string"},"image":{"type":"string"},
   "args":{"type":"array","items":{"type":"string"}},
   "env":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
    "items":{"type":"object","properties":{"name":{"type":"string"},"value":{"type":"string"}}}},
   "resources":{"type":"object","properties":{"limits":{"type":"object","additionalProperties":{"x-kubernetes-int-or-string":true}}}}}}},
 "any":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
 "free":{"x-kubernetes-preserve-unknown-fields":true},
 "nested":{"type":"object","properties":{
  "inner":{"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"string"}}},
  "m":{"type":"object","additionalProperties":{"type":"object","properties":{"p":{"type":"integer"},"q":{"type":"integer"}}}}}}}}`

const widgetStatus = `{"type":"object","properties":{"phase":{"type":"string"},
 "conditions":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"],
  "items":{"type":"object","properties":{"type":{"type":"string"},"status":{"type":"string"}}}}}}`

// widgetSchemas returns the schema of each served version. In v2 some containers are atomic.
func widgetSchemas() map[string]any {
	one := func(labels, tags string) any {
		text := strings.NewReplacer("LABELS", labels, "TAGS", tags).Replace(widgetSpec)
		var parsed any
		check(json.Unmarshal([]byte(`{"type":"object","properties":{"apiVersion":{"type":"string"},
			"kind":{"type":"string"},"metadata":`+widgetMeta+`,"spec":`+text+`,"status":`+widgetStatus+`}}`), &parsed))
		return parsed
	}
	return map[string]any{
		"example.com/v1": one("", "set"),
		"example.com/v2": one(`,"x-kubernetes-map-type":"atomic"`, "atomic"),
	}
}

// widgetConverter changes the version, as the conversion strategy None does.
type widgetConverter struct{}

func (widgetConverter) Convert(_, _, _ any) error { return nil }

func (widgetConverter) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	gv := to.(schema.GroupVersion)
	if gv.Version != "v1" && gv.Version != "v2" {
		return nil, runtime.NewNotRegisteredErrForKind("widgets", gv.WithKind("Widget"))
	}
	out := in.(*unstructured.Unstructured).DeepCopy()
	out.SetAPIVersion(gv.String())
	return out, nil
}

func (widgetConverter) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (widgetConverter) Default(runtime.Object) {}

func (widgetConverter) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	out := &unstructured.Unstructured{Object: object{}}
	out.SetGroupVersionKind(kind)
	return out, nil
}

func newWidgets() *target {
	models := map[string]*spec.Schema{}
	for version, one := range widgetSchemas() {
		text, err := json.Marshal(one)
		check(err)
		model := &spec.Schema{}
		check(json.Unmarshal(text, model))
		gv, err := schema.ParseGroupVersion(version)
		check(err)
		model.AddExtension("x-kubernetes-group-version-kind", []any{
			map[string]any{"group": gv.Group, "version": gv.Version, "kind": "Widget"},
		})
		models["widget."+gv.Version] = model
	}
	types, err := managedfields.NewTypeConverter(models, false)
	check(err)
	gvk := func(version string) schema.GroupVersionKind {
		gv, err := schema.ParseGroupVersion(version)
		check(err)
		return gv.WithKind("Widget")
	}
	return &target{
		gvk: gvk,
		manager: func(version, subresource string) *managedfields.FieldManager {
			w := widgetConverter{}
			fm, err := managedfields.NewDefaultCRDFieldManager(types, w, w, w, gvk(version),
				gvk(version).GroupVersion(), subresource, filters(subresource, "example.com/v1", "example.com/v2"))
			check(err)
			return fm
		},
		empty: func(version string) runtime.Object {
			out, err := widgetConverter{}.New(gvk(version))
			check(err)
			return out
		},
		decode: func(version string, in object) runtime.Object { return &unstructured.Unstructured{Object: in} },
		encode: func(version string, in runtime.Object) object {
			return clone(in.(*unstructured.Unstructured).Object)
		},
		complete: func(version string, in runtime.Object) runtime.Object { return in },
	}
}
