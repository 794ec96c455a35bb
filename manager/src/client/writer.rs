//! Who within this process writes: what one controller does itself is news to its neighbours.
//!
//! Controllers share connections, so a request says on its way down whose it is, and whoever observes writes is told.

use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tower::Service;

/// A part of this process that writes. The default is one without a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writer(Option<&'static str>);

/// Writes the writer on every request.
struct Signed {
    client: Client,
    writer: Writer,
}

// === impl Writer ===

impl Writer {
    /// The controller of this name.
    pub fn controller(name: &'static str) -> Self {
        Self(Some(name))
    }

    /// Returns whether this is the controller of this name.
    pub fn is_controller(self, name: &str) -> bool {
        self.0 == Some(name)
    }

    /// Makes a client whose requests go the way of `client`'s, in this writer's name. Its one task runs on the runtime
    /// in whose context this is called, and ends with its last clone.
    pub(crate) fn sign(self, client: &Client) -> Client {
        Client::new(Signed { client: client.clone(), writer: self }, client.default_namespace())
    }

    /// Returns who sends a request.
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        request.extensions().get().copied().unwrap_or_default()
    }
}

// === impl Signed ===

impl Service<Request<Body>> for Signed {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    /// The client below waits for itself.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.extensions_mut().insert(self.writer);
        let client = self.client.clone();
        async move { client.send(request).await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use parking_lot::Mutex;

    use super::*;
    use crate::client::testserver::{Answer, TestServer};
    use crate::client::{ResourcePath, Role, Uncovered, WriteObserver, is_fenced};
    use crate::key::Fence;

    /// Remembers whose writes it was told of.
    #[derive(Default)]
    struct Names(Mutex<Vec<Writer>>);

    impl WriteObserver for Names {
        fn written(&self, _: &ResourcePath, _: &Bytes, writer: Writer) {
            self.0.lock().push(writer);
        }

        fn shown(&self, _: &ResourcePath) -> Vec<String> {
            Vec::new()
        }

        fn deleted(&self, _: &ResourcePath, _: &Bytes, _: &[String], writer: Writer) {
            self.0.lock().push(writer);
        }

        fn uncovered(&self, _: &ResourcePath, _: Uncovered) {}
    }

    fn request(method: &str) -> Request<Body> {
        let request = Request::builder().method(method).uri("/api/v1/namespaces/shop/configmaps/web");
        request.body(Body::from(b"{}".to_vec())).unwrap()
    }

    #[tokio::test]
    async fn writers_that_share_a_client_are_told_apart() {
        let server = TestServer::start(["{}", "{}", "{}"].map(Answer::ok)).await;
        let connections = server.connections();
        let names = Arc::new(Names::default());
        connections.observe(Arc::clone(&names) as Arc<dyn WriteObserver>);
        let client = connections.client(Role::Writes(Fence::open())).unwrap();
        let (one, other) = (Writer::controller("one"), Writer::controller("other"));
        one.sign(&client).send(request("PUT")).await.unwrap();
        other.sign(&client).send(request("DELETE")).await.unwrap();
        client.send(request("PUT")).await.unwrap();
        assert_eq!(*names.0.lock(), [one, other, Writer::default()]);
        assert!(one.is_controller("one") && !other.is_controller("one"));
        assert!(!Writer::default().is_controller("one"), "who has no name is no controller");
    }

    #[tokio::test]
    async fn a_signed_client_fails_as_the_one_below_it_does() {
        let server = TestServer::start([]).await;
        let client = server.connections().client(Role::Writes(Fence::closed())).unwrap();
        let error = Writer::controller("one").sign(&client).send(request("PUT")).await.unwrap_err();
        assert!(is_fenced(&error), "{error:?}");
    }
}
