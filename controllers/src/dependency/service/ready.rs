//! Counts the ready endpoints of a Service in its `EndpointSlices`.
//!
//! It opens no connection, so it works for every Service: with a cluster address, headless, or without a
//! selector. With `publishNotReadyAddresses` every endpoint counts as ready, because its slice marks it so.

use std::collections::HashSet;

use mainstay_api::plan::PortReference;

use super::CachedServices;

/// The ready endpoints of a Service in the cache, or the reason why they cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// The number of ready endpoints of the Service that serve the port.
    Ready(usize),
    /// The Service is an `ExternalName` and has no endpoints; with its port number, if the check or the only
    /// port of the Service gives it.
    External(Option<u16>),
    /// The Service exists, but has no port of this name or number.
    NoPort,
    /// The Service does not exist.
    NotFound,
    /// The cache of Services or EndpointSlices cannot be read at present; with the cause.
    Unknown(String),
}

// === impl CachedServices ===

impl CachedServices {
    /// Counts the ready endpoints of a Service in the cache; with a `port` only those that serve it.
    pub fn endpoints(&self, namespace: &str, name: &str, port: Option<&PortReference>) -> Endpoints {
        self.count(namespace, name, port).unwrap_or_else(Endpoints::Unknown)
    }

    fn count(&self, namespace: &str, name: &str, port: Option<&PortReference>) -> Result<Endpoints, String> {
        let Some(service) = self.facts_of(namespace, name)? else { return Ok(Endpoints::NotFound) };
        let listed = port.and_then(|port| service.port(port));
        if service.is_external() {
            return Ok(match (port, listed) {
                // The Service need not list the port, so a number counts as given.
                (Some(PortReference::Number(number)), _) => Endpoints::External(Some(*number)),
                (Some(PortReference::Name(_)), None) => Endpoints::NoPort,
                (Some(PortReference::Name(_)), Some(port)) => Endpoints::External(Some(port.number)),
                (None, _) => Endpoints::External(service.only_port()),
            });
        }
        if port.is_some() && listed.is_none() {
            return Ok(Endpoints::NoPort);
        }
        let slices = self.slices_of(namespace, name)?;
        let port = listed.map(|port| &*port.name);
        // Each endpoint counts once: a Pod with addresses of two families is in two slices. A Pod that lacks
        // a named target port is in a slice without this port.
        let ready: HashSet<u64> = slices.iter().flat_map(|slice| slice.ready(port)).collect();
        Ok(Endpoints::Ready(ready.len()))
    }
}

#[cfg(test)]
mod tests;
