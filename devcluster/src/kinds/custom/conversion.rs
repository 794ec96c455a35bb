//! Conversion webhooks of a definition: the reviews that they get, and the checks of their responses.

use serde_json::{Map, Value, json};

use super::{list, text};
use crate::kinds::errors::quoted;
use crate::kinds::path::Path;
use crate::kinds::{go, metadata};

/// The conversion webhook of a definition.
#[derive(Debug)]
pub struct Conversion {
    /// Where the webhook listens: the field `clientConfig`.
    pub client_config: Value,
    /// The first known version among those that the webhook accepts; empty if it accepts none.
    review_version: String,
}

impl Conversion {
    /// Returns the conversion webhook of a definition; `None` if its objects need none.
    pub fn of(definition: &Value) -> Option<Self> {
        let conversion = definition.pointer("/spec/conversion")?;
        if text(conversion, "strategy") != "Webhook" {
            return None;
        }
        let webhook = conversion.get("webhook")?;
        let mut versions = list(webhook, "conversionReviewVersions").filter_map(Value::as_str);
        Some(Self {
            client_config: webhook.get("clientConfig").cloned().unwrap_or_default(),
            review_version: versions
                .find(|of| matches!(*of, "v1" | "v1beta1"))
                .unwrap_or_default()
                .to_owned(),
        })
    }

    /// Returns the review that asks for objects in another version.
    ///
    /// # Errors
    /// Returns the text of the real server.
    pub fn review(&self, uid: &str, api_version: &str, objects: &[Value]) -> Result<Value, String> {
        if self.review_version.is_empty() {
            return Err("no supported conversion review versions".to_owned());
        }
        Ok(json!({
            "kind": "ConversionReview",
            "apiVersion": format!("apiextensions.k8s.io/{}", self.review_version),
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": objects},
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        }))
    }
}

/// Returns the objects of a response to a review.
///
/// # Errors
/// Returns the text of the real server.
pub fn converted(review: &Value, mut answer: Value) -> Result<Vec<Value>, String> {
    let request = &review["request"];
    let none = Vec::new();
    let sent = request["objects"].as_array().unwrap_or(&none);
    let of = sent.first().map_or(String::new(), go_kind);
    let failed = |error: String| format!("conversion webhook for {of} failed: {error}");
    check_response(review, &answer).map_err(failed)?;
    let objects = match answer["response"]["convertedObjects"].take() {
        Value::Array(objects) => objects,
        _ => Vec::new(),
    };
    let (found, wanted) = (objects.len(), sent.len());
    if found != wanted {
        return Err(format!("conversion webhook for {of} returned {found} objects, expected {wanted}"));
    }
    let single = wanted == 1;
    let mut converted = Vec::with_capacity(objects.len());
    for (index, (original, mut object)) in sent.iter().zip(objects).enumerate() {
        let refused = |what: &str, error: String| {
            let place = match (single, what) {
                (true, "type") => "object at index 0".to_owned(),
                (true, "metadata") => "metadata".to_owned(),
                (true, _) => "object".to_owned(),
                (false, "metadata") => format!("metadata in object at index {index}"),
                (false, _) => format!("converted object at index {index}"),
            };
            format!("conversion webhook for {of} returned invalid {place}: {error}")
        };
        check_type(original, &object, &text(request, "desiredAPIVersion"))
            .map_err(|error| refused("type", error))?;
        check_identity(original, &object).map_err(|error| refused("object", error))?;
        restore_metadata(original, &mut object).map_err(|error| refused("metadata", error))?;
        converted.push(object);
    }
    Ok(converted)
}

fn check_response(review: &Value, answer: &Value) -> Result<(), String> {
    let wanted = go_kind(review);
    let lenient = text(review, "apiVersion").ends_with("/v1beta1");
    let found = go_kind(answer);
    let kind = text(answer, "kind");
    if !kind.is_empty() && kind != "ConversionReview" {
        let (kind, version) = (quoted(&kind), quoted(&text(answer, "apiVersion")));
        return Err(format!(
            "no kind {kind} is registered for version {version} in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    if !lenient && found != wanted {
        return Err(format!("expected webhook response of {wanted}, got {found}"));
    }
    let Some(response) = answer.get("response").filter(|response| response.is_object()) else {
        return Err("no response provided".to_owned());
    };
    let (uid, sent) = (text(&review["request"], "uid"), text(response, "uid"));
    if !lenient && uid != sent {
        return Err(format!("expected response.uid={}, got {}", quoted(&uid), quoted(&sent)));
    }
    let result = response.get("result").unwrap_or(&Value::Null);
    let (status, message) = (text(result, "status"), text(result, "message"));
    match (status.as_str(), message.as_str()) {
        ("Success", _) => Ok(()),
        (status, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => Err(message.to_owned()),
    }
}

fn check_type(original: &Value, object: &Value, wanted: &str) -> Result<(), String> {
    let found = text(object, "apiVersion");
    if found != wanted {
        return Err(format!("invalid groupVersion (expected {wanted}, received {found})"));
    }
    let (wanted, found) = (text(original, "kind"), text(object, "kind"));
    if found != wanted {
        return Err(format!("invalid kind (expected {wanted}, received {found})"));
    }
    Ok(())
}

fn check_identity(original: &Value, object: &Value) -> Result<(), String> {
    for (field, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let value = |of: &Value| of.get("metadata").map(|of| text(of, field)).unwrap_or_default();
        let (wanted, found) = (value(original), value(object));
        if wanted != found {
            return Err(format!("must have the same {shown}: {wanted} != {found}"));
        }
    }
    Ok(())
}

/// Takes over the labels and annotations that the webhook returned; all other metadata stays.
fn restore_metadata(original: &Value, object: &mut Value) -> Result<(), String> {
    let Some(returned) = object.get("metadata") else {
        return Err("missing metadata in converted object".to_owned());
    };
    let Some(returned) = returned.as_object() else {
        return Err(format!("invalid metadata of type {} in converted object", go::type_name(returned)));
    };
    let mut metadata = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match returned.get(field) {
            None | Some(Value::Null) => drop(metadata.remove(field)),
            Some(Value::Object(entries)) => {
                check_entries(field, entries, metadata.get(field))?;
                metadata.insert(field.to_owned(), Value::Object(entries.clone()));
            }
            Some(other) => {
                let found = go::type_name(other);
                return Err(format!("invalid metadata.{field} of type {found} in converted object"));
            }
        }
    }
    object["metadata"] = Value::Object(metadata);
    Ok(())
}

fn check_entries(field: &str, entries: &Map<String, Value>, old: Option<&Value>) -> Result<(), String> {
    for (key, value) in entries {
        if !value.is_string() {
            let found = go::type_name(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {found} in converted object"
            ));
        }
    }
    if old.and_then(Value::as_object) == Some(entries) {
        return Ok(());
    }
    let mut errors = Vec::new();
    let (of, path) = (json!({field: entries}), Path::Root("metadata"));
    if field == "labels" {
        metadata::check_labels(&of, &path, &mut errors);
    } else {
        metadata::check_annotations(&of, &path, &mut errors);
        // The real server writes the field without its last letter.
        for error in &mut errors {
            error.path = error.path.replace("annotations", "annotation");
        }
    }
    match errors.iter().map(ToString::to_string).collect::<Vec<_>>().as_slice() {
        [] => Ok(()),
        [error] => Err(error.clone()),
        errors => Err(format!("[{}]", errors.join(", "))),
    }
}

/// Returns apiVersion and kind as Go prints them.
fn go_kind(object: &Value) -> String {
    let api_version = text(object, "apiVersion");
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={}", text(object, "kind"))
}
