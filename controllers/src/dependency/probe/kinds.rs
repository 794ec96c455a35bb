//! The exchange of each kind of check over an open connection.
//!
//! Each kind uses the smallest part of its protocol that decides the check, and bounds everything that the
//! server may send. A result contains nothing of the answer except a status code and the kind of a failure.
//!
//! # Invariants
//! 1. No connection is opened here, no redirect is followed, and names are resolved for `dns` checks only.
//! 2. A request contains the data of the check, a `Host`, a `User-Agent` and the fields that the protocol
//!    requires.
//! 3. A [`Failure`] contains no byte of an answer except its status code, and equal behaviour of a server
//!    gives equal failures.

mod dns;
mod failure;
#[cfg(any(test, fuzzing))]
#[path = "kinds/tests/fuzz.rs"]
pub mod fuzz;
mod grpc;
mod http;
#[cfg(test)]
mod tests;
mod tls;

use std::pin::pin;
use std::sync::Arc;

use mainstay_api::ProbeCheck;
use mainstay_api::plan::{GrpcCheck, HttpCheck, TlsCheck};
use rustls::ClientConfig;

use super::cluster_info::ClusterInfo;
use super::dial::Connection;
use crate::reasons::probe;

pub(super) use dns::{resolve_records, unresolved};
pub(super) use failure::Failure;

/// The value of the `User-Agent` header by which servers recognise a probe.
const USER_AGENT: &str = concat!("mainstay-probe/", env!("CARGO_PKG_VERSION"));

/// A check that is ready for its exchange over a connection.
#[derive(Debug)]
pub(super) enum PreparedCheck<'a> {
    /// A check without an exchange: an accepted connection is enough.
    Connect,
    Http(&'a HttpCheck),
    Grpc(&'a GrpcCheck),
    Tls(&'a TlsCheck, Arc<ClientConfig>),
}

/// Waits for an answer, and polls the connection that carries it meanwhile.
async fn drive_until<T>(answer: impl Future<Output = T>, connection: impl Future) -> T {
    let (mut answer, connection) = (pin!(answer), pin!(connection));
    // Biased: an answer counts even if the connection ends with it.
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // The connection has ended: data in flight is delivered, or the answer fails.
        _ = connection => answer.await,
    }
}

// === impl PreparedCheck ===

impl<'a> PreparedCheck<'a> {
    /// Prepares a check, which reads certificate authorities for a `tls` check. A `dns` check has no
    /// exchange.
    pub(super) async fn prepare(
        check: &'a ProbeCheck,
        namespace: &str,
        cluster: &dyn ClusterInfo,
    ) -> Result<Self, Failure> {
        Ok(match check {
            ProbeCheck::Tcp(_) | ProbeCheck::Dns(_) => Self::Connect,
            ProbeCheck::Http(http) => Self::Http(http),
            ProbeCheck::Grpc(grpc) => Self::Grpc(grpc),
            ProbeCheck::Tls(tls) => Self::Tls(tls, tls::trust(tls, namespace, cluster).await?),
        })
    }

    /// Returns the failure to report if [`prepare`](Self::prepare) of this check does not end in time; `None`
    /// if it sends no request.
    pub(super) fn prepare_timeout(check: &ProbeCheck) -> Option<Failure> {
        let ProbeCheck::Tls(TlsCheck { ca: Some(key), .. }) = check else { return None };
        let message = format!("ConfigMap {} cannot be read: no answer in time", key.name);
        Some(Failure::before(probe::AUTHORITIES_NOT_FOUND, message))
    }

    /// Runs the check over one open connection. Succeeds if the answer of the server is the expected one.
    pub(super) async fn run(&self, connection: Connection) -> Result<(), Failure> {
        match self {
            Self::Connect => Ok(()),
            Self::Http(check) => http::get(check, connection).await,
            Self::Grpc(check) => grpc::health(check, connection).await,
            Self::Tls(check, config) => tls::verified(check, config, connection).await,
        }
    }
}
