//! What a program says of its manager that is in no file.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;

use crate::config::{ConfigSource, LogFilter};
use crate::election::unique_identity;
use crate::reconcile::BoxError;

/// What a manager is, apart from its configuration file.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// Stands in Events, as the one who reports them, and in `mainstay_build_info`.
    pub name: &'static str,
    /// Stands in `mainstay_build_info`; empty if nobody says.
    pub version: &'static str,
    /// Names this replica in the Lease; no two running replicas may have the same.
    pub identity: String,
    /// Whether SIGTERM and SIGINT stop this manager. Off where several managers live in one process.
    pub signals: bool,
    /// How long a watch may be down before its kind makes this replica unready. A minute: shorter outages are routine, as
    /// when an API server restarts.
    pub watch_down_limit: Duration,
    /// The file that the configuration was read from. While the manager runs it is followed: settings of controllers, the
    /// log level, the grace period and the live keys of the program's sections are applied as soon as it is saved, unless
    /// anything in it is wrong. `None` follows nothing.
    pub source: Option<ConfigSource>,
    /// Changes the log level together with the file; `None` leaves the log as the program has set it up.
    pub log: Option<Arc<dyn SetLogLevel>>,
    /// The Pod this process runs in, which Events about the configuration are recorded on. `None` outside a cluster.
    pub pod: Option<ObjectReference>,
    /// The address of that Pod, where other replicas ask this one if `inspect.peers` says so.
    pub pod_ip: Option<IpAddr>,
}

/// Changes which lines the process logs, while it runs. `program::logging::LogHandle` is one.
pub trait SetLogLevel: fmt::Debug + Send + Sync {
    /// Logs by this filter from now on. An error leaves the former filter in force.
    fn set_log_level(&self, filter: &LogFilter) -> Result<(), BoxError>;
}

// === impl ManagerOptions ===

impl ManagerOptions {
    /// Options of a process that is one replica: its identity is the name of its Pod, or of the host, and a random
    /// part, so that a restarted container is told from its predecessor. Its Pod is the one that the variables
    /// `POD_NAME`, `POD_NAMESPACE` and `POD_UID` name, and its address stands in `POD_IP`; a Deployment fills them
    /// by `fieldRef`.
    pub fn replica(name: &'static str) -> Self {
        let pod = own_pod();
        Self {
            name,
            version: "",
            identity: unique_identity(pod.as_ref().and_then(|pod| pod.name.as_deref())),
            signals: true,
            watch_down_limit: Duration::from_mins(1),
            source: None,
            log: None,
            pod,
            pod_ip: variable("POD_IP").and_then(|address| address.parse().ok()),
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The Pod this process runs in, if its environment says so.
fn own_pod() -> Option<ObjectReference> {
    Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(variable("POD_NAME")?),
        namespace: Some(variable("POD_NAMESPACE")?),
        uid: variable("POD_UID"),
        ..ObjectReference::default()
    })
}
