//! The command line of each program, for a small and fast control plane with real behaviour.
//!
//! Pure functions of the files and ports. Health endpoints need no credentials by upstream's default.

use std::ffi::OsString;
use std::path::Path;

use crate::real::certificates::Certificates;

/// Name of etcd's Unix socket in the cluster's folder, which is the working folder of all programs: no port,
/// and closed to other users by the folder. etcd requires the form `host:port` for the name of the file.
pub(crate) const ETCD_SOCKET: &str = "etcd:0";
const ETCD_PEER_SOCKET: &str = "etcd:1";

/// Names of the controllers that Deployments, their autoscalers, Jobs, ServiceAccounts and deletion need;
/// each further controller costs a few megabytes and some watches.
const CONTROLLERS: &str = "clusterrole-aggregation-controller,cronjob-controller,deployment-controller,\
                           endpointslice-controller,garbage-collector-controller,\
                           horizontal-pod-autoscaler-controller,job-controller,namespace-controller,\
                           replicaset-controller,serviceaccount-controller,ttl-after-finished-controller";

/// The command line of one program, built flag by flag.
struct Flags(Vec<OsString>);

impl Flags {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn flag(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        let mut flag = OsString::from(format!("--{name}="));
        flag.push(value);
        self.0.push(flag);
        self
    }

    /// The flags of all HTTPS servers. They share the port with the [`Port`](crate::port::Port) that
    /// reserves it.
    fn serving(self, port: u16, certificates: &Certificates) -> Self {
        self.flag("bind-address", "127.0.0.1")
            .flag("secure-port", port.to_string())
            .flag("permit-port-sharing", "true")
            .flag("tls-cert-file", &certificates.server)
            .flag("tls-private-key-file", &certificates.server_key)
    }
}

pub(crate) fn etcd() -> Vec<OsString> {
    let client = format!("unix://{ETCD_SOCKET}");
    let peer = format!("unix://{ETCD_PEER_SOCKET}");
    Flags::new()
        .flag("name", "devcluster")
        .flag("data-dir", "etcd")
        .flag("listen-client-urls", &client)
        .flag("advertise-client-urls", &client)
        .flag("listen-peer-urls", &peer)
        .flag("initial-advertise-peer-urls", &peer)
        .flag("initial-cluster", format!("devcluster={peer}"))
        // The data are removed with the cluster; a disk flush per write would take most of a write's time.
        .flag("unsafe-no-fsync", "true")
        .flag("log-level", "warn")
        .0
}

pub(crate) fn apiserver(port: u16, certificates: &Certificates, extra: &[String]) -> Vec<OsString> {
    let mut flags = Flags::new()
        .flag("etcd-servers", format!("unix://{ETCD_SOCKET}"))
        .serving(port, certificates)
        .flag("client-ca-file", &certificates.authority)
        .flag("authorization-mode", "RBAC")
        .flag("service-account-issuer", "https://kubernetes.default.svc")
        .flag("service-account-key-file", &certificates.service_account_public_key)
        .flag("service-account-signing-key-file", &certificates.service_account_key)
        .flag("service-cluster-ip-range", "198.19.0.0/16")
        .flag("allow-privileged", "true")
        // No default route is needed, and no Endpoints of its own are kept.
        .flag("advertise-address", "127.0.0.1")
        .flag("endpoint-reconciler-type", "none")
        // Pods need no ServiceAccount of their own, and no controller here would remove the taint of a new
        // Node.
        .flag("disable-admission-plugins", "ServiceAccount,TaintNodesByCondition")
        .flag("profiling", "false")
        .0;
    flags.extend(extra.iter().map(OsString::from));
    flags
}

pub(crate) fn controller_manager(port: u16, certificates: &Certificates, kubeconfig: &Path) -> Vec<OsString> {
    Flags::new()
        .flag("kubeconfig", kubeconfig)
        .serving(port, certificates)
        .flag("controllers", CONTROLLERS)
        .flag("leader-elect", "false")
        // With the default limit of 20 requests a second, a test of a thousand objects would measure that
        // limit.
        .flag("kube-api-qps", "1000")
        .flag("kube-api-burst", "2000")
        // The default is 15 seconds, and a new autoscaler waits for the first period.
        .flag("horizontal-pod-autoscaler-sync-period", "1s")
        .flag("profiling", "false")
        .0
}

pub(crate) fn scheduler(port: u16, certificates: &Certificates, kubeconfig: &Path) -> Vec<OsString> {
    Flags::new()
        .flag("kubeconfig", kubeconfig)
        .serving(port, certificates)
        .flag("leader-elect", "false")
        .flag("kube-api-qps", "1000")
        .flag("kube-api-burst", "2000")
        .flag("profiling", "false")
        .0
}

pub(crate) fn kwok(kubeconfig: &Path, config: &Path) -> Vec<OsString> {
    Flags::new()
        .flag("kubeconfig", kubeconfig)
        .flag("config", config)
        // No controller here checks the Leases of Nodes.
        .flag("node-lease-duration-seconds", "0")
        .0
}
