use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::*;
use crate::client::tests::server::{Answer, TestServer};
use crate::client::{ResourcePath, Role, WriteObserver, is_fenced};
use crate::key::{Fence, NamespacedName};

/// Records the writers of all reported writes.
#[derive(Default)]
struct Writers(Mutex<Vec<Writer>>);

impl WriteObserver for Writers {
    fn written(&self, _: &ResourcePath, _: &Bytes, writer: Writer) {
        self.0.lock().push(writer);
    }

    fn cached_uids(&self, _: &ResourcePath) -> Vec<String> {
        Vec::new()
    }

    fn deleted(&self, _: &ResourcePath, _: &Bytes, _: &[String], writer: Writer) {
        self.0.lock().push(writer);
    }

    fn uncovered(&self, _: &ResourcePath) {}
}

fn request(method: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri("/api/v1/namespaces/shop/configmaps/web");
    request.body(Body::from(b"{}".to_vec())).unwrap()
}

#[tokio::test]
async fn writers_that_share_a_client_are_distinguished() {
    let server = TestServer::start(["{}", "{}", "{}"].map(Answer::ok)).await;
    let connections = server.connections();
    let writers = Arc::new(Writers::default());
    connections.observe(Arc::clone(&writers) as Arc<dyn WriteObserver>);
    let client = connections.client(Role::Writes(Fence::open())).unwrap();
    let (one, other) = (Writer::controller("one"), Writer::controller("other"));
    one.sign(&client).send(request("PUT")).await.unwrap();
    other.sign(&client).send(request("DELETE")).await.unwrap();
    client.send(request("PUT")).await.unwrap();
    assert_eq!(*writers.0.lock(), [one, other, Writer::default()]);
    assert!(one.is_controller("one") && !other.is_controller("one"));
    assert!(!Writer::default().is_controller("one"), "the default writer is no controller");
}

#[tokio::test]
async fn a_write_carries_the_key_of_its_run_and_its_version() {
    let bodies = [
        ("PUT", r#"{"metadata": {"resourceVersion": "7"}}"#),
        ("PATCH", r#"{"metadata": {"resourceVersion": "7"}}"#),
        ("PATCH", r#"{"metadata": {"labels": {"gone": null}, "resourceVersion": "7"}}"#),
        ("PATCH", r#"{"metadata": {"labels": {}}}"#),
        ("PATCH", r#"[{"op": "test", "path": "/metadata/resourceVersion", "value": "7"}]"#),
        ("DELETE", "{}"),
    ];
    let server = TestServer::start(bodies.map(|_| Answer::ok("{}"))).await;
    let connections = server.connections();
    let writers = Arc::new(Writers::default());
    connections.observe(Arc::clone(&writers) as Arc<dyn WriteObserver>);
    let client = connections.client(Role::Writes(Fence::open())).unwrap();
    let [web, api] = ["web", "api"].map(|name| NamespacedName::namespaced("shop", name));
    let run = Writer::controller("one").in_run_of(&web);
    for (method, body) in bodies {
        let mut request = request(method);
        *request.body_mut() = Body::from(body.as_bytes().to_vec());
        run.sign(&client).send(request).await.unwrap();
    }
    let reported = writers.0.lock().clone();
    assert_eq!(
        reported.iter().map(|writer| writer.was_for_version(Some(7))).collect::<Vec<_>>(),
        [true, true, true, false, false, false]
    );
    for writer in reported {
        assert!(writer.is_controller("one") && writer.is_run_of(&web) && !writer.is_run_of(&api));
    }
    assert!(!Writer::controller("one").is_run_of(&web));
}

#[tokio::test]
async fn a_signed_client_returns_the_errors_of_the_inner_client() {
    let server = TestServer::start([]).await;
    let client = server.connections().client(Role::Writes(Fence::closed())).unwrap();
    let error = Writer::controller("one").sign(&client).send(request("PUT")).await.unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
}
