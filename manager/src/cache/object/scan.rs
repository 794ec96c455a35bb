//! Reads one object from its bytes: its identity, its slim metadata, and the body to keep.
//!
//! [`Scan::open`] walks over the bytes once, which is enough to decide whether the object is new to the
//! store; [`Scan::finish`] reads the metadata found by the walk and copies the body. `managedFields`, a third
//! of an ordinary Pod, is left out. `apiVersion` and `kind` are always written, and written first: lists omit
//! them and watches do not, and the same object must have the same bytes either way.

mod metadata;

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use serde::Deserialize;

use self::metadata::{Metadata, labels, present, read, strings, text};
use super::json::{Cursor, Malformed, Value};
use super::{Labels, Meta, Projection, Raw, ResourceVersion, StoreContext, Uid};
use crate::client::Extent;
use crate::key::{KindId, NamespacedName};

/// The kind of the objects in a response to a metadata-only request.
const PARTIAL: &str = "PartialObjectMetadata";

/// Number of members of an object up to which a linear search for a repeated name is faster than sorting.
const FEW: usize = 16;

/// Longest list of labels, of owners or of finalizers, in bytes of JSON, that is kept of an object with
/// metadata that is too large.
const SHORT: usize = 4096;

/// The reason why bytes were not accepted as an object. A retry does not help; the next version of the object
/// may.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanError {
    /// The text of the object is cut short or is not JSON.
    #[error("it is not JSON")]
    Json(#[from] Malformed),
    /// The text is JSON, but does not have the structure of a Kubernetes object.
    #[error("it does not have the structure of a Kubernetes object")]
    Shape(#[from] serde_json::Error),
    /// This field of the object's metadata has another type.
    #[error("metadata.{0} is of the wrong type")]
    Type(&'static str),
    /// The object has two members of this name. JSON parsers differ in the one of the two that they use.
    #[error("it has two members named {0}")]
    Duplicate(String),
    /// This field of the object's metadata is missing, which every stored object has.
    #[error("metadata.{0} is missing")]
    Missing(&'static str),
    /// The object is of the kind `found`, and the store holds objects of the kind `expected`.
    #[error("it is a {found}, not a {expected}")]
    Kind { found: String, expected: String },
    /// The transform of the object's kind failed for this reason.
    #[error("the transform of its kind failed: {0}")]
    Transform(String),
    /// The object has at least `size` bytes, more than `limit`, which is `cache.maxFrameBytes`.
    #[error("it has at least {size} bytes, more than the limit of {limit}; shrink it")]
    TooLarge { size: usize, limit: usize },
}

/// The result of a walk over the JSON of an object: its identity, and the positions of its fields for
/// [`Scan::finish`].
pub(crate) struct Scan<'a> {
    pub(crate) request: NamespacedName,
    pub(crate) uid: Uid,
    pub(crate) resource_version: ResourceVersion,
    /// Length of the object's JSON in bytes, without the event around it.
    pub(crate) size: usize,
    members: Vec<Member<'a>>,
    metadata: Metadata<'a>,
}

/// A top-level member of an object's JSON, such as `spec`.
struct Member<'a> {
    name: Cow<'a, str>,
    key: Value<'a>,
    value: Value<'a>,
}

/// The identity of an object that cannot be read otherwise, as far as its fields are readable.
#[derive(Debug, Default)]
pub(crate) struct PartialIdentity {
    pub(crate) request: Option<NamespacedName>,
    pub(crate) uid: Option<Uid>,
    pub(crate) version: Option<ResourceVersion>,
}

// === impl Scan ===

impl<'a> Scan<'a> {
    /// Walks over the JSON of an object and reads its identity. Borrows from the bytes and copies only the
    /// identity.
    pub(crate) fn open(raw: impl Into<Raw<'a>>) -> Result<Self, ScanError> {
        let raw = raw.into();
        let mut cursor = Cursor::new(raw.bytes)?;
        let mut metadata = Metadata::default();
        let members = walk(&mut cursor, &mut metadata)?;
        let size = cursor.at();
        raw.end(&mut cursor)?;
        let name = text("name", metadata.name)?.ok_or(ScanError::Missing("name"))?;
        let namespace = text("namespace", metadata.namespace)?;
        let uid = text("uid", metadata.uid)?.ok_or(ScanError::Missing("uid"))?;
        let version = text("resourceVersion", metadata.resource_version)?;
        let version = version.ok_or(ScanError::Missing("resourceVersion"))?;
        let resource_version = ResourceVersion::new(&version);
        tracing::trace!(
            name = &*name,
            namespace = namespace.as_deref(),
            version = &*version,
            "metadata read"
        );
        Ok(Self {
            request: NamespacedName::new(namespace.as_deref(), &name),
            uid: Uid::new(&uid),
            resource_version,
            size,
            members,
            metadata,
        })
    }

    /// Reads the metadata of the scanned object, and copies the part of its JSON that the store keeps.
    pub(crate) fn finish(
        self,
        context: &StoreContext,
        projection: Projection,
    ) -> Result<(Meta, Bytes), ScanError> {
        self.check_kind(&context.kind, projection)?;
        let full = projection == Projection::Full;
        let whole = self.size_of_body(&context.head, projection);
        let fits = whole <= context.max_object_bytes;
        let kept = if fits { projection } else { Projection::Metadata };
        let size = if kept == projection { whole } else { self.size_of_body(&context.head, kept) };
        // The metadata alone may be too large. Its lists, once parsed, would take several times their length.
        let bare = size > context.max_object_bytes;
        let extent = match projection {
            _ if !fits => Extent::TooLarge { size: u32::try_from(whole).unwrap_or(u32::MAX), bare },
            Projection::Full => Extent::Whole,
            Projection::Metadata => Extent::Metadata,
        };
        let list = |raw: Option<&'a str>| raw.filter(|raw| !bare || raw.len() <= SHORT);
        let body = if bare { self.identity(&context.head) } else { self.body(&context.head, kept, size) };
        let (paused, reconcile_at_hash) = self.metadata.steering()?;
        let meta = Meta {
            generation: read(self.metadata.generation)?,
            labels: context.pool.labels(&labels(list(self.metadata.labels))?),
            owners: context.pool.owners(&read::<Vec<_>>(list(self.metadata.owners))?.unwrap_or_default()),
            extent,
            deleting: self.is_deleting(),
            finalizers: context
                .pool
                .finalizers(&read::<Vec<_>>(list(self.metadata.finalizers))?.unwrap_or_default()),
            annotations_hash: present(self.metadata.annotations).map_or(0, hash_of),
            paused,
            reconcile_at_hash,
            content_hash: if full { self.content_hash() } else { 0 },
            status_hash: if full { self.status_hash() } else { 0 },
            request: self.request.map_namespace(|namespace| context.pool.text(namespace)),
            uid: self.uid,
            resource_version: self.resource_version,
        };
        Ok((meta, body))
    }

    /// Returns the labels and the whole body of an object that is too large to be kept, for the index
    /// functions; `None` for any other object.
    pub(crate) fn too_large(
        &self,
        context: &StoreContext,
        projection: Projection,
    ) -> Result<Option<(Labels, Bytes)>, ScanError> {
        let size = self.size_of_body(&context.head, projection);
        let refused = projection == Projection::Full && size > context.max_object_bytes;
        refused.then(|| Ok((self.labels()?, self.body(&context.head, projection, size)))).transpose()
    }

    /// Returns all labels of the object, in strings that no other object shares.
    pub(crate) fn labels(&self) -> Result<Labels, ScanError> {
        let labels = labels(self.metadata.labels)?;
        Ok(Labels(labels.iter().map(|(key, value)| (Arc::from(&**key), Arc::from(&**value))).collect()))
    }

    /// Returns whether the deletion of the object was requested.
    pub(crate) fn is_deleting(&self) -> bool {
        present(self.metadata.deleted_at).is_some()
    }

    /// Returns whether a DELETE with this object as its response has removed the object at once: neither
    /// finalizers nor a grace period delay the removal.
    pub(crate) fn is_gone(&self) -> Result<bool, ScanError> {
        let finalizers: Option<Vec<Cow<'_, str>>> = read(self.metadata.finalizers)?;
        let grace: Option<i64> = read(self.metadata.grace)?;
        let free = finalizers.is_none_or(|list| list.is_empty()) && grace.unwrap_or(0) == 0;
        Ok(free && !self.is_held_namespace()?)
    }

    /// Returns whether the object is a Namespace that still has finalizers in its `spec`, which only
    /// Namespaces have. A terminating Namespace exists until they are removed.
    fn is_held_namespace(&self) -> Result<bool, ScanError> {
        #[derive(Deserialize)]
        struct Spec {
            finalizers: Option<Vec<String>>,
        }
        let is = |name, text| self.member(name).and_then(|value| value.string()).as_deref() == Some(text);
        if !is("kind", "Namespace") || !is("apiVersion", "v1") {
            return Ok(false);
        }
        let spec: Option<Spec> = read(self.member("spec").map(|value| value.text))?;
        Ok(spec.and_then(|spec| spec.finalizers).is_some_and(|list| !list.is_empty()))
    }

    pub(crate) fn check_kind(&self, kind: &KindId, projection: Projection) -> Result<(), ScanError> {
        // `null` counts as absent; another type is an error.
        let Some(found) = self.member("kind").filter(|found| !found.is_null()) else { return Ok(()) };
        let found = found.string().ok_or(ScanError::Type("kind"))?;
        if found == kind.kind() || (projection == Projection::Metadata && found == PARTIAL) {
            return Ok(());
        }
        Err(ScanError::Kind { found: found.into_owned(), expected: kind.kind().to_owned() })
    }

    fn content_hash(&self) -> u64 {
        let mut hasher = hasher();
        let mut any = false;
        for member in &self.members {
            if !matches!(&*member.name, "apiVersion" | "kind" | "metadata" | "status") {
                any = true;
                (&*member.name, member.value.text).hash(&mut hasher);
            }
        }
        if any { hasher.finish() } else { 0 }
    }

    fn status_hash(&self) -> u64 {
        self.member("status").filter(|status| !status.is_null()).map_or(0, |status| hash_of(status.text))
    }

    fn member(&self, name: &str) -> Option<Value<'a>> {
        self.members.iter().find(|member| member.name == name).map(|member| member.value)
    }

    fn kept(&self, projection: Projection) -> impl Iterator<Item = &Member<'a>> {
        self.members.iter().filter(move |member| match &*member.name {
            "apiVersion" | "kind" => false,
            "metadata" => true,
            _ => projection == Projection::Full,
        })
    }

    fn size_of_body(&self, head: &str, projection: Projection) -> usize {
        let size: usize = self.kept(projection).map(|member| 1 + member.value.end() - member.key.start).sum();
        head.len() + size - self.metadata.cut.len() + 1
    }

    /// Returns JSON with only the identity and version of the object, to be kept as its body.
    fn identity(&self, head: &str) -> Bytes {
        let fields = [
            ("name", self.metadata.name),
            ("namespace", self.metadata.namespace),
            ("uid", self.metadata.uid),
            ("resourceVersion", self.metadata.resource_version),
        ];
        let fields = fields.iter().filter_map(|(name, raw)| Some(format!(r#""{name}":{}"#, (*raw)?)));
        format!(r#"{head},"metadata":{{{}}}}}"#, fields.collect::<Vec<_>>().join(",")).into()
    }

    /// Copies the members of the object that are kept into a buffer of `size` bytes, exactly their size.
    fn body(&self, head: &str, projection: Projection, size: usize) -> Bytes {
        let mut out = Vec::with_capacity(size);
        out.extend_from_slice(head.as_bytes());
        for member in self.kept(projection) {
            out.push(b',');
            out.extend_from_slice(member.key.text.as_bytes());
            out.push(b':');
            let value = &member.value;
            let cut = &self.metadata.cut;
            if member.name == "metadata" && !cut.is_empty() {
                let at = |place: usize| place - value.start;
                out.extend_from_slice(value.text.as_bytes().get(..at(cut.start)).unwrap_or_default());
                out.extend_from_slice(value.text.as_bytes().get(at(cut.end)..).unwrap_or_default());
            } else {
                out.extend_from_slice(value.text.as_bytes());
            }
        }
        out.push(b'}');
        // White space between a key and its value is dropped; API servers send none.
        out.into_boxed_slice().into()
    }
}

/// Walks over the members of an object's JSON and of its metadata. Returns the top-level members.
fn walk<'a>(cursor: &mut Cursor<'a>, metadata: &mut Metadata<'a>) -> Result<Vec<Member<'a>>, ScanError> {
    let mut found: Vec<Member<'a>> = Vec::with_capacity(8);
    let mut members = cursor.open()?;
    while let Some(key) = members.next()? {
        let name = key.string().ok_or(ScanError::Type("key"))?;
        let value = if name == "metadata" && members.cursor.peek() == Some(b'{') {
            metadata.walk(members.cursor)?
        } else {
            members.cursor.value()?
        };
        if found.len() < FEW && found.iter().any(|earlier| earlier.name == name) {
            return Err(ScanError::Duplicate(name.into_owned()));
        }
        found.push(Member { name, key, value });
    }
    if found.len() > FEW {
        let mut names: Vec<&str> = found.iter().map(|member| &*member.name).collect();
        names.sort_unstable();
        if let Some([name, _]) = names.array_windows().find(|[one, next]| one == next) {
            return Err(ScanError::Duplicate((*name).to_owned()));
        }
    }
    Ok(found)
}

/// Returns one annotation of an object, read from its stored body; `None` without it.
pub(crate) fn annotation(body: &[u8], name: &str) -> Option<String> {
    let mut metadata = Metadata::default();
    walk(&mut Cursor::new(body).ok()?, &mut metadata).ok()?;
    let mut found = None;
    strings("annotations", metadata.annotations, |key, value| {
        if key == name {
            found = Some(value.into_owned());
        }
    })
    .ok()?;
    found
}

// === impl PartialIdentity ===

impl PartialIdentity {
    pub(crate) fn of(raw: &[u8]) -> Self {
        let mut metadata = Metadata::default();
        if let Some(readable) = raw.utf8_chunks().next() {
            // An error of the walk is ignored: the fields before it are usable.
            walk(&mut Cursor::over(readable.valid()), &mut metadata).ok();
        }
        let read = |field, value| text(field, value).ok().flatten();
        let name = read("name", metadata.name);
        // If the namespace is present but unreadable, the name alone would identify another object.
        let namespace = text("namespace", metadata.namespace).ok();
        Self {
            request: namespace
                .zip(name)
                .map(|(namespace, name)| NamespacedName::new(namespace.as_deref(), &name)),
            uid: read("uid", metadata.uid).as_deref().map(Uid::new),
            version: read("resourceVersion", metadata.resource_version).as_deref().map(ResourceVersion::new),
        }
    }
}

/// Returns the hasher for detecting changes of objects. Equal texts have equal hashes for the life of the
/// process.
///
/// Fast and seeded. It does not resist an attacker that can choose texts and observe their hashes, but hashes
/// are never shown, and a collision only hides a change of the attacker's own object from predicates.
fn hasher() -> impl Hasher {
    SeedableRandomState::with_seed(0, SharedSeed::global_random()).build_hasher()
}

pub(super) fn hash_of<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = hasher();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
