//! The parsed form of a request, and the refusals of requests.

use bytes::Bytes;
use http::{Method, header};
use serde_json::{Value, json};

use super::write::{Verb, resource};
use crate::client::ResourcePath;
use crate::key::NamespacedName;

/// A refusal by the API server of a unit test: HTTP status, reason and message.
#[derive(Clone)]
pub(super) struct Refusal(pub(super) u16, pub(super) &'static str, pub(super) String);

/// A parsed request to the API server of a unit test.
pub(super) struct ApiRequest {
    /// The kind of write that the request is; `None` for a read.
    pub(super) verb: Option<Verb>,
    pub(super) path: ResourcePath,
    pub(super) body: Value,
    pub(super) dry_run: bool,
}

// === impl ApiRequest ===

impl ApiRequest {
    pub(super) fn new(head: &http::request::Parts, body: &Bytes) -> Result<Self, Refusal> {
        let cannot = |problem: &str| {
            let message = format!("{} {}: {problem}; script the answer", head.method, head.uri);
            Refusal(501, "NotImplemented", message)
        };
        let path = ResourcePath::parse(head.uri.path()).ok_or_else(|| cannot("names no resource"))?;
        let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let verb = match (&head.method, content_type.unwrap_or_default()) {
            (&Method::GET, _) => None,
            (&Method::POST, _) => Some(Verb::Create),
            (&Method::PUT, _) => Some(Verb::Replace),
            (&Method::DELETE, _) => Some(Verb::Delete),
            (&Method::PATCH, "application/apply-patch+yaml") => Some(Verb::Apply),
            (&Method::PATCH, "application/merge-patch+json") => Some(Verb::Merge),
            (&Method::PATCH, _) => Some(Verb::Patch),
            _ => return Err(cannot("is no method of the API")),
        };
        let body = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(body) };
        let body = body.map_err(|error| cannot(&format!("has a body that is not JSON ({error})")))?;
        let in_query = head.uri.query().is_some_and(|query| query.contains("dryRun=All"));
        let dry_run = in_query || body["dryRun"] == json!(["All"]);
        Ok(Self { verb, path, body, dry_run })
    }

    /// Returns the namespace and name of the request's object; `None` for a create with a generated name.
    pub(super) fn name(&self) -> Option<NamespacedName> {
        let created = || self.body["metadata"]["name"].as_str().filter(|_| self.verb == Some(Verb::Create));
        let name = self.path.name.as_deref().or_else(created)?;
        Some(NamespacedName::new(self.path.namespace.as_deref(), name))
    }
}

// === refusals ===

pub(super) fn not_found(request: &ApiRequest) -> Refusal {
    let name = request.path.name.as_deref().unwrap_or_default();
    Refusal(404, "NotFound", format!("{} {name:?} not found", resource(&request.path)))
}

/// Returns the refusal of a request with a feature that the API server of a unit test does not support.
pub(super) fn unsupported(request: &ApiRequest, feature: &str) -> Refusal {
    let message = format!(
        "the API server of a unit test cannot answer {feature} ({}); script the answer with \
         TestApi::answer_next, or test it on a real server",
        resource(&request.path)
    );
    Refusal(501, "NotImplemented", message)
}

/// Returns a JSON `Status` for a refusal with this code, reason and message.
pub(super) fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "reason": reason, "message": message, "code": code,
    })
}
