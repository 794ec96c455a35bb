//! Applies the probe policy: which addresses may be dialled for the objects of a namespace.
//!
//! The author of a WaitDeployment can make the manager connect to an address and can read the result. So
//! the default admits only Services of the object's own namespace, found through the API and not through
//! DNS. Blocking ranges of addresses is not enough: in-cluster addresses are private ones too, so it would
//! block too little or everything.
//!
//! # Invariants
//! 1. A [`Route::Dial`] contains only addresses that passed every check, in the form that is dialled.
//! 2. One forbidden address among those of a name denies the name, because a mixed answer is typical of DNS
//!    rebinding. One forbidden endpoint of a Service denies the Service, by name and by address: otherwise
//!    authors of EndpointSlices could choose the address that is dialled.
//! 3. A denial names the configuration key that would admit the address, or states that no key does. It
//!    never contains an address that a name resolved to, nor port or cause for an endpoint of a raw
//!    address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use mainstay_api::{Address, Host};

use super::ProbeResult;
use super::cluster_info::{AddressOwner, ClusterInfo};
use super::ranges::{Special, meanings, special};
use super::services::{Endpoint, ServiceAnswer, Services, service_name};
use crate::reasons::{denial, probe};
use crate::settings::{AllowEntry, AllowRule, ProbeMode, ProbePolicy};

/// Denied ports of kubelet, kube-proxy, etcd, controller manager and scheduler. They are open on nodes, and
/// network policies may admit the manager to them. A cluster address never belongs to a node and may have
/// these ports; an endpoint may not.
const NODE_PORTS: [u16; 10] = [2379, 2380, 2381, 10248, 10249, 10250, 10255, 10256, 10257, 10259];

/// The ports of etcd, admitted for endpoints that are Pods: tenants run etcd themselves, too.
const ETCD_PORTS: std::ops::RangeInclusive<u16> = 2379..=2381;

/// The domains below which the cluster's DNS names Services.
const CLUSTER_DOMAINS: [&str; 2] = [".svc", ".svc.cluster.local"];

/// Part of the messages of denied probes: a reason that several denials share.
const SERVICES_ONLY: &str =
    "probePolicy.mode ServicesOnly admits Services of the object's own namespace only";
const MORE: &str = "mode AllowList with an entry in probePolicy.allow admits more";

/// Decides for the objects of one namespace whether an address may be dialled.
#[derive(Clone, Copy)]
pub(super) struct Authorizer<'a> {
    pub(super) policy: &'a ProbePolicy,
    /// The namespace of the object with the check.
    pub(super) namespace: &'a str,
    /// Whether the namespace enforces a Pod Security level other than privileged; `None` if not read yet.
    pub(super) restricted: Option<bool>,
    pub(super) services: &'a dyn Services,
    pub(super) cluster: &'a dyn ClusterInfo,
}

/// How much detail the result of a probe may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// All details: the user can see the Service anyway, or the operator has opened its namespace to all.
    Full,
    /// Only whether the target answers as expected, because a port scan could use the difference between a
    /// refusal and silence.
    Coarse,
}

/// The decision of the probe policy about an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// A connection to one of these addresses is allowed; the result may contain this much detail.
    Dial(Vec<SocketAddr>, Detail),
    /// The address is decided after resolving this name: call [`Authorizer::check_resolved`] then.
    Resolve(String),
    /// The address is decided after reading whether the namespace of the object is restricted: call
    /// [`Authorizer::route`] again then.
    NeedsNamespace,
}

/// The outcome of a check by the probe policy: addresses that may be dialled or another decision, or the
/// result of a probe that dials no address.
type Checked<T = Vec<SocketAddr>> = Result<T, ProbeResult>;

// === impl Authorizer ===

impl Authorizer<'_> {
    /// Decides whether an address may be dialled. Fails with the result of the probe if it is known without
    /// dialling.
    pub(super) fn route(&self, address: &Address) -> Checked<Route> {
        let port = address.port;
        if self.policy.denied_ports.contains(&port) {
            return denied(denial::DENIED_PORTS, format!("port {port} is listed in probePolicy.deniedPorts"));
        }
        match &address.host {
            Host::Ip(ip) => self.route_ip(*ip, port),
            Host::Name(name) if name == "localhost" || name.ends_with(".localhost") => {
                // RFC 6761: these names are never sent to DNS.
                let loopback = &[Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                Ok(Route::Dial(self.check_no_node_port(loopback, port, Detail::Coarse)?, Detail::Coarse))
            }
            Host::Name(name) => match service_name(name, self.namespace) {
                Some((service, namespace)) if self.may_name_services_of(namespace) => {
                    self.route_service(name, namespace, service, port)
                }
                Some((_, namespace)) if self.policy.mode == ProbeMode::ServicesOnly => denied(
                    denial::CROSS_NAMESPACE,
                    format!(
                        "{}{SERVICES_ONLY}; {namespace} in probePolicy.crossNamespace admits Services of \
                         that namespace, {MORE}",
                        self.names_no_service()
                    ),
                ),
                _ => self.route_name(name),
            },
        }
    }

    /// Checks every address that a name admitted by [`Authorizer::route`] resolved to, and returns those
    /// addresses with the port. Fails with the denial of the first forbidden one.
    pub(super) fn check_resolved(&self, name: &str, ips: &[IpAddr], port: u16) -> Checked {
        let addresses = self.check_no_node_port(ips, port, Detail::Coarse)?;
        // Tenants cannot change the records of the cluster's own DNS, so the operator's entry for the name
        // is enough.
        let is_fixed = CLUSTER_DOMAINS.iter().any(|domain| name.ends_with(domain));
        if !is_fixed && addresses.iter().any(|address| self.is_foreign(*address)) {
            return denied(
                denial::CROSS_NAMESPACE,
                "the name resolves to a Service of another namespace; this namespace in \
                 probePolicy.crossNamespace admits it, as does an entry of probePolicy.allow for the address",
            );
        }
        Ok(addresses)
    }

    /// Returns whether a name must not resolve to an address, because it is the cluster address of a
    /// Service in another namespace: tenants can create DNS records, for example by Ingresses, and could
    /// probe such Services. External and load-balancer addresses are public anyway.
    fn is_foreign(&self, address: SocketAddr) -> bool {
        let is_of_another_namespace = |ip| {
            let backends = self.services.backends(SocketAddr::new(ip, address.port()));
            let owner = backends.ok().flatten().and_then(|backends| backends.cluster_address_of);
            owner.is_some_and(|namespace| !self.may_name_services_of(&namespace))
        };
        let is_named = |entry: &AllowEntry| {
            entry.to.allows_address(address.ip())
                && entry.serves(self.namespace, self.restricted != Some(false))
        };
        meanings(address.ip()).any(is_of_another_namespace) && !self.policy.allow.iter().any(is_named)
    }

    /// Checks whether the probe policy admits the name of a `dns` check. Fails with the denial.
    pub(super) fn check_lookup(&self, name: &str) -> Checked<()> {
        let under = |suffix: &String| {
            name.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if self.policy.mode == ProbeMode::Any || self.policy.dns_suffixes.iter().any(under) {
            return Ok(());
        }
        denied(denial::DNS_SUFFIXES, "no entry of probePolicy.dnsSuffixes admits the name")
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

    fn route_ip(&self, ip: IpAddr, port: u16) -> Checked<Route> {
        let ip = ip.to_canonical();
        // Special addresses skip the mode: their denial is more precise, and `allowLoopback` works in every
        // mode.
        let go = || Ok(Route::Dial(self.check_no_node_port(&[ip], port, Detail::Coarse)?, Detail::Coarse));
        if special(ip).is_some() { go() } else { self.if_admitted(|rule| rule.allows_address(ip), "", go) }
    }

    fn route_name(&self, name: &str) -> Checked<Route> {
        let go = || Ok(Route::Resolve(name.to_owned()));
        self.if_admitted(|rule| rule.allows_host(name), &self.names_no_service(), go)
    }

    /// Calls `go` if the mode of the probe policy admits everything, or if an entry of the allow list that
    /// `matches` admits the namespace. The message of a denial starts with `what`.
    fn if_admitted(
        &self,
        matches: impl Fn(&AllowRule) -> bool,
        what: &str,
        go: impl FnOnce() -> Checked<Route>,
    ) -> Checked<Route> {
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
            (_, true, None) => Ok(Route::NeedsNamespace),
            (_, true, Some(true)) => denied(
                denial::POD_SECURITY,
                format!(
                    "{what}namespace {} enforces the Pod Security level baseline or restricted, where an \
                     entry of probePolicy.allow admits only if it names the namespace, as {{to: ..., \
                     namespaces: [{}]}}",
                    self.namespace, self.namespace
                ),
            ),
            (_, false, _) => denied(
                denial::ALLOW,
                format!("{what}the entries of probePolicy.allow that admit it are for other namespaces"),
            ),
        }
    }

    fn route_service(&self, host: &str, namespace: &str, name: &str, port: u16) -> Checked<Route> {
        let service = format!("Service {namespace}/{name}");
        let not_ready = |reason, message| Err(ProbeResult::not_ready(reason, message));
        match self.services.find(namespace, name, port) {
            ServiceAnswer::Cluster(ips) => {
                Ok(Route::Dial(self.check(&ips, port, Detail::Full)?, Detail::Full))
            }
            ServiceAnswer::Headless(ips) if ips.is_empty() => {
                not_ready(probe::NO_ENDPOINTS, format!("{service} has no ready endpoint"))
            }
            ServiceAnswer::Headless(ips) => {
                Ok(Route::Dial(self.check_no_node_port(&ips, port, Detail::Full)?, Detail::Full))
            }
            ServiceAnswer::External(outside) => self.route_name(&outside.to_ascii_lowercase()),
            ServiceAnswer::NoPort => {
                not_ready(probe::PORT_NOT_FOUND, format!("{service} has no TCP port {port}"))
            }
            // A name with dots may also be a host outside the cluster. A name without dots is not resolved:
            // DNS would complete it with the manager's namespace instead of the object's.
            ServiceAnswer::NotFound if self.policy.mode != ProbeMode::ServicesOnly && host.contains('.') => {
                self.route_name(host)
            }
            ServiceAnswer::NotFound => {
                not_ready(probe::SERVICE_NOT_FOUND, format!("{service} does not exist"))
            }
            ServiceAnswer::Unknown(cause) => {
                not_ready(probe::SERVICES_UNKNOWN, format!("Services cannot be read: {cause}"))
            }
        }
    }

    /// Checks that addresses may be dialled that are not the cluster addresses of a Service: they must not
    /// have a port that nodes use for Kubernetes itself.
    fn check_no_node_port(&self, ips: &[IpAddr], port: u16, detail: Detail) -> Checked {
        if NODE_PORTS.contains(&port) {
            let message = format!(
                "nodes use port {port} for Kubernetes itself, and no setting admits it; a Service with a \
                 cluster address may use it"
            );
            return denied(denial::NODE_PORTS, message);
        }
        self.check(ips, port, detail)
    }

    /// Checks that addresses may be dialled, in each of their forms and with the endpoints to which Services
    /// forward a connection to them. Fails with the denial of an address that no mode admits.
    fn check(&self, ips: &[IpAddr], port: u16, detail: Detail) -> Checked {
        let checked = |ip: &IpAddr| {
            let ip = ip.to_canonical();
            self.check_range(ip)?;
            meanings(ip).try_for_each(|form| self.check_form(SocketAddr::new(form, port), detail))?;
            Ok(SocketAddr::new(ip, port))
        };
        ips.iter().map(checked).collect()
    }

    /// Checks that one form of an address may be dialled: it is not the API server's or the manager's, and no
    /// forbidden endpoint is behind it.
    fn check_form(&self, address: SocketAddr, detail: Detail) -> Checked<()> {
        let unread = |cause: String| {
            unknown(probe::SERVICES_UNKNOWN, "Services and EndpointSlices cannot be read", &cause, detail)
        };
        let backends = self.services.backends(address).map_err(unread)?.unwrap_or_default();
        let is_cluster_address = backends.cluster_address_of.is_some();
        match self.cluster.owner(address) {
            // With IPVS every node owns the cluster addresses of all Services, so their endpoints decide.
            // Only cluster addresses are exempt: a tenant may list the manager's address as an external
            // one, and it stays denied.
            Ok(Some(AddressOwner::Manager)) if is_cluster_address => {}
            Ok(Some(owner)) => return owner_denied(owner),
            Ok(None) => {}
            // The cluster writes the EndpointSlices; a raw address is chosen by a user, so it needs a
            // definite answer.
            Err(_) if detail == Detail::Full => {}
            Err(cause) => {
                let what = "the addresses of the API server and of the manager are unknown, so only Services \
                            can be probed";
                return Err(unknown(probe::OWNERS_UNKNOWN, what, &cause, detail));
            }
        }
        // The author of a Service may list an external address that belongs to another tenant.
        let detail = if is_cluster_address { detail } else { Detail::Coarse };
        backends
            .endpoints
            .iter()
            .try_for_each(|endpoint| self.check_endpoint(endpoint, address.port(), detail))
    }

    /// Checks that a probe may reach an endpoint to which a Service forwards a connection to `port`.
    fn check_endpoint(&self, endpoint: &Endpoint, port: u16, detail: Detail) -> Checked<()> {
        let port = endpoint.port.unwrap_or(port);
        let what = match detail {
            Detail::Full => format!("port {port} of its endpoints"),
            // The address may belong to a Service of another tenant.
            Detail::Coarse => "the port of its endpoints".to_owned(),
        };
        if self.policy.denied_ports.contains(&port) {
            return denied(denial::DENIED_PORTS, format!("{what} is listed in probePolicy.deniedPorts"));
        }
        let is_etcd_of_a_pod = endpoint.is_pod && ETCD_PORTS.contains(&port);
        if NODE_PORTS.contains(&port) && !is_etcd_of_a_pod {
            let message = format!("nodes use {what} for Kubernetes itself, and no setting admits it");
            return denied(denial::NODE_PORTS, message);
        }
        let ip = endpoint.ip.to_canonical();
        self.check_range(ip)?;
        let owner = |ip| self.cluster.owner(SocketAddr::new(ip, port)).ok().flatten();
        meanings(ip).find_map(owner).map_or(Ok(()), owner_denied)
    }

    /// Checks that an address is in no range that every mode denies; `ip` is canonical.
    fn check_range(&self, ip: IpAddr) -> Checked<()> {
        match special(ip) {
            Some(Special::Loopback) if !ip.is_loopback() => denied(
                denial::LOOPBACK,
                "it contains a loopback address in another form, and no setting admits this form",
            ),
            Some(Special::Loopback) if !self.policy.allow_loopback => denied(
                denial::LOOPBACK,
                "it is a loopback address of the manager; probePolicy.allowLoopback admits it",
            ),
            Some(Special::Never(what)) => {
                denied(denial::SPECIAL, format!("it is {what}, and no setting admits it"))
            }
            _ if meanings(ip).any(|ip| self.policy.denied.iter().any(|network| network.contains(ip))) => {
                denied(denial::DENIED, "it is in a network of probePolicy.denied")
            }
            _ => Ok(()),
        }
    }
}

// === private ===

/// Returns the result of a probe while a fact is unknown that decides whether it is allowed. In coarse detail
/// only the log has the cause.
fn unknown(reason: &'static str, what: &str, cause: &str, detail: Detail) -> ProbeResult {
    if detail == Detail::Full {
        return ProbeResult::not_ready(reason, format!("{what}: {cause}"));
    }
    tracing::debug!(cause, "{what}");
    ProbeResult::not_ready(reason, what)
}

fn owner_denied(owner: AddressOwner) -> Checked<()> {
    let (rule, what) = match owner {
        AddressOwner::ApiServer => (denial::API_SERVER, "the API server"),
        AddressOwner::Manager => (denial::MANAGER, "an address of the manager itself"),
    };
    denied(rule, format!("it is {what}, and no setting admits it"))
}

fn denied<T>(rule: &'static str, message: impl Into<String>) -> Checked<T> {
    Err(ProbeResult::Denied { rule, message: message.into() })
}

#[cfg(test)]
mod tests;
