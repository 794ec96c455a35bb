package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	aggregator "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
)

// kind is the line of one kind in the table.
type kind struct {
	Kind           string   `json:"kind"`
	Group          string   `json:"group,omitempty"`
	Version        string   `json:"version"`
	Plural         string   `json:"plural"`
	Singular       string   `json:"singular"`
	Short          []string `json:"short,omitempty"`
	Categories     []string `json:"categories,omitempty"`
	Namespaced     bool     `json:"namespaced,omitempty"`
	Verbs          []string `json:"verbs"`
	Stored         []string `json:"stored,omitempty"`
	Status         bool     `json:"status,omitempty"`
	Scale          []string `json:"scale,omitempty"`
	Subresources   [][]any  `json:"subresources,omitempty"`
	Generation     string   `json:"generation,omitempty"`
	Unconditional  bool     `json:"unconditional,omitempty"`
	CreateOnUpdate bool     `json:"create_on_update,omitempty"`
	Select         [][]any  `json:"select,omitempty"`
	As             string   `json:"as"`

	goType reflect.Type
}

func (k *kind) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}

func init() {
	apiextensions.Install(legacyscheme.Scheme)
	aggregator.Install(legacyscheme.Scheme)
}

// servedKinds reads the discovery document of the release and keeps the versions that a server serves by
// default.
func servedKinds() []*kind {
	dir := filepath.Join(modulePlace("{{.Dir}}", "k8s.io/kubernetes"), "api", "discovery")
	enabled := controlplane.DefaultAPIResourceConfigSource()
	always := map[string]bool{"apiextensions.k8s.io": true, "apiregistration.k8s.io": true}
	var kinds []*kind
	for _, name := range []string{"aggregated_v2.json", "core"} {
		var list apidiscovery.APIGroupDiscoveryList
		if name == "core" {
			list = coreDiscovery(dir)
		} else {
			text, err := os.ReadFile(filepath.Join(dir, name))
			check(err)
			check(json.Unmarshal(text, &list))
		}
		for _, group := range list.Items {
			for _, version := range group.Versions {
				gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
				for _, resource := range version.Resources {
					if always[gv.Group] || enabled.ResourceEnabled(gv.WithResource(resource.Resource)) {
						kinds = append(kinds, newKind(gv, resource))
					}
				}
			}
		}
	}
	sort.Slice(kinds, func(i, j int) bool {
		a, b := kinds[i], kinds[j]
		return fmt.Sprint(a.Group, "/", a.Version, "/", a.Kind) < fmt.Sprint(b.Group, "/", b.Version, "/", b.Kind)
	})
	return kinds
}

// coreDiscovery turns the legacy document of the core group into the aggregated form.
func coreDiscovery(dir string) apidiscovery.APIGroupDiscoveryList {
	text, err := os.ReadFile(filepath.Join(dir, "api__v1.json"))
	check(err)
	var legacy metav1.APIResourceList
	check(json.Unmarshal(text, &legacy))
	version := apidiscovery.APIVersionDiscovery{Version: "v1"}
	at := map[string]int{}
	for _, r := range legacy.APIResources {
		scope := apidiscovery.ScopeCluster
		if r.Namespaced {
			scope = apidiscovery.ScopeNamespace
		}
		responds := &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
		parent, sub, isSub := cut(r.Name)
		if isSub {
			i, ok := at[parent]
			if !ok {
				continue
			}
			version.Resources[i].Subresources = append(version.Resources[i].Subresources,
				apidiscovery.APISubresourceDiscovery{Subresource: sub, ResponseKind: responds, Verbs: r.Verbs})
			continue
		}
		at[r.Name] = len(version.Resources)
		version.Resources = append(version.Resources, apidiscovery.APIResourceDiscovery{
			Resource: r.Name, ResponseKind: responds, Scope: scope, SingularResource: r.SingularName,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
	}
	return apidiscovery.APIGroupDiscoveryList{Items: []apidiscovery.APIGroupDiscovery{{
		Versions: []apidiscovery.APIVersionDiscovery{version},
	}}}
}

func cut(name string) (string, string, bool) {
	for i := range name {
		if name[i] == '/' {
			return name[:i], name[i+1:], true
		}
	}
	return name, "", false
}

func newKind(gv schema.GroupVersion, resource apidiscovery.APIResourceDiscovery) *kind {
	k := &kind{
		Group: gv.Group, Version: gv.Version, Kind: resource.ResponseKind.Kind, Plural: resource.Resource,
		Singular: resource.SingularResource, Short: resource.ShortNames, Categories: resource.Categories,
		Namespaced: resource.Scope == apidiscovery.ScopeNamespace, Verbs: resource.Verbs,
	}
	sort.Strings(k.Verbs)
	object, err := legacyscheme.Scheme.New(k.gvk())
	check(err)
	k.goType = reflect.TypeOf(object).Elem()
	for _, sub := range resource.Subresources {
		switch sub.Subresource {
		case "status":
			k.Status = true
		case "scale":
			k.Scale = []string{".spec.replicas", ".status.replicas", ".spec.selector"}
		default:
			group, version := sub.ResponseKind.Group, sub.ResponseKind.Version
			if version == "" {
				group, version = gv.Group, gv.Version
			}
			sort.Strings(sub.Verbs)
			k.Subresources = append(k.Subresources,
				[]any{sub.Subresource, group, version, sub.ResponseKind.Kind, sub.Verbs})
		}
	}
	key := k.Plural
	if k.Group != "" {
		key += "." + k.Group
	}
	if key == "events.events.k8s.io" {
		k.Stored = []string{"", "events"}
	}
	k.Select = selectable[key]
	if strategy, ok := strategies[key]; ok {
		k.Unconditional = strategy.AllowUnconditionalUpdate()
		k.CreateOnUpdate = strategy.AllowCreateOnUpdate()
		k.Generation = generation(strategy, k)
	} else if len(k.Verbs) > 1 {
		fmt.Fprintln(os.Stderr, "no strategy:", key)
	}
	if key == "customresourcedefinitions.apiextensions.k8s.io" {
		k.Generation = "content"
	}
	return k
}

// generation creates an empty object as the server does and returns whether it got a generation.
func generation(strategy rest.RESTCreateUpdateStrategy, k *kind) (rule string) {
	defer func() {
		if problem := recover(); problem != nil {
			fmt.Fprintln(os.Stderr, "generation of", k.Kind, "unknown:", problem)
		}
	}()
	versioned, err := legacyscheme.Scheme.New(k.gvk())
	check(err)
	legacyscheme.Scheme.Default(versioned)
	object, err := legacyscheme.Scheme.ConvertToVersion(versioned, runtime.InternalGroupVersioner)
	check(err)
	strategy.PrepareForCreate(createContext(k), object)
	if object.(metav1.Object).GetGeneration() == 0 {
		return ""
	}
	switch k.Kind {
	case "Deployment":
		return "content+annotations"
	case "EndpointSlice":
		return "content+labels"
	case "PriorityClass":
		return "fixed"
	}
	return "content"
}

func createContext(k *kind) context.Context {
	ctx := genericrequest.WithNamespace(context.Background(), metav1.NamespaceNone)
	if k.Namespaced {
		ctx = genericrequest.WithNamespace(ctx, "default")
	}
	return genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: k.Group, APIVersion: k.Version, Resource: k.Plural,
		Namespace: "default",
	})
}

// extraTypes lists the types of bodies and subresources that are not kinds themselves.
func extraTypes() []reflect.Type {
	var types []reflect.Type
	for _, value := range []any{
		metav1.DeleteOptions{}, metav1.CreateOptions{}, metav1.UpdateOptions{}, metav1.PatchOptions{},
		metav1.Status{}, metav1.PartialObjectMetadata{}, autoscalingv1.Scale{}, policyv1.Eviction{},
		corev1.Binding{}, authenticationv1.TokenRequest{}, corev1.ObjectReference{},
	} {
		types = append(types, reflect.TypeOf(value))
	}
	return types
}
