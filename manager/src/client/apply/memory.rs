//! The last applies of one applier, so that the same apply is not sent again without need.
//!
//! An apply of the same body has no effect while no other writer changes the object. It is sent again only if
//! the body differs, or if both the version and the content of the object do.
//!
//! # Invariants
//! 1. Each entry is an apply that succeeded: the entry is removed before its request is sent, so an apply
//!    without a response is sent again.
//! 2. An entry counts only in its own term of leadership: in between another replica may have applied more
//!    fields, which equal content would hide.
//! 3. There are at most [`REMEMBERED`] entries; an object whose entry was evicted is applied once more.

use std::borrow::Cow;
use std::hash::RandomState;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::client::body::{Body, hash_without, metadata_text};
use crate::client::call::Part;
use crate::client::current::Current;
use crate::key::NamespacedName;
use crate::util::BoundedMap;

/// Maximum number of applies remembered, at 200 to 300 bytes each: the entry, its name, uid and version.
const REMEMBERED: usize = 65_536;

/// The last successful apply of each object and part (object or status), so that it is not repeated without
/// need.
pub(super) struct Memory {
    /// Random seed of the hashes of applied bodies and contents, so that the cluster's users cannot construct
    /// two bodies of equal hash.
    state: RandomState,
    /// The remembered applies. Locked for single look-ups only.
    applied: Mutex<BoundedMap<(NamespacedName, Part), Applied>>,
}

/// A server-side apply that succeeded, as remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Applied {
    /// Hash of the applied body, without its uid and resourceVersion.
    body: u64,
    /// Term of leadership in which the apply was sent.
    term: u64,
    /// The object's uid in the response to the apply.
    uid: Box<str>,
    /// The object's resourceVersion in the response to the apply, or of a later version with the same
    /// content.
    version: Box<str>,
    /// Hash of the written part (object or status) in the response to the apply.
    content: u64,
}

// === impl Memory ===

impl Memory {
    pub(super) fn new() -> Self {
        Self { state: RandomState::new(), applied: Mutex::new(BoundedMap::new(REMEMBERED)) }
    }

    /// Returns whether an apply of `body` would have no effect on `current`. The remembered apply is kept
    /// either way.
    pub(super) fn is_applied(&self, body: &Body, part: Part, current: &impl Current, term: u64) -> bool {
        let key = (body.name.clone(), part);
        let Some(applied) = self.applied.lock().get(&key, Instant::now()).cloned() else { return false };
        let uid = current.uid();
        let same = applied.term == term
            && applied.body == self.hash_of_body(body)
            && *applied.uid == *uid
            // The caller's condition on the stored object, if it set one.
            && metadata_text(&body.value, "uid").is_none_or(|given| given == uid);
        if !same {
            return false;
        }
        let version = current.resource_version();
        if *applied.version == *version {
            return true;
        }
        if self.content_in(&current.json(), part, body) != Some(applied.content) {
            return false;
        }
        // The hash was computed without the lock. A write that began since has removed or replaced the entry,
        // and then `current` may be outdated.
        let mut entries = self.applied.lock();
        let Some(entry) = entries.get(&key, Instant::now()).filter(|entry| **entry == applied) else {
            return false;
        };
        // The next call compares only the version and skips the hash.
        entry.version = Box::from(&*version);
        true
    }

    /// Forgets the last apply of an object's part, which is about to be written.
    pub(super) fn forget(&self, name: &NamespacedName, part: Part) {
        self.applied.lock().remove(&(name.clone(), part), Instant::now());
    }

    /// Remembers that an apply of `body` succeeded with the response `answer`.
    pub(super) fn remember(&self, body: &Body, part: Part, answer: &Value, term: u64) {
        let text = |field| metadata_text(answer, field);
        let (Some(uid), Some(version)) = (text("uid"), text("resourceVersion")) else { return };
        let applied = Applied {
            body: self.hash_of_body(body),
            term,
            uid: uid.into(),
            version: version.into(),
            content: self.hash_of_content(answer, part, body),
        };
        self.applied.lock().insert((body.name.clone(), part), applied, Instant::now());
    }

    /// Returns whether two versions of an object have the same content in a part (object or status).
    pub(super) fn same_content(&self, one: &Value, other: &Bytes, part: Part, body: &Body) -> bool {
        self.content_in(other, part, body) == Some(self.hash_of_content(one, part, body))
    }

    fn content_in(&self, json: &[u8], part: Part, body: &Body) -> Option<u64> {
        let object = serde_json::from_slice(json).ok()?;
        Some(self.hash_of_content(&object, part, body))
    }

    fn hash_of_body(&self, body: &Body) -> u64 {
        hash_without(&self.state, &body.value, &[], &["uid", "resourceVersion"])
    }

    /// Hashes all fields of an object's part (object or status) that an apply could change. The generation is
    /// one of them: it reveals a spec that was changed and then restored.
    fn hash_of_content(&self, object: &Value, part: Part, body: &Body) -> u64 {
        use std::hash::BuildHasher as _;
        if part == Part::Status {
            return self.state.hash_one(object.get("status").map_or(Cow::Owned(Value::Null), Cow::Borrowed));
        }
        let mut outside = vec!["apiVersion", "kind"];
        // Other writers own the status, unless `body` contains it: then the kind has no status subresource.
        if body.value.get("status").is_none() {
            outside.push("status");
        }
        hash_without(&self.state, object, &outside, &["managedFields", "resourceVersion"])
    }
}

#[cfg(test)]
mod tests;
