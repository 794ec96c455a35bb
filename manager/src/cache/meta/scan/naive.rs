//! The oracle of tests: the same bytes read as a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Value as Tree;
use serde_json::value::RawValue;

use super::{DOMAIN, Home, Metadata, Scan, ScanError};
use crate::cache::{PAUSED_ANNOTATION, Projection};
use crate::key::{KindId, Request};

/// What is known of an object.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, PartialEq)]
pub(in crate::cache) struct Naive {
    pub(in crate::cache) request: Request,
    pub(in crate::cache) uid: String,
    version: String,
    generation: Option<i64>,
    labels: BTreeMap<String, String>,
    owners: Vec<(String, bool)>,
    finalizers: Vec<String>,
    deleting: bool,
    annotated: bool,
    paused: bool,
    has_status: bool,
    pub(in crate::cache) body: Tree,
}

/// The kind that every object is taken for.
pub(in crate::cache) fn config_map() -> KindId {
    KindId::new("", "v1", "ConfigMap", "configmaps", true)
}

/// Reads what the scanner reads; `None` where a field is missing or of another type.
pub(in crate::cache) fn naive(raw: &str) -> Option<Naive> {
    let mut tree: Tree = serde_json::from_str(raw).ok()?;
    let text = |value: &Tree| match value {
        Tree::Null => Some(None),
        value => value.as_str().map(|text| Some(text.to_owned())),
    };
    if text(tree.get("kind").unwrap_or(&Tree::Null))?.is_some_and(|kind| kind != "ConfigMap") {
        return None;
    }
    let object = tree.as_object_mut()?;
    object.insert("kind".to_owned(), "ConfigMap".into());
    object.insert("apiVersion".to_owned(), "v1".into());
    let meta = object.get_mut("metadata")?.as_object_mut()?;
    meta.remove("managedFields");
    let meta = meta.clone();
    let get = |name: &str| meta.get(name).unwrap_or(&Tree::Null);
    let texts = |name: &str| match get(name) {
        Tree::Null => Some(BTreeMap::new()),
        value => {
            let pairs = value.as_object()?.iter();
            pairs.map(|(key, value)| Some((key.clone(), text(value)?.unwrap_or_default()))).collect()
        }
    };
    let owner = |owner: &Tree| {
        let named = ["uid", "apiVersion", "kind", "name"].iter().all(|field| owner[*field].is_string());
        let controller = owner.get("controller").map_or(Some(false), Tree::as_bool)?;
        named.then(|| (owner["uid"].as_str().unwrap_or_default().to_owned(), controller))
    };
    let list = |name: &str| match get(name) {
        Tree::Null => Some(Vec::new()),
        value => value.as_array().cloned(),
    };
    // Annotations are read only where one of this project's may be among them.
    let steering: BTreeMap<String, String> =
        if mentions_domain(raw) { texts("annotations")? } else { BTreeMap::new() };
    Some(Naive {
        request: Request::new(text(get("namespace"))?.as_deref(), &text(get("name"))??),
        uid: text(get("uid"))??,
        version: text(get("resourceVersion"))??,
        generation: if get("generation").is_null() { None } else { Some(get("generation").as_i64()?) },
        labels: texts("labels")?,
        owners: list("ownerReferences")?.iter().map(owner).collect::<Option<_>>()?,
        finalizers: list("finalizers")?.iter().map(|one| text(one)?).collect::<Option<_>>()?,
        deleting: !get("deletionTimestamp").is_null(),
        annotated: !get("annotations").is_null(),
        paused: steering.get(PAUSED_ANNOTATION).is_some_and(|value| value == "true"),
        has_status: tree.get("status").is_some_and(|status| !status.is_null()),
        body: tree,
    })
}

/// Reads the same with the scanner.
pub(in crate::cache) fn scanned(scan: Scan<'_>) -> Result<Naive, ScanError> {
    let (meta, body) = scan.finish(&Home::new(config_map(), 0), Projection::Full)?;
    Ok(Naive {
        uid: meta.uid.to_string(),
        version: meta.resource_version.to_string(),
        generation: meta.generation,
        labels: meta.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        owners: meta.owners.iter().map(|owner| (owner.uid.to_string(), owner.controller)).collect(),
        finalizers: meta.finalizers.iter().map(ToString::to_string).collect(),
        deleting: meta.deleting,
        annotated: meta.annotations_hash != 0,
        paused: meta.paused,
        has_status: meta.status_hash != 0,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        request: meta.request,
    })
}

/// Whether a name comes twice among members of which readers would take different ones: such an object is refused.
pub(in crate::cache) fn has_namesakes(raw: &str) -> bool {
    let Some(object) = members(raw) else { return false };
    let metadata =
        object.iter().find(|(name, _)| name == "metadata").and_then(|(_, value)| members(value.get()));
    let metadata = metadata.unwrap_or_default();
    let read = |name: &str| Metadata::default().field(name).is_some();
    let of = |name: &str| metadata.iter().find(|(key, _)| key == name).map(|(_, value)| value.get());
    let owners: Vec<&RawValue> =
        of("ownerReferences").and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
    let owner = |name: &str| matches!(name, "uid" | "apiVersion" | "kind" | "name" | "controller");
    repeats(&object, |_| true)
        || repeats(&metadata, read)
        || of("labels").and_then(members).is_some_and(|labels| repeats(&labels, |_| true))
        || owners.iter().filter_map(|raw| members(raw.get())).any(|members| repeats(&members, owner))
}

/// The members of an object in their order, namesakes included.
pub(in crate::cache) fn members(raw: &str) -> Option<Vec<(String, &RawValue)>> {
    struct Members;

    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }

    let mut json = serde_json::Deserializer::from_str(raw);
    let members = json.deserialize_map(Members).ok()?;
    json.end().ok()?;
    Some(members)
}

fn repeats(members: &[(String, &RawValue)], matters: impl Fn(&str) -> bool) -> bool {
    let mut seen = BTreeSet::new();
    members.iter().any(|(name, _)| matters(name) && !seen.insert(name))
}

/// Whether the text of the annotations, as it is written, has the domain of ours.
fn mentions_domain(raw: &str) -> bool {
    let metadata = members(raw).into_iter().flatten().rfind(|(name, _)| name == "metadata");
    let metadata = metadata.and_then(|(_, value)| members(value.get()));
    let annotations = metadata.into_iter().flatten().rfind(|(name, _)| name == "annotations");
    annotations.is_some_and(|(_, value)| memchr::memmem::find(value.get().as_bytes(), DOMAIN).is_some())
}
