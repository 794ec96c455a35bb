//! Services, endpoints, and the kinds of the group `networking.k8s.io`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::text;
use super::view::View;

/// The most addresses or hosts that a cell shows.
const SHOWN: usize = 3;

pub(super) fn service(service: &View<'_>) -> Value {
    let port = |port: View<'_>| {
        let (number, protocol) = (port.number("/port"), port.text("/protocol"));
        match port.number("/nodePort") {
            0 => format!("{number}/{protocol}"),
            node_port => format!("{number}:{node_port}/{protocol}"),
        }
    };
    let ports: Vec<_> = service.list("/spec/ports").map(port).collect();
    let cluster_ip = service.get("/spec/clusterIPs/0").and_then(Value::as_str);
    json!([
        service.name(),
        service.text("/spec/type"),
        cluster_ip.unwrap_or("<none>"),
        external_ip(service),
        text::or_none(ports.join(",")),
        service.age(),
        text::labels(service.map("/spec/selector")),
    ])
}

fn external_ip(service: &View<'_>) -> String {
    let external = service.texts("/spec/externalIPs").join(",");
    match service.text("/spec/type") {
        "ClusterIP" | "NodePort" => text::or_none(external),
        "LoadBalancer" => {
            let balancer = load_balancer(service);
            match (balancer.is_empty(), external.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (false, true) => balancer,
                (true, false) => external,
                (false, false) => format!("{balancer},{external}"),
            }
        }
        "ExternalName" => service.text("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Returns the addresses of a load balancer, or its host names.
fn load_balancer(of: &View<'_>) -> String {
    let ingress = of.list("/status/loadBalancer/ingress");
    let addresses: BTreeSet<_> = ingress.map(|it| it.text_or("/ip", it.text("/hostname"))).collect();
    addresses.into_iter().filter(|address| !address.is_empty()).collect::<Vec<_>>().join(",")
}

pub(super) fn endpoints(endpoints: &View<'_>) -> Value {
    json!([endpoints.name(), subsets(endpoints), endpoints.age()])
}

fn subsets(endpoints: &View<'_>) -> String {
    if endpoints.count("/subsets") == 0 {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in endpoints.list("/subsets") {
        let addresses = || subset.list("/addresses").map(|address| address.text("/ip"));
        if subset.count("/ports") == 0 {
            all.extend(addresses().map(str::to_owned));
        }
        for port in subset.list("/ports") {
            let number = port.number("/port");
            let of = |ip: &str| match ip.split_once(':') {
                Some(_) => format!("[{ip}]:{number}"),
                None => format!("{ip}:{number}"),
            };
            all.extend(addresses().map(of));
        }
    }
    shown(&all, all.len())
}

fn shown(items: &[String], count: usize) -> String {
    let first = items.get(..SHOWN).unwrap_or(items).join(",");
    if items.len() > SHOWN { format!("{first} + {} more...", count - SHOWN) } else { first }
}

pub(super) fn endpoint_slice(slice: &View<'_>) -> Value {
    let port = |port: View<'_>| {
        let name = || port.get("/name").and_then(Value::as_str).unwrap_or("*").to_owned();
        port.shown("/port").unwrap_or_else(name)
    };
    let ports: Vec<_> = slice.list("/ports").map(port).collect();
    let addresses: Vec<_> = slice
        .list("/endpoints")
        .flat_map(|endpoint| endpoint.texts("/addresses"))
        .map(str::to_owned)
        .collect();
    json!([
        slice.name(),
        slice.text("/addressType"),
        text::first(&ports),
        text::first(&addresses),
        slice.age(),
    ])
}

pub(super) fn ingress(ingress: &View<'_>) -> Value {
    let class = ingress.get("/spec/ingressClassName").and_then(Value::as_str).unwrap_or("<none>");
    let ports = if ingress.count("/spec/tls") > 0 { "80, 443" } else { "80" };
    json!([ingress.name(), class, hosts(ingress), load_balancer(ingress), ports, ingress.age()])
}

fn hosts(ingress: &View<'_>) -> String {
    let (mut hosts, mut more) = (Vec::new(), false);
    for rule in ingress.list("/spec/rules") {
        // A rule without a host after the third host also counts as one more.
        if hosts.len() == SHOWN {
            more = true;
        } else if !rule.text("/host").is_empty() {
            hosts.push(rule.text("/host"));
        }
    }
    match (hosts.join(","), more) {
        (hosts, _) if hosts.is_empty() => "*".to_owned(),
        (hosts, true) => format!("{hosts} + {} more...", ingress.count("/spec/rules") - SHOWN),
        (hosts, false) => hosts,
    }
}

pub(super) fn ingress_class(class: &View<'_>) -> Value {
    let default = class.annotation("ingressclass.kubernetes.io/is-default-class") == Some("true");
    let name = format!("{}{}", class.name(), if default { " (default)" } else { "" });
    let reference = class.part("/spec/parameters");
    let parameters = if class.has("/spec/parameters") {
        let group = reference.get("/apiGroup").and_then(Value::as_str);
        let group = group.map(|group| format!(".{group}")).unwrap_or_default();
        format!("{}{group}/{}", reference.text("/kind"), reference.text("/name"))
    } else {
        "<none>".to_owned()
    };
    json!([name, class.text("/spec/controller"), parameters, class.age()])
}

pub(super) fn network_policy(policy: &View<'_>) -> Value {
    json!([policy.name(), text::selector_or_none(&policy.part("/spec/podSelector")), policy.age()])
}

pub(super) fn service_cidr(cidr: &View<'_>) -> Value {
    json!([cidr.name(), cidr.texts("/spec/cidrs").join(","), cidr.age()])
}

/// The age has no column, but the real server sends it.
pub(super) fn ip_address(address: &View<'_>) -> Value {
    let parent = address.part("/spec/parentRef");
    let reference = if address.has("/spec/parentRef") {
        let group = match parent.text("/group") {
            "" => String::new(),
            group => format!(".{group}"),
        };
        let mut reference = format!("{}{group}", parent.text("/resource")).to_lowercase();
        for part in [parent.text("/namespace"), parent.text("/name")] {
            if !part.is_empty() {
                reference = format!("{reference}/{part}");
            }
        }
        reference
    } else {
        "<none>".to_owned()
    };
    json!([address.name(), reference, address.age()])
}
