//! What the policy and the checks have to know of the cluster beside its Services.

use std::net::SocketAddr;

use futures_util::future::BoxFuture;
use mainstay_api::wait_for::ConfigMapKey;

use super::authorities::{Authorities, NoAuthorities};

/// Knows the cluster that the manager is in.
pub trait Surroundings: Send + Sync + 'static {
    /// Returns whose an address is if nobody may have it dialled; fails with the cause if it is nobody's that is known,
    /// and not all are known.
    fn owner(&self, address: SocketAddr) -> Result<Option<Owner>, String>;

    /// Returns whether a namespace enforces the Pod Security level baseline or restricted; fails with the cause if that
    /// cannot be known.
    fn is_restricted<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<bool, String>>;

    /// Reads certificate authorities from a key of a `ConfigMap`.
    fn authorities<'a>(&'a self, namespace: &'a str, key: &'a ConfigMapKey) -> BoxFuture<'a, Authorities>;
}

/// Who an address belongs to that is never dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The API server.
    ApiServer,
    /// The machine, or the Pod, of the manager itself.
    Manager,
}

/// Knows nothing: for a process that is connected to no cluster. No address belongs to anybody, no namespace is
/// restricted, and there is no `ConfigMap`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSurroundings;

// === impl NoSurroundings ===

impl Surroundings for NoSurroundings {
    fn owner(&self, _: SocketAddr) -> Result<Option<Owner>, String> {
        Ok(None)
    }

    fn is_restricted<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async { Ok(false) })
    }

    fn authorities<'a>(&'a self, _: &'a str, _: &'a ConfigMapKey) -> BoxFuture<'a, Authorities> {
        Box::pin(async { Err(NoAuthorities::Missing) })
    }
}
