//! The fields of `metadata` that a scan reads.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;
use serde::Deserialize;

use super::{ScanError, hash_of};
use crate::cache::object::json::{Cursor, Value};
use crate::cache::object::meta::pool::LabelText;
use crate::cache::object::{PAUSED_ANNOTATION, RECONCILE_AT_ANNOTATION};

/// Part of the names of the annotations [`PAUSED_ANNOTATION`] and [`RECONCILE_AT_ANNOTATION`].
const DOMAIN: &[u8] = b"mainstay.dev";

/// The members of an object's `metadata` that are read, as they are written in its JSON.
#[derive(Default)]
pub(super) struct Metadata<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) namespace: Option<&'a str>,
    pub(super) uid: Option<&'a str>,
    pub(super) resource_version: Option<&'a str>,
    pub(super) generation: Option<&'a str>,
    pub(super) labels: Option<&'a str>,
    pub(super) annotations: Option<&'a str>,
    pub(super) owners: Option<&'a str>,
    pub(super) finalizers: Option<&'a str>,
    pub(super) deleted_at: Option<&'a str>,
    pub(super) grace: Option<&'a str>,
    pub(super) managed_fields: Option<&'a str>,
    /// The range of `managedFields` in the object's JSON, together with one comma, which is left out of the
    /// body; empty if there is none.
    pub(super) cut: Range<usize>,
}

// === impl Metadata ===

impl<'a> Metadata<'a> {
    pub(super) fn walk(&mut self, cursor: &mut Cursor<'a>) -> Result<Value<'a>, ScanError> {
        let start = cursor.at();
        let mut members = cursor.open()?;
        let mut before = members.cursor.at();
        // The cut includes the comma behind `managedFields`, or the one before it if no member follows.
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
                return Err(ScanError::Duplicate(format!("metadata.{name}")));
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

    pub(super) fn field(&mut self, name: &str) -> Option<&mut Option<&'a str>> {
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

    /// Returns the values of `Meta::paused` and `Meta::reconcile_at_hash` for the annotations of the object.
    pub(super) fn steering(&self) -> Result<(bool, u64), ScanError> {
        let (mut paused, mut reconcile_at_hash) = (false, 0);
        // Few objects have an annotation of this domain, and this search costs little compared to reading all
        // annotations.
        let relevant = present(self.annotations).filter(|raw| memmem::find(raw.as_bytes(), DOMAIN).is_some());
        strings("annotations", relevant, |key, value| match &*key {
            PAUSED_ANNOTATION => paused = value == "true",
            RECONCILE_AT_ANNOTATION => reconcile_at_hash = hash_of(&value),
            _ => {}
        })?;
        Ok((paused, reconcile_at_hash))
    }
}

/// Returns the JSON text of a field; `None` if it is absent, or `null`, which counts as absent, as it does
/// for the API server.
pub(super) fn present(field: Option<&str>) -> Option<&str> {
    field.filter(|raw| *raw != "null")
}

pub(super) fn read<'a, T: Deserialize<'a>>(field: Option<&'a str>) -> Result<Option<T>, ScanError> {
    Ok(present(field).map(serde_json::from_str).transpose()?)
}

pub(super) fn text<'a>(
    name: &'static str,
    field: Option<&'a str>,
) -> Result<Option<Cow<'a, str>>, ScanError> {
    let Some(raw) = present(field) else { return Ok(None) };
    Value { start: 0, text: raw }.string().map(Some).ok_or(ScanError::Type(name))
}

/// Returns the labels in a JSON object, sorted by key. Fails if a key is there twice.
pub(super) fn labels(raw: Option<&str>) -> Result<Vec<LabelText<'_>>, ScanError> {
    let mut pairs = Vec::with_capacity(if raw.is_some() { 8 } else { 0 });
    strings("labels", raw, |key, value| pairs.push((key, value)))?;
    pairs.sort_unstable();
    match pairs.array_windows().find(|[(one, _), (next, _)]| one == next) {
        Some([(key, _), _]) => Err(ScanError::Duplicate(format!("metadata.labels.{key}"))),
        None => Ok(pairs),
    }
}

/// Calls `each` with the key and value of every member of a JSON object with string values, such as labels.
pub(super) fn strings<'a>(
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
            // The API server reads `null` in a map of strings as the empty string.
            (Some(key), None) if value.is_null() => each(key, Cow::Borrowed("")),
            _ => return Err(ScanError::Type(name)),
        }
    }
    Ok(())
}
