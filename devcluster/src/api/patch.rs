//! Patch requests: JSON patch, merge patch, strategic merge patch and server-side apply.

use serde_json::Value;

use super::call::Call;
use super::object;
use super::options::WriteOptions;
use super::request::{Body, PatchType};
use super::status::Details;
use super::update::Terms;
use super::{Api, Response, Status};
use crate::kinds::patch::{PatchError, json_patch, merge_patch, strategic_merge_patch};
use crate::kinds::{FieldError, Kind};

// === impl Api ===

impl Api {
    pub(super) async fn patch(&self, call: &mut Call, patch_type: PatchType) -> Result<Response, Status> {
        let body = begin(call, patch_type)?;
        let terms = Terms {
            creates: patch_type == PatchType::Apply && call.target.subresource.is_empty(),
            ..Terms::default()
        };
        let now = self.now();
        let mut make = |call: &mut Call, old: Option<&Value>| {
            let mut object = if patch_type == PatchType::Apply {
                let force = call.options.force.unwrap_or(false);
                let mut applied = call.served.apply(old, &body.value, &call.author(now), force)?;
                if old.is_none() {
                    prepare_created(call, &mut applied)?;
                }
                call.refuse_duplicates(&body.strict_errors)?;
                let sent = call.served.custom.is_some().then(|| applied.get("metadata").cloned()).flatten();
                // No strict errors: the apply itself has refused unknown fields.
                call.admit(&mut applied, Vec::new())?;
                // The real server stores the empty lists and maps, so that their removal is a change.
                for (field, value) in sent.as_ref().and_then(Value::as_object).into_iter().flatten() {
                    if object::is_empty(value) {
                        object::set_meta(&mut applied, field, value.clone());
                    }
                }
                applied
            } else {
                let Some(old) = old else {
                    return Err(Status::not_found(&call.served.kind, &call.target.name));
                };
                let mut object = old.clone();
                apply_patch(&call.served.kind, &mut object, patch_type, &body.value)?;
                check_type(call, &mut object, patch_type)?;
                let patched = object.to_string();
                call.admit_or(&mut object, body.strict_errors.clone(), |error| undecodable(&patched, error))?;
                call.served.own(Some(old), object, &call.author(now))
            };
            call.warnings.extend(object::deduplicate_owners(&mut object));
            call.place(&mut object)?;
            call.check_name(&object)?;
            Ok(object)
        };
        self.modify(call, &terms, &mut make).await
    }
}

// === impl Call ===

impl Call {
    /// Handles duplicate fields of an apply body: an error, warnings or neither, by the
    /// option `fieldValidation`.
    fn refuse_duplicates(&mut self, errors: &[String]) -> Result<(), Status> {
        use super::options::FieldValidation;
        match self.options.validation {
            FieldValidation::Strict if !errors.is_empty() => {
                Err(Status::bad_request(format!("error strict decoding YAML: {}", errors.join(", "))))
            }
            FieldValidation::Warn => {
                self.warnings.extend_from_slice(errors);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Parses the options of a patch and takes its body.
pub(super) fn begin(call: &mut Call, patch_type: PatchType) -> Result<Body, Status> {
    let custom = call.served.custom.is_some();
    if custom && patch_type == PatchType::Strategic {
        let accepted =
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        return Err(Status::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        ));
    }
    call.options = WriteOptions::parse(&call.query, "PatchOptions", patch_type == PatchType::Apply)?;
    Ok(call.body.take().unwrap_or_default())
}

/// Applies a patch of any type except [`PatchType::Apply`] to an object.
pub(super) fn apply_patch(
    kind: &Kind,
    object: &mut Value,
    patch_type: PatchType,
    patch: &Value,
) -> Result<(), Status> {
    let patched = match patch_type {
        PatchType::Json => json_patch(object, patch),
        PatchType::Merge => merge_patch(object, patch.clone()),
        PatchType::Strategic | PatchType::Apply => {
            strategic_merge_patch(kind.schema.get(), object, patch.clone())
        }
    };
    patched.map_err(|error| match error {
        PatchError::BadRequest(message) => Status::bad_request(message),
        PatchError::TooLarge(message) => Status::new(413, "RequestEntityTooLarge", message),
        PatchError::Unprocessable(_) => {
            let message = "the server rejected our request due to an error in our request";
            Status::new(422, "Invalid", message).with_details(Details::default())
        }
        error => Status::unclassified(error.to_string()),
    })
}

/// Prepares an applied object for its creation: clears server-set fields and sets the name.
fn prepare_created(call: &Call, applied: &mut Value) -> Result<(), Status> {
    let (kind, name) = (&call.served.kind, &call.target.name);
    let uid = object::meta(applied, "uid");
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Status::conflict(kind, name, why));
    }
    super::create::wipe(applied);
    Ok(())
}

/// The answer to a patch whose result cannot be decoded.
pub(super) fn undecodable(patched: &str, error: &str) -> Status {
    Status::invalid_kind("", "", "", &[FieldError::invalid("patch", &patched.into(), error)])
}

/// A patch may not turn the object into one of another type.
fn check_type(call: &Call, object: &mut Value, patch_type: PatchType) -> Result<(), Status> {
    let (expected_kind, expected_version) = (&call.served.kind.kind, call.served.api_version());
    if call.served.custom.is_none() {
        for (field, default) in [("kind", expected_kind.as_str()), ("apiVersion", expected_version)] {
            // A strategic merge patch decodes into the Go type, whatever type the result has.
            if object::text(object, field).is_empty() || patch_type == PatchType::Strategic {
                object::set_text(object, field, default);
            }
        }
    }
    let (kind, api_version) = (object::text(object, "kind"), object::text(object, "apiVersion"));
    if api_version == expected_version && (kind == expected_kind || call.served.custom.is_some()) {
        return Ok(());
    }
    if call.served.custom.is_none() {
        return Err(undecodable(&object.to_string(), &call.unrelated_kind(object)));
    }
    if kind.is_empty() {
        let error = format!("Object 'Kind' is missing in '{object}'");
        return Err(undecodable(&object.to_string(), &error));
    }
    let expected = format!("must be {}", call.served.api_version());
    let error = FieldError::invalid("apiVersion", &api_version.into(), &expected);
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    Err(Status::invalid_kind(group, kind, &call.target.name, &[error]))
}
