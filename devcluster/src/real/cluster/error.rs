//! The error of a failed start.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use crate::real::certificates::CertificateError;
use crate::real::programs::ProgramsError;

/// A start takes three seconds on an idle machine; the bound is for a machine that is busy compiling.
pub(super) const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// Why a cluster, or one of its programs, did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There are no programs to start, or they could not be built.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// The temporary folder or a file in it could not be made.
    #[error("preparing the cluster's temporary folder failed")]
    Folder(#[source] io::Error),
    /// The identities could not be made.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    /// The identities do not make a TLS client.
    #[error("preparing TLS failed")]
    Tls(#[from] rustls::Error),
    /// No port on loopback was free.
    #[error("taking a loopback port failed")]
    Port(#[source] io::Error),
    /// A program could not be started.
    #[error("starting {program} failed")]
    Spawn {
        /// The program.
        program: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A program ended while the cluster was starting.
    #[error(
        "{program} ended during start ({status}); logs kept in {logs}; its last lines:\n{quote}",
        logs = .logs.display()
    )]
    Ended {
        /// The program.
        program: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// A folder with the logs of all programs.
        logs: PathBuf,
        /// The end of its log.
        quote: String,
    },
    /// A server or an object did not become ready in time.
    #[error(
        "{subject} was not ready within {READY_TIMEOUT:?} (last answer: {answer}); logs kept in {logs}",
        logs = .logs.display()
    )]
    NotReady {
        /// The server or object.
        subject: &'static str,
        /// The result of the last check.
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
