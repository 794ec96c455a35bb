//! What is said over a connection once there is one, by kind of check.
//!
//! Each kind speaks as little of its protocol as answers the question, with bounds on everything that the other side
//! may send, and tells nothing of what it sent: a status, a code, the kind of a failure.
//!
//! # Invariants
//! 1. No connection is opened here, no name is looked up, and no redirect is followed.
//! 2. Nothing is sent that the object does not say, but for a `Host`, a `User-Agent` and what the protocol asks for.
//! 3. A [`Failure`] holds no byte of an answer but its status code, and is the same for the same behaviour.

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

use super::dial::Connection;
use super::surroundings::Surroundings;
use crate::reasons::probe;

pub(super) use dns::{look_up, unresolved};
pub(super) use failure::Failure;

/// What the other side is told about us.
const USER_AGENT: &str = concat!("mainstay-probe/", env!("CARGO_PKG_VERSION"));

/// A check with everything it needs before there is a connection.
#[derive(Debug)]
pub(super) enum Talk<'a> {
    /// Nothing is said: being accepted is the answer.
    Nothing,
    Http(&'a HttpCheck),
    Grpc(&'a GrpcCheck),
    Tls(&'a TlsCheck, Arc<ClientConfig>),
}

/// Waits for an answer while its connection is driven.
async fn beside<T>(answer: impl Future<Output = T>, connection: impl Future) -> T {
    let (mut answer, connection) = (pin!(answer), pin!(connection));
    // Biased: an answer counts even where the connection has ended with it.
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // What was on the way is delivered, or fails.
        _ = connection => answer.await,
    }
}

// === impl Talk ===

impl<'a> Talk<'a> {
    /// Gets everything ready for a check that connects; a look-up says nothing over a connection.
    pub(super) async fn prepare(
        check: &'a ProbeCheck,
        namespace: &str,
        surroundings: &dyn Surroundings,
    ) -> Result<Self, Failure> {
        Ok(match check {
            ProbeCheck::Tcp(_) | ProbeCheck::Dns(_) => Self::Nothing,
            ProbeCheck::Http(http) => Self::Http(http),
            ProbeCheck::Grpc(grpc) => Self::Grpc(grpc),
            ProbeCheck::Tls(tls) => Self::Tls(tls, tls::trust(tls, namespace, surroundings).await?),
        })
    }

    /// Returns what it is if there is no end to [`prepare`](Self::prepare); `None` where nobody is asked for it.
    pub(super) fn unprepared(check: &ProbeCheck) -> Option<Failure> {
        let ProbeCheck::Tls(TlsCheck { ca: Some(key), .. }) = check else { return None };
        let message = format!("ConfigMap {} cannot be read: no answer in time", key.name);
        Some(Failure::before(probe::AUTHORITIES_NOT_FOUND, message))
    }

    /// Has the talk over one connection.
    pub(super) async fn over(&self, connection: Connection) -> Result<(), Failure> {
        match self {
            Self::Nothing => Ok(()),
            Self::Http(check) => http::get(check, connection).await,
            Self::Grpc(check) => grpc::health(check, connection).await,
            Self::Tls(check, config) => tls::verified(check, config, connection).await,
        }
    }
}
