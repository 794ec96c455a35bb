// Command informers runs client-go's shared informers over one namespace until its standard input closes.
//
// It prints one JSON object per line to standard output: each event when it arrives, and at the end the
// stored objects. The custom resource is read by a dynamic informer, the other kinds by typed ones.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// line is a line of the output: an event, or a stored object.
type line struct {
	Kind    string `json:"kind"`
	Event   string `json:"event,omitempty"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Stored  any    `json:"stored,omitempty"`
}

// out guards standard output, because each informer calls its handlers in a goroutine of its own.
var out sync.Mutex

func main() {
	kubeconfig := flag.String("kubeconfig", "", "who connects, and where to")
	namespace := flag.String("namespace", "default", "namespace of the objects")
	selector := flag.String("selector", "", "label selector of the Deployments")
	flag.Parse()
	if err := run(*kubeconfig, *namespace, *selector); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace, selector string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a typed client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a dynamic client: %w", err)
	}
	within := informers.WithNamespace(namespace)
	typed := informers.NewSharedInformerFactoryWithOptions(client, 0, within)
	selected := informers.NewSharedInformerFactoryWithOptions(client, 0, within,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
	custom := dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, 0, namespace, nil)
	foos := schema.GroupVersionResource{Group: "samplecontroller.k8s.io", Version: "v1alpha1", Resource: "foos"}

	all := map[string]cache.SharedIndexInformer{
		"configmaps":  typed.Core().V1().ConfigMaps().Informer(),
		"pods":        typed.Core().V1().Pods().Informer(),
		"deployments": selected.Apps().V1().Deployments().Informer(),
		"foos":        custom.ForResource(foos).Informer(),
	}
	ctx, cancel := context.WithCancel(context.Background())
	for kind, informer := range all {
		if _, err := informer.AddEventHandler(handler(kind)); err != nil {
			return fmt.Errorf("adding a handler for %s: %w", kind, err)
		}
	}
	typed.StartWithContext(ctx)
	selected.StartWithContext(ctx)
	custom.Start(ctx.Done())

	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	typed.Shutdown()
	selected.Shutdown()
	custom.Shutdown()
	for kind, informer := range all {
		for _, object := range informer.GetStore().List() {
			print(line{Kind: kind, Stored: object})
		}
	}
	return nil
}

// handler prints the events of one kind.
func handler(kind string) cache.ResourceEventHandler {
	event := func(event string, object any) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		meta := object.(metav1.Object)
		print(line{Kind: kind, Event: event, Name: meta.GetName(), Version: meta.GetResourceVersion()})
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { event("add", object) },
		UpdateFunc: func(_, object any) { event("update", object) },
		DeleteFunc: func(object any) { event("delete", object) },
	}
}

func print(l line) {
	out.Lock()
	defer out.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(l); err != nil {
		panic(err)
	}
}
