use http_body_util::BodyExt as _;
use serde_json::json;

use super::*;
use crate::kinds::builtin;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn get(path: &str, accept: &str) -> (u16, http::HeaderMap, Value) {
    let request = Request { accept, pretty: false, host: "127.0.0.1:1", if_none_match: None, is_get: true };
    let answer = answer(&super::super::path::parse(path), builtin::kinds().to_vec(), &request);
    let (head, body) = answer.finish("id").into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    (head.status.as_u16(), head.headers, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn groups_versions_and_resources_are_listed() {
    let (_, _, value) = get("/api", "").await;
    assert_eq!(
        value,
        json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:1"}]})
    );
    let (_, _, value) = get("/apis/coordination.k8s.io", "").await;
    let version = json!({"groupVersion": "coordination.k8s.io/v1", "version": "v1"});
    assert_eq!(
        value,
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": "coordination.k8s.io",
            "versions": [version], "preferredVersion": version})
    );
    let (_, _, value) = get("/apis/coordination.k8s.io/v1", "").await;
    assert_eq!(
        value,
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "coordination.k8s.io/v1",
            "resources": [{"name": "leases", "singularName": "lease", "namespaced": true, "kind": "Lease",
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]}]})
    );
}

#[tokio::test]
async fn aggregated_discovery_is_served_when_it_is_asked_for() {
    let (code, headers, value) = get("/apis", &format!("{AGGREGATED},application/json")).await;
    assert_eq!((code, headers["content-type"].to_str().expect("text")), (200, AGGREGATED));
    assert_eq!(value["kind"], "APIGroupDiscoveryList");
    let groups: Vec<_> =
        value["items"].as_array().expect("groups").iter().map(|it| &it["metadata"]["name"]).collect();
    assert!(groups.contains(&&json!("apps")) && !groups.contains(&&Value::Null), "{groups:?}");
    let (_, _, legacy) = get("/api", AGGREGATED).await;
    let resources = legacy["items"][0]["versions"][0]["resources"].as_array().expect("resources").clone();
    let namespace = resources.iter().find(|row| row["resource"] == "namespaces").expect("namespaces");
    assert_eq!(namespace["responseKind"], json!({"group": "", "version": "", "kind": "Namespace"}));
    assert_eq!(namespace["scope"], "Cluster");
    let v2beta1 = AGGREGATED.replace("v=v2", "v=v2beta1");
    assert_eq!(get("/apis", &v2beta1).await.0, 406);
    assert_eq!(get("/apis", &format!("{v2beta1},application/json")).await.2["kind"], "APIGroupList");
}

#[tokio::test]
async fn unknown_groups_and_versions_are_refused_as_by_the_real_server() {
    assert_eq!(get("/apis/nope", "").await.2, Value::Null);
    assert_eq!(get("/apis/nope/v1", "").await.0, 404);
    assert_eq!(get("/apis/apps/v9", "").await.2["reason"], "NotFound");
    assert_eq!(get("/api/v2", "").await.2["reason"], "NotFound");
}

#[test]
fn stable_versions_come_first() {
    let mut versions = ["foo", "v1alpha1", "v2", "v1beta2", "v10", "v1"];
    versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
    assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1alpha1", "foo"]);
}
