// Command programs is etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kubectl, depending on
// the name by which it is called.
//
// The five programs share nearly all of their code, so one binary saves four fifths of the disk space and
// most of the link time.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"mainstay.dev/controlplane/lifeline"

	// The upstream main packages register the same packages by import.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		lifeline.EndWithStdin()
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		serve(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		serve(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		serve(scheduler.NewSchedulerCommand())
	case "kubectl":
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	default:
		fmt.Fprintf(os.Stderr, "called as %q; expected etcd, kube-apiserver, kube-controller-manager, "+
			"kube-scheduler or kubectl\n", name)
		os.Exit(2)
	}
}

func serve(command *cobra.Command) {
	lifeline.EndWithStdin()
	os.Exit(cli.Run(command))
}
