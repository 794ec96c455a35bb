package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// conditional lists fields with a default that depends on other fields; the embedded server sets these in code.
var conditional = map[string]bool{
	"apps/v1.DaemonSetUpdateStrategy.rollingUpdate": true, "apps/v1.DeploymentStrategy.rollingUpdate": true,
	"apps/v1.StatefulSetUpdateStrategy.rollingUpdate": true, "autoscaling/v2.HPAScalingRules.selectPolicy": true,
	"autoscaling/v2.HPAScalingRules.stabilizationWindowSeconds": true, "core/v1.ConfigMap.data": true,
	"core/v1.Container.imagePullPolicy": true, "core/v1.EphemeralContainerCommon.imagePullPolicy": true,
	"core/v1.ImageVolumeSource.pullPolicy": true, "core/v1.PodSpec.enableServiceLinks": true,
	"core/v1.ServiceSpec.internalTrafficPolicy": true, "core/v1.VolumeSource.emptyDir": true,
	"networking/v1.NetworkPolicySpec.policyTypes": true, "resource/v1.DeviceSubRequest.count": true,
	"resource/v1.DeviceTaint.timeAdded": true, "resource/v1.ExactDeviceRequest.count": true,
}

// findings counts the default values of each field that was zero before.
type findings map[*field]map[string]int

// addDefaults runs the server's own defaulting on objects of each kind, once with as many parents filled as
// possible and once with none, and adds the fields that got a value to the table.
func (ts *types) addDefaults(kinds []*kind) {
	ts.addKeyDefaults()
	found := findings{}
	created := map[*field]string{}
	for _, k := range kinds {
		for _, full := range []bool{true, false} {
			object := reflect.New(k.goType)
			fill(object.Elem(), full, 0)
			before := object.Interface().(runtime.Object).DeepCopyObject()
			legacyscheme.Scheme.Default(object.Interface().(runtime.Object))
			ts.compare(reflect.ValueOf(before).Elem(), object.Elem(), found, created)
		}
	}
	for _, t := range ts.sorted() {
		for _, f := range t.Fields {
			name := t.Type + "." + f.Name
			values := found[f]
			_, unset := values[""]
			switch {
			case len(values) == 0 || len(values) == 1 && unset || conditional[name]:
			case len(values) > 1:
				fmt.Fprintln(os.Stderr, "several defaults:", name, values)
			default:
				for text := range values {
					check(json.Unmarshal([]byte(text), &f.Server))
				}
				if created[f] != "" {
					fmt.Fprintln(os.Stderr, "a default that adds a parent:", name, created[f])
				}
			}
		}
	}
}

// fill adds one element to every list and map of structs, and with full also sets every pointer.
func fill(value reflect.Value, full bool, depth int) {
	if depth > 14 || special[typeName(value.Type())] != "" {
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for i := 0; i < value.NumField(); i++ {
			if value.Type().Field(i).Name == "ObjectMeta" {
				continue
			}
			fill(value.Field(i), full, depth+1)
		}
	case reflect.Pointer:
		if full && value.Type().Elem().Kind() == reflect.Struct && special[typeName(value.Type().Elem())] == "" {
			value.Set(reflect.New(value.Type().Elem()))
			fill(value.Elem(), full, depth+1)
		}
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Struct && special[typeName(value.Type().Elem())] == "" {
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
			fill(value.Index(0), full, depth+1)
		}
	}
}

func (ts *types) compare(before, after reflect.Value, found findings, created map[*field]string) {
	switch before.Kind() {
	case reflect.Pointer:
		if !before.IsNil() && !after.IsNil() {
			ts.compare(before.Elem(), after.Elem(), found, created)
		}
	case reflect.Slice:
		for i := 0; i < before.Len() && i < after.Len(); i++ {
			ts.compare(before.Index(i), after.Index(i), found, created)
		}
	case reflect.Struct:
		t := ts.byName[typeName(before.Type())]
		if t == nil {
			return
		}
		for i, f := range t.Fields {
			old, new := before.Field(i), after.Field(i)
			if !old.IsZero() || old.Kind() == reflect.Struct {
				ts.compare(old, new, found, created)
				continue
			}
			if found[f] == nil {
				found[f] = map[string]int{}
			}
			text := ""
			if !new.IsZero() {
				encoded, err := json.Marshal(new.Interface())
				check(err)
				text = string(encoded)
				if new.Kind() == reflect.Pointer && new.Elem().Kind() == reflect.Struct {
					created[f] = text
				}
			}
			found[f][text]++
		}
	}
}
