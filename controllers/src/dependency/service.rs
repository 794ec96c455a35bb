//! Services as the cache knows them: where a probe would get to, and how many endpoints are ready.

mod facts;
mod ready;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use mainstay::cache::{Meta, Select, Store, Subscription};
use mainstay::key::NamespacedName;
use serde::Deserialize;
use tracing::warn;

use crate::dependency::probe::{Behind, ServiceAnswer, Services};
use facts::{Facts, ServiceFacts, SliceFacts, mark};

pub use ready::Endpoints;

/// Which Service a slice belongs to.
pub(crate) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// The index of slices by the name of their Service.
const BY_SERVICE: &str = "by-service";
/// The index of Services by the addresses that connections to them are made to.
const BY_ADDRESS: &str = "by-address";
/// Where those stand in it whose addresses cannot be read.
const VEILED: &str = "veiled";
/// Places for the addresses that Services list beside those of the cluster: their number has no bound.
const PLACES: u32 = 1024;
/// Most Services that may list one address and port if none has it as a cluster address. Nodes pass connections on to one
/// of them, so more have no use, and each makes every probe of the address more expensive.
const MAX_SHARERS: usize = 16;

/// Finds Services and their endpoints in two stores; reads only the few fields it names.
#[derive(Debug)]
pub struct CachedServices {
    services: Store<ServiceView>,
    slices: Store<SliceView>,
    service_facts: Facts<ServiceFacts>,
    slice_facts: Facts<SliceFacts>,
    /// Remove the facts of deleted objects.
    _forgets: [Subscription; 2],
}

#[derive(Debug, Deserialize)]
struct ServiceView {
    #[serde(default)]
    spec: ServiceSpecView,
    #[serde(default)]
    status: ServiceStatusView,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceStatusView {
    load_balancer: LoadBalancerView,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LoadBalancerView {
    ingress: Vec<IngressView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IngressView {
    /// Empty where the load balancer has a name only, which DNS knows.
    ip: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceSpecView {
    r#type: String,
    /// The text `None` for a headless Service.
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs")]
    external_ips: Vec<String>,
    external_name: String,
    ports: Vec<PortView>,
    /// Absent where somebody else writes the slices.
    selector: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PortView {
    /// Empty where there is one port alone.
    name: String,
    port: u16,
    /// Empty means TCP.
    protocol: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SliceView {
    endpoints: Option<Vec<EndpointView>>,
    ports: Option<Vec<SlicePortView>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SlicePortView {
    /// That of the port of the Service.
    name: Option<String>,
    /// That of the endpoints.
    port: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EndpointView {
    addresses: Vec<String>,
    conditions: EndpointConditions,
    /// Mostly a Pod.
    target_ref: Option<TargetView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TargetView {
    kind: String,
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EndpointConditions {
    /// Absent means ready, by the API's own rule.
    ready: Option<bool>,
}

// === impl CachedServices ===

impl CachedServices {
    /// Reads from these stores.
    pub fn new(services: &Store<Service>, slices: &Store<EndpointSlice>) -> Self {
        let services = Store::<ServiceView>::new(services.kind_store().clone());
        let (service_facts, slice_facts) = (Facts::<ServiceFacts>::default(), Facts::<SliceFacts>::default());
        let of_service = service_facts.clone();
        // Neither can fail: the handles are new, and have no other index. Without them `behind` fails, and nothing is let
        // through.
        drop(services.index_view(BY_ADDRESS, move |view| Ok(places(of_service.of(view)))));
        // Not by the label: of a slice whose metadata is too large to be kept the store shows none.
        let slices = slices.view::<SliceView>();
        drop(slices.index_view(BY_SERVICE, |view| {
            Ok(view.meta().labels.get(SERVICE_NAME_LABEL).map(str::to_owned).into_iter().collect())
        }));
        let forgets = [
            services.kind_store().subscribe(Box::new(service_facts.clone())),
            slices.kind_store().subscribe(Box::new(slice_facts.clone())),
        ];
        Self { services, slices, service_facts, slice_facts, _forgets: forgets }
    }

    /// Returns the labels of the Pods behind a Service; empty if they cannot be told.
    pub fn selector(&self, service: &NamespacedName) -> BTreeMap<String, String> {
        let service = self.services.get(service).ok().flatten();
        service.and_then(|service| service.spec.selector.clone()).unwrap_or_default()
    }

    fn slices_of(&self, namespace: &str, name: &str) -> Result<Vec<Arc<SliceFacts>>, String> {
        let slices = self.slices.list(&Select::index(BY_SERVICE, name).within(namespace)).map_err(cause)?;
        // A slice that cannot be read, or is too large to be, hides where connections go: the whole answer is unknown.
        let facts = slices.iter().map(|slice| self.slice_facts.of(slice.view()));
        facts.collect::<Result<_, _>>().map_err(cause)
    }

    fn headless(&self, namespace: &str, name: &str) -> Result<ServiceAnswer, String> {
        let slices = self.slices_of(namespace, name)?;
        let mut ips: Vec<_> = slices.iter().flat_map(|slice| slice.ready_addresses()).collect();
        ips.sort_unstable();
        ips.dedup();
        Ok(ServiceAnswer::Headless(ips))
    }

    fn look_up(&self, namespace: &str, name: &str, port: u16) -> Result<ServiceAnswer, String> {
        let found = self.services.entry(&NamespacedName::namespaced(namespace, name));
        let Some(service) = found.map_err(cause)? else {
            return Ok(ServiceAnswer::NotFound);
        };
        let facts = self.service_facts.of(service.view()).map_err(cause)?;
        match facts.judge(port) {
            Some(answer) => Ok(answer),
            None => self.headless(namespace, name),
        }
    }

    /// Returns the endpoints behind an address: a cluster address, which one Service at most has, or one that any number of
    /// Services list.
    fn behind_as(&self, ip: IpAddr, port: u16, is_cluster_address: bool) -> Result<Option<Behind>, String> {
        let place = if is_cluster_address { place_of_cluster_address(ip) } else { place_of_other(mark(ip)) };
        let mut found: Option<Behind> = None;
        let mut sharers = 0;
        for service in self.services.list(&Select::index(BY_ADDRESS, place)).map_err(cause)? {
            let facts = self.service_facts.of(service.view()).map_err(cause)?;
            if !is_cluster_address && !facts.lists(mark(ip)) {
                continue;
            }
            let Some(port) = facts.tcp_port(port) else { continue };
            sharers += 1;
            if sharers > MAX_SHARERS {
                return Err(format!("more than {MAX_SHARERS} Services list the address with this port"));
            }
            let namespace = service.meta().namespace().unwrap_or_default();
            let found = found.get_or_insert_default();
            found.cluster_address_of = is_cluster_address.then(|| namespace.to_owned());
            for slice in self.slices_of(namespace, service.meta().name())? {
                found.endpoints.extend(slice.behind(port));
            }
        }
        Ok(found)
    }
}

impl Services for CachedServices {
    fn find(&self, namespace: &str, name: &str, port: u16) -> ServiceAnswer {
        self.look_up(namespace, name, port).unwrap_or_else(ServiceAnswer::Unknown)
    }

    fn behind(&self, address: SocketAddr) -> Result<Option<Behind>, String> {
        let veiled = self.services.list(&Select::index(BY_ADDRESS, VEILED)).map_err(cause)?;
        if !veiled.is_empty() {
            // Which one is nobody's business but its owner's: the log has the name.
            return Err("one of the Services cannot be decoded, and may have any address".to_owned());
        }
        let (ip, port) = (address.ip().to_canonical(), address.port());
        // Nodes pass a connection to a cluster address on to the Service that has it, even if other Services list it.
        let own = self.behind_as(ip, port, true)?;
        if own.is_some() { Ok(own) } else { self.behind_as(ip, port, false) }
    }
}

/// Returns where a Service stands in the index by address.
fn places(facts: Result<Arc<ServiceFacts>, Arc<str>>) -> Vec<String> {
    match facts {
        Ok(facts) => {
            let own = facts.cluster_addresses().map(|ip| place_of_cluster_address(ip.to_canonical()));
            let mut places: Vec<_> = own.chain(facts.marks().map(place_of_other)).collect();
            places.sort_unstable();
            places.dedup();
            places
        }
        Err(error) => {
            warn!(%error, "while this Service is there, no probe connects: it may stand for any address");
            vec![VEILED.to_owned()]
        }
    }
}

fn cause(error: impl Display) -> String {
    error.to_string()
}

fn place_of_cluster_address(ip: IpAddr) -> String {
    format!("cluster {ip}")
}

/// Many addresses have one place, so that no Service has more than [`PLACES`] however many it lists.
fn place_of_other(mark: u32) -> String {
    format!("other {}", mark % PLACES)
}

/// Returns the Service whose endpoints a slice lists.
pub fn service_of_slice(slice: &Meta) -> Option<NamespacedName> {
    let service = slice.labels.get(SERVICE_NAME_LABEL).filter(|name| !name.is_empty())?;
    Some(NamespacedName::new(slice.namespace(), service))
}

// === impl views ===

impl SlicePortView {
    /// A port of a Service and that of a slice belong together by name.
    fn is_named(&self, name: &str) -> bool {
        self.name.as_deref().unwrap_or_default() == name
    }
}

impl SliceView {
    fn ready(&self) -> impl Iterator<Item = &EndpointView> {
        self.endpoints.iter().flatten().filter(|endpoint| endpoint.is_ready())
    }
}

impl EndpointView {
    fn is_ready(&self) -> bool {
        self.conditions.ready != Some(false)
    }
}

#[cfg(test)]
mod tests;
