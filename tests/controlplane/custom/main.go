// Command custom validates custom resources and their definitions with the code of the real server. It reads
// cases from standard input and writes them with the errors, the removed fields and the resulting objects. The
// tests of the devcluster compare their results with this file. To add a case, edit the file and renew it with
//
//	file=../../devcluster/src/kinds/custom/answers.json
//	go run ./custom < $file > answers.json && mv answers.json $file
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type testCase struct {
	Name string `json:"name"`
	// Definition and OldDefinition are CustomResourceDefinitions to validate; OldDefinition is set for an update.
	Definition    json.RawMessage `json:"definition,omitempty"`
	OldDefinition json.RawMessage `json:"oldDefinition,omitempty"`
	// Schema is the schema of Object and Old.
	Schema       json.RawMessage `json:"schema,omitempty"`
	Subresources json.RawMessage `json:"subresources,omitempty"`
	Object       json.RawMessage `json:"object,omitempty"`
	Old          json.RawMessage `json:"old,omitempty"`
	// Status is whether the case is an update of the status subresource.
	Status  bool            `json:"status,omitempty"`
	Unknown []string        `json:"unknown,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Errors  []answer        `json:"errors,omitempty"`
}

type answer struct {
	Field   string `json:"field"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

var scheme = runtime.NewScheme()

func main() {
	install.Install(scheme)
	var cases []*testCase
	check(json.NewDecoder(os.Stdin).Decode(&cases))
	for _, one := range cases {
		one.Unknown, one.Errors, one.Result = nil, nil, nil
		var errs field.ErrorList
		if one.Definition != nil {
			errs = judgeDefinition(one)
		} else {
			errs = judgeObject(one)
		}
		for _, err := range errs {
			one.Errors = append(one.Errors, answer{err.Field, string(err.Type), err.ErrorBody()})
		}
		sort.Slice(one.Errors, func(i, j int) bool {
			a, b := one.Errors[i], one.Errors[j]
			return a.Field < b.Field || a.Field == b.Field && a.Message < b.Message
		})
	}
	fmt.Print("[\n")
	for i, one := range cases {
		line := &bytes.Buffer{}
		encoder := json.NewEncoder(line)
		encoder.SetEscapeHTML(false)
		check(encoder.Encode(one))
		if i > 0 {
			fmt.Print(",\n")
		}
		fmt.Print(strings.TrimSpace(line.String()))
	}
	fmt.Print("\n]\n")
}

func judgeDefinition(one *testCase) field.ErrorList {
	ctx := context.Background()
	if one.OldDefinition != nil {
		return crdvalidation.ValidateCustomResourceDefinitionUpdate(ctx, definition(one.Definition), definition(one.OldDefinition))
	}
	return crdvalidation.ValidateCustomResourceDefinition(ctx, definition(one.Definition))
}

// definition decodes a definition, adds defaults and prepares it as the strategy of the server does.
func definition(raw json.RawMessage) *apiextensions.CustomResourceDefinition {
	external := &apiextensionsv1.CustomResourceDefinition{}
	check(json.Unmarshal(raw, external))
	scheme.Default(external)
	internal := &apiextensions.CustomResourceDefinition{}
	check(scheme.Convert(external, internal, nil))
	if len(internal.Status.StoredVersions) == 0 {
		for _, v := range internal.Spec.Versions {
			if v.Storage {
				internal.Status.StoredVersions = []string{v.Name}
				break
			}
		}
	}
	return internal
}

func judgeObject(one *testCase) field.ErrorList {
	externalSchema := &apiextensionsv1.CustomResourceValidation{}
	check(json.Unmarshal([]byte(fmt.Sprintf(`{"openAPIV3Schema":%s}`, one.Schema)), externalSchema))
	internalSchema := &apiextensions.CustomResourceValidation{}
	check(apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(externalSchema, internalSchema, nil))
	structural, err := structuralschema.NewStructural(internalSchema.OpenAPIV3Schema)
	check(err)
	validator, _, err := validation.NewSchemaValidator(internalSchema.OpenAPIV3Schema)
	check(err)
	var statusValidator validation.SchemaValidator
	if status, ok := internalSchema.OpenAPIV3Schema.Properties["status"]; ok {
		statusValidator, _, err = validation.NewSchemaValidator(&status)
		check(err)
	}
	subresources := apiextensions.CustomResourceSubresources{}
	if one.Subresources != nil {
		external := &apiextensionsv1.CustomResourceSubresources{}
		check(json.Unmarshal(one.Subresources, external))
		check(apiextensionsv1.Convert_v1_CustomResourceSubresources_To_apiextensions_CustomResourceSubresources(external, &subresources, nil))
	}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	strategy := customresource.NewStrategy(nil, true, kind, validator, statusValidator, structural, subresources.Status, subresources.Scale, nil)
	object, err2 := admit(one.Object, structural, &one.Unknown)
	if err2 != nil {
		return field.ErrorList{err2}
	}
	one.Result, err = json.Marshal(object.Object)
	check(err)
	ctx := context.Background()
	if one.Old == nil {
		return strategy.Validate(ctx, object)
	}
	old, err2 := admit(one.Old, structural, nil)
	if err2 != nil {
		return field.ErrorList{err2}
	}
	if one.Status {
		return customresource.NewStatusStrategy(strategy).ValidateUpdate(ctx, object, old)
	}
	return strategy.ValidateUpdate(ctx, object, old)
}

// admit decodes an object as the handler of custom resources does.
func admit(raw json.RawMessage, structural *structuralschema.Structural, unknown *[]string) (*unstructured.Unstructured, *field.Error) {
	object := &unstructured.Unstructured{}
	check(utiljson.Unmarshal(raw, &object.Object))
	paths := pruning.PruneWithOptions(object.Object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, structural)
	err, more := objectmeta.CoerceWithOptions(nil, object.Object, structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if unknown != nil {
		*unknown = append(paths, more...)
	}
	defaulting.Default(object.Object, structural)
	return object, err
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
