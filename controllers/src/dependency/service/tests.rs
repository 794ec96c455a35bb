//! Services and slices as objects of the API.

use mainstay::key::KindId;
use serde_json::{Value, json};

use super::*;
use crate::dependency::probe::Endpoint;

fn answer(spec: &Value) -> Option<ServiceAnswer> {
    serde_json::from_value::<ServiceFacts>(json!({"spec": spec})).unwrap().answer(5432)
}

#[test]
fn a_service_with_the_port_answers_with_its_cluster_addresses() {
    let ports = json!([{"port": 53, "protocol": "UDP"}, {"port": 5432, "protocol": "TCP"}]);
    let both = json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd12::7"], "ports": ports});
    let ips =
        |list: &[&str]| Some(ServiceAnswer::Cluster(list.iter().map(|ip| ip.parse().unwrap()).collect()));
    assert_eq!(answer(&both), ips(&["10.96.0.7", "fd12::7"]));
    assert_eq!(answer(&json!({"clusterIP": "10.96.0.7", "ports": ports})), ips(&["10.96.0.7"]));
    let udp = json!({"clusterIP": "10.96.0.7", "ports": [{"port": 5432, "protocol": "UDP"}]});
    assert_eq!(answer(&udp), Some(ServiceAnswer::NoPort));
    assert_eq!(answer(&json!({"clusterIP": "10.96.0.7"})), Some(ServiceAnswer::NoPort));
}

#[test]
fn headless_and_external_services_have_answers_of_their_own() {
    assert_eq!(answer(&json!({"clusterIP": "None", "ports": []})), None);
    let outside = json!({"type": "ExternalName", "externalName": "db.example.com"});
    assert_eq!(answer(&outside), Some(ServiceAnswer::External("db.example.com".to_owned())));
}

#[test]
fn every_address_of_a_service_has_its_endpoints_as_backends() {
    let service = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "clusterIP": "10.96.0.7",
            "clusterIPs": ["10.96.0.7", "fd12::7"],
            "externalIPs": ["203.0.113.9"],
            "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.10"}, {"hostname": "lb.example.com"}]}},
    });
    let slice = |name: &str, endpoints: Value| {
        let labels = json!({SERVICE_NAME_LABEL: "web"});
        let metadata = json!({"name": name, "namespace": "shop", "labels": labels});
        json!({"metadata": metadata, "ports": [{"port": 8080}], "endpoints": endpoints})
    };
    let whole = slice("whole", json!([{"addresses": ["10.1.0.1"], "conditions": {"ready": false}}]));
    let services = |slices: Vec<Value>| {
        let services = Store::<Service>::from_values(&KindId::of::<Service>(), [service.clone()]);
        CachedServices::new(&services, &Store::from_values(&KindId::of::<EndpointSlice>(), slices))
    };
    let found = services(vec![whole.clone()]);
    let backends = |address: &str| found.backends(address.parse().unwrap()).unwrap();
    let endpoint = Endpoint { ip: "10.1.0.1".parse().unwrap(), port: Some(8080), is_pod: false };
    for (ip, is_cluster) in [
        ("10.96.0.7", true),
        ("[fd12::7]", true),
        ("[::ffff:10.96.0.7]", true),
        ("203.0.113.9", false),
        ("203.0.113.10", false),
    ] {
        let cluster_address_of = is_cluster.then(|| "shop".to_owned());
        let expected = Backends { cluster_address_of, endpoints: vec![endpoint] };
        assert_eq!(backends(&format!("{ip}:80")), Some(expected), "{ip}");
    }
    for other in ["10.96.0.7:81", "10.96.0.7:53", "10.96.0.8:80", "10.1.0.1:8080"] {
        assert_eq!(backends(other), None, "{other}");
    }
    let ports = json!([{"name": "ssh", "port": 22}, {"port": 8080}, {"name": "metrics", "port": 10250}]);
    let mut several = whole.clone();
    several["ports"] = ports;
    let mut ssh = whole.clone();
    (ssh["metadata"]["name"], ssh["ports"]) = (json!("ssh"), json!([{"name": "ssh", "port": 22}]));
    let mut open = whole.clone();
    (open["metadata"]["name"], open["ports"]) = (json!("open"), json!([]));
    let found = services(vec![several, ssh, open]).backends("10.96.0.7:80".parse().unwrap());
    let mut ports: Vec<_> = found.unwrap().unwrap().endpoints.iter().map(|endpoint| endpoint.port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [None, Some(8080)], "the port of this name, and the slice without ports");
    let undecodable = services(vec![whole, slice("undecodable", json!("of a later version"))]);
    undecodable.backends("10.96.0.7:80".parse().unwrap()).unwrap_err();
}

/// Returns a Service, and its EndpointSlice with one address and port.
fn service_and_slice(request: &str, spec: &Value, ip: &str, port: u16) -> (Value, Value) {
    let (namespace, name) = request.split_once('/').unwrap();
    let metadata = json!({"name": name, "namespace": namespace});
    let slice = json!({
        "metadata": {"name": name, "namespace": namespace, "labels": {SERVICE_NAME_LABEL: name}},
        "ports": [{"port": port}],
        "endpoints": [{"addresses": [ip]}],
    });
    (json!({"metadata": metadata, "spec": spec}), slice)
}

fn cached(objects: impl IntoIterator<Item = (Value, Value)>) -> CachedServices {
    let (services, slices): (Vec<_>, Vec<_>) = objects.into_iter().unzip();
    let services = Store::<Service>::from_values(&KindId::of::<Service>(), services);
    CachedServices::new(&services, &Store::from_values(&KindId::of::<EndpointSlice>(), slices))
}

fn backend_ports(services: &CachedServices, address: &str) -> Vec<Option<u16>> {
    let backends = services.backends(address.parse().unwrap()).unwrap();
    backends.into_iter().flat_map(|backends| backends.endpoints).map(|endpoint| endpoint.port).collect()
}

#[test]
fn only_the_service_with_a_cluster_address_has_its_backends() {
    let own = json!({"clusterIP": "10.96.7.7", "ports": [{"port": 5432}]});
    let listed = json!({
        "clusterIP": "10.96.7.8",
        "externalIPs": ["10.96.7.7", "203.0.113.9"],
        "ports": [{"port": 5432}, {"port": 80}],
    });
    let services = cached([
        service_and_slice("a/stranger", &listed, "10.1.0.9", 10250),
        service_and_slice("b/db", &own, "10.1.0.1", 5432),
    ]);
    assert_eq!(backend_ports(&services, "10.96.7.7:5432"), [Some(5432)]);
    let backends = services.backends("10.96.7.7:5432".parse().unwrap()).unwrap().unwrap();
    assert_eq!(backends.cluster_address_of.as_deref(), Some("b"));
    for other in ["10.96.7.7:80", "203.0.113.9:5432", "10.96.7.8:80"] {
        assert_eq!(backend_ports(&services, other), [Some(10250)], "{other} belongs to the stranger");
    }
}

#[test]
fn at_most_sixteen_services_of_one_address_and_port_are_read() {
    let listing = |port: u16| json!({"externalIPs": ["203.0.113.9"], "ports": [{"port": port}]});
    let sharing = |count: usize, port: fn(usize) -> u16| {
        cached((0..count).map(move |number| {
            service_and_slice(&format!("a/s{number}"), &listing(port(number)), "10.1.0.9", 8080)
        }))
    };
    let address = "203.0.113.9:80".parse().unwrap();
    assert!(sharing(MAX_SHARERS, |_| 80).backends(address).is_ok());
    let error = sharing(MAX_SHARERS + 1, |_| 80).backends(address).unwrap_err();
    assert!(error.contains("16 Services"), "{error}");
    let shared = sharing(2000, |number| u16::try_from(number).unwrap());
    assert_eq!(
        backend_ports(&shared, "203.0.113.9:80").len(),
        1,
        "a load balancer, with a port for each Service"
    );
}

#[test]
fn backends_with_a_slice_that_is_too_large_are_unknown() {
    let spec = json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]});
    let (service, slice) = service_and_slice("shop/web", &spec, "10.1.0.1", 8080);
    let mut large = slice.clone();
    large["metadata"]["annotations"] = json!({"x": "x".repeat(11 << 20)});
    let address = "10.96.0.7:80".parse().unwrap();
    assert!(cached([(service.clone(), slice)]).backends(address).is_ok());
    let error = cached([(service, large)]).backends(address).unwrap_err();
    assert!(error.contains("maxObjectBytes"), "{error}");
}

#[test]
fn a_service_with_many_addresses_has_few_keys_in_the_index() {
    let ips: Vec<_> = (0..5000).map(|number| format!("203.0.{}.{}", number / 256, number % 256)).collect();
    let spec = json!({"externalIPs": ips, "ports": [{"port": 80}]});
    let facts = serde_json::from_value::<ServiceFacts>(json!({"spec": spec})).unwrap();
    assert_eq!(index_keys(Ok(Arc::new(facts))).len(), OTHER_KEYS as usize);
    let services = cached([service_and_slice("shop/many", &spec, "10.1.0.1", 8080)]);
    for (address, count) in [("203.0.19.135:80", 1), ("203.0.19.136:80", 0), ("[::ffff:203.0.0.0]:80", 1)] {
        assert_eq!(backend_ports(&services, address).len(), count, "{address}");
    }
}

#[test]
fn a_service_that_cannot_be_decoded_may_have_any_address() {
    let service =
        |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec});
    let odd = service("odd", json!({"externalIPs": "of a later version"}));
    let plain = service("web", json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]}));
    for (services, is_known) in [(vec![plain.clone()], true), (vec![plain, odd], false)] {
        let services = Store::<Service>::from_values(&KindId::of::<Service>(), services);
        let slices = Store::from_values(&KindId::of::<EndpointSlice>(), []);
        let found = CachedServices::new(&services, &slices);
        for address in ["10.96.0.7:80", "203.0.113.9:80"] {
            assert_eq!(found.backends(address.parse().unwrap()).is_ok(), is_known, "{address}");
        }
    }
}

#[test]
fn backends_include_endpoints_that_are_not_ready() {
    let slice = json!({"endpoints": [
        {"addresses": ["10.1.0.1"], "conditions": {"ready": true}},
        {"addresses": ["10.1.0.2"], "conditions": {"ready": false}},
        {"addresses": ["10.1.0.3"], "conditions": {}},
        {"addresses": ["db.example.com"]},
    ]});
    let facts = |slice: Value| serde_json::from_value::<SliceFacts>(slice).unwrap();
    let slice = facts(slice);
    assert_eq!(slice.backends("").count(), 3, "a connection may go to an endpoint that is not ready");
    let ready: Vec<_> = slice.ready_addresses().map(|ip| ip.to_string()).collect();
    assert_eq!(ready, ["10.1.0.1", "10.1.0.3"]);
    let ports = json!([{"port": 80}, {"name": "kubelet", "port": 10250}]);
    let pod = json!({"addresses": ["10.1.0.1"], "targetRef": {"kind": "Pod", "name": "a"}});
    let node = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": false}});
    let slice = facts(json!({"endpoints": [pod, node], "ports": ports}));
    let backends = |name| -> Vec<_> {
        slice.backends(name).map(|found| (found.ip.to_string(), found.port, found.is_pod)).collect()
    };
    for (name, port) in [("", 80), ("kubelet", 10250)] {
        let (pod, node) = ("10.1.0.1".to_owned(), "10.0.0.1".to_owned());
        assert_eq!(backends(name), [(pod, Some(port), true), (node, Some(port), false)]);
    }
    assert_eq!(backends("other"), [], "no endpoint serves it");
    let empty = facts(json!({"endpoints": null}));
    assert_eq!(empty.ready_addresses().count(), 0);
}
