//! The record of a write.

use std::fmt;

use bytes::Bytes;
use http::{Method, header};
use serde_json::{Value, json};

use crate::client::ResourcePath;
use crate::key::NamespacedName;

/// A write request that the API server of a unit test received.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Write {
    /// The kind of the write.
    pub verb: Verb,
    /// The API resource that the request names.
    pub path: ResourcePath,
    /// The body of the request: `Null` if there was none, and a string if it is no JSON.
    pub body: Value,
    /// Whether the request is a dry run.
    pub dry_run: bool,
    /// The HTTP status with which the server answered the request.
    pub code: u16,
}

/// The kind of a write request, such as create or apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verb {
    /// Creates an object, by POST.
    Create,
    /// Replaces an object, by PUT.
    Replace,
    /// Applies an object by server-side apply.
    Apply,
    /// Changes an object by a JSON merge patch.
    Merge,
    /// Changes an object by any other patch.
    Patch,
    /// Deletes an object, by DELETE.
    Delete,
}

// === impl Write ===

impl Write {
    /// Returns the record of a request that has no answer yet; `None` for a read.
    pub(super) fn new(head: &http::request::Parts, path: ResourcePath, body: &Bytes) -> Option<Self> {
        let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let verb = match (&head.method, content_type.unwrap_or_default()) {
            (&Method::POST, _) => Verb::Create,
            (&Method::PUT, _) => Verb::Replace,
            (&Method::DELETE, _) => Verb::Delete,
            (&Method::PATCH, "application/apply-patch+yaml") => Verb::Apply,
            (&Method::PATCH, "application/merge-patch+json") => Verb::Merge,
            (&Method::PATCH, _) => Verb::Patch,
            _ => return None,
        };
        let text = || Value::String(String::from_utf8_lossy(body).into_owned());
        let body = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(body).unwrap_or_else(|_| text())
        };
        let in_query = head.uri.query().is_some_and(|query| query.contains("dryRun=All"));
        let dry_run = in_query || body["dryRun"] == json!(["All"]);
        Some(Self { verb, path, body, dry_run, code: 0 })
    }

    /// Returns the namespace and name of the written object; for a create, the name in the body.
    pub fn name(&self) -> NamespacedName {
        let in_body = self.body["metadata"]["name"].as_str();
        let name = self.path.name.as_deref().or(in_body).unwrap_or_default();
        NamespacedName::new(self.path.namespace.as_deref(), name)
    }
}

/// Displays a write as `apply deployments.apps shop/web`, with `/status` after the resource, and ` (dry run)`
/// and the code of a refusal at the end.
impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb.as_str(), resource(&self.path))?;
        if let Some(subresource) = &self.path.subresource {
            write!(f, "/{subresource}")?;
        }
        write!(f, " {}", self.name())?;
        if self.dry_run {
            f.write_str(" (dry run)")?;
        }
        if self.code < 300 { Ok(()) } else { write!(f, " ({})", self.code) }
    }
}

impl Verb {
    /// Returns the lower-case word for this kind of write, such as `apply`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Apply => "apply",
            Self::Merge => "merge",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// Returns the resource as kubectl prints it, such as `deployments.apps`.
pub(super) fn resource(path: &ResourcePath) -> String {
    if path.group.is_empty() { path.plural.clone() } else { format!("{}.{}", path.plural, path.group) }
}
