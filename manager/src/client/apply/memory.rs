//! What one applier last applied, so that it need not ask the server whether that still stands.
//!
//! An apply of the same body does nothing as long as nobody touched the object: the server is asked again only if the
//! body is another, or both the version and the content of the object are.
//!
//! # Invariants
//! 1. What is remembered was answered: an entry is taken out before its request is sent, so an attempt whose outcome
//!    is unknown is made again.
//! 2. What was applied in one term of leadership is not known in the next: another replica may have applied more fields
//!    in between, and what looks the same would not be.
//! 3. At most [`REMEMBERED`] entries; an object that was forgotten is applied once more.

use std::borrow::Cow;
use std::hash::RandomState;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::client::body::{Body, hash_without};
use crate::client::call::Part;
use crate::client::current::Current;
use crate::key::NamespacedName;
use crate::util::BoundedMap;

/// Objects remembered, at 200 to 300 bytes each: the entry, its name, uid and version.
const REMEMBERED: usize = 65_536;

/// What was applied, by object and part.
pub(super) struct Memory {
    /// Keys the hashes: nobody outside can make two bodies look the same.
    state: RandomState,
    /// Locked for a look-up.
    applied: Mutex<BoundedMap<(NamespacedName, Part), Applied>>,
}

/// One apply that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Applied {
    /// Of the body, without the uid and resourceVersion it may carry.
    body: u64,
    /// In which it was applied.
    term: u64,
    /// Of the object that answered.
    uid: Box<str>,
    /// Of the answer, or of a later version with the same content.
    version: Box<str>,
    /// Of the whole part in the answer.
    content: u64,
}

// === impl Memory ===

impl Memory {
    pub(super) fn new() -> Self {
        Self { state: RandomState::new(), applied: Mutex::new(BoundedMap::new(REMEMBERED)) }
    }

    /// Returns whether applying this body would do nothing. What is known stays known.
    pub(super) fn still_stands(&self, body: &Body, part: Part, current: &impl Current, term: u64) -> bool {
        let key = (body.name.clone(), part);
        let Some(applied) = self.applied.lock().get(&key, Instant::now()).cloned() else { return false };
        let uid = current.uid();
        let same = applied.term == term
            && applied.body == self.hash_of_body(body)
            && *applied.uid == *uid
            && body.uid().is_none_or(|given| given == uid);
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
        // The hash was taken without the lock. Whoever has begun to write since has taken the entry out or put another
        // in, and what stood then need not stand now.
        let mut known = self.applied.lock();
        let Some(known) = known.get(&key, Instant::now()).filter(|known| **known == applied) else {
            return false;
        };
        // The next look is spared the hash.
        known.version = Box::from(&*version);
        true
    }

    /// Forgets what is known of an object's part: it is about to be written.
    pub(super) fn forget(&self, name: &NamespacedName, part: Part) {
        self.applied.lock().remove(&(name.clone(), part), Instant::now());
    }

    /// Remembers that `answer` came of applying `body`.
    pub(super) fn remember(&self, body: &Body, part: Part, answer: &Value, term: u64) {
        let text = |field| answer.pointer(field).and_then(Value::as_str);
        let (Some(uid), Some(version)) = (text("/metadata/uid"), text("/metadata/resourceVersion")) else {
            return;
        };
        let applied = Applied {
            body: self.hash_of_body(body),
            term,
            uid: uid.into(),
            version: version.into(),
            content: self.hash_of_content(answer, part, body),
        };
        self.applied.lock().insert((body.name.clone(), part), applied, Instant::now());
    }

    /// Returns whether two versions of an object have the same content in a part.
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

    /// Everything that an apply of the part could touch. The generation is in it: it tells of a spec that was changed
    /// and put back.
    fn hash_of_content(&self, object: &Value, part: Part, body: &Body) -> u64 {
        use std::hash::BuildHasher as _;
        if part == Part::Status {
            return self.state.hash_one(object.get("status").map_or(Cow::Owned(Value::Null), Cow::Borrowed));
        }
        let mut outside = vec!["apiVersion", "kind"];
        // Somebody else's, unless it is applied with the rest: for kinds without the subresource.
        if body.value.get("status").is_none() {
            outside.push("status");
        }
        hash_without(&self.state, object, &outside, &["managedFields", "resourceVersion"])
    }
}

#[cfg(test)]
mod tests;
