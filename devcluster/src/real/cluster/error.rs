//! The error of a failed start.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use crate::real::certificates::CertificateError;
use crate::real::programs::ProgramsError;

/// Deadline of the start of a cluster. A start takes three seconds on an idle machine; the bound is for a
/// machine that is busy compiling.
pub(super) const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// The reason why a cluster, or one of its programs, did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The programs of the control plane were not found, or could not be built.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// The temporary folder of the cluster, or a file in it, could not be made.
    #[error("preparing the cluster's temporary folder failed")]
    Folder(#[source] io::Error),
    /// The certificates of the cluster could not be made.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    /// The certificates of the cluster do not make a TLS client.
    #[error("preparing TLS failed")]
    Tls(#[from] rustls::Error),
    /// No port on loopback was free.
    #[error("taking a loopback port failed")]
    Port(#[source] io::Error),
    /// A program could not be started.
    #[error("starting {program} failed")]
    Spawn {
        /// Name of the program.
        program: &'static str,
        /// The error of the start of the program.
        source: io::Error,
    },
    /// A program ended while the cluster was starting.
    #[error(
        "{program} ended during start ({status}); logs kept in {logs}; its last lines:\n{quote}",
        logs = .logs.display()
    )]
    Ended {
        /// Name of the program that ended.
        program: &'static str,
        /// Exit status of the program that ended.
        status: ExitStatus,
        /// A folder with the logs of all programs.
        logs: PathBuf,
        /// Last lines of the log of the program that ended.
        quote: String,
    },
    /// A server or an object did not become ready in time.
    #[error(
        "{subject} was not ready within {READY_TIMEOUT:?} (last answer: {answer}); logs kept in {logs}",
        logs = .logs.display()
    )]
    NotReady {
        /// The server or object that did not become ready.
        subject: &'static str,
        /// Text of the last check that failed.
        answer: String,
        /// A folder with the logs of all programs.
        logs: PathBuf,
    },
}

// === impl StartError ===

impl StartError {
    /// Returns whether this machine has no control plane and no means to build one: tests may skip then.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Programs(ProgramsError::Unavailable))
    }
}
