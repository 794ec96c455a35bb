//! An object as it was last read: writes are compared with it.
//!
//! It is raw JSON and not a Rust type, because a field that the type lacks would count as absent. The cache's
//! [`View`](crate::cache::View) and [`Entry`](crate::cache::Entry) implement [`Current`]; [`live`] reads from
//! the API server.

use std::borrow::Cow;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::key::{KindId, NamespacedName};

use super::apply::Authority;
use super::body::check_name;
use super::call::send;
use super::error::WriteError;

/// One version of a Kubernetes object, as it was last read; a write is compared with it.
pub trait Current: Sync {
    /// Returns the object's `metadata.uid`; an earlier object of the same name had another uid.
    fn uid(&self) -> Cow<'_, str>;

    /// Returns the object's `metadata.resourceVersion`, the version that was read.
    fn resource_version(&self) -> Cow<'_, str>;

    /// Returns the whole object as JSON. `metadata.managedFields` may be missing.
    fn json(&self) -> Bytes;

    /// Returns how much of the object [`json`](Self::json) contains: by default the whole object.
    fn extent(&self) -> Extent {
        Extent::Whole
    }
}

/// How much of an object was read. An edit cannot tell an unread field from an absent one, so unread fields
/// are never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The whole object was read; only `metadata.managedFields` may be missing.
    Whole,
    /// Only the object's `metadata` was read: it comes from a metadata-only store.
    Metadata,
    /// Only the object's `metadata` was read: the object is longer than `cache.maxObjectBytes`.
    TooLarge {
        /// Size of the whole object in bytes.
        size: u32,
        /// Whether the metadata alone is too long as well: only name, namespace, uid and resourceVersion were
        /// read.
        bare: bool,
    },
    /// A transform of the cache changed the object and may have removed any field.
    Changed,
}

/// An object as [`live`] read it from the API server.
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

/// The uid and resourceVersion in the metadata of a stored object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stamp {
    uid: String,
    resource_version: String,
}

/// Reads an object from the API server; `None` if it does not exist. Use it for kinds that no cache holds: a
/// read of the cache is cheaper, and shows this process's own writes too.
///
/// # Errors
/// As [`Applier::apply`](super::Applier::apply); the error text begins with `read of`. A name that no object
/// can have is [`WriteError::Malformed`], without a request.
///
/// # Cancel safety
/// Safe to drop: it only reads.
pub async fn live(
    cx: &impl Authority,
    kind: &KindId,
    name: &NamespacedName,
) -> Result<Option<Live>, WriteError> {
    let what = read_of(kind, name);
    check_name(kind, name).map_err(|why| WriteError::Malformed { what: what.clone(), why })?;
    let json = match send(cx.client(), Method::GET, &kind.object_path(name), None, &what).await {
        Err(error) if error.is_not_found() => return Ok(None),
        answer => answer?.into_body(),
    };
    Live::read(json).map(Some).map_err(|source| WriteError::Undecodable { what, source })
}

/// Returns the name of a read of an object for error texts, such as `read of Pod shop/web`.
pub(super) fn read_of(kind: &KindId, name: &NamespacedName) -> String {
    format!("read of {kind} {name}")
}

// === impl Live ===

impl Live {
    pub(super) fn read(json: Bytes) -> Result<Self, serde_json::Error> {
        let Object { metadata: Stamp { uid, resource_version } } = serde_json::from_slice(&json)?;
        Ok(Self { uid, resource_version, json })
    }

    /// Decodes the JSON of the object as the Rust type `K`.
    ///
    /// # Errors
    /// Fails when the object's JSON does not fit `K`.
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
