//! Fakes for tests without a cluster.

use std::net::SocketAddr;

use futures_util::future::BoxFuture;
use mainstay_api::wait_for::ConfigMapKey;

use crate::dependency::probe::{
    AddressOwner, Authorities, Backends, ClusterInfo, NoAuthorities, ServiceAnswer, Services,
};

/// A cache without any Service.
pub(crate) struct NoServices;

/// A cluster with no `ConfigMap`, no owner of an address and no restricted namespace.
pub(crate) struct NoCluster;

impl Services for NoServices {
    fn find(&self, _: &str, _: &str, _: u16) -> ServiceAnswer {
        ServiceAnswer::NotFound
    }

    fn backends(&self, _: SocketAddr) -> Result<Option<Backends>, String> {
        Ok(None)
    }
}

impl ClusterInfo for NoCluster {
    fn owner(&self, _: SocketAddr) -> Result<Option<AddressOwner>, String> {
        Ok(None)
    }

    fn is_restricted<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async { Ok(false) })
    }

    fn authorities<'a>(&'a self, _: &'a str, _: &'a ConfigMapKey) -> BoxFuture<'a, Authorities> {
        Box::pin(async { Err(NoAuthorities::Missing) })
    }
}
