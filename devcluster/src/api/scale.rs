//! The `scale` subresource: reads and sets the replicas of an object through a Scale.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

use super::call::{Call, other_kind};
use super::object;
use super::options::{WriteOptions, revision};
use super::patch::{apply_patch, begin, undecodable};
use super::request::{PatchType, Verb};
use super::response::{Content, Object};
use super::served::Served;
use super::update::Terms;
use super::{Api, Response, Status};
use crate::kinds::custom::at_path;
use crate::kinds::{FieldError, Scale, apply, builtin};

const API_VERSION: &str = "autoscaling/v1";
/// The replicas of a custom resource that has none, as in kube-apiserver.
const MISSING: i64 = i32::MIN as i64;

/// The kind of the objects in requests, which are never stored.
static SCALES: LazyLock<Served> =
    LazyLock::new(|| Served::new(Arc::new(builtin::scale_kind()), None, Vec::new()));

// === impl Api ===

impl Api {
    /// Executes a get, update or patch of the `scale` subresource.
    pub(super) async fn scale(&self, call: &mut Call, scale: &Scale) -> Result<Response, Status> {
        let custom = call.served.custom.is_some();
        let sent = match call.verb {
            Verb::Get => {
                let response = self.get(call).await?;
                return shown(response, scale, custom);
            }
            Verb::Patch(patch_type) => Sent::Patch(patch_type, begin(call, patch_type)?.value),
            Verb::Update => {
                call.options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
                Sent::Scale(call.body.take().unwrap_or_default().value)
            }
            _ => return Err(Status::method_not_allowed(&call.served.kind, call.verb.as_str())),
        };
        call.scale = Some(scale.clone());
        let now = self.now();
        let uid = match &sent {
            Sent::Scale(sent) => Some(object::meta(sent, "uid").to_owned()).filter(|uid| !uid.is_empty()),
            Sent::Patch(..) => None,
        };
        let terms = Terms { unconditional: true, uid, ..Terms::default() };
        let mut make = |call: &mut Call, old: Option<&Value>| {
            let Some(old) = old else { return Err(Status::not_found(&call.served.kind, &call.target.name)) };
            let paths = replica_paths(&call.served);
            let owners = apply::Scale { api_version: call.served.api_version(), replicas: &paths };
            let entries = object::meta_value(old, "managedFields").unwrap_or(&Value::Null);
            let current = call.scale_of(old, scale)?;
            let wanted = sent.scale(call, &current, now)?;
            check(call, &wanted, custom)?;
            let replicas = wanted.pointer("/spec/replicas").cloned().unwrap_or_else(|| json!(0));
            if custom && replicas == MISSING {
                let path = crate::kinds::quoted(&scale.spec_replicas);
                return Err(Status::bad_request(format!("the spec replicas field {path} cannot be empty")));
            }
            call.wanted_scale = wanted.clone();
            let mut object = old.clone();
            set_path(&mut object, &scale.spec_replicas, replicas);
            object::set_meta(&mut object, "resourceVersion", object::meta(&wanted, "resourceVersion"));
            let written = object::meta_value(&wanted, "managedFields").unwrap_or(&Value::Null);
            match owners.to_object(entries, written) {
                Some(entries) => object::set_meta(&mut object, "managedFields", entries),
                None => object::remove_meta(&mut object, "managedFields"),
            }
            Ok(object)
        };
        let response = self.modify(call, &terms, &mut make).await?;
        shown(response, scale, custom)
    }
}

// === impl Call ===

impl Call {
    /// Returns the new and the old object as plugins see them: of a `scale` endpoint their Scales, else the
    /// objects themselves. Scales have owners only before validation. Null stands for a missing old object.
    pub(super) fn shown<'a>(
        &'a self,
        object: &'a Value,
        old: Option<&'a Value>,
        validated: bool,
    ) -> Result<(Cow<'a, Value>, Cow<'a, Value>), Status> {
        let none = Cow::Owned(Value::Null);
        let Some(scale) = &self.scale else {
            return Ok((Cow::Borrowed(object), old.map_or(none, Cow::Borrowed)));
        };
        let custom = self.served.custom.is_some();
        let of = |of: &Value| {
            let shown =
                if validated { show(of, scale, custom, Some(MISSING)) } else { self.scale_of(of, scale) };
            shown.map(Cow::Owned)
        };
        let new = if validated { of(object)? } else { Cow::Owned(self.wanted_scale.clone()) };
        Ok((new, old.map_or(Ok(none), of)?))
    }

    /// Returns the Scale of an object with the owners of its replicas.
    fn scale_of(&self, of: &Value, scale: &Scale) -> Result<Value, Status> {
        let paths = replica_paths(&self.served);
        let owners = apply::Scale { api_version: self.served.api_version(), replicas: &paths };
        let mut shown = show(of, scale, self.served.custom.is_some(), Some(MISSING))?;
        let entries = object::meta_value(of, "managedFields").unwrap_or(&Value::Null);
        if let Some(entries) = owners.from_object(entries) {
            object::set_meta(&mut shown, "managedFields", entries);
        }
        Ok(shown)
    }

    /// Writes back what admission made of the new object.
    pub(super) fn take(&self, shown: Value, object: &mut Value) {
        match &self.scale {
            Some(scale) => {
                let replicas = shown.pointer("/spec/replicas").cloned().unwrap_or_else(|| json!(0));
                set_path(object, &scale.spec_replicas, replicas);
            }
            None => *object = shown,
        }
    }
}

/// Returns the path of the replicas in each version of a kind; `None` for a version without `scale`.
fn replica_paths(served: &Served) -> Vec<(String, Option<Vec<String>>)> {
    let kinds = std::iter::once(&served.kind).chain(&served.siblings);
    let path = |scale: &Scale| {
        scale.spec_replicas.trim_start_matches('.').split('.').map(str::to_owned).collect::<Vec<_>>()
    };
    kinds.map(|kind| (kind.api_version(), kind.scale.as_ref().map(path))).collect()
}

/// The body of an update or patch.
enum Sent {
    Scale(Value),
    Patch(PatchType, Value),
}

// === impl Sent ===

impl Sent {
    /// Returns the wanted Scale in place of `current`, with the owners of its replicas.
    fn scale(&self, call: &Call, current: &Value, now: jiff::Timestamp) -> Result<Value, Status> {
        let author = call.author(now);
        match self {
            Self::Scale(sent) => {
                check_type(call, sent)?;
                let mut wanted = sent.clone();
                SCALES.admit(&mut wanted).map_err(|error| {
                    let text = format!("Scale in version \"v1\" cannot be handled as a Scale: {error}");
                    Status::bad_request(text)
                })?;
                Ok(SCALES.own(Some(current), wanted, &author))
            }
            Self::Patch(PatchType::Apply, sent) => {
                SCALES.apply(Some(current), sent, &author, call.options.force.unwrap_or(false))
            }
            Self::Patch(patch_type, patch) => {
                let mut wanted = current.clone();
                apply_patch(&SCALES.kind, &mut wanted, *patch_type, patch)?;
                check_type(call, &wanted)?;
                let patched = wanted.to_string();
                SCALES.admit(&mut wanted).map_err(|error| undecodable(&patched, &error))?;
                Ok(SCALES.own(Some(current), wanted, &author))
            }
        }
    }
}

fn check_type(call: &Call, scale: &Value) -> Result<(), Status> {
    let (api_version, kind) = (object::text(scale, "apiVersion"), object::text(scale, "kind"));
    if !kind.is_empty() && (kind != "Scale" || api_version != API_VERSION) {
        if call.served.custom.is_none() {
            return Err(other_kind(&SCALES.kind, scale));
        }
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version \
             ({API_VERSION})"
        )));
    }
    Ok(())
}

/// Validates a wanted Scale. The replicas of a custom resource are checked in the object itself.
fn check(call: &Call, scale: &Value, custom: bool) -> Result<(), Status> {
    let name = object::meta(scale, "name");
    if !name.is_empty() {
        call.check_name(scale)?;
    }
    revision(object::meta(scale, "resourceVersion")).map_err(Status::unclassified)?;
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 && !custom {
        let detail = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", &replicas.into(), detail);
        return Err(Status::invalid_kind("autoscaling", "Scale", &call.target.name, &[error]));
    }
    Ok(())
}

/// Replaces the object of a response by its Scale.
fn shown(mut response: Response, scale: &Scale, custom: bool) -> Result<Response, Status> {
    if let Content::Object(object) = &response.content {
        let shown = show(object.value(), scale, custom, None)?;
        response.content = Content::Object(Object::Made(Arc::new(shown)));
    }
    Ok(response)
}

/// Returns the Scale of an object. `missing` stands for missing replicas of a custom resource, which are an
/// error without it.
fn show(object: &Value, scale: &Scale, custom: bool, missing: Option<i64>) -> Result<Value, Status> {
    let number = |path: &str| at_path(object, path).and_then(Value::as_i64);
    let replicas = match number(&scale.spec_replicas).or(missing.filter(|_| custom)) {
        None if custom => {
            let path = &scale.spec_replicas;
            return Err(Status::internal(format!("the spec replicas field \"{path}\" does not exist")));
        }
        replicas => replicas.unwrap_or(0),
    };
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object::meta_value(object, field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let mut status = json!({"replicas": number(&scale.status_replicas).unwrap_or(0)});
    let selector = scale.selector.as_deref().and_then(|path| at_path(object, path)).map(selector_text);
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        object::set_text(&mut status, "selector", &selector);
    }
    let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
    Ok(json!({
        "kind": "Scale",
        "apiVersion": API_VERSION,
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }))
}

/// Formats a label selector for a query, such as `app=web,tier in (a,b)`. Also accepts a
/// plain label map or text.
pub(super) fn selector_text(selector: &Value) -> String {
    let pairs = |labels: Option<&Map<String, Value>>| -> Vec<String> {
        let labels = labels.into_iter().flatten();
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect()
    };
    let Some(map) = selector.as_object() else { return selector.as_str().unwrap_or_default().to_owned() };
    if !map.contains_key("matchLabels") && !map.contains_key("matchExpressions") {
        return pairs(Some(map)).join(",");
    }
    let mut parts = pairs(map.get("matchLabels").and_then(Value::as_object));
    for expression in map.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = object::text(expression, "key");
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        parts.push(match object::text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.sort_by(|a, b| a.trim_start_matches('!').cmp(b.trim_start_matches('!')));
    parts.join(",")
}

/// Sets the field at a path such as `.spec.replicas`, with missing parents.
fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut names = path.trim_start_matches('.').split('.').peekable();
    let mut current = object;
    while let Some(name) = names.next() {
        let Some(map) = current.as_object_mut() else { return };
        if names.peek().is_none() {
            map.insert(name.to_owned(), value);
            return;
        }
        current = map.entry(name).or_insert_with(|| json!({}));
    }
}
