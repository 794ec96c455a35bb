//! Defaults of Services.

use serde_json::{Value, json};

use super::{Object, set, text};

pub(super) fn apply(spec: &mut Object) {
    let kind = text(spec, "type").to_owned();
    if text(spec, "sessionAffinity") == "None" {
        spec.remove("sessionAffinityConfig");
    }
    if text(spec, "sessionAffinity") == "ClientIP" {
        let timeout = spec
            .get("sessionAffinityConfig")
            .and_then(|config| config.get("clientIP")?.get("timeoutSeconds"))
            .filter(|seconds| !seconds.is_null())
            .cloned()
            .unwrap_or_else(|| 10800.into());
        let config = json!({"clientIP": {"timeoutSeconds": timeout}});
        spec.insert("sessionAffinityConfig".to_owned(), config);
    }
    let external = matches!(kind.as_str(), "NodePort" | "LoadBalancer");
    let addresses = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if external || kind == "ClusterIP" && addresses {
        set(spec, "externalTrafficPolicy", "Cluster".into());
    }
    if external || kind == "ClusterIP" {
        set(spec, "internalTrafficPolicy", "Cluster".into());
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true.into());
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut() else { continue };
        let unset = match port.get("targetPort") {
            None | Some(Value::Null) => true,
            Some(Value::String(name)) => name.is_empty(),
            Some(number) => number.as_i64() == Some(0),
        };
        if let (true, Some(number)) = (unset, port.get("port").cloned()) {
            port.insert("targetPort".to_owned(), number);
        }
    }
}
