// Command ownership records the results of the field manager of Kubernetes, as a fixture for the tests of the
// devcluster: sequences of applies and updates by several managers, with the object or the error after each.
//
// Usage: ownership [SEQUENCES] >devcluster/src/kinds/apply/tests/ownership.jsonl
//
// The first line of the output holds the schemas of a custom resource, the second the zero values of the
// built-in kinds; each further line is one sequence. SEQUENCES is the number of random ones; their seeds are
// fixed, so the output is always the same.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

type object = map[string]any

// step is one write and its result.
type step struct {
	Op          string `json:"op"`
	Manager     string `json:"manager"`
	Version     string `json:"version"`
	Subresource string `json:"subresource,omitempty"`
	Force       bool   `json:"force,omitempty"`
	// The body of an apply.
	Input object `json:"input,omitempty"`
	// The body of an update, as a change of the live object (see delta).
	Change any `json:"change,omitempty"`
	// The change of the live object by the write; absent after an error or without a change.
	Object any      `json:"object,omitempty"`
	Error  string   `json:"error,omitempty"`
	Causes []string `json:"causes,omitempty"`
}

type sequence struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Steps []step `json:"steps"`
}

// target is a kind with its field managers.
type target struct {
	gvk     func(version string) schema.GroupVersionKind
	manager func(version, subresource string) *managedfields.FieldManager
	// empty returns a new object of the type that the field manager works on.
	empty func(version string) runtime.Object
	// decode reads an object that a client sent, with defaults.
	decode func(version string, in object) runtime.Object
	// encode returns the object in a version.
	encode func(version string, in runtime.Object) object
	// complete adds defaults to an applied object.
	complete func(version string, in runtime.Object) runtime.Object
}

// run executes a sequence: each function gets a copy of the live object and returns a step with its input.
func run(t *target, name, kind string, writes []func(live object) *step) sequence {
	out := sequence{Name: name, Kind: kind}
	var live object
	for n, write := range writes {
		s := write(clone(live))
		if s == nil {
			continue
		}
		liveObject := t.empty(s.Version)
		if live != nil {
			stored := clone(live)
			stored["apiVersion"] = t.gvk(s.Version).GroupVersion().String()
			liveObject = t.decode(s.Version, stored)
		}
		fm := t.manager(s.Version, s.Subresource)
		started := time.Now()
		after := live
		var result runtime.Object
		var err error
		if s.Op == "apply" {
			result, err = fm.Apply(liveObject, &unstructured.Unstructured{Object: clone(s.Input)}, s.Manager, s.Force)
		} else {
			result = fm.UpdateNoErrors(liveObject, t.decode(s.Version, clone(s.Input)), s.Manager)
		}
		if err != nil {
			s.Error = err.Error()
			if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
				for _, cause := range status.Status().Details.Causes {
					s.Causes = append(s.Causes, cause.Message+" "+cause.Field)
				}
				sort.Strings(s.Causes)
			}
		} else {
			if s.Op == "apply" {
				result = t.complete(s.Version, result)
			}
			stored := t.encode(s.Version, result)
			retime(stored, started, int64(n))
			if live == nil {
				stored["metadata"].(object)["uid"] = "u"
			}
			if !equal(stored, live) {
				s.Object = delta(live, stored)
			}
			after = stored
		}
		if s.Op == "update" {
			s.Input, s.Change = nil, delta(live, s.Input)
		}
		live = after
		out.Steps = append(out.Steps, *s)
	}
	return out
}

// retime replaces all times since the start of the program by the n-th second of 2026.
func retime(stored object, started time.Time, n int64) {
	entries, _ := stored["metadata"].(object)["managedFields"].([]any)
	for _, entry := range entries {
		text, ok := entry.(object)["time"].(string)
		if !ok {
			continue
		}
		at, err := time.Parse(time.RFC3339, text)
		check(err)
		if !at.Before(started.Truncate(time.Second)) {
			entry.(object)["time"] = time.Date(2026, 1, 1, 0, 0, int(n), 0, time.UTC).Format(time.RFC3339)
		}
	}
}

func clone(in object) object {
	if in == nil {
		return nil
	}
	return runtime.DeepCopyJSON(in)
}

func equal(a, b object) bool {
	x, err := json.Marshal(a)
	check(err)
	y, err := json.Marshal(b)
	check(err)
	return string(x) == string(y)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// filters returns the fields that an endpoint ignores: status on the main endpoint, spec on status.
func filters(subresource string, versions ...string) map[fieldpath.APIVersion]fieldpath.Filter {
	field := "status"
	if subresource == "status" {
		field = "spec"
	}
	sets := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, version := range versions {
		sets[fieldpath.APIVersion(version)] = fieldpath.NewSet(fieldpath.MakePathOrDie(field))
	}
	return fieldpath.NewExcludeFilterSetMap(sets)
}

func main() {
	sequences := int64(100)
	if len(os.Args) > 1 {
		var err error
		sequences, err = strconv.ParseInt(os.Args[1], 10, 64)
		check(err)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	put := func(value any) { check(encoder.Encode(value)) }

	put(widgetSchemas())
	put(zeroValues())
	widgets := newWidgets()
	for _, scenario := range widgetScenarios() {
		put(run(widgets, scenario.name, "Widget", scenario.writes))
	}
	for seed := int64(1); seed <= sequences; seed++ {
		g := &generator{rand.New(rand.NewSource(seed))}
		put(run(widgets, fmt.Sprintf("random %d", seed), "Widget", g.writes()))
	}
	for _, scenario := range builtinScenarios() {
		put(run(scenario.target, scenario.name, scenario.kind, scenario.writes))
	}
	for _, scenario := range scaleScenarios() {
		put(scenario)
	}
}
