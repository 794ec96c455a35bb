//! What may be dialled on behalf of whom.
//!
//! Whoever may create a WaitDeployment can make the manager connect somewhere and read off the result, so the default
//! admits Services of the object's own namespace only, found through the API and not through DNS. In-cluster
//! addresses live in private ranges; blocking ranges alone would be either useless or fatal.
//!
//! # Invariants
//! 1. A [`Route::Dial`] holds only addresses that passed every check, in the form in which they are dialled.
//! 2. One forbidden address among those of a name forbids the name: a mixed answer is how rebinding looks. The same
//!    goes for the endpoints behind an address of a Service, however that was named: whoever may write slices would
//!    choose what is dialled.
//! 3. A denial names the key of the configuration that would admit the address, or says that none does, and
//!    never tells an address that a name resolved to. Of what is behind a raw address neither port nor cause is told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use mainstay_api::{Address, Host};

use super::ProbeResult;
use super::ranges::{Special, canonical, meanings, special};
use super::services::{Endpoint, ServiceAnswer, Services, service_name};
use super::surroundings::{Owner, Surroundings};
use crate::reasons::{denial, probe};
use crate::settings::{AllowEntry, AllowRule, ProbeMode, ProbePolicy};

/// Ports of kubelet, kube-proxy, etcd, controller manager and scheduler: open on nodes, and behind network policies
/// that trust the manager. A cluster address may have them for ports, as it never is a node's; what is behind it may not.
const NODE_PORTS: [u16; 10] = [2379, 2380, 2381, 10248, 10249, 10250, 10255, 10256, 10257, 10259];

/// Those of etcd, which tenants run for themselves too: as Pods.
const ETCD_PORTS: std::ops::RangeInclusive<u16> = 2379..=2381;

/// Where the cluster's DNS has the names of Services.
const CLUSTER_DOMAINS: [&str; 2] = [".svc", ".svc.cluster.local"];

/// Words of more than one denial.
const SERVICES_ONLY: &str =
    "probePolicy.mode ServicesOnly admits Services of the object's own namespace only";
const MORE: &str = "mode AllowList with an entry in probePolicy.allow admits more";

/// Who asks, and by what it is judged.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) policy: &'a ProbePolicy,
    /// Of the object on whose behalf something is dialled.
    pub(super) namespace: &'a str,
    /// Whether that namespace enforces a Pod Security level below privileged; `None` where nobody has asked yet.
    pub(super) restricted: Option<bool>,
    pub(super) services: &'a dyn Services,
    pub(super) surroundings: &'a dyn Surroundings,
}

/// How much a result may tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Everything: the user can see the Service anyway, or the operator has opened its namespace to all.
    Full,
    /// Only that it does not answer: refused against silent is what a port scan wants to know.
    Coarse,
}

/// What to do about an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Connect to one of these.
    Dial(Vec<SocketAddr>, Detail),
    /// Look this name up, then ask [`Judge::check_resolved`].
    Resolve(String),
    /// Find out whether the namespace is restricted, then ask again.
    AskNamespace,
    /// There is a result without dialling.
    Known(ProbeResult),
}

/// Addresses that may be dialled, or why one of them may not.
type Checked = Result<Vec<SocketAddr>, ProbeResult>;

// === impl Route ===

impl Route {
    fn dial(checked: Checked, detail: Detail) -> Self {
        checked.map_or_else(Self::Known, |addresses| Self::Dial(addresses, detail))
    }
}

// === impl Judge ===

impl Judge<'_> {
    /// Decides what to do about an address.
    pub(super) fn route(&self, address: &Address) -> Route {
        let port = address.port;
        if self.policy.denied_ports.contains(&port) {
            let message = format!("port {port} is listed in probePolicy.deniedPorts");
            return denied(denial::DENIED_PORTS, message);
        }
        match &address.host {
            Host::Ip(ip) => self.route_ip(*ip, port),
            Host::Name(name) if name == "localhost" || name.ends_with(".localhost") => {
                // RFC 6761: never asked of DNS.
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                Route::dial(self.dial(loopback, port, Detail::Coarse), Detail::Coarse)
            }
            Host::Name(name) => match service_name(name, self.namespace) {
                Some((service, namespace)) if self.may_name_services_of(namespace) => {
                    self.route_service(name, namespace, service, port)
                }
                Some((_, namespace)) if self.policy.mode == ProbeMode::ServicesOnly => denied(
                    denial::CROSS_NAMESPACE,
                    format!(
                        "{}{SERVICES_ONLY}; {namespace} in probePolicy.crossNamespace admits Services of that namespace, \
                         {MORE}",
                        self.names_no_service()
                    ),
                ),
                _ => self.route_name(name),
            },
        }
    }

    /// Checks every address that a name admitted by [`Judge::route`] resolved to.
    pub(super) fn check_resolved(&self, name: &str, addresses: Vec<IpAddr>, port: u16) -> Checked {
        let addresses = self.dial(addresses, port, Detail::Coarse)?;
        // No tenant can point a name of the cluster's own DNS elsewhere, so the operator's entry for it suffices.
        let is_fixed = CLUSTER_DOMAINS.iter().any(|domain| name.ends_with(domain));
        if !is_fixed && addresses.iter().any(|address| self.is_foreign(*address)) {
            let message = "the name leads to a Service of another namespace; the namespace in probePolicy.crossNamespace \
                           admits it, as does an entry of probePolicy.allow for the address";
            return Err(ProbeResult::Denied { rule: denial::CROSS_NAMESPACE, message: message.to_owned() });
        }
        Ok(addresses)
    }

    /// Returns whether a name must not lead to an address: tenants can write DNS records, for example by their Ingresses, and
    /// could probe Services of other namespaces. External and load-balancer addresses are meant to be reached from anywhere.
    fn is_foreign(&self, address: SocketAddr) -> bool {
        let is_others = |ip| {
            let behind = self.services.behind(SocketAddr::new(ip, address.port()));
            let owner = behind.ok().flatten().and_then(|behind| behind.cluster_address_of);
            owner.is_some_and(|namespace| !self.may_name_services_of(&namespace))
        };
        let is_named = |entry: &AllowEntry| {
            entry.to.allows_address(address.ip())
                && entry.serves(self.namespace, self.restricted != Some(false))
        };
        meanings(address.ip()).any(is_others) && !self.policy.allow.iter().any(is_named)
    }

    /// Decides whether a name may be looked up for its records; `None` if so.
    pub(super) fn refuses_look_up(&self, name: &str) -> Option<ProbeResult> {
        let under = |suffix: &String| {
            name.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if self.policy.mode == ProbeMode::Any || self.policy.dns_suffixes.iter().any(under) {
            return None;
        }
        let message = "no entry of probePolicy.dnsSuffixes admits the name".to_owned();
        Some(ProbeResult::Denied { rule: denial::DNS_SUFFIXES, message })
    }

    fn names_no_service(&self) -> String {
        format!("it names no Service of namespace {}; ", self.namespace)
    }

    fn may_name_services_of(&self, namespace: &str) -> bool {
        let listed = |entry: &String| entry == "*" || entry == namespace;
        namespace == self.namespace
            || self.policy.mode == ProbeMode::Any
            || self.policy.cross_namespace.iter().any(listed)
    }

    fn route_ip(&self, ip: IpAddr, port: u16) -> Route {
        let ip = canonical(ip);
        // What is special is told first: it says more than the mode does, and `allowLoopback` admits in every mode.
        let go = || Route::dial(self.dial([ip], port, Detail::Coarse), Detail::Coarse);
        if special(ip).is_some() { go() } else { self.if_admitted(|rule| rule.allows_address(ip), "", go) }
    }

    fn route_name(&self, name: &str) -> Route {
        self.if_admitted(
            |rule| rule.allows_host(name),
            &self.names_no_service(),
            || Route::Resolve(name.to_owned()),
        )
    }

    /// Goes on if the mode and the allow list admit what `matches` describes. `what` begins the words of a denial.
    fn if_admitted(
        &self,
        matches: impl Fn(&AllowRule) -> bool,
        what: &str,
        go: impl FnOnce() -> Route,
    ) -> Route {
        match self.policy.mode {
            ProbeMode::Any => return go(),
            ProbeMode::ServicesOnly => {
                return denied(denial::MODE, format!("{what}{SERVICES_ONLY}; {MORE}"));
            }
            ProbeMode::AllowList => {}
        }
        let mut entries = self.policy.allow.iter().filter(|entry| matches(&entry.to)).peekable();
        if entries.peek().is_none() {
            return denied(denial::ALLOW, format!("{what}no entry of probePolicy.allow admits it"));
        }
        let (mut by_name, mut for_all) = (false, false);
        for entry in entries {
            by_name |= entry.serves(self.namespace, true);
            for_all |= entry.namespaces.is_empty();
        }
        match (by_name, for_all, self.restricted) {
            (true, ..) | (_, true, Some(false)) => go(),
            (_, true, None) => Route::AskNamespace,
            (_, true, Some(true)) => denied(
                denial::POD_SECURITY,
                format!(
                    "{what}namespace {} enforces the Pod Security level baseline or restricted, where an entry of \
                     probePolicy.allow admits only if it names the namespace, as {{to: ..., namespaces: [{}]}}",
                    self.namespace, self.namespace
                ),
            ),
            (_, false, _) => denied(
                denial::ALLOW,
                format!("{what}the entries of probePolicy.allow that admit it are for other namespaces"),
            ),
        }
    }

    fn route_service(&self, host: &str, namespace: &str, name: &str, port: u16) -> Route {
        let not_ready = |reason, message| Route::Known(ProbeResult::NotReady { reason, message });
        match self.services.find(namespace, name, port) {
            ServiceAnswer::Cluster(ips) => {
                Route::dial(self.dial_checked(ips, port, Detail::Full), Detail::Full)
            }
            ServiceAnswer::Headless(ips) if ips.is_empty() => {
                not_ready(probe::NO_ENDPOINTS, format!("Service {namespace}/{name} has no ready endpoint"))
            }
            ServiceAnswer::Headless(ips) => Route::dial(self.dial(ips, port, Detail::Full), Detail::Full),
            ServiceAnswer::External(outside) => self.route_name(&outside.to_ascii_lowercase()),
            ServiceAnswer::NoPort => {
                not_ready(probe::PORT_NOT_FOUND, format!("Service {namespace}/{name} has no TCP port {port}"))
            }
            // A name with dots may still be a host outside. One without never is: DNS would complete it in the
            // namespace of the manager, which is not the one that is meant.
            ServiceAnswer::NotFound if self.policy.mode != ProbeMode::ServicesOnly && host.contains('.') => {
                self.route_name(host)
            }
            ServiceAnswer::NotFound => {
                not_ready(probe::SERVICE_NOT_FOUND, format!("Service {namespace}/{name} does not exist"))
            }
            ServiceAnswer::Unknown(cause) => {
                not_ready(probe::SERVICES_UNKNOWN, format!("Services cannot be read: {cause}"))
            }
        }
    }

    fn dial(&self, ips: impl IntoIterator<Item = IpAddr>, port: u16, detail: Detail) -> Checked {
        if NODE_PORTS.contains(&port) {
            let message = format!(
                "port {port} is one that nodes keep for Kubernetes itself, and no setting admits it; a Service with a \
                 cluster address may use it"
            );
            return Err(ProbeResult::Denied { rule: denial::NODE_PORTS, message });
        }
        self.dial_checked(ips, port, detail)
    }

    fn dial_checked(&self, ips: impl IntoIterator<Item = IpAddr>, port: u16, detail: Detail) -> Checked {
        let checked = |ip| {
            let address = SocketAddr::new(canonical(ip), port);
            self.refuses(address, detail).map_or(Ok(address), Err)
        };
        ips.into_iter().map(checked).collect()
    }

    /// What no mode admits: an address, in whatever form, and what Services pass a connection to it on to. `address` is
    /// canonical.
    fn refuses(&self, address: SocketAddr, detail: Detail) -> Option<ProbeResult> {
        self.refuses_range(address.ip()).or_else(|| {
            let mut forms = meanings(address.ip()).map(|ip| SocketAddr::new(ip, address.port()));
            forms.find_map(|form| self.refuses_form(form, detail))
        })
    }

    /// The same of one form of an address.
    fn refuses_form(&self, address: SocketAddr, detail: Detail) -> Option<ProbeResult> {
        let behind = match self.services.behind(address) {
            Ok(behind) => behind,
            Err(cause) => {
                let what = "Services and EndpointSlices cannot be read";
                return Some(untold(probe::SERVICES_UNKNOWN, what, &cause, detail));
            }
        };
        let is_cluster_address = behind.as_ref().is_some_and(|behind| behind.cluster_address_of.is_some());
        match self.surroundings.owner(address) {
            // With IPVS a node has the addresses of all Services for its own: then it is what is behind them that counts.
            // Of cluster addresses alone: a tenant may list the manager's address in a Service, and it stays the manager's.
            Ok(Some(Owner::Manager)) if is_cluster_address => {}
            Ok(Some(owner)) => return Some(refuses_owner(owner)),
            Ok(None) => {}
            // Slices are written by the cluster; a raw address is somebody's choice.
            Err(_) if detail == Detail::Full => {}
            Err(cause) => {
                let what =
                    "without the addresses of the API server and of the manager no address is connected to";
                return Some(untold(probe::OWNERS_UNKNOWN, what, &cause, detail));
            }
        }
        // Any author of a Service may list any other address in it.
        let detail = if is_cluster_address { detail } else { Detail::Coarse };
        let mut endpoints = behind.into_iter().flat_map(|behind| behind.endpoints);
        endpoints.find_map(|endpoint| self.refuses_endpoint(&endpoint, address.port(), detail))
    }

    /// What a Service may not pass a connection to `port` on to.
    fn refuses_endpoint(&self, endpoint: &Endpoint, port: u16, detail: Detail) -> Option<ProbeResult> {
        let port = endpoint.port.unwrap_or(port);
        let what = match detail {
            Detail::Full => format!("its endpoints' port {port}"),
            // It may be the address of anybody's Service.
            Detail::Coarse => "the port of what it leads to".to_owned(),
        };
        if self.policy.denied_ports.contains(&port) {
            let message = format!("{what} is listed in probePolicy.deniedPorts");
            return Some(ProbeResult::Denied { rule: denial::DENIED_PORTS, message });
        }
        let is_etcd_of_a_pod = endpoint.is_pod && ETCD_PORTS.contains(&port);
        if NODE_PORTS.contains(&port) && !is_etcd_of_a_pod {
            let message =
                format!("{what} is one that nodes keep for Kubernetes itself, and no setting admits it");
            return Some(ProbeResult::Denied { rule: denial::NODE_PORTS, message });
        }
        let ip = canonical(endpoint.ip);
        let owner = || {
            let owner = |ip| self.surroundings.owner(SocketAddr::new(ip, port)).ok().flatten();
            meanings(ip).find_map(owner).map(refuses_owner)
        };
        self.refuses_range(ip).or_else(owner)
    }

    /// What no mode admits because of the range it is in; `ip` is canonical.
    fn refuses_range(&self, ip: IpAddr) -> Option<ProbeResult> {
        let (rule, message) = match special(ip) {
            Some(Special::Loopback) if !ip.is_loopback() => {
                let message =
                    "a loopback address is written inside it, and no setting admits those but as they are";
                (denial::LOOPBACK, message.to_owned())
            }
            Some(Special::Loopback) if !self.policy.allow_loopback => {
                let message =
                    "it is a loopback address of the manager itself; probePolicy.allowLoopback admits those";
                (denial::LOOPBACK, message.to_owned())
            }
            Some(Special::Never(what)) => {
                (denial::SPECIAL, format!("it is {what}, and no setting admits it"))
            }
            _ if meanings(ip).any(|ip| self.policy.denied.iter().any(|network| network.contains(ip))) => {
                (denial::DENIED, "it is in a network of probePolicy.denied".to_owned())
            }
            _ => return None,
        };
        Some(ProbeResult::Denied { rule, message })
    }
}

// === private ===

/// What is not known, and why: which is told only to whom the Service is shown anyway.
fn untold(reason: &'static str, what: &str, cause: &str, detail: Detail) -> ProbeResult {
    if detail == Detail::Full {
        return ProbeResult::NotReady { reason, message: format!("{what}: {cause}") };
    }
    tracing::debug!(cause, "{what}");
    ProbeResult::NotReady { reason, message: what.to_owned() }
}

fn refuses_owner(owner: Owner) -> ProbeResult {
    let (rule, what) = match owner {
        Owner::ApiServer => (denial::API_SERVER, "the API server"),
        Owner::Manager => (denial::MANAGER, "an address of the manager itself"),
    };
    ProbeResult::Denied { rule, message: format!("it is {what}, and no setting admits it") }
}

fn denied(rule: &'static str, message: String) -> Route {
    Route::Known(ProbeResult::Denied { rule, message })
}

#[cfg(test)]
mod tests;
