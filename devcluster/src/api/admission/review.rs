//! The reviews that webhooks of admission get, and the checks of their responses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::call::not_registered;
use super::super::object;
use super::super::status::{Cause, Details};
use super::super::{Api, Status};
use super::write::{Form, Write};

/// The decision of a webhook.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) allowed: bool,
    /// The operations of a JSON patch; `None` without one.
    pub(super) patch: Option<Vec<u8>>,
    pub(super) patch_type: String,
    /// The reason of a denial; null without one.
    status: Value,
    pub(super) warnings: Vec<String>,
}

/// Returns the review of a write in the version that a webhook accepts; `None` if it accepts none that is
/// known.
pub(super) fn of(
    api: &Api,
    write: &Write<'_>,
    form: &Form,
    objects: [&Value; 2],
    versions: &Value,
) -> Option<Value> {
    let versions = || versions.as_array().into_iter().flatten().filter_map(Value::as_str);
    let version = versions().find(|version| matches!(*version, "v1" | "v1beta1"))?;
    let [new, old] = objects;
    let mut request = write.request(form);
    request.insert("uid".to_owned(), api.random(object::uid).into());
    request.insert("object".to_owned(), new.clone());
    request.insert("oldObject".to_owned(), old.clone());
    let api_version = format!("admission.k8s.io/{version}");
    Some(json!({"kind": "AdmissionReview", "apiVersion": api_version, "request": request}))
}

// === impl Decision ===

impl Decision {
    /// Checks a response to a review.
    ///
    /// # Errors
    /// Returns the text of the real server.
    pub(super) fn read(review: &Value, answer: &Value, mutating: bool) -> Result<Self, String> {
        let lenient = object::text(review, "apiVersion").ends_with("/v1beta1");
        let response = answer.get("response").filter(|response| response.is_object());
        let Some(response) = response else { return Err("webhook response was absent".to_owned()) };
        if !lenient {
            let uid = review.pointer("/request/uid").and_then(Value::as_str).unwrap_or_default();
            let sent = object::text(response, "uid");
            if sent != uid {
                return Err(format!("expected response.uid=\"{uid}\", got {}", crate::kinds::quoted(sent)));
            }
            let name = |of: &Value| {
                format!("{}, Kind={}", go_version(object::text(of, "apiVersion")), object::text(of, "kind"))
            };
            let (wanted, found) = (name(review), name(answer));
            if wanted != found {
                return Err(format!("expected webhook response of {wanted}, got {found}"));
            }
        }
        let patch = object::text(response, "patch");
        let patch_type = response.get("patchType").filter(|value| !value.is_null());
        let typed = patch_type.is_some();
        if !lenient && !mutating {
            if !patch.is_empty() {
                return Err("validating webhook may not return response.patch".to_owned());
            }
            if typed {
                return Err("validating webhook may not return response.patchType".to_owned());
            }
        }
        if !lenient && mutating {
            match (patch.is_empty(), typed) {
                (false, false) => {
                    return Err("webhook returned response.patch but not response.patchType".to_owned());
                }
                (true, true) => {
                    return Err("webhook returned response.patchType but not response.patch".to_owned());
                }
                _ => {}
            }
            if patch_type == Some(&json!("")) {
                return Err("webhook returned invalid response.patchType of \"\"".to_owned());
            }
        }
        let warnings = response.get("warnings").and_then(Value::as_array).into_iter().flatten();
        let patch_type = patch_type.and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self {
            allowed: response.get("allowed") == Some(&Value::Bool(true)),
            patch: (mutating && !patch.is_empty()).then(|| STANDARD.decode(patch).unwrap_or_default()),
            patch_type: if lenient { "JSONPatch".to_owned() } else { patch_type },
            status: response.get("status").cloned().unwrap_or_default(),
            warnings: warnings.filter_map(Value::as_str).map(str::to_owned).collect(),
        })
    }

    /// Returns the answer to a write that the webhook `name` denies.
    pub(super) fn denial(&self, name: &str) -> Status {
        let denied = format!("admission webhook {} denied the request", crate::kinds::quoted(name));
        let text = |field| object::text(&self.status, field);
        let message = match (text("message"), text("reason")) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        let code = self.status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        let status = Status::new(code.unwrap_or(0).max(400), text("reason").to_owned(), message);
        match self.status.get("details").filter(|details| details.is_object()) {
            Some(sent) => status.with_details(details(sent)),
            None => status,
        }
    }
}

/// Checks that a response can be decoded into a review; a response without a type can.
pub(super) fn check_type(review: &Value, answer: &Value) -> Result<(), String> {
    let text = |of: &Value, field| object::text(of, field).to_owned();
    let (kind, api_version) = (text(answer, "kind"), text(answer, "apiVersion"));
    let version = |of: &str| of.rsplit('/').next().unwrap_or_default().to_owned();
    let wanted = text(review, "apiVersion");
    if kind.is_empty() && api_version.is_empty() || (kind == "AdmissionReview" && api_version == wanted) {
        return Ok(());
    }
    if kind == "AdmissionReview" && api_version.starts_with("admission.k8s.io/v1") {
        let (found, wanted) = (version(&api_version), version(&wanted));
        return Err(format!("converting ({found}.{kind}) to ({wanted}.{kind}): unknown conversion"));
    }
    Err(not_registered(&kind, &api_version))
}

fn details(sent: &Value) -> Details {
    let text = |field| object::text(sent, field).to_owned();
    let causes = sent.get("causes").and_then(Value::as_array).into_iter().flatten();
    let causes = causes.map(|cause| Cause {
        reason: object::text(cause, "reason").to_owned(),
        message: object::text(cause, "message").to_owned(),
        field: object::text(cause, "field").to_owned(),
    });
    let seconds = sent.get("retryAfterSeconds").and_then(Value::as_u64);
    Details {
        name: text("name"),
        group: text("group"),
        kind: text("kind"),
        uid: text("uid"),
        causes: causes.collect(),
        retry_after_seconds: seconds.and_then(|seconds| seconds.try_into().ok()).unwrap_or(0),
    }
}

/// Returns an `apiVersion` as Go prints its group and version.
fn go_version(api_version: &str) -> String {
    if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") }
}
