//! An object as it was last read, in the form in which writes compare with it.
//!
//! Raw JSON and no Rust type: what a type does not know would be taken for absent. The cache's
//! [`View`](crate::cache::View) and [`Entry`](crate::cache::Entry) are such objects; [`live`] asks the server.

use std::borrow::Cow;

use bytes::Bytes;
use http::{Method, Request, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::key::{KindId, Request as ObjectName};

use super::apply::Authority;
use super::call::call;
use super::error::WriteError;

/// One version of one object.
pub trait Current: Sync {
    /// Returns what tells it from an earlier object of its name.
    fn uid(&self) -> &str;

    /// Returns which version it is.
    fn resource_version(&self) -> Cow<'_, str>;

    /// Returns the whole object as JSON. `metadata.managedFields` may be missing.
    fn json(&self) -> Bytes;

    /// Returns whether [`json`](Self::json) is the whole object, as far as others than the server write it.
    fn is_whole(&self) -> bool {
        true
    }
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
/// As [`Applier::apply`](super::Applier::apply); the error speaks of a look.
///
/// # Cancel safety
/// Nothing is written.
pub async fn live(
    cx: &(impl Authority + Sync),
    kind: &KindId,
    name: &ObjectName,
) -> Result<Option<Live>, WriteError> {
    let what = format!("look at {kind} {name}");
    let request = Request::builder()
        .method(Method::GET)
        .uri(kind.object_path(name))
        .header(header::ACCEPT, "application/json")
        .body(Bytes::new())
        .map_err(|error| WriteError::Malformed { what: what.clone(), why: error.to_string() })?;
    let json = match call(cx.client(), request, &what).await {
        Err(error) if error.is_not_found() => return Ok(None),
        answer => answer?,
    };
    Live::read(json).map(Some).map_err(|source| WriteError::Undecodable { what, source })
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
    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.resource_version)
    }

    fn json(&self) -> Bytes {
        self.json.clone()
    }
}
