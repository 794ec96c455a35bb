//! Counts the ready endpoints of a Service in its `EndpointSlices`.
//!
//! It opens no connection, so it works for every Service: with a cluster address, headless, or without a
//! selector. With `publishNotReadyAddresses` every endpoint counts as ready, because its slice marks it so.

use std::collections::HashSet;

use mainstay::cache::{ReadError, Select};
use mainstay::key::NamespacedName;
use mainstay_api::plan::PortReference;

use super::{BY_SERVICE, CachedServices, PortView, ServiceSpecView, SliceView};

/// The endpoints of a Service in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// The number of ready endpoints that serve the port.
    Ready(usize),
    /// The Service is an `ExternalName` and has no endpoints; with the port number, if the check or the
    /// only port of the Service gives it.
    External(Option<u16>),
    /// The Service exists without this port.
    NoPort,
    /// The Service does not exist.
    NotFound,
    /// The cache cannot be read at present; with the cause.
    Unknown(String),
}

// === impl CachedServices ===

impl CachedServices {
    /// Counts the ready endpoints of a Service; with a `port` only those that serve it.
    pub fn endpoints(&self, namespace: &str, name: &str, port: Option<&PortReference>) -> Endpoints {
        self.count(namespace, name, port).unwrap_or_else(|error| Endpoints::Unknown(error.to_string()))
    }

    fn count(
        &self,
        namespace: &str,
        name: &str,
        port: Option<&PortReference>,
    ) -> Result<Endpoints, ReadError> {
        let Some(service) = self.services.get(&NamespacedName::namespaced(namespace, name))? else {
            return Ok(Endpoints::NotFound);
        };
        if service.spec.r#type == "ExternalName" {
            return Ok(service.spec.external_port(port));
        }
        let port = match port.map(|port| service.spec.find(port)) {
            None => None,
            Some(Some(port)) => Some(port.name.as_str()),
            Some(None) => return Ok(Endpoints::NoPort),
        };
        let select = Select::index(BY_SERVICE, name).within(namespace);
        let mut slices = Vec::new();
        for slice in self.slices.list(&select)? {
            slices.push(slice.decode()?);
        }
        Ok(Endpoints::Ready(count_ready(slices.iter().map(AsRef::as_ref), port)))
    }
}

// === impl ServiceSpecView ===

impl ServiceSpecView {
    /// Finds a port of any protocol.
    fn find(&self, port: &PortReference) -> Option<&PortView> {
        self.ports.iter().find(|entry| match port {
            PortReference::Number(number) => entry.port == *number,
            PortReference::Name(name) => entry.name == *name,
        })
    }

    /// Returns the port of an `ExternalName`. The Service need not list it, so a number counts as given.
    fn external_port(&self, port: Option<&PortReference>) -> Endpoints {
        match (port, self.ports.as_slice()) {
            (Some(PortReference::Number(number)), _) => Endpoints::External(Some(*number)),
            (Some(by_name), _) => {
                let found = self.find(by_name).map(|entry| entry.port);
                found.map_or(Endpoints::NoPort, |port| Endpoints::External(Some(port)))
            }
            (None, [only]) => Endpoints::External(Some(only.port)),
            (None, _) => Endpoints::External(None),
        }
    }
}

// === private ===

/// Counts each ready endpoint once: a Pod with addresses of two families is in two slices. A Pod that lacks
/// a named target port is in a slice without this port.
fn count_ready<'a>(slices: impl Iterator<Item = &'a SliceView>, port: Option<&str>) -> usize {
    let serves = |slice: &&SliceView| {
        let mut ports = slice.ports.iter().flatten();
        port.is_none_or(|wanted| ports.any(|port| port.is_named(wanted)))
    };
    let ready = slices.filter(serves).flat_map(SliceView::ready);
    let mut seen = HashSet::new();
    for endpoint in ready {
        let uid = endpoint.target_ref.as_ref().map(|target| target.uid.as_str());
        // An endpoint without a Pod has only its address to identify it.
        let by_address = || endpoint.addresses.first().map(String::as_str);
        seen.extend(uid.filter(|uid| !uid.is_empty()).or_else(by_address));
    }
    seen.len()
}

#[cfg(test)]
mod tests;
