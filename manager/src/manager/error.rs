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

/// A manager could not be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A port of the configuration cannot be bound.
    #[error(
        "{key} cannot be served: cannot listen on {address}; free the port or choose another bindAddress"
    )]
    Bind {
        /// Path of the key in the configuration.
        key: &'static str,
        /// Its value.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The certificate of a server cannot be used.
    #[error("{key} cannot be used")]
    Certificates {
        /// Path of the key in the configuration.
        key: &'static str,
        /// The error of the certificate.
        source: CertificateError,
    },
    /// The address at which other replicas reach this one is unknown.
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
    /// The settings of the election are invalid.
    #[error("the election cannot run")]
    Election(#[source] InvalidSettings),
    /// The namespace of the Lease is unknown.
    #[error(
        "leaderElection.namespace is empty and this process runs outside a cluster; set it or \
         --leader-election-namespace, or turn the election off with --leader-elect=false"
    )]
    NoLeaseNamespace,
}

/// A registration was refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name is no DNS label.
    #[error(
        "{name:?} is no name of a {part}{}; expected 1 to 63 lower-case letters, digits and hyphens, \
         no hyphen at either end, such as web-frontend: it appears in metrics, paths and the configuration",
        if **name == *EVERY_CONTROLLER { ", it means all controllers" } else { "" }
    )]
    Name {
        /// The part of the manager: controller, runnable, debug page or cluster.
        part: &'static str,
        /// The name.
        name: Arc<str>,
    },
    /// The name is taken.
    #[error(
        "{part} {name:?} exists already; choose another name, because metrics and paths tell them apart by it"
    )]
    DuplicateName {
        /// The part of the manager.
        part: &'static str,
        /// The name.
        name: Arc<str>,
    },
    /// Settings are out of bounds, after defaults, file and code. Displays one line per problem.
    #[error("{}", lines(name, problems))]
    Settings {
        /// The controller.
        name: Arc<str>,
        /// The problems, with paths of the configuration file below the controller's name. Never empty.
        problems: Vec<SettingsProblem>,
    },
    /// The controller is wired wrongly.
    #[error("controller {name:?} cannot run")]
    Wiring {
        /// The controller.
        name: Arc<str>,
        /// The mistake.
        #[source]
        source: WiringError,
    },
    /// The connection to the API server of a cluster cannot be set up.
    #[error("the connection to cluster {name:?} cannot be set up")]
    Connect {
        /// The cluster.
        name: Arc<str>,
        /// The error of the connection.
        #[source]
        source: ConnectError,
    },
    /// The program has no such section in its configuration file.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// A runnable that needs the Lease runs once, and with this configuration the manager may lead more than
    /// once. A `Program` ends as with any wrong input.
    #[error(
        "runnable {name:?} needs the Lease and cannot be started twice; use leaderElection.onLost: Exit, \
         or a controller"
    )]
    RunsOnce {
        /// The runnable.
        name: Arc<str>,
    },
    /// The manager is stopping or has stopped.
    #[error("{name:?} was not added: the manager has begun to stop")]
    Stopped {
        /// The controller, runnable or cluster.
        name: Arc<str>,
    },
}

/// A manager ended other than by an orderly stop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// `run` was called a second time.
    #[error("this manager has run already; make a new one")]
    AlreadyRun,
    /// The thread for elections, probes and signals could not be started.
    #[error("the control thread could not be started")]
    ControlThread(#[source] io::Error),
    /// A part of the manager failed, and all others were stopped.
    #[error("{name} failed{}", while_stopping(.others))]
    Failed {
        /// The part that failed first.
        name: Arc<str>,
        /// The failure.
        #[source]
        source: BoxError,
        /// Further failures and late parts, in the order of the stop.
        others: Vec<StopError>,
    },
    /// The Lease was lost and `leaderElection.onLost` is `Exit`.
    #[error("the Lease was lost, so this replica has to end{}", while_stopping(.others))]
    LeaseLost {
        /// Further failures and late parts, in the order of the stop.
        others: Vec<StopError>,
    },
    /// Parts still ran at the end of the grace period.
    #[error(
        "still running after shutdown.gracePeriod {grace:?}: {}{}", names.join(", "), while_stopping(.others)
    )]
    Late {
        /// The parts that still ran.
        names: Vec<String>,
        /// The grace period.
        grace: Duration,
        /// Failures during the stop, in its order.
        others: Vec<StopError>,
    },
}

/// A further failure during the stop of a manager.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StopError {
    /// Another part failed, before the stop or during it.
    // Displayed here instead of returned as `source`, because this error is an attachment of another.
    #[error("{name} failed: {}", Chain(&**.error))]
    Failed {
        /// The part.
        name: Arc<str>,
        /// The failure.
        error: BoxError,
    },
    /// A part still ran when its time was over.
    #[error("{name} was late")]
    Late {
        /// The part.
        name: String,
    },
}

// === impl RegisterError ===

impl RegisterError {
    /// Checks that a part of the manager has a valid name.
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
