//! Who within this process writes: what one controller does itself is news to its neighbours.
//!
//! Controllers share connections, so a request says on its way down whose it is, and whoever observes writes is told.

use http::Request;
use kube::Client;
use kube::client::Body;
use tower::service_fn;

/// A part of this process that writes. The default is one without a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writer(Option<&'static str>);

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
        let namespace = client.default_namespace().to_owned();
        let client = client.clone();
        // Always ready: the client below waits for itself.
        let signed = service_fn(move |mut request: Request<Body>| {
            request.extensions_mut().insert(self);
            let client = client.clone();
            async move { client.send(request).await }
        });
        Client::new(signed, namespace)
    }

    /// Returns who sends a request.
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        request.extensions().get().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
