use k8s_openapi::api::core::v1::Service;
use mainstay::cache::{Select, Store};
use mainstay::key::KindId;
use serde_json::json;

use super::*;

fn store(names: &[&str]) -> Store<Service> {
    let service = |name: &&str| {
        let metadata = json!({"name": name, "namespace": "shop"});
        json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.7"}})
    };
    Store::from_values(&KindId::of::<Service>(), names.iter().map(service))
}

#[test]
fn a_version_is_decoded_once() {
    let store = store(&["a", "b"]);
    let facts = Facts::<ServiceFacts>::default();
    let view = |name: &str| {
        store.list(&Select::all()).unwrap().into_iter().find(|view| view.meta().name() == name).unwrap()
    };
    let extracted = facts.extract(view("a").view()).unwrap();
    assert!(Arc::ptr_eq(&facts.of(view("a").view()).unwrap(), &extracted));
    let read = facts.of(view("b").view()).unwrap();
    assert!(Arc::ptr_eq(&facts.of(view("b").view()).unwrap(), &read));
}

#[test]
fn facts_of_a_deleted_object_are_removed() {
    let store = store(&["a", "b"]);
    let facts = Facts::<ServiceFacts>::default();
    let entries = store.list(&Select::all()).unwrap();
    for entry in &entries {
        facts.extract(entry.view()).unwrap();
    }
    let delta =
        Delta { old: Some(entries[0].view()), new: None, initial: false, resync: false, own_write: None };
    facts.handle(&Delta { new: delta.old, ..delta });
    assert_eq!(facts.0.lock().len(), 2, "another version of the object");
    facts.handle(&delta);
    assert_eq!(facts.0.lock().keys().collect::<Vec<_>>(), [&entries[1].meta().uid]);
}

#[test]
fn a_reader_gets_the_facts_of_its_own_version() {
    let service = |ip: &str, version: &str| {
        let metadata = json!({"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": version});
        let service = json!({"metadata": metadata, "spec": {"clusterIP": ip}});
        Store::<Service>::from_values(&KindId::of::<Service>(), [service])
    };
    let facts = Facts::<ServiceFacts>::default();
    for (ip, version) in [("10.96.0.7", "1"), ("10.96.0.8", "2"), ("10.96.0.7", "1")] {
        let entry = service(ip, version).list(&Select::all()).unwrap().pop().unwrap();
        let found = facts.of(entry.view()).unwrap();
        assert_eq!(*found.cluster_addresses, [ip.parse::<IpAddr>().unwrap()]);
    }
    assert_eq!(facts.0.lock().len(), 1);
}

#[test]
fn facts_of_a_version_that_is_too_large_come_from_the_index_function() {
    // An index function sees all of a version of which the store keeps only metadata.
    let service = |version: &str, ports: usize| {
        let ports: Vec<_> =
            (0..ports).map(|number| json!({"name": format!("{number:0600}"), "port": number})).collect();
        let metadata = json!({"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": version});
        let service = json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.7", "ports": ports}});
        let store = Store::<Service>::from_values(&KindId::of::<Service>(), [service]);
        store.list(&Select::all()).unwrap().pop().unwrap()
    };
    let facts = Facts::<ServiceFacts>::default();
    let (whole, kept) = (service("7", 1), service("7", 20_000));
    assert!(kept.view().bytes().is_err(), "only metadata is kept");
    let extracted = facts.of(whole.view()).unwrap();
    assert!(Arc::ptr_eq(&facts.of(kept.view()).unwrap(), &extracted));
    let next = facts.of(service("8", 20_000).view()).unwrap_err();
    assert!(next.contains("maxObjectBytes"), "{next}");
}
