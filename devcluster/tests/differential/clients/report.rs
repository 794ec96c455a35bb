//! The findings about the clients of one server.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use super::order::Order;
use super::state::{self, Objects};

/// Errors that clients report on both servers: client (empty for all), pattern, reason.
const ALLOWED: &[(&str, &str, &str)] = &[
    (
        "",
        r"\bEOF\b|connection reset by peer|broken pipe|http2: client connection",
        "the test cuts connections",
    ),
    // A connection may be cut in its handshake or later.
    ("kube-runtime", r"client error \((Connect|SendRequest)\)", "the test cuts connections"),
    ("kube-runtime", "Expired: too old resource version", "the API server has restarted"),
    ("kube-runtime", "not found in local store", "the Foo was deleted before its turn"),
    ("sample-controller", "in work queue no longer exists", "the Foo was deleted before its turn"),
    ("sample-controller", "the object has been modified", "the Foo has changed since it was cached"),
    ("sample-controller", "Precondition failed: UID", "the Foo was deleted and created since it was cached"),
    ("sample-controller", r"foos\..* not found", "the Foo was deleted since it was cached"),
    ("sample-controller", r"deployments\..* not found", "the Deployment was deleted since it was cached"),
    ("sample-controller", "already exists", "the Deployment is of a deleted Foo, or not yet cached"),
    ("builtins", "Could not find ReplicaSet", "the ReplicaSet was deleted before its turn"),
    ("builtins", "the object has been modified", "the ReplicaSet has changed since it was cached"),
    ("builtins", "Precondition failed: UID", "the ReplicaSet was deleted and created since it was cached"),
    (
        "builtins",
        r"could not write ReplicaSet: .* not found",
        "the ReplicaSet was deleted since it was cached",
    ),
];

/// The numbers of caches, events and cached objects of the clients, and all problems.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) problems: Vec<String>,
    pub(crate) caches: usize,
    pub(crate) events: usize,
    pub(crate) cached: usize,
}

// === impl Report ===

impl Report {
    /// Compares the cache of one kind with the server's objects.
    pub(crate) fn cache(
        &mut self,
        client: &str,
        plural: &str,
        order: &Order,
        cached: &BTreeMap<String, Value>,
        objects: &Objects,
    ) {
        self.caches += 1;
        self.events += order.events;
        self.cached += cached.len();
        let found = state::differences(plural, cached, objects);
        let found = found.iter().chain(&order.problems);
        self.problems.extend(found.map(|problem| format!("{client}, {plural}: {problem}")));
    }

    /// Keeps the errors of a client that are not allowed.
    pub(crate) fn errors(&mut self, client: &str, errors: impl Iterator<Item = impl AsRef<str>>) {
        let allowed = ALLOWED.iter().filter(|(of, ..)| of.is_empty() || *of == client);
        let allowed: Vec<_> =
            allowed.map(|(_, pattern, _)| Regex::new(pattern).expect("a pattern")).collect();
        for error in errors {
            if !allowed.iter().any(|pattern| pattern.is_match(error.as_ref())) {
                self.problems.push(format!("{client}: {}", error.as_ref()));
            }
        }
    }
}
