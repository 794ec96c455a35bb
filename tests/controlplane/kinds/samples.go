package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/yaml"
)

// sample is an object as a client sends it, and optionally the object that it replaces.
type sample struct {
	Name string `json:"name"`
	In   string `json:"in"`
	Old  string `json:"old,omitempty"`
}

// judged is a sample with the results of the server's own code.
type judged struct {
	sample
	// Error is the decoding error; empty if the body can be decoded.
	Error string `json:"error,omitempty"`
	// Strict are the errors that only strict field validation reports.
	Strict []string `json:"strict,omitempty"`
	// Typed is the object after decoding and encoding.
	Typed json.RawMessage `json:"typed,omitempty"`
	// Out is the object with defaults, after conversion to the server's own types and back.
	Out json.RawMessage `json:"out,omitempty"`
	// Stored is the object as it would be stored, without the fields that differ each time.
	Stored json.RawMessage `json:"stored,omitempty"`
	// Invalid lists the validation errors: reason, field, message.
	Invalid [][3]string `json:"invalid,omitempty"`
}

func writeSamples(in io.Reader, out *bufio.Writer) {
	text, err := io.ReadAll(in)
	check(err)
	var samples []sample
	check(yaml.Unmarshal(text, &samples))
	byGVK := map[schema.GroupVersionKind]*kind{}
	for _, k := range servedKinds() {
		byGVK[k.gvk()] = k
	}
	for _, s := range samples {
		s.In, s.Old = asJSON(s.In), asJSON(s.Old)
		writeLine(out, judge(s, byGVK))
	}
}

func asJSON(text string) string {
	if text == "" || strings.HasPrefix(text, "{") {
		return strings.TrimSpace(text)
	}
	converted, err := yaml.YAMLToJSON([]byte(text))
	check(err)
	return string(converted)
}

func judge(s sample, byGVK map[schema.GroupVersionKind]*kind) (result judged) {
	result.sample = s
	scheme := legacyscheme.Scheme
	plain := kubejson.NewSerializerWithOptions(kubejson.DefaultMetaFactory, scheme, scheme,
		kubejson.SerializerOptions{Strict: true})
	typed, gvk, err := plain.Decode([]byte(s.In), nil, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, each := range strict.Errors() {
			result.Strict = append(result.Strict, each.Error())
		}
	} else if err != nil {
		result.Error = err.Error()
		return result
	}
	result.Typed = encode(plain, typed)
	internal := decodeInternal(s.In)
	encoder := serializer.NewCodecFactory(scheme).EncoderForVersion(plain, gvk.GroupVersion())
	result.Out = encode(encoder, internal)
	k := byGVK[*gvk]
	key := k.Plural
	if k.Group != "" {
		key += "." + k.Group
	}
	strategy := strategies[key]
	defer func() {
		if problem := recover(); problem != nil {
			fmt.Fprintln(os.Stderr, "sample", s.Name, "is not judged:", problem)
		}
	}()
	ctx := createContext(k)
	if s.Old == "" {
		rest.FillObjectMetaSystemFields(internal.(metav1.Object))
		err = rest.BeforeCreate(strategy, ctx, internal)
	} else {
		old := decodeInternal(s.Old)
		err = rest.BeforeUpdate(strategy.(rest.RESTUpdateStrategy), ctx, internal, old)
	}
	if err != nil {
		status, ok := err.(apierrors.APIStatus)
		if !ok || status.Status().Details == nil {
			result.Invalid = append(result.Invalid, [3]string{"", "", err.Error()})
			return result
		}
		for _, cause := range status.Status().Details.Causes {
			result.Invalid = append(result.Invalid, [3]string{string(cause.Type), cause.Field, cause.Message})
		}
		return result
	}
	meta := internal.(metav1.Object)
	meta.SetUID("")
	meta.SetCreationTimestamp(metav1.Time{})
	if k.Kind != "PersistentVolume" { // its status contains the time of its creation
		result.Stored = encode(encoder, internal)
	}
	return result
}

func decodeInternal(text string) runtime.Object {
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), []byte(text))
	check(err)
	return object
}

func encode(encoder runtime.Encoder, object runtime.Object) json.RawMessage {
	text, err := runtime.Encode(encoder, object)
	check(err)
	return json.RawMessage(strings.TrimSpace(string(text)))
}

// writeFixtures writes the objects with every field set that the release carries, as protobuf and as JSON.
func writeFixtures(out *bufio.Writer) {
	dir := filepath.Join(modulePlace("{{.Dir}}", "k8s.io/api"), "testdata", "HEAD")
	for _, k := range servedKinds() {
		group := k.Group
		if group == "" {
			group = "core"
		}
		path := filepath.Join(dir, group+"."+k.Version+"."+k.Kind)
		protobuf, err := os.ReadFile(path + ".pb")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		text, err := os.ReadFile(path + ".json")
		check(err)
		writeLine(out, map[string]any{
			"kind": k.Kind, "protobuf": base64.StdEncoding.EncodeToString(protobuf), "json": json.RawMessage(text),
		})
	}
}
