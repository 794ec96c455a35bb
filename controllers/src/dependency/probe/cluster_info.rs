//! The seam through which the policy and the checks read facts about the cluster, beside its Services.

use std::net::SocketAddr;

use futures_util::future::BoxFuture;
use mainstay_api::wait_for::ConfigMapKey;

use super::authorities::Authorities;

/// Reads facts about the cluster that the manager runs in.
pub trait ClusterInfo: Send + Sync + 'static {
    /// Returns the owner of an address if it must not be dialled: the API server or the manager. `None` for
    /// any other address. Fails with the cause while it is not known whether the address has such an owner.
    fn owner(&self, address: SocketAddr) -> Result<Option<AddressOwner>, String>;

    /// Returns whether a namespace enforces the Pod Security level baseline or restricted. Fails with the
    /// cause if the namespace cannot be read.
    fn is_restricted<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<bool, String>>;

    /// Reads certificate authorities from a key of a `ConfigMap` in the namespace.
    fn authorities<'a>(&'a self, namespace: &'a str, key: &'a ConfigMapKey) -> BoxFuture<'a, Authorities>;
}

/// The owner of an address that probes never dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressOwner {
    /// The address belongs to the API server.
    ApiServer,
    /// The address belongs to the machine or Pod that the manager runs on.
    Manager,
}
