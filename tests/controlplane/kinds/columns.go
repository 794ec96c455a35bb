package main

import (
	"io"
	"reflect"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/kubernetes/pkg/printers/internalversion"
)

// kindColumns is the line of a kind: its columns refer to the descriptions by their place in the first line.
type kindColumns struct {
	Group   string  `json:"group"`
	Kind    string  `json:"kind"`
	Columns [][]any `json:"columns"`
}

// columnsByType receives the column definitions of Kubernetes' printers.
type columnsByType map[reflect.Type][]metav1.TableColumnDefinition

func (c columnsByType) TableHandler(columns []metav1.TableColumnDefinition, print any) error {
	c[reflect.TypeOf(print).In(0).Elem()] = columns
	return nil
}

var _ printers.PrintHandler = columnsByType{}

// writeColumns writes the descriptions of columns, then a line for each kind that has a printer.
func writeColumns(out io.Writer) {
	byType := columnsByType{}
	internalversion.AddHandlers(byType)
	// The printer of this kind is a part of the aggregator.
	apiService := schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}
	// The registry of this kind does not use its printer.
	unused := schema.GroupKind{Group: "storage.k8s.io", Kind: "CSIStorageCapacity"}
	doc := metav1.ObjectMeta{}.SwaggerDoc()
	apiServiceColumns := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: doc["name"]},
		{Name: "Service", Type: "string", Description: "The reference to the service that hosts this API endpoint."},
		{Name: "Available", Type: "string", Description: "Whether this service is available."},
		{Name: "Age", Type: "string", Description: doc["creationTimestamp"]},
	}

	texts, places := []string{}, map[string]int{}
	lines := []kindColumns{}
	seen := map[schema.GroupKind]bool{}
	add := func(kind schema.GroupKind, columns []metav1.TableColumnDefinition) {
		if seen[kind] || len(columns) == 0 {
			return
		}
		seen[kind] = true
		line := kindColumns{Group: kind.Group, Kind: kind.Kind}
		for _, column := range columns {
			place, known := places[column.Description]
			if !known {
				place = len(texts)
				places[column.Description] = place
				texts = append(texts, column.Description)
			}
			line.Columns = append(line.Columns,
				[]any{column.Name, column.Type, column.Format, place, column.Priority})
		}
		lines = append(lines, line)
	}
	internal := func(kind schema.GroupVersionKind) reflect.Type {
		versioned, err := legacyscheme.Scheme.New(kind)
		check(err)
		object, err := legacyscheme.Scheme.ConvertToVersion(versioned, runtime.InternalGroupVersioner)
		if err != nil {
			return nil
		}
		return reflect.TypeOf(object).Elem()
	}
	for _, kind := range servedKinds() {
		switch gk := kind.gvk().GroupKind(); gk {
		case apiService:
			add(gk, apiServiceColumns)
		case unused:
		default:
			add(gk, byType[internal(kind.gvk())])
		}
	}
	scale := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	add(scale.GroupKind(), byType[internal(scale)])
	writeLine(out, texts)
	for _, line := range lines {
		writeLine(out, line)
	}
}
