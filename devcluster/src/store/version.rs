//! An object at one revision, encoded once for all readers.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::Key;

/// The type of a watch event about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The object was created, or started to match the selector of a watch.
    Added,
    /// The object was changed.
    Modified,
    /// The object was deleted, or stopped matching the selector of a watch.
    Deleted,
}

/// An object at one revision.
#[derive(Debug)]
pub struct Version {
    key: Key,
    revision: u64,
    created: u64,
    value: Arc<Value>,
    /// The type of the event for this revision. Its frame is encoded from `value`; other
    /// frames are copied from it.
    event: EventType,
    added: OnceLock<Bytes>,
    modified: OnceLock<Bytes>,
    deleted: OnceLock<Bytes>,
    derived: OnceLock<Derived>,
}

/// The object in other versions of its kind: the version, the revision of its definition, and the object.
type Derived = Box<Mutex<Vec<(String, u64, Arc<Value>)>>>;

/// One write: the object before it and after it.
#[derive(Debug)]
pub struct Change {
    revision: u64,
    write: Write,
    /// The content before the write with the revision of the write; built on first use.
    departed: OnceLock<Arc<Version>>,
}

#[derive(Debug)]
enum Write {
    Put { current: Arc<Version>, previous: Option<Arc<Version>> },
    Removed { last: Arc<Version> },
}

const END: &[u8] = b"}\n";

// === impl EventType ===

impl EventType {
    /// Returns the name in a watch stream.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    fn start(self) -> &'static [u8] {
        match self {
            Self::Added => br#"{"type":"ADDED","object":"#,
            Self::Modified => br#"{"type":"MODIFIED","object":"#,
            Self::Deleted => br#"{"type":"DELETED","object":"#,
        }
    }
}

// === impl Version ===

impl Version {
    pub(super) fn new(key: Key, value: Value, revision: u64, created: u64) -> Self {
        let event = if revision == created { EventType::Added } else { EventType::Modified };
        Self::reported(key, value, revision, created, event)
    }

    fn reported(key: Key, mut value: Value, revision: u64, created: u64, event: EventType) -> Self {
        set_resource_version(&mut value, revision);
        let (added, modified, deleted) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let value = Arc::new(value);
        let derived = OnceLock::new();
        Self { key, revision, created, value, event, added, modified, deleted, derived }
    }

    /// Returns the key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the revision of the write that made this version.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the revision of the write that created the object.
    pub fn created(&self) -> u64 {
        self.created
    }

    /// Returns the object, with `metadata.resourceVersion` set.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the object in another version of its kind, if a reader has set it.
    pub(crate) fn derived(&self, api_version: &str, defined_at: u64) -> Option<Arc<Value>> {
        let known = self.derived.get()?.lock();
        let same =
            |(version, at, _): &&(String, u64, Arc<Value>)| version == api_version && *at == defined_at;
        known.iter().find(same).map(|(_, _, value)| Arc::clone(value))
    }

    /// Sets the object in another version of its kind, which a definition of the revision `defined_at` has.
    pub(crate) fn set_derived(&self, api_version: &str, defined_at: u64, value: Arc<Value>) {
        let mut known = self.derived.get_or_init(Derived::default).lock();
        known.retain(|(version, ..)| version != api_version);
        known.push((api_version.to_owned(), defined_at, value));
    }

    /// Returns the object as [`value`](Self::value) does, for readers that outlive the version.
    pub fn shared_value(&self) -> Arc<Value> {
        Arc::clone(&self.value)
    }

    /// Returns the object as JSON; the first call encodes it.
    pub fn json(&self) -> Bytes {
        let frame = self.frame(self.event);
        frame.slice(self.event.start().len()..frame.len() - END.len())
    }

    /// Returns a watch event with the object as one line of JSON; the first call encodes it.
    pub fn frame(&self, event: EventType) -> Bytes {
        let frame = match event {
            EventType::Added => &self.added,
            EventType::Modified => &self.modified,
            EventType::Deleted => &self.deleted,
        };
        frame.get_or_init(|| self.encode(event)).clone()
    }

    fn encode(&self, event: EventType) -> Bytes {
        let mut buffer = Vec::with_capacity(2048);
        buffer.extend_from_slice(event.start());
        if event == self.event {
            // A value with string keys always encodes, and writing to memory does not fail.
            drop(serde_json::to_writer(&mut buffer, &*self.value));
        } else {
            buffer.extend_from_slice(&self.json());
        }
        buffer.extend_from_slice(END);
        // Many encodings stay in the history.
        buffer.shrink_to_fit();
        buffer.into()
    }
}

// === impl Change ===

impl Change {
    pub(super) fn put(current: Version, previous: Option<Arc<Version>>) -> Self {
        let revision = current.revision;
        let write = Write::Put { current: Arc::new(current), previous };
        Self { revision, write, departed: OnceLock::new() }
    }

    pub(super) fn removed(last: Arc<Version>, revision: u64) -> Self {
        Self { revision, write: Write::Removed { last }, departed: OnceLock::new() }
    }

    /// Returns the revision of the write.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the object before the write; `None` if the write created it.
    pub fn previous(&self) -> Option<&Arc<Version>> {
        match &self.write {
            Write::Put { previous, .. } => previous.as_ref(),
            Write::Removed { last } => Some(last),
        }
    }

    /// Returns the object after the write; `None` if the write deleted it.
    pub fn current(&self) -> Option<&Arc<Version>> {
        match &self.write {
            Write::Put { current, .. } => Some(current),
            Write::Removed { .. } => None,
        }
    }

    /// Returns the object before the write with the revision of the write; `None` if the write created it. A
    /// DELETED event carries this object, after a deletion and when a selector no longer matches.
    pub fn departed(&self) -> Option<&Arc<Version>> {
        self.previous().map(|previous| self.departure_of(previous))
    }

    /// Returns the key of the object.
    pub fn key(&self) -> &Key {
        match &self.write {
            Write::Put { current, .. } => &current.key,
            Write::Removed { last } => &last.key,
        }
    }

    /// Returns the object after the write; for a deletion, the last content with the
    /// revision of the deletion.
    pub(super) fn outcome(&self) -> Arc<Version> {
        match &self.write {
            Write::Put { current, .. } => Arc::clone(current),
            Write::Removed { last } => Arc::clone(self.departure_of(last)),
        }
    }

    fn departure_of(&self, previous: &Version) -> &Arc<Version> {
        self.departed.get_or_init(|| {
            let (key, value) = (previous.key.clone(), previous.value().clone());
            let event = EventType::Deleted;
            Arc::new(Version::reported(key, value, self.revision, previous.created, event))
        })
    }
}

fn set_resource_version(value: &mut Value, revision: u64) {
    let Value::Object(object) = value else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
    }
}
