//! The options of a manager that are not in the configuration file.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;

use crate::config::{ConfigSource, LogFilter};
use crate::election::unique_identity;
use crate::reconcile::BoxError;

/// The options of a manager that its code sets, because they are not in the configuration file.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// The name of the program in Events and in the metric `mainstay_build_info`.
    pub name: &'static str,
    /// The version of the program in the metric `mainstay_build_info`; empty if unknown.
    pub version: &'static str,
    /// The identity of this replica in the Lease, different for each running replica.
    pub identity: String,
    /// Whether SIGTERM and SIGINT stop this manager. Turn it off with several managers in one process.
    pub signals: bool,
    /// Whether the manager reviews its [rights](crate::manager::Manager::rights) at the start, and reports
    /// those that it lacks in the log and at `/readyz/rights`.
    pub preflight: bool,
    /// Time after which a broken watch makes this replica unready. A minute by default: shorter outages are
    /// routine, such as a restart of the API server.
    pub watch_down_limit: Duration,
    /// The configuration file, which a running manager follows: settings of controllers, the log level, the
    /// grace period and the live keys of the program's sections are applied when it is saved, unless it has a
    /// mistake. `None` for no file.
    pub source: Option<ConfigSource>,
    /// Changes the log level when the configuration file changes it; `None` if the program sets up its own
    /// log.
    pub log: Option<Arc<dyn SetLogLevel>>,
    /// The Pod of this process, for Events about the configuration. `None` outside a cluster.
    pub pod: Option<ObjectReference>,
    /// The address of the Pod of this process, which other replicas use with `inspect.peers`; `None` if
    /// unknown.
    pub pod_ip: Option<IpAddr>,
}

/// Changes the log filter of the running process. `program::logging::LogHandle` implements it.
pub trait SetLogLevel: fmt::Debug + Send + Sync {
    /// Sets the log filter of the running process. After an error the former filter stays.
    fn set_log_level(&self, filter: &LogFilter) -> Result<(), BoxError>;
}

// === impl ManagerOptions ===

impl ManagerOptions {
    /// Returns the options of a process that is one replica. Its identity is the name of its Pod, or of the
    /// host, with a random part, so that a restarted container differs from its predecessor. The variables
    /// `POD_NAME`, `POD_NAMESPACE`, `POD_UID` and `POD_IP` describe its Pod; a Deployment sets them by
    /// `fieldRef`.
    pub fn replica(name: &'static str) -> Self {
        let pod = own_pod();
        Self {
            name,
            version: "",
            identity: unique_identity(pod.as_ref().and_then(|pod| pod.name.as_deref())),
            signals: true,
            preflight: true,
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

/// Returns a reference to the Pod this process runs in, from the variables `POD_NAME`, `POD_NAMESPACE` and
/// `POD_UID`; `None` if they are not set.
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
