//! Validation of `EndpointSlice`s.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;

use super::addresses::zero_padded;
use super::{Checks, items};
use crate::kinds::{FieldError, names};

const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;

/// Checks a new `EndpointSlice`.
pub(super) fn check(checks: &mut Checks, slice: &Value) {
    check_addresses_and_ports(checks, slice);
    check_endpoints(checks, slice);
}

/// Checks a changed `EndpointSlice`. Unchanged endpoints stay, even if they are invalid.
pub(super) fn check_update(checks: &mut Checks, slice: &Value, old: &Value) {
    check_addresses_and_ports(checks, slice);
    if items(&slice["endpoints"]) != items(&old["endpoints"]) {
        check_endpoints(checks, slice);
    }
    checks.immutable("addressType", &slice["addressType"], &old["addressType"]);
}

fn check_addresses_and_ports(checks: &mut Checks, slice: &Value) {
    if slice["addressType"].as_str().is_none_or(str::is_empty) {
        checks.add(FieldError::required("addressType", ""));
    } else {
        let kind = &slice["addressType"];
        if !["FQDN", "IPv4", "IPv6"].iter().any(|known| kind == known) {
            checks.add(FieldError::unsupported("addressType", kind, &["FQDN", "IPv4", "IPv6"]));
        }
    }
    let mut known = HashSet::new();
    for (index, port) in items(&slice["ports"]).iter().enumerate() {
        let path = format!("ports[{index}]");
        let name = port["name"].as_str().unwrap_or_default();
        if !name.is_empty() {
            checks.label(&format!("{path}.name"), &port["name"]);
        }
        if !known.insert(name) {
            checks.add(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
        checks.one_of(&path, port, "protocol", &["SCTP", "TCP", "UDP"]);
        if let Some(protocol) = port["appProtocol"].as_str() {
            for error in names::qualified_name(protocol) {
                let path = format!("{path}.appProtocol");
                checks.add(FieldError::invalid(path, &port["appProtocol"], &error));
            }
        }
    }
}

fn check_endpoints(checks: &mut Checks, slice: &Value) {
    let endpoints = items(&slice["endpoints"]);
    if endpoints.len() > MAX_ENDPOINTS {
        checks.add(FieldError::too_many("endpoints", endpoints.len(), MAX_ENDPOINTS));
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = format!("endpoints[{index}]");
        let addresses = items(&endpoint["addresses"]);
        let list = format!("{path}.addresses");
        if addresses.is_empty() {
            checks.add(FieldError::required(list.as_str(), "must contain at least 1 address"));
        } else if addresses.len() > MAX_ADDRESSES {
            checks.add(FieldError::too_many(list.as_str(), addresses.len(), MAX_ADDRESSES));
        }
        for (index, address) in addresses.iter().enumerate() {
            let path = format!("{list}[{index}]");
            match slice["addressType"].as_str().unwrap_or_default() {
                family @ ("IPv4" | "IPv6") => check_address(checks, &list, &path, address, family),
                "FQDN" => check_domain(checks, &path, address),
                _ => {}
            }
        }
        if endpoint["hostname"].is_string() {
            checks.label(&format!("{path}.hostname"), &endpoint["hostname"]);
        }
        if let Some(node) = endpoint["nodeName"].as_str() {
            for error in names::dns1123_subdomain(node) {
                let path = format!("{path}.nodeName");
                checks.add(FieldError::invalid(path, &endpoint["nodeName"], &error));
            }
        }
    }
}

fn check_address(checks: &mut Checks, list: &str, path: &str, address: &Value, family: &str) {
    let text = address.as_str().unwrap_or_default();
    let mut refuse = |path: &str, detail: &str| checks.add(FieldError::invalid(path, address, detail));
    let ip = match text.parse::<IpAddr>() {
        Ok(ip) => ip,
        Err(_) if zero_padded(text) => return refuse(path, "must not have leading 0s"),
        Err(_) => {
            return refuse(path, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        }
    };
    if ip.is_ipv4() != (family == "IPv4") {
        refuse(list, &format!("must be an {family} address"));
    }
    let (link_local, link_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments().first() == Some(&0xff02)),
    };
    if ip.is_unspecified() {
        refuse(path, &format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        refuse(path, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if link_local {
        refuse(path, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if link_local_multicast {
        refuse(path, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn check_domain(checks: &mut Checks, path: &str, address: &Value) {
    let name = address.as_str().unwrap_or_default();
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        checks.add(FieldError::required(path, ""));
        return;
    }
    let errors = names::dns1123_subdomain(name);
    if !errors.is_empty() {
        checks.add(FieldError::invalid(path, &name.into(), &errors.join(",")));
        return;
    }
    if !name.contains('.') {
        let text = "should be a domain with at least two segments separated by dots";
        checks.add(FieldError::invalid(path, &name.into(), text));
    }
}
