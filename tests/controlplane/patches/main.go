// Command patches records the results of the patch libraries of the API server, as a fixture for the tests of
// the devcluster: one line for each case with the object, the patch and the result or the error.
//
// Usage: patches [CASES] >devcluster/src/kinds/patch/tests/patches.jsonl
//
// CASES is the number of random cases of each patch type; their seeds are fixed.
package main

import (
	"encoding/json"
	"log"
	"math/rand"
	"os"
	"reflect"
	"sort"
	"strconv"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

type object = map[string]any

// item is a struct with all merge strategies that occur in built-in types.
type item struct {
	Name   string            `json:"name"`
	Value  int64             `json:"value,omitempty"`
	Text   string            `json:"text,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Items  []item            `json:"items,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Tags   []string          `json:"tags,omitempty" patchStrategy:"merge"`
	Plain  []string          `json:"plain,omitempty"`
	List   []item            `json:"list,omitempty"`
	Ports  []port            `json:"ports,omitempty" patchStrategy:"merge" patchMergeKey:"port"`
	Union  union             `json:"union,omitempty" patchStrategy:"retainKeys"`
	Unions []union           `json:"unions,omitempty" patchStrategy:"merge,retainKeys" patchMergeKey:"name"`
	Nested *item             `json:"nested,omitempty"`
}

type port struct {
	Port int64  `json:"port"`
	Text string `json:"text,omitempty"`
}

type union struct {
	Name string `json:"name,omitempty"`
	A    *item  `json:"a,omitempty"`
	B    string `json:"b,omitempty"`
}

type testCase struct {
	Type   string `json:"type"`
	Object object `json:"object"`
	Patch  any    `json:"patch"`
	Result object `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

type generator struct{ *rand.Rand }

func (g *generator) chance(percent int) bool { return g.Intn(100) < percent }

func (g *generator) one(of ...string) string { return of[g.Intn(len(of))] }

func (g *generator) names(percent int) []string {
	var out []string
	for _, n := range g.Perm(5) {
		if g.chance(percent) {
			out = append(out, string(rune('a'+n)))
		}
	}
	return out
}

func (g *generator) strings() []any {
	out := []any{}
	for _, name := range g.names(40) {
		out = append(out, name)
	}
	return out
}

func (g *generator) labels() object {
	out := object{}
	for _, name := range g.names(30) {
		out[name] = g.one("x", "y")
	}
	return out
}

// item returns a random list item of the live object.
func (g *generator) item(depth int) object {
	out := object{}
	list := func(percent int) []any {
		items := []any{}
		for _, name := range g.names(percent) {
			below := g.item(depth - 1)
			below["name"] = name
			items = append(items, below)
		}
		return items
	}
	fields := map[string]func() any{
		"value": func() any { return int64(g.Intn(3)) }, "text": func() any { return g.one("x", "y") },
		"labels": func() any { return g.labels() }, "tags": func() any { return g.strings() },
		"plain": func() any { return g.strings() },
		"ports": func() any {
			ports := []any{}
			for _, n := range g.Perm(3) {
				if g.chance(50) {
					ports = append(ports, object{"port": int64(n), "text": g.one("x", "y")})
				}
			}
			return ports
		},
		"union": func() any { return g.union() },
		"unions": func() any {
			unions := []any{}
			for _, name := range g.names(30) {
				union := g.union()
				union["name"] = name
				unions = append(unions, union)
			}
			return unions
		},
	}
	if depth > 0 {
		fields["items"] = func() any { return list(55) }
		fields["list"] = func() any { return list(25) }
		fields["nested"] = func() any { return g.item(depth - 1) }
	}
	for _, name := range sorted(fields) {
		if g.chance(35) {
			out[name] = fields[name]()
		}
	}
	return out
}

func (g *generator) union() object {
	if g.chance(50) {
		return object{"a": object{"text": g.one("x", "y")}}
	}
	return object{"b": g.one("x", "y")}
}

// spice adds random directives and nulls to a patch.
func (g *generator) spice(patch object, live object) {
	for _, name := range sorted(patch) {
		was, _ := live[name].(object)
		switch value := patch[name].(type) {
		case object:
			g.spice(value, was)
			if g.chance(6) {
				value["$patch"] = g.one("delete", "replace", "replace", "merge")
			}
			if name == "union" && g.chance(60) {
				keys := []any{}
				for _, key := range sorted(value) {
					if g.chance(95) {
						keys = append(keys, key)
					}
				}
				value["$retainKeys"] = keys
			}
		case []any:
			g.spiceList(patch, name, value, live)
		default:
			if g.chance(12) {
				patch[name] = nil
			}
		}
		if g.chance(6) {
			patch[name] = nil
		}
	}
	if g.chance(10) {
		patch[g.one("text", "value", "tags", "items", "nested", "labels")] = nil
	}
	if g.chance(15) {
		patch["$deleteFromPrimitiveList/tags"] = g.strings()
	}
}

func (g *generator) spiceList(patch object, name string, items []any, live object) {
	key := map[string]string{"items": "name", "unions": "name", "ports": "port"}[name]
	was, _ := live[name].([]any)
	for _, item := range items {
		if item, ok := item.(object); ok {
			g.spice(item, object{})
			if key != "" && item[key] == nil && g.chance(97) {
				item[key] = any("a")
				if key == "port" {
					item[key] = int64(1)
				}
			}
		}
	}
	if key != "" {
		for _, gone := range was {
			if g.chance(25) {
				items = append(items, object{"$patch": "delete", key: gone.(object)[key]})
			}
		}
		if g.chance(6) {
			items = append(items, object{"$patch": g.one("replace", "replace", "merge", "oops")})
		}
		patch[name] = items
	}
	if (key != "" || name == "tags") && g.chance(45) {
		order := []any{}
		for _, from := range [][]any{items, was} {
			for _, item := range from {
				if asObject, ok := item.(object); ok {
					if asObject["$patch"] != nil || asObject[key] == nil {
						continue
					}
					item = object{key: asObject[key]}
				}
				known := false
				for _, other := range order {
					known = known || reflect.DeepEqual(other, item)
				}
				if !known && g.chance(85) {
					order = append(order, item)
				}
			}
		}
		if g.chance(10) {
			g.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		patch["$setElementOrder/"+name] = order
		if g.chance(15) {
			delete(patch, name)
		}
	}
}

func (g *generator) path(in any) string {
	path := ""
	for g.chance(85) {
		switch value := in.(type) {
		case object:
			names := append(sorted(value), "new", "a/b~c")
			name := names[g.Intn(len(names))]
			path, in = path+"/"+escape(name), value[name]
		case []any:
			n := g.Intn(len(value)+3) - 1
			path += "/" + g.one(strconv.Itoa(n), strconv.Itoa(n), strconv.Itoa(n), "-", "x")
			in = nil
			if n >= 0 && n < len(value) {
				in = value[n]
			}
		default:
			return path
		}
	}
	return path
}

func escape(name string) string {
	if name == "a/b~c" {
		return "a~1b~0c"
	}
	return name
}

func (g *generator) operations(live object) []any {
	out := []any{}
	for n := 0; n <= g.Intn(4); n++ {
		op := object{"op": g.one("add", "remove", "replace", "move", "copy", "test"), "path": g.path(live)}
		switch op["op"] {
		case "move", "copy":
			op["from"] = g.path(live)
		case "add", "replace", "test":
			op["value"] = []any{nil, "x", int64(1), object{"a": "b"}, []any{"c"}}[g.Intn(5)]
		}
		out = append(out, op)
	}
	return out
}

func sorted[V any](in map[string]V) []string {
	names := make([]string, 0, len(in))
	for name := range in {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func marshal(in any) []byte {
	text, err := json.Marshal(in)
	check(err)
	return text
}

// strategic applies a strategic merge patch; the library panics on some items.
func strategic(live object, patch object) (out object, err any) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = "panic"
		}
	}()
	out, failure := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(live), runtime.DeepCopyJSON(patch), item{})
	if failure != nil {
		return nil, failure.Error()
	}
	return runtime.DeepCopyJSON(out), nil
}

func main() {
	cases := 80
	if len(os.Args) > 1 {
		var err error
		cases, err = strconv.Atoi(os.Args[1])
		check(err)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	for seed := 0; seed < cases; seed++ {
		g := &generator{rand.New(rand.NewSource(int64(seed)))}
		live := g.item(2)

		patch := g.item(2)
		g.spice(patch, live)
		c := testCase{Type: "strategic", Object: live, Patch: patch}
		result, err := strategic(live, patch)
		stable := err != "panic"
		for n := 0; n < 10 && stable; n++ {
			again, _ := strategic(live, patch)
			stable = reflect.DeepEqual(result, again)
		}
		switch {
		case !stable:
			// The library visits fields in random order, and the result depends on it.
			continue
		case err != nil:
			c.Error = err.(string)
		default:
			c.Result = result
		}
		check(encoder.Encode(c))

		small := g.item(1)
		c = testCase{Type: "json", Object: small, Patch: g.operations(small)}
		operations, failure := jsonpatch.DecodePatch(marshal(c.Patch))
		check(failure)
		text, failure := operations.Apply(marshal(small))
		if failure != nil {
			c.Error = "unprocessable"
		} else if json.Unmarshal(text, &c.Result) != nil {
			continue
		}
		check(encoder.Encode(c))

		if g.chance(50) {
			change := g.item(1)
			g.spice(change, object{})
			c = testCase{Type: "merge", Object: small, Patch: change}
			text, failure = jsonpatch.MergePatch(marshal(small), marshal(change))
			check(failure)
			check(json.Unmarshal(text, &c.Result))
			check(encoder.Encode(c))
		}
	}
}
