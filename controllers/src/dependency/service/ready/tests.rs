use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use mainstay::cache::Store;
use mainstay::key::KindId;
use serde_json::{Value, json};

use super::super::SERVICE_NAME_LABEL;
use super::*;

fn number(port: u16) -> PortReference {
    PortReference::Number(port)
}

fn named(port: &str) -> PortReference {
    PortReference::Name(port.to_owned())
}

fn slice(name: &str, ports: &Value, endpoints: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {SERVICE_NAME_LABEL: "db"}},
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": endpoints,
    })
}

fn pod(uid: &str, address: &str, ready: impl Into<Value>) -> Value {
    let target = json!({"kind": "Pod", "uid": uid});
    json!({"addresses": [address], "conditions": {"ready": ready.into()}, "targetRef": target})
}

fn services(spec: &Value, slices: impl IntoIterator<Item = Value>) -> CachedServices {
    let service = json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": spec});
    CachedServices::new(
        &Store::from_values(&KindId::of::<Service>(), [service]),
        &Store::from_values(&KindId::of::<EndpointSlice>(), slices),
    )
}

#[test]
fn a_ready_pod_with_two_address_families_counts_once() {
    let ports = json!([{"name": "", "port": 5432}]);
    let v4 = json!([pod("a", "10.1.0.1", true), pod("b", "10.1.0.2", false), pod("c", "10.1.0.3", ())]);
    let v6 = json!([pod("a", "fd00::1", true), pod("b", "fd00::2", false), pod("c", "fd00::3", true)]);
    let spec = json!({"clusterIP": "10.96.0.7", "ports": [{"port": 5432}]});
    let services = services(&spec, [slice("v4", &ports, &v4), slice("v6", &ports, &v6)]);
    assert_eq!(services.endpoints("shop", "db", None), Endpoints::Ready(2), "absent means ready");
    assert_eq!(services.endpoints("shop", "db", Some(&number(5432))), Endpoints::Ready(2));
    assert_eq!(services.endpoints("shop", "db", Some(&number(80))), Endpoints::NoPort);
    assert_eq!(services.endpoints("shop", "other", None), Endpoints::NotFound);
    assert_eq!(services.endpoints("pay", "db", None), Endpoints::NotFound, "each namespace has its own");
}

#[test]
fn only_slices_that_have_the_port_count_for_it() {
    let spec = json!({"ports": [
        {"name": "sql", "port": 5432, "targetPort": "sql"},
        {"name": "metrics", "port": 9090, "protocol": "TCP"},
        {"name": "gossip", "port": 9090, "protocol": "UDP"},
    ]});
    let all = json!([{"name": "sql", "port": 5433}, {"name": "metrics", "port": 9090}]);
    let old = json!([{"name": "metrics", "port": 9090}]);
    let services = services(
        &spec,
        [
            slice("all", &all, &json!([pod("a", "10.1.0.1", true)])),
            slice("old", &old, &json!([pod("b", "10.1.0.2", true), pod("c", "10.1.0.3", true)])),
        ],
    );
    assert_eq!(services.endpoints("shop", "db", Some(&named("sql"))), Endpoints::Ready(1));
    assert_eq!(services.endpoints("shop", "db", Some(&number(5432))), Endpoints::Ready(1));
    assert_eq!(services.endpoints("shop", "db", Some(&named("metrics"))), Endpoints::Ready(3));
    assert_eq!(services.endpoints("shop", "db", Some(&named("gossip"))), Endpoints::Ready(0));
    assert_eq!(services.endpoints("shop", "db", None), Endpoints::Ready(3));
    assert_eq!(services.endpoints("shop", "db", Some(&named("http"))), Endpoints::NoPort);
}

#[test]
fn endpoints_without_pods_count_by_address() {
    let bare = json!([{"addresses": ["10.1.0.1"]}, {"addresses": ["10.1.0.2", "10.1.0.9"]}]);
    let again = json!([{"addresses": ["10.1.0.2"]}, {"addresses": []}]);
    let slices = [slice("one", &json!(null), &bare), slice("two", &json!([]), &again)];
    let services = services(&json!({"clusterIP": "None"}), slices);
    assert_eq!(services.endpoints("shop", "db", None), Endpoints::Ready(2), "one address is listed twice");
    let empty = self::services(&json!({"clusterIP": "None"}), [slice("e", &json!(null), &json!(null))]);
    assert_eq!(empty.endpoints("shop", "db", None), Endpoints::Ready(0));
}

#[test]
fn an_external_name_has_the_port_of_the_check_or_its_only_port() {
    let outside = |ports: Value| {
        services(&json!({"type": "ExternalName", "externalName": "db.example.com", "ports": ports}), [])
    };
    let (none, sql) = (outside(json!([])), outside(json!([{"name": "sql", "port": 5432}])));
    assert_eq!(none.endpoints("shop", "db", Some(&number(80))), Endpoints::External(Some(80)));
    assert_eq!(none.endpoints("shop", "db", Some(&named("sql"))), Endpoints::NoPort);
    assert_eq!(none.endpoints("shop", "db", None), Endpoints::External(None));
    assert_eq!(sql.endpoints("shop", "db", Some(&named("sql"))), Endpoints::External(Some(5432)));
    assert_eq!(sql.endpoints("shop", "db", None), Endpoints::External(Some(5432)), "its only port");
}
