//! The audit log: a line of JSON for each write of a `ServiceAccount`, as kube-apiserver writes it at the
//! level `Request`.

use std::fs::File;
use std::io::Write as _;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::path::ResourcePath;
use crate::api::User;

/// The group of all ServiceAccounts.
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The groups of questions about rights and tokens, which are created but stored nowhere.
const REVIEWS: [&str; 2] = ["authorization.k8s.io", "authentication.k8s.io"];

/// The audit log of a server: a line of JSON for each write of a `ServiceAccount`.
#[derive(Debug)]
pub struct Audit(Mutex<File>);

/// One line of the log, without the fields that only the response determines.
#[derive(Debug)]
pub(super) struct Entry(Value);

// === impl Audit ===

impl Audit {
    /// Returns a log that is appended to this file.
    pub fn new(file: File) -> Self {
        Self(Mutex::new(file))
    }

    /// Appends an entry. A line that cannot be written is lost.
    pub(super) fn append(&self, entry: Entry, body: Option<Value>, code: u16) {
        let Entry(mut line) = entry;
        line["requestObject"] = body.unwrap_or_default();
        line["responseStatus"] = json!({"code": code});
        let line = format!("{line}\n");
        if let Err(error) = self.0.lock().write_all(line.as_bytes()) {
            tracing::warn!(%error, "a line of the audit log is lost");
        }
    }
}

// === impl Entry ===

impl Entry {
    /// Returns the entry of a request; `None` if the log does not contain such requests.
    pub(super) fn of(
        verb: &str,
        path: &ResourcePath,
        user: &User,
        uri: &http::Uri,
        now: Timestamp,
    ) -> Option<Self> {
        let writes = !matches!(verb, "get" | "list" | "watch" | "");
        let of_account = user.groups.iter().any(|group| group == SERVICE_ACCOUNTS);
        if !writes || !of_account || REVIEWS.contains(&path.group.as_str()) {
            return None;
        }
        let mut object = json!({"resource": path.resource, "apiVersion": path.version});
        let parts = [
            ("namespace", &path.namespace),
            ("name", &path.name),
            ("apiGroup", &path.group),
            ("subresource", &path.subresource),
        ];
        for (field, value) in parts.into_iter().filter(|(_, value)| !value.is_empty()) {
            object[field] = value.as_str().into();
        }
        Some(Self(json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Request",
            "stage": "ResponseComplete",
            "requestURI": uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str),
            "verb": verb,
            "user": {"username": user.name, "groups": user.groups},
            "objectRef": object,
            "requestReceivedTimestamp": format!("{now:.6}"),
        })))
    }
}
