//! The documents of `OpenAPI` v3 and their URLs.

use super::{filled, get};

#[tokio::test]
async fn patches_of_all_kinds_offer_validation_by_the_server() {
    let server = filled().await;
    let index = get(&server, "/openapi/v3").await.json();
    let documents = [
        ("api/v1", "/api/v1/namespaces/{namespace}/configmaps/{name}", "ConfigMap"),
        ("apis/apps/v1", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}", "Deployment"),
        ("apis/example.com/v1", "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}", "Widget"),
    ];
    for (document, path, kind) in documents {
        let url = index["paths"][document]["serverRelativeURL"].as_str().expect("a URL");
        let patch = get(&server, url).await.json()["paths"][path]["patch"].clone();
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], kind);
        let parameters = patch["parameters"].as_array().expect("parameters");
        let validated = parameters.iter().any(|it| it["name"] == "fieldValidation" && it["in"] == "query");
        assert!(validated, "{patch}");
    }
    assert_eq!(get(&server, "/openapi/v3/apis/nope/v1").await.code, 404);
}

#[tokio::test]
async fn a_url_has_the_hash_of_its_document() {
    let server = filled().await;
    let index = get(&server, "/openapi/v3").await.json();
    for document in ["apis/apps/v1", "apis/example.com/v1"] {
        let url = index["paths"][document]["serverRelativeURL"].as_str().expect("a URL");
        let found = get(&server, url).await;
        assert_eq!((found.code, found.header("cache-control").as_str()), (200, "public, immutable"));
        let path = format!("/openapi/v3/{document}");
        assert_eq!(get(&server, &path).await.header("etag"), found.header("etag"));
        let moved = get(&server, &format!("{path}?hash=old")).await;
        assert_eq!((moved.code, moved.header("location").as_str()), (301, url));
    }
}
