package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"

	crdopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	openapi "k8s.io/kubernetes/pkg/generated/openapi"
)

// structType is the line of a struct type in the table.
type structType struct {
	Type   string   `json:"type"`
	Atomic bool     `json:"a,omitempty"`
	Fields []*field `json:"fields"`

	goType reflect.Type
}

// field is a field of a struct type; devcluster/src/kinds explains the names.
type field struct {
	Name    string  `json:"n,omitempty"`
	Number  int     `json:"p,omitempty"`
	Shape   string  `json:"t"`
	Omit    string  `json:"o,omitempty"`
	Go      string  `json:"g,omitempty"`
	Merge   *string `json:"m,omitempty"`
	List    any     `json:"l,omitempty"`
	Atomic  bool    `json:"a,omitempty"`
	Default any     `json:"d,omitempty"`
	Server  any     `json:"s,omitempty"`
}

type types struct {
	byName  map[string]*structType
	schemas map[string]common.OpenAPIDefinition
}

func newTypes() *types {
	ref := func(path string) spec.Ref { return spec.MustCreateRef(path) }
	schemas := crdopenapi.GetOpenAPIDefinitions(ref)
	for name, definition := range openapi.GetOpenAPIDefinitions(ref) {
		schemas[name] = definition
	}
	return &types{byName: map[string]*structType{}, schemas: schemas}
}

func (ts *types) sorted() []*structType {
	var all []*structType
	for _, t := range ts.byName {
		all = append(all, t)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Type < all[j].Type })
	return all
}

// typeName returns the last two folders of the package and the name, such as core/v1.Pod.
func typeName(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/") + "." + t.Name()
}

// special lists types with their own JSON form, and types that protobuf wraps in a message.
var special = map[string]string{
	"meta/v1.Time": "Time", "meta/v1.MicroTime": "MicroTime", "meta/v1.Duration": "Duration",
	"api/resource.Quantity": "Quantity", "util/intstr.IntOrString": "IntOrString",
	"pkg/runtime.RawExtension": "RawExtension", "meta/v1.FieldsV1": "FieldsV1",
	"apiextensions/v1.JSON": "JSON", "apiextensions/v1.JSONSchemaPropsOrArray": "SchemaOrArray",
	"apiextensions/v1.JSONSchemaPropsOrBool":        "SchemaOrBool",
	"apiextensions/v1.JSONSchemaPropsOrStringArray": "SchemaOrStrings",
	"meta/v1.Verbs": "strings", "authentication/v1.ExtraValue": "strings",
	"authorization/v1.ExtraValue": "strings", "certificates/v1.ExtraValue": "strings",
}

func (ts *types) shape(t reflect.Type) string {
	if name, ok := special[typeName(t)]; ok {
		if strings.HasPrefix(name, "Schema") {
			ts.add(t.Field(map[string]int{"SchemaOrArray": 0, "SchemaOrBool": 1, "SchemaOrStrings": 0}[name]).
				Type.Elem())
		}
		return name
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64, reflect.Uint8:
		return t.Kind().String()
	case reflect.Pointer:
		return "*" + ts.shape(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + ts.shape(t.Elem())
	case reflect.Map:
		return "map[string]" + ts.shape(t.Elem())
	case reflect.Struct:
		return ts.add(t)
	}
	panic(fmt.Sprint("unexpected type ", t))
}

// add adds a struct type and the types of its fields to the table, and returns its name.
func (ts *types) add(t reflect.Type) string {
	name := typeName(t)
	if _, ok := ts.byName[name]; ok {
		return name
	}
	of := &structType{Type: name, Fields: []*field{}, goType: t}
	ts.byName[name] = of
	var schema spec.Schema
	if named, ok := reflect.Zero(t).Interface().(interface{ OpenAPIModelName() string }); ok {
		schema = ts.schemas[named.OpenAPIModelName()].Schema
	}
	if schema.Properties == nil && t.NumField() > 0 {
		fmt.Fprintln(os.Stderr, "no schema:", name)
	}
	of.Atomic = schema.Extensions["x-kubernetes-map-type"] == "atomic"
	for i := 0; i < t.NumField(); i++ {
		f := ts.field(t.Field(i))
		property := schema.Properties[f.Name]
		f.addExtensions(property.Extensions)
		of.Fields = append(of.Fields, f)
	}
	return name
}

func (ts *types) field(sf reflect.StructField) *field {
	f := &field{}
	parts := strings.Split(sf.Tag.Get("json"), ",")
	f.Name = parts[0]
	for _, option := range parts[1:] {
		switch {
		case option == "omitzero":
			f.Omit = "zero"
		case option == "omitempty" && f.Omit == "":
			f.Omit = "empty"
		}
	}
	if f.Name == "" && !sf.Anonymous {
		f.Name = sf.Name
	}
	if tag := strings.Split(sf.Tag.Get("protobuf"), ","); len(tag) > 1 {
		number, err := strconv.Atoi(tag[1])
		check(err)
		f.Number = number
	}
	f.Shape = ts.shape(sf.Type)
	if derived := goName(f.Shape); derived != sf.Type.String() {
		f.Go = sf.Type.String()
	}
	for _, strategy := range strings.Split(sf.Tag.Get("patchStrategy"), ",") {
		if strategy == "merge" {
			key := sf.Tag.Get("patchMergeKey")
			f.Merge = &key
		}
	}
	return f
}

// goName returns the name of the Go type for a shape, as the embedded server derives it.
func goName(shape string) string {
	for _, prefix := range []string{"*", "[]", "map[string]"} {
		if rest, ok := strings.CutPrefix(shape, prefix); ok {
			return prefix + goName(rest)
		}
	}
	switch shape {
	case "bytes":
		return "[]uint8"
	case "Time", "MicroTime", "Duration", "FieldsV1", "JSON":
		return "v1." + shape
	case "Quantity":
		return "resource.Quantity"
	case "IntOrString":
		return "intstr.IntOrString"
	case "RawExtension":
		return "runtime.RawExtension"
	case "strings":
		return "v1.ExtraValue"
	}
	return shape[strings.LastIndex(shape, "/")+1:]
}

func (f *field) addExtensions(extensions spec.Extensions) {
	switch extensions["x-kubernetes-list-type"] {
	case "set":
		f.List = []string{}
	case "map":
		f.List = extensions["x-kubernetes-list-map-keys"]
	}
	f.Atomic = extensions["x-kubernetes-map-type"] == "atomic"
}

// addKeyDefaults adds the defaults of fields that identify list items.
func (ts *types) addKeyDefaults() {
	for _, t := range ts.byName {
		for _, f := range t.Fields {
			keys, ok := f.List.([]any)
			if !ok {
				continue
			}
			items := ts.byName[strings.TrimLeft(f.Shape, "[]*")]
			named := reflect.Zero(items.goType).Interface().(interface{ OpenAPIModelName() string })
			properties := ts.schemas[named.OpenAPIModelName()].Schema.Properties
			for _, key := range keys {
				for _, itemField := range items.Fields {
					if itemField.Name == key {
						itemField.Default = properties[itemField.Name].Default
					}
				}
			}
		}
	}
}

func isZero(value any) bool {
	text, err := json.Marshal(value)
	check(err)
	switch string(text) {
	case "null", "0", `""`, "{}", "false":
		return true
	}
	return false
}
