//! The controller and key that make a write. A reconcile's own writes enqueue only other keys and other
//! controllers.
//!
//! Controllers share connections, so each request carries its writer down the stack to the write observer.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use http::{Extensions, Request};
use kube::Client;
use kube::client::Body;
use tower::service_fn;

use crate::key::Key;

/// The origin of a write: a controller and, within a reconcile, its key. The default names neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writer {
    /// Hash of the name of the controller that writes; `None` if it is unknown.
    controller: Option<u64>,
    /// Hash of the key, the reconcile of which writes; `None` outside of reconciles.
    key: Option<u64>,
    /// The resourceVersion that the write requires the object to have; `None` if it requires none.
    version: Option<u64>,
}

// === impl Writer ===

impl Writer {
    /// Makes the writer that stands for the controller of this name, outside of reconciles.
    pub fn controller(name: &str) -> Self {
        Self { controller: Some(hash(name)), ..Self::default() }
    }

    /// Returns whether the writer is the controller of this name, in a reconcile or not.
    pub fn is_controller(self, name: &str) -> bool {
        self.controller == Some(hash(name))
    }

    /// Returns the writer that stands for this controller's reconciles of `key`.
    #[must_use]
    pub(crate) fn in_run_of(self, key: &impl Key) -> Self {
        Self { key: Some(hash(key)), ..self }
    }

    /// Returns whether the writer is a reconcile.
    pub(crate) fn is_run(self) -> bool {
        self.key.is_some()
    }

    /// Returns whether the writer is a reconcile of `key`.
    pub(crate) fn is_run_of(self, key: &impl Key) -> bool {
        self.key == Some(hash(key))
    }

    /// Returns this writer with the resourceVersion that the write names: the API server refuses the write
    /// for any other version.
    #[must_use]
    pub(crate) fn for_version(self, version: Option<u64>) -> Self {
        Self { version, ..self }
    }

    /// Returns whether the write required this resourceVersion, so that it alone made the difference to the
    /// next version; false for `None`.
    pub(crate) fn was_for_version(self, version: Option<u64>) -> bool {
        version.is_some() && self.version == version
    }

    /// Makes a client that attaches this writer to each request and sends it through `client`. Its one task
    /// runs on the runtime in whose context this is called, and ends with its last clone.
    pub(crate) fn sign(self, client: &Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let client = client.clone();
        // Always ready: `client` itself waits for readiness.
        let signed = service_fn(move |mut request: Request<Body>| {
            request.extensions_mut().insert(self);
            let client = client.clone();
            async move { client.send(request).await }
        });
        Client::new(signed, namespace)
    }

    /// Returns the writer that is attached to a request: the default one if there is none.
    pub(super) fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or_default()
    }
}

/// Hashes a name or key, with the same result throughout the process. Two keys of equal hash count as one
/// key; the backoff of such a key goes on where it should end.
fn hash<T: Hash + ?Sized>(key: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
