package main

import (
	"encoding/json"
	"fmt"
	"math/rand"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

type scenario struct {
	name, kind string
	target     *target
	writes     []func(live object) *step
}

func parse(text string) object {
	out := object{}
	check(json.Unmarshal([]byte(text), &out))
	return wholeNumbers(out).(object)
}

// wholeNumbers turns floating point numbers without a fraction into integers, as the server's decoder does.
func wholeNumbers(in any) any {
	switch in := in.(type) {
	case object:
		for name := range in {
			in[name] = wholeNumbers(in[name])
		}
	case []any:
		for n := range in {
			in[n] = wholeNumbers(in[n])
		}
	case float64:
		if in == float64(int64(in)) {
			return int64(in)
		}
	}
	return in
}

func widget(text string) object {
	out := parse(text)
	for name, value := range map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"} {
		if out[name] == nil {
			out[name] = value
		}
	}
	if out["metadata"] == nil {
		out["metadata"] = object{}
	}
	out["metadata"].(object)["name"] = "w"
	return out
}

func apply(manager string, force bool, config object) func(object) *step {
	return func(object) *step {
		version, _ := config["apiVersion"].(string)
		return &step{Op: "apply", Manager: manager, Version: version, Force: force, Input: clone(config)}
	}
}

// served sends a write to an endpoint of another version than that of its body.
func served(version string, write func(object) *step) func(object) *step {
	return func(live object) *step {
		s := write(live)
		s.Version = version
		return s
	}
}

// create sends an object unchanged as an update.
func create(manager string, in object) func(object) *step {
	return func(object) *step {
		return &step{Op: "update", Manager: manager, Version: in["apiVersion"].(string), Input: clone(in)}
	}
}

// edit sends the live object with a change as an update.
func edit(manager, subresource string, change func(live object)) func(object) *step {
	return func(live object) *step {
		change(live)
		version := live["apiVersion"].(string)
		return &step{Op: "update", Manager: manager, Version: version, Subresource: subresource, Input: live}
	}
}

func set(value any, path ...string) func(object) {
	return func(live object) {
		for _, name := range path[:len(path)-1] {
			if live[name] == nil {
				live[name] = object{}
			}
			live = live[name].(object)
		}
		live[path[len(path)-1]] = value
	}
}

func entries(text string) any {
	var out []any
	check(json.Unmarshal([]byte(text), &out))
	return out
}

func widgetScenarios() []scenario {
	last := `"kubectl.kubernetes.io/last-applied-configuration"`
	managed := func(value any) func(object) { return set(value, "metadata", "managedFields") }
	untracked := edit("uma", "", managed([]any{object{}}))
	many := []func(object) *step{create("u0", widget(`{"spec":{"nested":{"m":{"m0":{"p":0}}}}}`))}
	for n := 1; n < 14; n++ {
		many = append(many, edit(fmt.Sprint("u", n), "", set(int64(n), "spec", "nested", "m", fmt.Sprint("m", n), "p")))
	}
	for n := 0; n < 4; n++ {
		many = append(many, edit(fmt.Sprint("again", n), "", set(int64(n+50), "spec", "nested", "m", fmt.Sprint("m", n), "p")))
	}
	invalid := func(name, config string) scenario {
		return scenario{name: "invalid: " + name, writes: []func(object) *step{
			create("uma", widget(`{"spec":{"replicas":1}}`)), served("example.com/v1", apply("alice", false, widget(config))),
		}}
	}
	return []scenario{
		{name: "more than ten updaters", writes: many},
		{name: "untracked objects stay so until the first apply", writes: []func(object) *step{
			create("uma", widget(`{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":1,"tags":["a"]}}`)), untracked,
			edit("uma", "", set(int64(2), "spec", "replicas")),
			apply("alice", false, widget(`{"spec":{"replicas":2}}`)),
			apply("alice", false, widget(`{"spec":{"replicas":3}}`)),
			apply("alice", true, widget(`{"spec":{"replicas":3}}`)),
		}},
		{name: "managedFields sent by a client", writes: []func(object) *step{
			apply("alice", false, widget(`{"spec":{"replicas":1,"name":"x"}}`)),
			edit("uma", "", managed(nil)),
			edit("uma", "", managed(entries(`[{"manager":"x","operation":"Oops","apiVersion":"example.com/v1","fieldsType":"FieldsV1"}]`))),
			edit("uma", "", managed(entries(`[{"manager":"x","operation":"Update","apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"x":{}}}]`))),
			edit("uma", "", managed(entries(`[{"manager":"x","operation":"Update","apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:name":{},"q:z":{}}}}]`))),
			edit("uma", "status", managed(entries(`[{"manager":"y","operation":"Update","apiVersion":"example.com/v1","fieldsType":"FieldsV1"}]`))),
			edit("uma", "", managed(entries(`[{"manager":"z","operation":"Apply","apiVersion":"example.com/v0","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:name":{}}}}]`))),
			edit("uma", "", set("y", "spec", "name")),
		}},
		{name: "entries of versions that are not served", writes: []func(object) *step{
			create("uma", widget(`{"spec":{"replicas":1,"name":"x"}}`)),
			edit("uma", "", managed(entries(`[{"manager":"alice","operation":"Apply","apiVersion":"example.com/v0","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:name":{}}}},
				{"manager":"old","operation":"Update","apiVersion":"example.com/v0","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:name":{}}}},
				{"manager":"uma","operation":"Update","apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}}}]`))),
			apply("alice", false, widget(`{"spec":{"tags":["a"]}}`)),
			apply("alice", false, widget(`{"spec":{"tags":["b"]}}`)),
		}},
		{name: "kubectl takes over from client-side apply", writes: []func(object) *step{
			create("kubectl-client-side-apply", widget(`{"metadata":{"annotations":{`+last+`:"{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"metadata\":{\"name\":\"w\"},\"spec\":{\"replicas\":1,\"name\":\"x\"}}"}},"spec":{"replicas":1,"name":"x"}}`)),
			edit("uma", "", set("b", "spec", "labels", "a")),
			apply("kubectl", false, widget(`{"spec":{"replicas":2,"labels":{"a":"c"}}}`)),
			apply("kubectl", false, widget(`{"spec":{"replicas":2,"name":"<&>"}}`)),
			apply("kubectl", false, widget(`{"metadata":{"annotations":{"a":"b"}},"spec":{"replicas":3}}`)),
			apply("alice", false, widget(`{"spec":{"name":"z"}}`)),
		}},
		{name: "items sent twice by an update", writes: []func(object) *step{
			create("uma", widget(`{"spec":{"tags":["a","b","a"],"ports":[{"port":80},{"port":80,"name":"x"},{"port":81}]}}`)),
			apply("alice", false, widget(`{"spec":{"tags":["c"],"ports":[{"port":81,"name":"y"}]}}`)),
			apply("bob", true, widget(`{"spec":{"tags":["a","d"],"ports":[{"port":80,"name":"z"}]}}`)),
			edit("ulf", "", set([]any{"a", "a", "c"}, "spec", "tags")),
			edit("ulf", "", set([]any{"a"}, "spec", "tags")),
		}},
		{name: "order of list items", writes: []func(object) *step{
			create("uma", widget(`{"spec":{"tags":["1","2","3","4","5"]}}`)),
			apply("alice", false, widget(`{"spec":{"tags":["4","2","9"]}}`)),
			apply("bob", false, widget(`{"spec":{"tags":["9","8","1"]}}`)),
			apply("alice", false, widget(`{"spec":{"tags":["8","4"]}}`)),
		}},
		{name: "null and empty", writes: []func(object) *step{
			apply("alice", false, widget(`{"spec":{"labels":null,"tags":[],"ports":null,"any":{"a":null,"b":{}},"free":null,"replicas":null}}`)),
			apply("bob", false, widget(`{"spec":{"labels":{},"tags":["x"],"ports":[],"any":{"a":{"x":1}},"free":[1]}}`)),
			apply("alice", true, widget(`{"spec":{"labels":{"a":"b"},"tags":null,"any":{"a":1},"free":{"x":{}}}}`)),
			apply("alice", true, widget(`{"spec":{}}`)),
			apply("bob", true, widget(`{}`)),
		}},
		{name: "a parent goes with its last item", writes: []func(object) *step{
			apply("alice", false, widget(`{"spec":{"containers":[{"name":"a"}],"tags":[]}}`)),
			apply("alice", false, widget(`{"spec":{}}`)),
		}},
		{name: "status belongs to its endpoint", writes: []func(object) *step{
			apply("alice", false, widget(`{"spec":{"replicas":1},"status":{"phase":"x"}}`)),
			edit("uma", "status", set("y", "status", "phase")),
			edit("uma", "status", set(int64(7), "spec", "replicas")),
			apply("alice", false, widget(`{"status":{"phase":"z"}}`)),
		}},
		{name: "numbers and quotes in keys", writes: []func(object) *step{
			apply("alice", false, widget(`{"spec":{"numbers":[1,1000000,20000000],"tags":["a\"b<c>"],"ports":[{"port":1234567,"protocol":"x"}]}}`)),
			create("uma", widget(`{"spec":{"numbers":[1],"ports":[{"port":1234567,"protocol":"x","name":"n"}]}}`)),
			apply("alice", false, widget(`{"spec":{"ports":[{"port":1234567,"protocol":"x","name":"m"}]}}`)),
		}},
		invalid("unknown field", `{"spec":{"bogus":1}}`),
		invalid("type of a string", `{"spec":{"name":1}}`),
		invalid("string is a list", `{"spec":{"name":["a",1]}}`),
		invalid("type of a number", `{"spec":{"replicas":"x"}}`),
		invalid("number is a map", `{"spec":{"replicas":{"a":1}}}`),
		invalid("type of a boolean", `{"spec":{"flag":"x"}}`),
		invalid("map is a string", `{"spec":{"labels":"x"}}`),
		invalid("list is a map", `{"spec":{"tags":{"a":"b","c":1.5}}}`),
		invalid("item twice in a set", `{"spec":{"tags":["a","a"]}}`),
		invalid("item twice by key", `{"spec":{"ports":[{"port":80},{"port":80,"protocol":"TCP"}]}}`),
		invalid("item without key", `{"spec":{"containers":[{"image":"x"}]}}`),
		invalid("null in a set", `{"spec":{"tags":[null]}}`),
		invalid("map in a set", `{"spec":{"tags":[{}]}}`),
		invalid("text in a keyed list", `{"spec":{"containers":["x"]}}`),
		invalid("any scalar", `{"metadata":{"namespace":"n"},"spec":{"port":[1]}}`),
		invalid("version", `{"apiVersion":"example.com/v2"}`),
		invalid("kind", `{"kind":"Gadget"}`),
		invalid("core version", `{"apiVersion":"v1"}`),
		invalid("managedFields", `{"metadata":{"managedFields":[]}}`),
		invalid("managedFields null", `{"metadata":{"managedFields":null}}`),
		invalid("deep in lists", `{"spec":{"containers":[{"name":"a","env":[{"name":"E","value":1}]}]}}`),
	}
}

// scaleScenarios returns conversions between the managed fields of an object and those of its Scale.
func scaleScenarios() []any {
	path := fieldpath.MakePathOrDie("spec", "replicas")
	mappings := managedfields.ResourcePathMappings{"apps/v1": path, "apps/v2": nil}
	g := &generator{rand.New(rand.NewSource(1))}
	var out []any
	for n := 0; n < 40; n++ {
		var parent []metav1.ManagedFieldsEntry
		for _, manager := range []string{"a", "b", "c"} {
			if !g.chance(70) {
				continue
			}
			operation := metav1.ManagedFieldsOperationUpdate
			if g.chance(50) {
				operation = metav1.ManagedFieldsOperationApply
			}
			fields := g.one(`{"f:spec":{"f:replicas":{}}}`, `{"f:spec":{"f:replicas":{},"f:x":{}}}`, `{"f:spec":{"f:x":{}}}`)
			at := metav1.Unix(int64(1000+g.Intn(3)), 0).Rfc3339Copy()
			at.Time = at.UTC()
			parent = append(parent, metav1.ManagedFieldsEntry{
				Manager: manager, Operation: operation, APIVersion: g.one("apps/v1", "apps/v1", "apps/v2", "apps/v0"),
				Time: &at, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)},
			})
		}
		handler := managedfields.NewScaleHandler(parent, gv("apps/v1"), mappings)
		scale, err := handler.ToSubresource()
		check(err)
		changed := append([]metav1.ManagedFieldsEntry{}, scale...)
		if len(changed) > 0 && g.chance(50) {
			changed = changed[1:]
		}
		if g.chance(50) {
			at := metav1.Unix(2000, 0)
			at.Time = at.UTC()
			changed = append(changed, metav1.ManagedFieldsEntry{
				Manager: "new", Operation: "Update", APIVersion: "autoscaling/v1", Subresource: "scale", Time: &at,
				FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:replicas":{}}}`)},
			})
		}
		back, err := handler.ToParent(changed)
		check(err)
		out = append(out, object{"name": "scale", "kind": "Scale", "parent": parent, "scale": scale, "written": changed, "result": back})
	}
	return out
}
