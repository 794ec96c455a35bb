//! What the cache knows about an object without decoding it, scanned from the raw bytes.
//!
//! A body is walked as raw JSON values, never as a tree: `metadata` is read, everything else is hashed and copied
//! out again. `managedFields`, a third of an ordinary Pod, is left behind on the way. `apiVersion` and `kind` are
//! always written, because lists omit them and watches do not: the same object has the same bytes either way.

mod version;

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{PAUSED_ANNOTATION, Projection, RECONCILE_AT_ANNOTATION};
use crate::key::{Key, KindId, Request};

pub use version::ResourceVersion;

/// The slim metadata of one version of one object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Meta {
    /// Namespace and name.
    pub request: Request,
    /// Tells an object from an earlier one of the same name.
    pub uid: Arc<str>,
    /// The write that made this version.
    pub resource_version: ResourceVersion,
    /// Counts changes of the desired state; `None` for kinds that have no generation.
    pub generation: Option<i64>,
    /// The labels, by key.
    pub labels: Labels,
    /// Whose child it is.
    pub owners: Box<[Owner]>,
    /// Whether the body is the whole object; it is not in a metadata-only store.
    pub whole: bool,
    /// Whether its deletion was asked for and waits for finalizers or a grace period.
    pub deleting: bool,
    /// Who wants to act before it goes.
    pub finalizers: Box<[Box<str>]>,
    /// Changes when an annotation does; 0 without annotations.
    pub annotations_hash: u64,
    /// Whether [`PAUSED_ANNOTATION`] says `true`.
    pub paused: bool,
    /// Changes when [`RECONCILE_AT_ANNOTATION`] does; 0 without it.
    pub reconcile_at_hash: u64,
    /// Changes when anything outside `metadata` and `status` does; 0 in a metadata-only store.
    pub content_hash: u64,
    /// Changes when `status` does; 0 without one.
    pub status_hash: u64,
}

/// One owner reference.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// The owner's uid.
    #[serde(deserialize_with = "shared")]
    pub uid: Arc<str>,
    /// Its `group/version`.
    pub api_version: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// Its name; an owner lives in the same namespace or in none.
    pub name: Box<str>,
    /// Whether it is the one that manages the object.
    #[serde(default)]
    pub controller: bool,
}

/// The labels of one object, sorted by key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Arc<str>, Arc<str>)]>);

/// Why bytes could not be taken for an object. A retry does not help; the next version of the object may.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScanError {
    /// Not JSON, or JSON of another shape.
    #[error("it is not an object as Kubernetes writes them")]
    Shape(#[from] serde_json::Error),
    /// A field that every stored object has.
    #[error("metadata.{0} is missing")]
    Missing(&'static str),
    /// The body says it is something else.
    #[error("it says it is a {found}, not a {expected}")]
    Kind { found: String, expected: String },
    /// The transform of its kind failed.
    #[error("the transform of its kind has not taken it: {0}")]
    Transform(String),
    /// Longer than `cache.maxObjectBytes`.
    #[error(
        "it has {size} bytes, more than cache.maxObjectBytes {limit}; raise the limit or shrink the object"
    )]
    TooLarge { size: usize, limit: usize },
}

/// An object opened for reading: enough to find it in a store, and to go on to [`Scan::finish`] where it is new.
pub(super) struct Scan<'a> {
    pub(super) request: Request,
    pub(super) uid: &'a str,
    pub(super) resource_version: ResourceVersion,
    fields: Fields<'a>,
    metadata: Fields<'a>,
}

/// The members of a JSON object in the order they were written, values unread.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// What the annotations of this project say.
#[derive(Default)]
struct Steering {
    paused: bool,
    reconcile_at_hash: u64,
}

/// Only `name` and `namespace`, for the log line about an object that could not be scanned.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    metadata: NamedMetadata<'a>,
}

#[derive(Deserialize)]
struct NamedMetadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
}

/// Stands in the name of every annotation that is read here.
const DOMAIN: &str = "mainstay.dev";

/// The kind under which a server answers metadata-only requests.
const PARTIAL: &str = "PartialObjectMetadata";

// === impl Scan ===

impl<'a> Scan<'a> {
    /// Reads where the object belongs. Borrows from `raw`, copies nothing but the names.
    pub(super) fn open(raw: &'a [u8]) -> Result<Self, ScanError> {
        let fields: Fields<'a> = serde_json::from_slice(raw)?;
        let metadata = fields.get("metadata").ok_or(ScanError::Missing("name"))?;
        let metadata: Fields<'a> = serde_json::from_str(metadata.get())?;
        let name = metadata.text("name")?.ok_or(ScanError::Missing("name"))?;
        let namespace = metadata.text("namespace")?;
        let version = metadata.text("resourceVersion")?.ok_or(ScanError::Missing("resourceVersion"))?;
        let uid = metadata.get("uid").ok_or(ScanError::Missing("uid"))?;
        Ok(Self {
            request: Request::new(namespace.as_deref(), &name),
            uid: serde_json::from_str(uid.get())?,
            resource_version: ResourceVersion::new(&version),
            fields,
            metadata,
        })
    }

    /// Reads the slim metadata and writes the body to keep.
    pub(super) fn finish(self, kind: &KindId, projection: Projection) -> Result<(Meta, Bytes), ScanError> {
        self.check_kind(kind, projection)?;
        let body = self.body(kind, projection);
        let full = projection == Projection::Full;
        let content = self.fields.0.iter().filter(|(key, _)| {
            full && !matches!(key.as_ref(), "apiVersion" | "kind" | "metadata" | "status")
        });
        let steering = self.metadata.steering()?;
        let meta = Meta {
            uid: self.uid.into(),
            generation: self.metadata.read("generation")?,
            labels: self.metadata.labels()?,
            owners: self.metadata.read("ownerReferences")?.unwrap_or_default(),
            whole: full,
            deleting: self.is_deleting(),
            finalizers: self.metadata.read("finalizers")?.unwrap_or_default(),
            annotations_hash: self.metadata.get("annotations").map_or(0, |raw| hash_of(raw.get())),
            paused: steering.paused,
            reconcile_at_hash: steering.reconcile_at_hash,
            content_hash: hash_all(content),
            status_hash: self.fields.get("status").filter(|_| full).map_or(0, |raw| hash_of(raw.get())),
            request: self.request,
            resource_version: self.resource_version,
        };
        Ok((meta, body))
    }

    /// Returns whether its deletion was asked for.
    pub(super) fn is_deleting(&self) -> bool {
        self.metadata.get("deletionTimestamp").is_some()
    }

    /// Returns whether a DELETE that answered with this object has removed it: nothing is left to wait for.
    pub(super) fn is_gone(&self) -> Result<bool, ScanError> {
        let finalizers: Option<Vec<Cow<'_, str>>> = self.metadata.read("finalizers")?;
        let grace: Option<i64> = self.metadata.read("deletionGracePeriodSeconds")?;
        Ok(finalizers.is_none_or(|list| list.is_empty()) && grace.unwrap_or(0) == 0)
    }

    fn check_kind(&self, kind: &KindId, projection: Projection) -> Result<(), ScanError> {
        let Some(found) = self.fields.text("kind")? else { return Ok(()) };
        if found == kind.kind() || (projection == Projection::Metadata && found == PARTIAL) {
            return Ok(());
        }
        Err(ScanError::Kind { found: found.into_owned(), expected: kind.kind().to_owned() })
    }

    fn body(&self, kind: &KindId, projection: Projection) -> Bytes {
        let mut out = Writer::default();
        out.text("apiVersion", &kind.api_version());
        out.text("kind", kind.kind());
        for (key, value) in &self.fields.0 {
            match key.as_ref() {
                "apiVersion" | "kind" => {}
                "metadata" => {
                    out.key(key);
                    let mut inner = Writer::default();
                    for (key, value) in self.metadata.0.iter().filter(|(key, _)| key != "managedFields") {
                        inner.raw(key, value);
                    }
                    out.bytes.extend_from_slice(&inner.close());
                }
                _ if projection == Projection::Metadata => {}
                _ => out.raw(key, value),
            }
        }
        Bytes::from(out.close().into_boxed_slice())
    }
}

/// Finds the name in an object that is otherwise unreadable.
pub(super) fn name_of(raw: &[u8]) -> Option<Request> {
    let named: Named<'_> = serde_json::from_slice(raw).ok()?;
    Some(Request::new(named.metadata.namespace.as_deref(), &named.metadata.name))
}

/// Reads one annotation out of a stored body.
pub(super) fn annotation(body: &[u8], name: &str) -> Option<String> {
    let fields: Fields<'_> = serde_json::from_slice(body).ok()?;
    let metadata: Fields<'_> = serde_json::from_str(fields.get("metadata")?.get()).ok()?;
    let annotations: Fields<'_> = serde_json::from_str(metadata.get("annotations")?.get()).ok()?;
    annotations.text(name).ok()?.map(Cow::into_owned)
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Returns a member; a JSON `null` counts as absent, as it does for the server.
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        let (_, value) = self.0.iter().find(|(key, _)| key == name)?;
        (value.get() != "null").then_some(*value)
    }

    fn read<T: Deserialize<'a>>(&self, name: &str) -> Result<Option<T>, ScanError> {
        Ok(self.get(name).map(|raw| serde_json::from_str(raw.get())).transpose()?)
    }

    fn text(&self, name: &str) -> Result<Option<Cow<'a, str>>, ScanError> {
        Ok(self.read::<Text<'a>>(name)?.map(|Text(text)| text))
    }

    fn labels(&self) -> Result<Labels, ScanError> {
        let Some(raw) = self.get("labels") else { return Ok(Labels::default()) };
        let labels: Fields<'a> = serde_json::from_str(raw.get())?;
        let pairs = labels.0.iter().map(|(key, value)| {
            let Text(value) = serde_json::from_str(value.get())?;
            Ok((Arc::from(key.as_ref()), Arc::from(value.as_ref())))
        });
        Ok(Labels::from_pairs(pairs.collect::<Result<Vec<_>, ScanError>>()?))
    }

    fn steering(&self) -> Result<Steering, ScanError> {
        // Few objects carry one of ours, and a search is a small part of what reading them all would cost.
        let Some(raw) = self.get("annotations").filter(|raw| raw.get().contains(DOMAIN)) else {
            return Ok(Steering::default());
        };
        let annotations: Fields<'a> = serde_json::from_str(raw.get())?;
        let reconcile_at = annotations.text(RECONCILE_AT_ANNOTATION)?;
        Ok(Steering {
            paused: annotations.text(PAUSED_ANNOTATION)?.is_some_and(|value| value == "true"),
            reconcile_at_hash: reconcile_at.map_or(0, |value| hash_of(&value)),
        })
    }
}

/// A string that borrows where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(map.size_hint().unwrap_or(12));
                while let Some((Text(key), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    members.push((key, value));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Members).map(Fields)
    }
}

// === impl Labels ===

impl Labels {
    fn from_pairs(mut pairs: Vec<(Arc<str>, Arc<str>)>) -> Self {
        pairs.sort();
        Self(pairs.into_boxed_slice())
    }

    /// Returns the value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(have, _)| have.as_ref().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value.as_ref())
    }

    /// Goes through the labels by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

// === impl Meta ===

impl Meta {
    /// Returns the owner that manages the object.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// Returns the namespace, if it lives in one.
    pub fn namespace(&self) -> Option<&str> {
        self.request.namespace()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.request.name()
    }
}

// === impl Writer ===

/// Writes one JSON object from keys and values that are JSON already.
struct Writer {
    bytes: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { bytes: vec![b'{'] }
    }
}

impl Writer {
    fn key(&mut self, key: &str) {
        if self.bytes.len() > 1 {
            self.bytes.push(b',');
        }
        quote(key, &mut self.bytes);
        self.bytes.push(b':');
    }

    fn raw(&mut self, key: &str, value: &RawValue) {
        self.key(key);
        self.bytes.extend_from_slice(value.get().as_bytes());
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        quote(value, &mut self.bytes);
    }

    fn close(mut self) -> Vec<u8> {
        self.bytes.push(b'}');
        self.bytes
    }
}

/// Writes a JSON string. Keys are plain words, so the slow path is for the strange ones.
fn quote(text: &str, out: &mut Vec<u8>) {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\') {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}

fn shared<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    Text::deserialize(deserializer).map(|Text(text)| text.into())
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn hash_all<'f, 'a: 'f>(fields: impl Iterator<Item = &'f (Cow<'a, str>, &'a RawValue)>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut any = false;
    for (key, value) in fields {
        any = true;
        (key.as_ref(), value.get()).hash(&mut hasher);
    }
    if any { hasher.finish() } else { 0 }
}

#[cfg(test)]
mod tests;
