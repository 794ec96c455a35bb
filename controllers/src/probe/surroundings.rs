//! What the policy and the checks have to know of the cluster beside its Services.

use std::net::SocketAddr;

use futures_util::future::BoxFuture;
use mainstay_api::wait_for::ConfigMapKey;

/// Knows the cluster that the manager is in.
pub trait Surroundings: Send + Sync + 'static {
    /// Returns whose an address is if nobody may have it dialled.
    fn owner(&self, address: SocketAddr) -> Option<Owner>;

    /// Returns whether a namespace enforces the Pod Security level baseline or restricted; fails with the cause if that
    /// cannot be known.
    fn is_restricted<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<bool, String>>;

    /// Reads a key of a `ConfigMap`.
    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        key: &'a ConfigMapKey,
    ) -> BoxFuture<'a, Result<String, NoText>>;
}

/// Who an address belongs to that is never dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The API server.
    ApiServer,
    /// The machine, or the Pod, of the manager itself.
    Manager,
}

/// Why there is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoText {
    /// There is no such `ConfigMap`, or no such key in it.
    Missing,
    /// It could not be read at present; with the cause.
    Unknown(String),
}

/// Knows nothing: for a process that is connected to no cluster. No address belongs to anybody, no namespace is
/// restricted, and there is no `ConfigMap`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSurroundings;

// === impl NoSurroundings ===

impl Surroundings for NoSurroundings {
    fn owner(&self, _: SocketAddr) -> Option<Owner> {
        None
    }

    fn is_restricted<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async { Ok(false) })
    }

    fn config_map<'a>(&'a self, _: &'a str, _: &'a ConfigMapKey) -> BoxFuture<'a, Result<String, NoText>> {
        Box::pin(async { Err(NoText::Missing) })
    }
}
