//! The errors of a manager.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::guard::TokenFileError;
use crate::client::connect::ConnectError;
use crate::config::{EVERY_CONTROLLER, SectionError};
use crate::controller::WiringError;
use crate::election::InvalidSettings;
use crate::key::{Chain, is_dns_label};
use crate::queue::SettingsProblem;
use crate::reconcile::BoxError;
use crate::serve::CertificateError;

/// Error of [`Manager::new`](super::Manager::new): a manager could not be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The port of a server in the configuration cannot be bound.
    #[error(
        "{key} cannot be served: cannot listen on {address}; free the port or choose another bindAddress"
    )]
    Bind {
        /// Path of the key in the configuration file, such as `health.bindAddress`.
        key: &'static str,
        /// The address in the configuration that cannot be bound.
        address: SocketAddr,
        /// The error of the operating system when the port was bound.
        source: io::Error,
    },
    /// The TLS certificate of a server in the configuration cannot be used.
    #[error("{key} cannot be used")]
    Certificates {
        /// Path of the key in the configuration file, such as `metrics.tlsDir`.
        key: &'static str,
        /// The error of the certificate or of its files.
        source: CertificateError,
    },
    /// `inspect.peers` is on, but the address at which other replicas reach this one is unknown.
    #[error(
        "inspect.peers needs the address of this Pod; set the variable POD_IP by fieldRef status.podIP, \
         or bind inspect to one address"
    )]
    NoPeerAddress,
    /// The file `inspect.tokenFile` cannot be read, or holds no token.
    #[error("inspect.tokenFile cannot be used")]
    TokenFile(#[source] TokenFileError),
    /// The connection to the API server cannot be set up.
    #[error("the connection to the API server cannot be set up")]
    Connect(#[from] ConnectError),
    /// The settings of the leader election are invalid.
    #[error("the election cannot run")]
    Election(#[source] InvalidSettings),
    /// The namespace of the Lease is unknown: it is not configured, and the process runs outside a cluster.
    #[error(
        "leaderElection.namespace is empty and this process runs outside a cluster; set it or \
         --leader-election-namespace, or turn the election off with --leader-elect=false"
    )]
    NoLeaseNamespace,
}

/// Error of a registration with the manager: a controller, runnable, debug page or cluster was refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name of the part is no DNS label.
    #[error(
        "{name:?} is no name of a {part}{}; expected 1 to 63 lower-case letters, digits and hyphens, \
         no hyphen at either end, such as web-frontend: it appears in metrics, paths and the configuration",
        if **name == *EVERY_CONTROLLER { ", it means all controllers" } else { "" }
    )]
    Name {
        /// The kind of the part with the invalid name: controller, runnable, debug page or cluster.
        part: &'static str,
        /// The invalid name of the part.
        name: Arc<str>,
    },
    /// The name is taken by another part of the same kind.
    #[error(
        "{part} {name:?} exists already; choose another name, because metrics and paths tell them apart by it"
    )]
    DuplicateName {
        /// The kind of the part with the taken name: controller, debug page or cluster.
        part: &'static str,
        /// The taken name.
        name: Arc<str>,
    },
    /// The settings of a controller are out of bounds, after defaults, file and code. Displays one line per
    /// problem.
    #[error("{}", lines(name, problems))]
    Settings {
        /// The name of the controller that was refused.
        name: Arc<str>,
        /// The problems of the controller's settings, with paths of the configuration file below the
        /// controller's name. Never empty.
        problems: Vec<SettingsProblem>,
    },
    /// The controller is wired wrongly, so it cannot run.
    #[error("controller {name:?} cannot run")]
    Wiring {
        /// The name of the controller that was refused.
        name: Arc<str>,
        /// The mistake in the wiring of the controller.
        #[source]
        source: WiringError,
    },
    /// The connection to the API server of a cluster cannot be set up.
    #[error("the connection to cluster {name:?} cannot be set up")]
    Connect {
        /// The name of the cluster that was refused.
        name: Arc<str>,
        /// The error of the connection to the cluster.
        #[source]
        source: ConnectError,
    },
    /// The program declares no such section of its configuration file.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// A runnable that needs the Lease runs once, but with this configuration the manager may lead more than
    /// once. A `Program` ends as with any wrong input.
    #[error(
        "runnable {name:?} needs the Lease and cannot be started twice; use leaderElection.onLost: Exit, \
         or a controller"
    )]
    RunsOnce {
        /// The name of the runnable that was refused.
        name: Arc<str>,
    },
    /// The part was refused because the manager is stopping or has stopped.
    #[error("{name:?} was not added: the manager has begun to stop")]
    Stopped {
        /// The name of the controller, runnable or cluster that was refused.
        name: Arc<str>,
    },
}

/// Error of [`Manager::run`](super::Manager::run): the manager ended other than by an orderly stop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// `run` was called a second time on the same manager.
    #[error("this manager has run already; make a new one")]
    AlreadyRun,
    /// The thread for elections, probes and signals could not be started.
    #[error("the control thread could not be started")]
    ControlThread(#[source] io::Error),
    /// A part of the manager failed, and all other parts were stopped.
    #[error("{name} failed{}", while_stopping(.others))]
    Failed {
        /// The name of the part of the manager that failed first.
        name: Arc<str>,
        /// The error of the part that failed first.
        #[source]
        source: BoxError,
        /// Further failed and late parts of the manager, in the order of the stop.
        others: Vec<StopError>,
    },
    /// The Lease was lost, and `leaderElection.onLost` is `Exit`, so the manager ended.
    #[error("the Lease was lost, so this replica has to end{}", while_stopping(.others))]
    LeaseLost {
        /// Further failed and late parts of the manager, in the order of the stop.
        others: Vec<StopError>,
    },
    /// Parts of the manager still ran at the end of the grace period.
    #[error(
        "still running after shutdown.gracePeriod {grace:?}: {}{}", names.join(", "), while_stopping(.others)
    )]
    Late {
        /// The names of the parts that still ran at the end of the grace period.
        names: Vec<String>,
        /// The grace period that the parts exceeded.
        grace: Duration,
        /// Failures of other parts during the stop, in its order.
        others: Vec<StopError>,
    },
}

/// A further failure of a part during the stop of a manager, beside the error that the manager ended with.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StopError {
    /// Another part of the manager failed, before the stop or during it.
    // Displayed here instead of returned as `source`, because this error is an attachment of another.
    #[error("{name} failed: {}", Chain(&**.error))]
    Failed {
        /// The name of the part that failed.
        name: Arc<str>,
        /// The error of the part that failed.
        error: BoxError,
    },
    /// A part of the manager still ran when its time to stop was over.
    #[error("{name} was late")]
    Late {
        /// The name of the part that still ran.
        name: String,
    },
}

// === impl RegisterError ===

impl RegisterError {
    /// Returns an error unless `name` is a valid name, a DNS label, for a part of the manager of the kind
    /// `part`.
    pub(super) fn check_name(part: &'static str, name: &str) -> Result<(), Self> {
        if is_dns_label(name) { Ok(()) } else { Err(Self::Name { part, name: name.into() }) }
    }
}

fn lines(name: &str, problems: &[SettingsProblem]) -> String {
    let line = |problem: &SettingsProblem| format!("controller {name:?}: {problem}");
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn while_stopping(others: &[StopError]) -> String {
    if others.is_empty() {
        return String::new();
    }
    let others: Vec<_> = others.iter().map(ToString::to_string).collect();
    format!(" (while stopping: {})", others.join("; "))
}
