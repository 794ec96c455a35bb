//! One object read from its bytes: where it belongs, what is known of it, and the body to keep.
//!
//! The bytes are walked once, in [`Scan::open`], which is enough to tell whether the object is news; [`Scan::finish`]
//! reads what the walk has found and copies the body. `managedFields`, a third of an ordinary Pod, is left behind.
//! `apiVersion` and `kind` are always written, and first, because lists omit them and watches do not: the same object
//! has the same bytes either way.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use memchr::memmem;
use serde::Deserialize;

use super::home::Home;
use super::json::{Cursor, Malformed, Value};
use super::meta::pool::LabelText;
use super::meta::{Labels, Meta, ResourceVersion, Uid};
use super::raw::Raw;
use super::{PAUSED_ANNOTATION, Projection, RECONCILE_AT_ANNOTATION};
use crate::client::Extent;
use crate::key::{KindId, NamespacedName};

/// Stands in the name of every annotation that is read here.
const DOMAIN: &[u8] = b"mainstay.dev";

/// The kind under which a server answers metadata-only requests.
const PARTIAL: &str = "PartialObjectMetadata";

/// Members up to which looking through all earlier ones for a namesake is the faster way.
const FEW: usize = 16;

/// Bytes up to which labels, owners and finalizers are kept of an object whose metadata is too large.
const SHORT: usize = 4096;

/// Why bytes could not be taken for an object. A retry does not help; the next version of the object may.
#[derive(Debug, thiserror::Error)]
pub(in crate::cache) enum ScanError {
    /// Cut short, or never JSON.
    #[error("it is not JSON")]
    Json(#[from] Malformed),
    /// JSON of another shape.
    #[error("it is not an object as Kubernetes writes them")]
    Shape(#[from] serde_json::Error),
    /// A field that is read holds something else.
    #[error("metadata.{0} is of the wrong type")]
    Type(&'static str),
    /// Readers of JSON differ in which of two they take.
    #[error("it has two members named {0}")]
    Twice(String),
    /// A field that every stored object has.
    #[error("metadata.{0} is missing")]
    Missing(&'static str),
    /// The body says it is something else.
    #[error("it says it is a {found}, not a {expected}")]
    Kind { found: String, expected: String },
    /// The transform of its kind failed.
    #[error("the transform of its kind has not taken it: {0}")]
    Transform(String),
    /// Longer than is read at all.
    #[error("it has {size} bytes or more, and no object longer than {limit} is read; shrink it")]
    TooLarge { size: usize, limit: usize },
}

/// An object opened for reading: enough to find it in a store, and to go on to [`Scan::finish`] where it is new.
pub(in crate::cache) struct Scan<'a> {
    pub(in crate::cache) request: NamespacedName,
    pub(in crate::cache) uid: Uid,
    pub(in crate::cache) resource_version: ResourceVersion,
    /// Bytes of the object, without what may follow it.
    pub(in crate::cache) size: usize,
    members: Vec<Member<'a>>,
    metadata: Metadata<'a>,
}

/// One member of the object itself.
struct Member<'a> {
    name: Cow<'a, str>,
    key: Value<'a>,
    value: Value<'a>,
}

/// The members of `metadata` that are read, as they are written.
#[derive(Default)]
struct Metadata<'a> {
    name: Option<&'a str>,
    namespace: Option<&'a str>,
    uid: Option<&'a str>,
    resource_version: Option<&'a str>,
    generation: Option<&'a str>,
    labels: Option<&'a str>,
    annotations: Option<&'a str>,
    owners: Option<&'a str>,
    finalizers: Option<&'a str>,
    deleted_at: Option<&'a str>,
    grace: Option<&'a str>,
    managed_fields: Option<&'a str>,
    /// Where `managedFields` stands, with the comma that goes with it; empty without any.
    cut: Range<usize>,
}

/// What can be read of an object that is otherwise unreadable, as far as it goes.
#[derive(Debug, Default)]
pub(in crate::cache) struct Glimpse {
    pub(in crate::cache) request: Option<NamespacedName>,
    pub(in crate::cache) uid: Option<Uid>,
    pub(in crate::cache) version: Option<ResourceVersion>,
}

// === impl ScanError ===

impl ScanError {
    /// Returns whether it is of a kind that was not asked for: such a one says nothing about ours of its name.
    pub(in crate::cache) fn is_of_another_kind(&self) -> bool {
        matches!(self, Self::Kind { .. })
    }
}

// === impl Scan ===

impl<'a> Scan<'a> {
    /// Walks over the object and reads where it belongs. Borrows from the bytes, copies nothing but the names.
    pub(in crate::cache) fn open(raw: impl Into<Raw<'a>>) -> Result<Self, ScanError> {
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
        Ok(Self {
            request: NamespacedName::new(namespace.as_deref(), &name),
            uid: Uid::new(&uid),
            resource_version,
            size,
            members,
            metadata,
        })
    }

    /// Reads the slim metadata and writes the body to keep.
    pub(in crate::cache) fn finish(
        self,
        home: &Home,
        projection: Projection,
    ) -> Result<(Meta, Bytes), ScanError> {
        self.check_kind(&home.kind, projection)?;
        let full = projection == Projection::Full;
        let whole = self.size_of_body(&home.head, projection);
        let fits = home.affords(whole);
        let kept = if fits { projection } else { Projection::Metadata };
        let size = if kept == projection { whole } else { self.size_of_body(&home.head, kept) };
        // Metadata may be too large by itself. Long lists would then take several times their bytes.
        let bare = !home.affords(size);
        let extent = match projection {
            _ if !fits => Extent::TooLarge { size: u32::try_from(whole).unwrap_or(u32::MAX), bare },
            Projection::Full => Extent::Whole,
            Projection::Metadata => Extent::Metadata,
        };
        let list = |raw: Option<&'a str>| raw.filter(|raw| !bare || raw.len() <= SHORT);
        let body = if bare { self.identity(&home.head) } else { self.body(&home.head, kept, size) };
        let (paused, reconcile_at_hash) = self.metadata.steering()?;
        let meta = Meta {
            generation: read(self.metadata.generation)?,
            labels: home.pool.labels(&labels(list(self.metadata.labels))?),
            owners: home.pool.owners(&read::<Vec<_>>(list(self.metadata.owners))?.unwrap_or_default()),
            extent,
            deleting: self.is_deleting(),
            finalizers: home
                .pool
                .finalizers(&read::<Vec<_>>(list(self.metadata.finalizers))?.unwrap_or_default()),
            annotations_hash: present(self.metadata.annotations).map_or(0, hash_of),
            paused,
            reconcile_at_hash,
            content_hash: if full { self.content_hash() } else { 0 },
            status_hash: if full { self.status_hash() } else { 0 },
            request: self.request.map_namespace(|namespace| home.pool.text(namespace)),
            uid: self.uid,
            resource_version: self.resource_version,
        };
        Ok((meta, body))
    }

    /// Returns all labels and the whole body where they are too large to be kept.
    pub(in crate::cache) fn too_large(
        &self,
        home: &Home,
        projection: Projection,
    ) -> Result<Option<(Labels, Bytes)>, ScanError> {
        let size = self.size_of_body(&home.head, projection);
        let refused = projection == Projection::Full && !home.affords(size);
        refused.then(|| Ok((self.labels()?, self.body(&home.head, projection, size)))).transpose()
    }

    /// Returns all labels, shared with no other object.
    pub(in crate::cache) fn labels(&self) -> Result<Labels, ScanError> {
        let labels = labels(self.metadata.labels)?;
        Ok(Labels(labels.iter().map(|(key, value)| (Arc::from(&**key), Arc::from(&**value))).collect()))
    }

    /// Returns whether its deletion was asked for.
    pub(in crate::cache) fn is_deleting(&self) -> bool {
        present(self.metadata.deleted_at).is_some()
    }

    /// Returns whether a DELETE that answered with this object has removed it: nothing is left to wait for.
    pub(in crate::cache) fn is_gone(&self) -> Result<bool, ScanError> {
        let finalizers: Option<Vec<Cow<'_, str>>> = read(self.metadata.finalizers)?;
        let grace: Option<i64> = read(self.metadata.grace)?;
        let free = finalizers.is_none_or(|list| list.is_empty()) && grace.unwrap_or(0) == 0;
        Ok(free && !self.is_held_namespace()?)
    }

    /// Returns whether it is a Namespace whose contents are still to go. It alone has finalizers of a second sort,
    /// which let it stay for as long as it terminates.
    fn is_held_namespace(&self) -> Result<bool, ScanError> {
        #[derive(Deserialize)]
        struct Spec {
            finalizers: Option<Vec<String>>,
        }
        let member = |name| self.members.iter().find(|member| member.name == name).map(|member| member.value);
        let says = |name, text| member(name).and_then(|value| value.string()).as_deref() == Some(text);
        if !says("kind", "Namespace") || !says("apiVersion", "v1") {
            return Ok(false);
        }
        let spec: Option<Spec> = read(member("spec").map(|value| value.text))?;
        Ok(spec.and_then(|spec| spec.finalizers).is_some_and(|list| !list.is_empty()))
    }

    pub(in crate::cache) fn check_kind(
        &self,
        kind: &KindId,
        projection: Projection,
    ) -> Result<(), ScanError> {
        let Some(member) = self.members.iter().find(|member| member.name == "kind") else { return Ok(()) };
        let Some(found) = member.value.string() else {
            // As absent, where it is null: nothing else is a kind.
            return if member.value.is_null() { Ok(()) } else { Err(ScanError::Type("kind")) };
        };
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
        let status = self.members.iter().find(|member| member.name == "status");
        status.filter(|member| !member.value.is_null()).map_or(0, |member| hash_of(member.value.text))
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

    /// Returns a body that says which object and version it is, and no more.
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

    /// Copies what is kept into a buffer of the size that it fills.
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
        // White space between a key and its value is not kept; nobody sends any.
        out.into_boxed_slice().into()
    }
}

/// Goes through the object's members and those of its metadata.
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
            return Err(ScanError::Twice(name.into_owned()));
        }
        found.push(Member { name, key, value });
    }
    if found.len() > FEW {
        let mut names: Vec<&str> = found.iter().map(|member| &*member.name).collect();
        names.sort_unstable();
        if let Some([name, _]) = names.array_windows().find(|[one, next]| one == next) {
            return Err(ScanError::Twice((*name).to_owned()));
        }
    }
    Ok(found)
}

/// Reads one annotation out of a stored body.
pub(in crate::cache) fn annotation(body: &[u8], name: &str) -> Option<String> {
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

// === impl Glimpse ===

impl Glimpse {
    pub(in crate::cache) fn of(raw: &[u8]) -> Self {
        let mut metadata = Metadata::default();
        if let Some(readable) = raw.utf8_chunks().next() {
            // How the walk ends does not matter, only how far it came.
            walk(&mut Cursor::over(readable.valid()), &mut metadata).ok();
        }
        let read = |field, value| text(field, value).ok().flatten();
        let name = read("name", metadata.name);
        // Without a namespace that should be there and is not text it would be the name of another object.
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

// === impl Metadata ===

impl<'a> Metadata<'a> {
    fn walk(&mut self, cursor: &mut Cursor<'a>) -> Result<Value<'a>, ScanError> {
        let start = cursor.at();
        let mut members = cursor.open()?;
        let mut before = members.cursor.at();
        // The comma behind goes with what is cut out, or the one before it if nothing follows.
        let mut cut_before = None;
        while let Some(key) = members.next()? {
            if cut_before.take().is_some() {
                self.cut.end = key.start;
            }
            let value = members.cursor.value()?;
            let name = key.string().ok_or(ScanError::Type("key"))?;
            if let Some(field) = self.field(&name)
                && field.replace(value.text).is_some()
            {
                return Err(ScanError::Twice(format!("metadata.{name}")));
            }
            if name == "managedFields" {
                self.cut = key.start..value.end();
                cut_before = Some(before);
            }
            before = value.end();
        }
        if let Some(before) = cut_before {
            self.cut.start = before;
        }
        Ok(cursor.since(start))
    }

    fn field(&mut self, name: &str) -> Option<&mut Option<&'a str>> {
        Some(match name {
            "name" => &mut self.name,
            "namespace" => &mut self.namespace,
            "uid" => &mut self.uid,
            "resourceVersion" => &mut self.resource_version,
            "generation" => &mut self.generation,
            "labels" => &mut self.labels,
            "annotations" => &mut self.annotations,
            "ownerReferences" => &mut self.owners,
            "finalizers" => &mut self.finalizers,
            "deletionTimestamp" => &mut self.deleted_at,
            "deletionGracePeriodSeconds" => &mut self.grace,
            "managedFields" => &mut self.managed_fields,
            _ => return None,
        })
    }

    /// Returns what the annotations of this project say: [`Meta::paused`] and [`Meta::reconcile_at_hash`].
    fn steering(&self) -> Result<(bool, u64), ScanError> {
        let (mut paused, mut reconcile_at_hash) = (false, 0);
        // Few objects carry one of ours, and a search is a small part of what reading them all would cost.
        let ours = present(self.annotations).filter(|raw| memmem::find(raw.as_bytes(), DOMAIN).is_some());
        strings("annotations", ours, |key, value| match &*key {
            PAUSED_ANNOTATION => paused = value == "true",
            RECONCILE_AT_ANNOTATION => reconcile_at_hash = hash_of(&value),
            _ => {}
        })?;
        Ok((paused, reconcile_at_hash))
    }
}

/// Returns what is there; `null` counts as absent, as it does for the server.
fn present(field: Option<&str>) -> Option<&str> {
    field.filter(|raw| *raw != "null")
}

fn read<'a, T: Deserialize<'a>>(field: Option<&'a str>) -> Result<Option<T>, ScanError> {
    Ok(present(field).map(serde_json::from_str).transpose()?)
}

fn text<'a>(name: &'static str, field: Option<&'a str>) -> Result<Option<Cow<'a, str>>, ScanError> {
    let Some(raw) = present(field) else { return Ok(None) };
    Value { start: 0, text: raw }.string().map(Some).ok_or(ScanError::Type(name))
}

/// Returns labels sorted by key.
fn labels(raw: Option<&str>) -> Result<Vec<LabelText<'_>>, ScanError> {
    let mut pairs = Vec::with_capacity(if raw.is_some() { 8 } else { 0 });
    strings("labels", raw, |key, value| pairs.push((key, value)))?;
    pairs.sort_unstable();
    match pairs.array_windows().find(|[(one, _), (next, _)]| one == next) {
        Some([(key, _), _]) => Err(ScanError::Twice(format!("metadata.labels.{key}"))),
        None => Ok(pairs),
    }
}

/// Goes through an object whose values are strings.
fn strings<'a>(
    name: &'static str,
    field: Option<&'a str>,
    mut each: impl FnMut(Cow<'a, str>, Cow<'a, str>),
) -> Result<(), ScanError> {
    let Some(raw) = present(field) else { return Ok(()) };
    let mut cursor = Cursor::over(raw);
    let mut members = cursor.open().map_err(|_| ScanError::Type(name))?;
    while let Some(key) = members.next()? {
        let value = members.cursor.value()?;
        match (key.string(), value.string()) {
            (Some(key), Some(value)) => each(key, value),
            // The API server reads a null among strings as the empty one.
            (Some(key), None) if value.is_null() => each(key, Cow::Borrowed("")),
            _ => return Err(ScanError::Type(name)),
        }
    }
    Ok(())
}

/// Equal text has equal hashes for the life of the process.
///
/// Fast and seeded, not proof against one who can choose texts and learn their hashes: nobody learns them, and two
/// texts that collide make a change of an object look like none to predicates, which harms the object of who wrote
/// them and no other.
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
