//! The annotation of client-side `kubectl apply`. A later server-side apply by kubectl takes over its fields.

use serde_json::{Map, Value};

use super::Resource;
use super::collect::{field_set, validate};
use super::comparison::Comparison;
use super::updater::Conflict;

/// The manager that may take over the fields in the annotation.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The largest total size of an object's annotations, in bytes.
const MAX_ANNOTATIONS_BYTES: usize = 256 << 10;

/// Returns the conflicts in fields that client-side apply did not write.
pub(super) fn without_allowed(
    resource: &Resource<'_>,
    live: &Value,
    conflicts: Vec<Conflict>,
) -> Vec<Conflict> {
    let Some(last) = annotation(live).and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return conflicts;
    };
    let version = last.get("apiVersion").and_then(Value::as_str);
    let valid = |object| validate(resource.schema, object, false).is_ok();
    if version != Some(resource.api_version) || !valid(&last) || !valid(live) {
        return conflicts;
    }
    let Comparison { removed, modified, added } = Comparison::of(resource.schema, &last, live);
    let allowed = field_set(resource.schema, &last);
    let allowed = allowed.difference(&modified).difference(&added).difference(&removed);
    conflicts.into_iter().filter(|conflict| !allowed.contains(&conflict.path)).collect()
}

/// Sets the annotation to the applied configuration. Objects without the annotation stay as they are.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = annotations(&mut applied) {
        annotations.remove(ANNOTATION);
    }
    let text = applied.to_string();
    let text = ['<', '>', '&', '\u{2028}', '\u{2029}']
        .iter()
        .fold(text, |text, character| text.replace(*character, &format!("\\u{:04x}", u32::from(*character))));
    if let Some(annotations) = annotations(object) {
        annotations.insert(ANNOTATION.to_owned(), (text + "\n").into());
        let bytes = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(0, str::len);
        if annotations.iter().map(bytes).sum::<usize>() > MAX_ANNOTATIONS_BYTES {
            annotations.remove(ANNOTATION);
        }
    }
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

fn annotations(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
