//! Which part of this process makes a write: the writes of a run are news only to other keys and to other controllers.
//!
//! Controllers share connections, so a request carries its writer down the stack to the observer of writes.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use http::Request;
use kube::Client;
use kube::client::Body;
use tower::service_fn;

use crate::key::Key;

/// A part of this process that writes. The default is one without a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writer {
    /// Hash of the controller's name.
    controller: Option<u64>,
    /// Hash of the key whose run writes; `None` outside of runs.
    key: Option<u64>,
    /// The one resourceVersion that the write was for; `None` if it was for whichever the server had.
    version: Option<u64>,
}

// === impl Writer ===

impl Writer {
    /// The controller of this name.
    pub fn controller(name: &str) -> Self {
        Self { controller: Some(hash(name)), ..Self::default() }
    }

    /// Returns whether this is the controller of this name.
    pub fn is_controller(self, name: &str) -> bool {
        self.controller == Some(hash(name))
    }

    /// The same in a run of this key.
    #[must_use]
    pub(crate) fn running(self, key: &impl Key) -> Self {
        Self { key: Some(hash(key)), ..self }
    }

    /// Returns whether this is a run.
    pub(crate) fn is_run(self) -> bool {
        self.key.is_some()
    }

    /// Returns whether this is a run of this key.
    pub(crate) fn is_run_of(self, key: &impl Key) -> bool {
        self.key == Some(hash(key))
    }

    /// The same with a write for one version of its object, as the server would refuse it for any other.
    #[must_use]
    pub(crate) fn on(self, version: Option<u64>) -> Self {
        Self { version, ..self }
    }

    /// Returns whether the write was for this version, so that all it changed is its own.
    pub(crate) fn was_on(self, version: Option<u64>) -> bool {
        version.is_some() && self.version == version
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

/// The same for equal keys throughout the process. Two keys of one hash are taken for one key, whose backoff goes on where
/// it should end.
fn hash<T: Hash + ?Sized>(key: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
