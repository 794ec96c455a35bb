//! Records the `OpenAPI` documents of the real server, in the form of `kinds::openapi`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use mainstay_devcluster::kinds::openapi::{Contents, Document, Frame};
use serde_json::{Value, json};
use zstd_safe::CCtx;

use super::pair;
use super::side;

/// The document whose texts most others repeat.
const DICTIONARY: &str = "apis/coordination.k8s.io/v1";
/// The document of the two definitions below.
const TEMPLATE: &str = "apis/qq.example/v1alpha7";
const LEVEL: i32 = 19;

/// Writes the data file. The scope of the definitions is in their names, which are replaced later.
pub(crate) async fn openapi() {
    let Some(server) = pair::real(mainstay_devcluster::Options { bare: true, ..Default::default() }).await
    else {
        return;
    };
    let client = pair::real_client(&server).await;
    let version_2 = version_2(&client).await;
    for (kind, scope) in [("Qqnamespaced", "Namespaced"), ("Qqcluster", "Cluster")] {
        let singular = kind.to_lowercase();
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{singular}s.qq.example")},
            "spec": {
                "group": "qq.example",
                "scope": scope,
                "names": {"plural": format!("{singular}s"), "kind": kind},
                "versions": [{
                    "name": "v1alpha7",
                    "served": true,
                    "storage": true,
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                    },
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(side::post(&client, path, &definition).await.0, 201);
    }
    let mut texts = BTreeMap::new();
    // The real server merges the documents of definitions one after another.
    let mut template = String::new();
    while !["Qqnamespaced", "Qqcluster"].iter().all(|kind| template.contains(kind)) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        template = get(&client, &format!("/openapi/v3/{TEMPLATE}")).await;
    }
    let index: Value = serde_json::from_str(&get(&client, "/openapi/v3").await).expect("JSON");
    for (path, at) in index["paths"].as_object().expect("paths") {
        let url = at["serverRelativeURL"].as_str().expect("a URL");
        let (_, hash) = url.split_once("?hash=").expect("a hash");
        if path != TEMPLATE {
            texts.insert(path.clone(), (hash.to_owned(), get(&client, url).await));
        }
    }
    let dictionary = texts[DICTIONARY].1.clone();
    let (mut contents, mut frames) = (Contents::default(), Vec::new());
    contents.dictionary = add(&mut frames, dictionary.as_bytes(), "");
    contents.template = add(&mut frames, template.as_bytes(), &dictionary);
    contents.version_2.frame = add(&mut frames, &version_2.1, &dictionary);
    contents.version_2.hash = version_2.0;
    for (path, (hash, text)) in texts {
        let frame = add(&mut frames, text.as_bytes(), &dictionary);
        contents.documents.push(Document { path, hash, frame });
    }
    let mut file = serde_json::to_vec(&contents).expect("JSON");
    file.push(b'\n');
    file.extend(frames);
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/openapi.zst");
    std::fs::write(to, file).expect("the data file is written");
    server.stop().await;
}

/// Appends a compressed text.
fn add(frames: &mut Vec<u8>, text: &[u8], dictionary: &str) -> Frame {
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(text.len()));
    let mut context = CCtx::create();
    context
        .compress_using_dict(&mut out, text, dictionary.as_bytes(), LEVEL)
        .expect("the text is compressed");
    frames.extend_from_slice(&out);
    Frame { packed: out.len(), length: text.len() }
}

/// Returns the hash and the protobuf of the document of version 2.
async fn version_2(client: &Client) -> (String, Vec<u8>) {
    let accept = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let request = http::Request::get("/openapi/v2").header("accept", accept);
    let answer = client.send(request.body(Body::empty()).expect("a request")).await.expect("an answer");
    let hash = answer.headers()["etag"].to_str().expect("a hash").trim_matches('"').to_owned();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    (hash, body.to_vec())
}

async fn get(client: &Client, path: &str) -> String {
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    client.request_text(request).await.unwrap_or_default()
}
