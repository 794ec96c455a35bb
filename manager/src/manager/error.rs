//! What can go wrong in the life of a manager.

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
use crate::key::Chain;
use crate::queue::SettingsProblem;
use crate::reconcile::BoxError;
use crate::serve::CertificateError;

/// A manager could not be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A port of the configuration is taken or cannot be bound.
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
    /// There is no certificate to serve with.
    #[error("{key} cannot be used")]
    Certificates {
        /// Path of the key in the configuration.
        key: &'static str,
        /// What is wrong with it.
        source: CertificateError,
    },
    /// Nothing says where other replicas reach this one.
    #[error(
        "inspect.peers needs the address of this Pod; set the variable POD_IP by fieldRef status.podIP, or bind inspect to one address"
    )]
    NoPeerAddress,
    /// There is no token to guard the inspection with.
    #[error("inspect.tokenFile cannot be used")]
    TokenFile(#[source] TokenFileError),
    /// The connection to the API server cannot be set up.
    #[error("the connection to the API server cannot be set up")]
    Connect(#[from] ConnectError),
    /// The election's settings cannot work.
    #[error("the election cannot be held")]
    Election(#[source] InvalidSettings),
    /// Nothing says which namespace the Lease lives in.
    #[error(
        "leaderElection.namespace is empty and this process runs outside a cluster; set it or --leader-election-namespace, or turn the election off with --leader-elect=false"
    )]
    NoLeaseNamespace,
}

/// Something was registered that cannot run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name is none that a controller can have.
    #[error(
        "{name:?} is no name of a controller{}; expected 1 to 63 lower-case letters, digits and hyphens, no hyphen at \
         either end, such as web-frontend: it stands in metrics and the configuration",
        if **name == *EVERY_CONTROLLER { ", it means all of them" } else { "" }
    )]
    Name {
        /// The name.
        name: Arc<str>,
    },
    /// What is set makes no sense, after defaults, file and code have had their word. Displays one line per problem.
    #[error("{}", lines(name, problems))]
    Settings {
        /// The controller.
        name: Arc<str>,
        /// Everything that is wrong, by the paths of the configuration file below the controller's name. Never empty.
        problems: Vec<SettingsProblem>,
    },
    /// The name is none that a runnable can have.
    #[error(
        "{name:?} is no name of a runnable; expected 1 to 63 lower-case letters, digits and hyphens, no hyphen at \
         either end, such as price-feed: it stands in paths of probes"
    )]
    RunnableName {
        /// The name.
        name: Arc<str>,
    },
    /// The name is taken.
    #[error(
        "controller {name:?} is registered already; names must differ, they stand in metrics and the configuration"
    )]
    DuplicateName {
        /// The name.
        name: Arc<str>,
    },
    /// The name is none that a page can have, or another page has it.
    #[error(
        "{name:?} cannot be the name of a page; expected one that no other page under /debug has, 1 to 63 lower-case \
         letters, digits and hyphens, no hyphen at either end"
    )]
    PageName {
        /// The name.
        name: Arc<str>,
    },
    /// The controller was put together wrongly.
    #[error("controller {name:?} cannot run")]
    Wiring {
        /// The controller.
        name: Arc<str>,
        /// The mistake.
        #[source]
        source: WiringError,
    },
    /// The program has no such section in its configuration file.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// A runnable that needs the Lease runs once, and this manager may lead more than once: what the configuration says, so
    /// a `Program` ends as with any wrong input.
    #[error(
        "runnable {name:?} needs the Lease and cannot be started twice; use leaderElection.onLost: Exit, or a controller"
    )]
    RunsOnce {
        /// The runnable.
        name: Arc<str>,
    },
    /// The manager is stopping or has stopped.
    #[error("{name:?} came too late: the manager has begun to stop")]
    Stopped {
        /// What was to be registered.
        name: Arc<str>,
    },
}

/// A manager ended in another way than by being asked to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// `run` was called a second time.
    #[error("this manager has been run already; build a new one")]
    AlreadyRun,
    /// The thread for elections, probes and signals could not be started.
    #[error("the control thread could not be started")]
    ControlThread(#[source] io::Error),
    /// Something that runs in the manager failed; everything else was stopped.
    #[error("{name} failed{}", while_stopping(.others))]
    Failed {
        /// What failed first.
        name: Arc<str>,
        /// How it failed.
        #[source]
        source: BoxError,
        /// What failed besides or was late, in the order of the stop.
        others: Vec<StopError>,
    },
    /// The Lease was lost and `leaderElection.onLost` is `Exit`.
    #[error("the Lease was lost; a replica that lost it must not go on{}", while_stopping(.others))]
    LeaseLost {
        /// What failed besides or was late, in the order of the stop.
        others: Vec<StopError>,
    },
    /// Not everything had ended when the grace period was over.
    #[error("still running after shutdown.gracePeriod {grace:?}: {}{}", names.join(", "), while_stopping(.others))]
    Late {
        /// Who was late.
        names: Vec<String>,
        /// The period.
        grace: Duration,
        /// What failed while stopping, in the order of the stop.
        others: Vec<StopError>,
    },
}

/// What went wrong beside the reason a manager stopped for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StopError {
    /// Something that ran in the manager failed too, before it was told to stop or while it did.
    // Told here and no `source`, against the rule: nobody walks the causes of what is an attachment itself.
    #[error("{name} failed: {}", Chain(&**.error))]
    Failed {
        /// What failed.
        name: Arc<str>,
        /// How it failed.
        error: BoxError,
    },
    /// Something had not ended when its time was over.
    #[error("{name} was late")]
    Late {
        /// What was late.
        name: String,
    },
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
