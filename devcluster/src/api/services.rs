//! Allocation of cluster addresses and node ports for Services.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Api, Status};
use crate::kinds::{FieldError, Kind};
use crate::store::{At, GroupResource};

/// The lower 16 bits of cluster addresses in `10.0.0.0/16`; 1 is the address of the Service `kubernetes`.
const ADDRESSES: std::ops::Range<u16> = 1..u16::MAX;
/// The range of node ports, the default of kube-apiserver.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
/// Number of random draws after which the range of addresses or ports counts as full.
const ATTEMPTS: usize = 1000;

/// Sets the cluster address and the node ports of a new Service, unless the client has set them.
pub(super) fn allocate(api: &Api, kind: &Kind, service: &mut Value) -> Result<(), Status> {
    let name = super::object::meta(service, "name").to_owned();
    let resource = GroupResource::new("", "services");
    let taken = |pick: fn(&Value) -> Vec<String>| -> HashSet<String> {
        let listing = api.store().list(&resource, None, None, At::Newest);
        listing
            .into_iter()
            .flat_map(|listing| listing.items)
            .flat_map(|version| pick(version.value()))
            .collect()
    };
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let text = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (service_type, address) = (text("type"), text("clusterIP"));
    if service_type == "ExternalName" {
        return Ok(());
    }
    let address = match address.as_str() {
        "" => {
            let taken = taken(addresses);
            let mut drawn = (0..ATTEMPTS).map(|_| api.random(|random| random.u16(ADDRESSES)));
            let free =
                drawn.find_map(|number| Some(dotted(number)).filter(|address| !taken.contains(address)));
            free.ok_or_else(|| {
                Status::new(500, "InternalError", "failed to allocate a serviceIP: range is full")
            })?
        }
        "None" => address,
        given if taken(addresses).contains(given) => {
            let detail = format!("failed to allocate IP {given}: provided IP is already allocated");
            let error = FieldError::invalid("spec.clusterIPs", &json!([given]), &detail);
            return Err(Status::invalid(kind, &name, &[error]));
        }
        _ => address,
    };
    spec.insert("clusterIP".to_owned(), json!(address));
    spec.insert("clusterIPs".to_owned(), json!([address]));
    // The cluster need not have the families of a Service whose endpoints others write.
    let selects = spec.get("selector").and_then(Value::as_object).is_some_and(|labels| !labels.is_empty());
    if address == "None"
        && !selects
        && !spec.contains_key("ipFamilyPolicy")
        && !spec.contains_key("ipFamilies")
    {
        spec.insert("ipFamilies".to_owned(), json!(["IPv4", "IPv6"]));
        spec.insert("ipFamilyPolicy".to_owned(), json!("RequireDualStack"));
    }
    spec.entry("ipFamilies").or_insert_with(|| json!(["IPv4"]));
    spec.entry("ipFamilyPolicy").or_insert_with(|| json!("SingleStack"));
    if matches!(service_type.as_str(), "NodePort" | "LoadBalancer") {
        let mut taken = taken(node_ports);
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(port) = port.as_object_mut() else { continue };
            if port.get("nodePort").and_then(Value::as_u64).is_some_and(|port| port > 0) {
                continue;
            }
            let mut drawn = (0..ATTEMPTS).map(|_| api.random(|random| random.u16(NODE_PORTS)));
            if let Some(free) = drawn.find(|port| taken.insert(port.to_string())) {
                port.insert("nodePort".to_owned(), json!(free));
            }
        }
    }
    Ok(())
}

/// Copies addresses and node ports that an update omits from the old Service.
pub(super) fn keep_addresses(service: &mut Value, old: &Value) {
    let Some(old) = old.get("spec") else { return };
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("type").and_then(Value::as_str) == Some("ExternalName") {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let missing =
            spec.get(field).is_none_or(|value| value.is_null() || value == "" || value == &json!([]));
        if let (true, Some(value)) = (missing, old.get(field)) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
    let old_ports = old.get("ports").and_then(Value::as_array);
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = |other: &&Value| {
            other.get("port") == port.get("port") && other.get("protocol") == port.get("protocol")
        };
        let known =
            old_ports.into_iter().flatten().find(same).and_then(|other| other.get("nodePort")).cloned();
        let missing = port.get("nodePort").is_none();
        if let (true, Some(known), Some(port)) = (missing, known, port.as_object_mut()) {
            port.insert("nodePort".to_owned(), known);
        }
    }
}

/// Formats the lower 16 bits of a cluster address.
fn dotted(number: u16) -> String {
    let [high, low] = number.to_be_bytes();
    format!("10.0.{high}.{low}")
}

fn addresses(service: &Value) -> Vec<String> {
    service.pointer("/spec/clusterIP").and_then(Value::as_str).map(str::to_owned).into_iter().collect()
}

fn node_ports(service: &Value) -> Vec<String> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    ports.filter_map(|port| port.get("nodePort")).map(ToString::to_string).collect()
}
