// Command elector runs client-go's leader elector, for a Lease for which other processes campaign too.
//
// It logs its events to standard error like the manager, one JSON object per line. SIGTERM and SIGINT end the
// candidacy, as in a controller manager. It exits with code 0 after a signal, and with code 1 if it lost the
// Lease.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"mainstay.dev/controlplane/lifeline"
)

// line is a log line in the format of the manager's log.
type line struct {
	Time     time.Time                          `json:"ts"`
	Msg      string                             `json:"msg"`
	Identity string                             `json:"identity,omitempty"`
	Record   *resourcelock.LeaderElectionRecord `json:"record,omitempty"`
	Error    string                             `json:"error,omitempty"`
}

// settings are the values of the flags.
type settings struct {
	kubeconfig, namespace, name, identity     string
	leaseDuration, renewDeadline, retryPeriod time.Duration
	releaseOnCancel                           bool
}

// out guards standard error, because the elector calls its callbacks in different goroutines.
var out sync.Mutex

func main() {
	lifeline.EndWithStdin()
	var s settings
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "who connects, and where to")
	flag.StringVar(&s.namespace, "namespace", "default", "namespace of the Lease")
	flag.StringVar(&s.name, "name", "", "name of the Lease")
	flag.StringVar(&s.identity, "identity", "", "what to be called in the Lease")
	flag.DurationVar(&s.leaseDuration, "lease-duration", 15*time.Second, "client-go's LeaseDuration")
	flag.DurationVar(&s.renewDeadline, "renew-deadline", 10*time.Second, "client-go's RenewDeadline")
	flag.DurationVar(&s.retryPeriod, "retry-period", 2*time.Second, "client-go's RetryPeriod")
	flag.BoolVar(&s.releaseOnCancel, "release-on-cancel", true, "client-go's ReleaseOnCancel")
	flag.Parse()

	// Two signals: the first ends the candidacy, the second the process.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	if err := stand(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if ctx.Err() == nil {
		os.Exit(1)
	}
}

// stand campaigns for the Lease until the context ends or the Lease is lost.
func stand(ctx context.Context, s settings) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	lock, err := s.lock(config)
	if err != nil {
		return err
	}
	// A lock remembers the record that it read last, so reading the Lease in OnNewLeader needs a second lock.
	looking, err := s.lock(config)
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   s.leaseDuration,
		RenewDeadline:   s.renewDeadline,
		RetryPeriod:     s.retryPeriod,
		ReleaseOnCancel: s.releaseOnCancel,
		Name:            s.name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { tell(line{Msg: "started leading"}) },
			OnStoppedLeading: func() { tell(line{Msg: "stopped leading"}) },
			OnNewLeader: func(identity string) {
				record, _, err := looking.Get(ctx)
				if err != nil {
					tell(line{Msg: "new leader", Identity: identity, Error: err.Error()})
					return
				}
				tell(line{Msg: "new leader", Identity: identity, Record: record})
			},
		},
	})
	if err != nil {
		return fmt.Errorf("settings that client-go refuses: %w", err)
	}
	elector.Run(ctx)
	return nil
}

func (s settings) lock(config *rest.Config) (resourcelock.Interface, error) {
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, s.namespace, s.name,
		resourcelock.ResourceLockConfig{Identity: s.identity}, config, s.renewDeadline)
	if err != nil {
		return nil, fmt.Errorf("making the lock: %w", err)
	}
	return lock, nil
}

func tell(l line) {
	out.Lock()
	defer out.Unlock()
	l.Time = time.Now().UTC()
	// A write error means that standard error is closed; it is ignored.
	_ = json.NewEncoder(os.Stderr).Encode(l)
}
