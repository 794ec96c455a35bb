//! An object as it was last read, in the form in which writes compare with it.
//!
//! Raw JSON and no Rust type: what a type does not know would be taken for absent. The cache's
//! [`View`](crate::cache::View) and [`Entry`](crate::cache::Entry) are such objects; [`live`] asks the server.

use std::borrow::Cow;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::key::{KindId, NamespacedName};

use super::apply::Authority;
use super::body::check_name;
use super::call::{call, request};
use super::error::WriteError;

/// One version of one object.
pub trait Current: Sync {
    /// Returns what tells it from an earlier object of its name.
    fn uid(&self) -> Cow<'_, str>;

    /// Returns which version it is.
    fn resource_version(&self) -> Cow<'_, str>;

    /// Returns the whole object as JSON. `metadata.managedFields` may be missing.
    fn json(&self) -> Bytes;

    /// Returns how much of the object [`json`](Self::json) is.
    fn extent(&self) -> Extent {
        Extent::Whole
    }
}

/// How much of an object was read. An edit takes for absent what was not, so what was not read is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that others than the server write.
    Whole,
    /// Its `metadata`: it comes from a metadata-only store.
    Metadata,
    /// Its `metadata`: the whole is longer than `cache.maxObjectBytes`.
    TooLarge {
        /// Bytes of the whole.
        size: u32,
        /// Whether the metadata alone is longer too: only name, namespace, uid and resourceVersion were read.
        bare: bool,
    },
    /// What a transform of the cache has made of it; nobody knows what is missing.
    Changed,
}

/// An object as the API server had it a moment ago.
#[derive(Clone, Debug)]
pub struct Live {
    uid: String,
    resource_version: String,
    json: Bytes,
}

#[derive(Deserialize)]
struct Object {
    metadata: Stamp,
}

/// The two fields every stored object has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stamp {
    uid: String,
    resource_version: String,
}

/// Reads an object at the API server; `None` if it is not there. For kinds that no cache holds: a read of the cache is
/// cheaper, and shows this process's own writes too.
///
/// # Errors
/// As [`Applier::apply`](super::Applier::apply); the error speaks of a look. A name that none can have is
/// [`WriteError::Malformed`], and is not asked for.
///
/// # Cancel safety
/// Nothing is written.
pub async fn live(
    cx: &impl Authority,
    kind: &KindId,
    name: &NamespacedName,
) -> Result<Option<Live>, WriteError> {
    let what = look_at(kind, name);
    check_name(kind, name).map_err(|why| WriteError::Malformed { what: what.clone(), why })?;
    let request = request(Method::GET, &kind.object_path(name), None, Bytes::new(), &what)?;
    let json = match call(cx.client(), request, &what).await {
        Err(error) if error.is_not_found() => return Ok(None),
        answer => answer?,
    };
    Live::read(json).map(Some).map_err(|source| WriteError::Undecodable { what, source })
}

/// A look as it stands in errors.
pub(super) fn look_at(kind: &KindId, name: &NamespacedName) -> String {
    format!("look at {kind} {name}")
}

// === impl Live ===

impl Live {
    pub(super) fn read(json: Bytes) -> Result<Self, serde_json::Error> {
        let Object { metadata: Stamp { uid, resource_version } } = serde_json::from_slice(&json)?;
        Ok(Self { uid, resource_version, json })
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// Fails when the object is not a `K`.
    pub fn decode<K: DeserializeOwned>(&self) -> Result<K, serde_json::Error> {
        serde_json::from_slice(&self.json)
    }
}

impl Current for Live {
    fn uid(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.uid)
    }

    fn resource_version(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.resource_version)
    }

    fn json(&self) -> Bytes {
        self.json.clone()
    }
}

#[cfg(test)]
mod tests;
