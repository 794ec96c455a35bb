//! Allocation of cluster addresses and node ports for Services.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::{Api, Status};
use crate::kinds::builtin::validation::{FAMILY_POLICY, check_addresses};
use crate::kinds::{FieldError, Kind};
use crate::store::{At, GroupResource};

/// The lower 16 bits of cluster addresses in `10.0.0.0/16`; 1 is the address of the Service `kubernetes`.
const ADDRESSES: std::ops::Range<u16> = 1..u16::MAX;
/// The range of node ports, the default of kube-apiserver.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
/// Number of random draws after which the range of addresses or ports counts as full.
const ATTEMPTS: usize = 1000;

type Spec = Map<String, Value>;

/// Addresses and node ports that Services have which are not stored yet.
pub(super) type Reserved = Arc<Mutex<HashSet<String>>>;

/// The addresses and node ports that one write has allocated. Dropped after the write, so that no other write
/// takes them in between.
#[derive(Debug, Default)]
pub(super) struct Reservation {
    of: Option<Reserved>,
    values: Vec<String>,
}

// === impl Reservation ===

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(reserved) = &self.of {
            let mut reserved = reserved.lock();
            reserved.retain(|value| !self.values.contains(value));
        }
    }
}

/// Completes a Service before its validation: keeps the addresses and node ports of `old` (`None` for a
/// creation) that it leaves out, and allocates missing ones.
pub(super) fn prepare(
    api: &Api,
    kind: &Kind,
    service: &mut Value,
    old: Option<&Value>,
) -> Result<Reservation, Status> {
    let name = super::object::meta(service, "name").to_owned();
    let old = old.and_then(|old| old.get("spec")?.as_object());
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(Reservation::default());
    };
    let invalid = |errors: &[FieldError]| Status::invalid(kind, &name, errors);
    if let Some(old) = old {
        keep_allocated(spec, old);
    }
    match_addresses(spec, old);
    let errors = set_families(spec, old);
    if !errors.is_empty() {
        return Err(invalid(&errors));
    }
    let mut reservation = Reservation { of: Some(Arc::clone(&api.shared.reserved)), values: Vec::new() };
    if !is_external(spec) && old.is_none_or(is_external) {
        allocate_address(api, spec, &mut reservation).map_err(|failure| match failure {
            Some(error) => invalid(&[error]),
            None => Status::internal("failed to allocate a serviceIP: range is full"),
        })?;
    }
    allocate_ports(api, spec, old, &mut reservation).map_err(|error| invalid(&[error]))?;
    if let Some(old) = old {
        drop_unused(spec, old);
    }
    Ok(reservation)
}

fn text<'a>(spec: &'a Spec, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(spec: &'a Spec, field: &str) -> &'a [Value] {
    spec.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn is_external(spec: &Spec) -> bool {
    text(spec, "type") == "ExternalName"
}

fn has_node_ports(spec: &Spec) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn node_port(port: &Value) -> u64 {
    port.get("nodePort").and_then(Value::as_u64).unwrap_or(0)
}

fn same_addresses(spec: &Spec, old: &Spec) -> bool {
    text(spec, "clusterIP") == text(old, "clusterIP") && list(spec, "clusterIPs") == list(old, "clusterIPs")
}

fn same_families(spec: &Spec, old: &Spec) -> bool {
    list(spec, "ipFamilies") == list(old, "ipFamilies")
}

/// Copies addresses and node ports that an update omits from the old Service.
fn keep_allocated(spec: &mut Spec, old: &Spec) {
    if !is_external(spec) && !is_external(old) {
        if text(spec, "clusterIP").is_empty() && !text(old, "clusterIP").is_empty() {
            spec.insert("clusterIP".to_owned(), text(old, "clusterIP").into());
        }
        if list(spec, "clusterIPs").is_empty() && !list(old, "clusterIPs").is_empty() {
            spec.insert("clusterIPs".to_owned(), list(old, "clusterIPs").into());
        }
    }
    if has_node_ports(spec) && has_node_ports(old) {
        let ports = |spec: &Spec| list(spec, "ports").iter().map(node_port).collect::<HashSet<_>>();
        let used: HashSet<_> = ports(spec).intersection(&ports(old)).copied().collect();
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let known = list(old, "ports").iter().rfind(|known| known.get("name") == port.get("name"));
            let known = known.map_or(0, node_port);
            if node_port(port) == 0
                && known != 0
                && !used.contains(&known)
                && let Some(port) = port.as_object_mut()
            {
                port.insert("nodePort".to_owned(), known.into());
            }
        }
    }
    if text(spec, "externalTrafficPolicy") == "Local"
        && let (None, Some(port)) = (spec.get("healthCheckNodePort"), old.get("healthCheckNodePort"))
    {
        spec.insert("healthCheckNodePort".to_owned(), port.clone());
    }
}

/// Makes `clusterIPs` follow a `clusterIP` that the client has set, changed or removed alone.
fn match_addresses(spec: &mut Spec, old: Option<&Spec>) {
    let address = text(spec, "clusterIP").to_owned();
    let follows = match old {
        None => !address.is_empty() && list(spec, "clusterIPs").is_empty(),
        Some(old) => address != text(old, "clusterIP") && list(spec, "clusterIPs") == list(old, "clusterIPs"),
    };
    if follows && address.is_empty() {
        spec.remove("clusterIPs");
    } else if follows {
        spec.insert("clusterIPs".to_owned(), json!([address]));
    }
}

/// Sets the missing address families and their policy. The cluster has only IPv4.
fn set_families(spec: &mut Spec, old: Option<&Spec>) -> Vec<FieldError> {
    const SINGLE: &str = "SingleStack";
    const DUAL: &str = "RequireDualStack";
    const PREFERRED: &str = "PreferDualStack";
    if is_external(spec) {
        return Vec::new();
    }
    let untouched = old.is_some_and(|old| {
        let stays = |of: &Spec| matches!(text(of, "ipFamilyPolicy"), "" | PREFERRED);
        text(spec, "ipFamilyPolicy") == PREFERRED
            && stays(old)
            && text(spec, "type") == text(old, "type")
            && same_addresses(spec, old)
            && same_families(spec, old)
    });
    if untouched {
        return Vec::new();
    }
    // The cluster need not have the families of a Service whose endpoints others write.
    let selects = spec.get("selector").and_then(Value::as_object).is_some_and(|labels| !labels.is_empty());
    let written_by_others = text(spec, "clusterIP") == "None" && !selects;
    if text(spec, "ipFamilyPolicy").is_empty() {
        let policy = match old.map_or("", |old| text(old, "ipFamilyPolicy")) {
            "" if written_by_others => DUAL,
            "" => SINGLE,
            policy => policy,
        };
        spec.insert("ipFamilyPolicy".to_owned(), policy.into());
    }
    let mut errors = check_addresses(spec, old);
    if !errors.is_empty() {
        return errors;
    }
    let single = text(spec, "ipFamilyPolicy") == SINGLE;
    if let Some(old) = old {
        for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
            let (new, before) = (list(spec, field), list(old, field));
            let same = if field == "clusterIPs" { same_addresses(spec, old) } else { new == before };
            if single && same && new.len() > 1 {
                let first = json!(new.get(..1));
                spec.insert(field.to_owned(), first);
            } else if !single && !new.is_empty() && new.len() < before.len() {
                let text = format!("must be 'SingleStack' to release the secondary {what}");
                errors.push(FieldError::invalid(FAMILY_POLICY, &spec["ipFamilyPolicy"], &text));
            }
        }
    }
    for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if single && list(spec, field).len() == 2 {
            let text =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.push(FieldError::invalid(FAMILY_POLICY, &spec["ipFamilyPolicy"], &text));
        }
    }
    let mut families = list(spec, "ipFamilies").to_vec();
    for (index, address) in list(spec, "clusterIPs").iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        if address == "None" {
            break;
        }
        if index >= families.len() {
            if address.contains(':') {
                let path = format!("spec.clusterIPs[{index}]");
                let addresses = &spec["clusterIPs"];
                errors.push(FieldError::invalid(path, addresses, "IPv6 is not configured on this cluster"));
            } else {
                families.push("IPv4".into());
            }
        }
    }
    if errors.is_empty() && !written_by_others {
        if text(spec, "ipFamilyPolicy") == DUAL {
            let text = "this cluster is not configured for dual-stack services";
            errors.push(FieldError::invalid(FAMILY_POLICY, &spec["ipFamilyPolicy"], text));
        }
        for (index, family) in families.iter().enumerate().filter(|(_, family)| *family != "IPv4") {
            let path = format!("spec.ipFamilies[{index}]");
            errors.push(FieldError::invalid(path, family, "not configured on this cluster"));
        }
    }
    if families.is_empty() {
        families.push("IPv4".into());
    }
    if written_by_others && !single && families.len() < 2 {
        families.push(
            if families.first().is_some_and(|family| family == "IPv4") { "IPv6" } else { "IPv4" }.into(),
        );
    }
    spec.insert("ipFamilies".to_owned(), families.into());
    errors
}

/// Allocates the cluster address. The error is `None` if the range is full.
fn allocate_address(
    api: &Api,
    spec: &mut Spec,
    reservation: &mut Reservation,
) -> Result<(), Option<FieldError>> {
    let address = match text(spec, "clusterIP") {
        "None" => "None".to_owned(),
        given => {
            let given = given.to_owned();
            let mut reserved = api.shared.reserved.lock();
            let taken = taken(api, addresses);
            let is_free = |address: &String| !taken.contains(address) && !reserved.contains(address);
            let address = if given.is_empty() {
                let mut drawn = (0..ATTEMPTS).map(|_| dotted(api.random(|random| random.u16(ADDRESSES))));
                drawn.find(is_free).ok_or(None)?
            } else if is_free(&given) {
                given
            } else {
                let detail = format!("failed to allocate IP {given}: provided IP is already allocated");
                return Err(Some(FieldError::invalid("spec.clusterIPs", &json!([given]), &detail)));
            };
            reserved.insert(address.clone());
            reservation.values.push(address.clone());
            address
        }
    };
    spec.insert("clusterIP".to_owned(), json!(address));
    spec.insert("clusterIPs".to_owned(), json!([address]));
    Ok(())
}

/// Allocates missing node ports, and those that the client has chosen.
fn allocate_ports(
    api: &Api,
    spec: &mut Spec,
    old: Option<&Spec>,
    reservation: &mut Reservation,
) -> Result<(), FieldError> {
    let allocates = has_node_ports(spec)
        && (text(spec, "type") == "NodePort"
            || spec.get("allocateLoadBalancerNodePorts").is_none_or(|value| value != false));
    let own: HashSet<u64> = old.into_iter().flat_map(|old| list(old, "ports")).map(node_port).collect();
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().enumerate();
    // Ports with the same number, such as TCP and UDP, share a node port.
    let mut shared: Vec<(Option<Value>, u64)> = Vec::new();
    // Held until all ports are allocated, since the listed Services are those of the first one.
    let mut reserved = api.shared.reserved.lock();
    let mut listed: Option<HashSet<String>> = None;
    for (index, port) in ports {
        let wanted = node_port(port);
        if wanted == 0 && !allocates || wanted != 0 && own.contains(&wanted) {
            continue;
        }
        let number = port.get("port").cloned();
        let twin = shared.iter().find(|(known, _)| *known == number).map(|(_, port)| *port);
        let chosen = match twin.filter(|_| old.is_none()) {
            Some(twin) if wanted == 0 || wanted == twin => twin,
            _ => {
                let taken = listed.get_or_insert_with(|| taken(api, node_ports));
                let is_free =
                    |port: &u64| !taken.contains(&port.to_string()) && !reserved.contains(&port.to_string());
                let refused = |detail: &str| {
                    FieldError::invalid(format!("spec.ports[{index}].nodePort"), &wanted.into(), detail)
                };
                let in_range = u16::try_from(wanted).is_ok_and(|port| NODE_PORTS.contains(&port));
                let chosen = match wanted {
                    0 => {
                        let mut drawn =
                            (0..ATTEMPTS).map(|_| u64::from(api.random(|random| random.u16(NODE_PORTS))));
                        drawn.find(is_free)
                    }
                    _ if !in_range => {
                        let range = "The range of valid ports is 30000-32767";
                        return Err(refused(&format!("provided port is not in the valid range. {range}")));
                    }
                    port if !is_free(&port) => return Err(refused("provided port is already allocated")),
                    port => Some(port),
                };
                let Some(chosen) = chosen else { continue };
                reserved.insert(chosen.to_string());
                reservation.values.push(chosen.to_string());
                chosen
            }
        };
        shared.push((number, chosen));
        if let Some(port) = port.as_object_mut() {
            port.insert("nodePort".to_owned(), json!(chosen));
        }
    }
    Ok(())
}

/// Removes values of the old type that the new type does not use and the client has not changed.
fn drop_unused(spec: &mut Spec, old: &Spec) {
    if is_external(spec) {
        spec.remove("internalTrafficPolicy");
    }
    if is_external(spec) && !is_external(old) {
        if same_addresses(spec, old) {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if spec.get(field) == old.get(field) {
                spec.remove(field);
            }
        }
    }
    if has_node_ports(spec) || !has_node_ports(old) {
        return;
    }
    let known: HashSet<_> = list(old, "ports").iter().map(node_port).collect();
    let ports = || list(spec, "ports").iter().map(node_port);
    if ports().all(|port| port == 0 || known.contains(&port)) {
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
    for field in
        ["allocateLoadBalancerNodePorts", "loadBalancerClass", "externalTrafficPolicy", "healthCheckNodePort"]
    {
        let applies = field == "externalTrafficPolicy" && !list(spec, "externalIPs").is_empty();
        if !applies && spec.get(field) == old.get(field) {
            spec.remove(field);
        }
    }
}

/// Returns values of all stored Services.
fn taken(api: &Api, pick: fn(&Value) -> Vec<String>) -> HashSet<String> {
    let listing = api.store().list(&GroupResource::new("", "services"), None, None, At::Newest);
    let items = listing.into_iter().flat_map(|listing| listing.items);
    items.flat_map(|version| pick(version.value())).collect()
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
