//! The rights that a role grants, and the rights that a manager has used.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::cluster::TestCluster;

/// A right of RBAC: one verb on one kind of object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The API group of the kind, empty for the core.
    pub group: String,
    /// Plural of the kind, with the subresource behind a slash.
    pub resource: String,
    /// The verb as RBAC writes it.
    pub verb: String,
}

/// Rights that the requests of all ServiceAccounts of a test used or lacked.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Rights of the requests that were authorized, also if they failed later.
    pub used: BTreeSet<Right>,
    /// Rights of the requests that were refused.
    pub missing: BTreeSet<Right>,
}

// === impl Right ===

impl Right {
    /// Makes a right of this verb on a resource of an API group.
    pub fn new(verb: &str, resource: &str, group: &str) -> Self {
        Self { group: group.to_owned(), resource: resource.to_owned(), verb: verb.to_owned() }
    }
}

impl fmt::Debug for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, resource, verb } = self;
        write!(f, "{verb} {resource} of {group:?}")
    }
}

/// Returns the rights that this ServiceAccount has by the roles and bindings among the documents, in any
/// namespace.
pub fn rights_of(account: &str, documents: &[Value]) -> BTreeSet<Right> {
    let is_bound = |role: &Value| {
        documents.iter().any(|binding| {
            let mut subjects = binding["subjects"].as_array().into_iter().flatten();
            let of_role = |key: &str| binding["roleRef"][key].as_str();
            of_role("kind").is_some_and(|kind| role["kind"] == kind)
                && of_role("name").is_some_and(|name| role["metadata"]["name"] == name)
                && subjects.any(|subject| subject["kind"] == "ServiceAccount" && subject["name"] == account)
        })
    };
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut rights = BTreeSet::new();
    for role in documents.iter().filter(|document| is_bound(document)) {
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let verbs = texts(&rule["verbs"]);
                    rights.extend(verbs.iter().map(|verb| Right::new(verb, &resource, &group)));
                }
            }
        }
    }
    rights
}

// === impl TestCluster ===

impl TestCluster {
    /// Returns the rights that the requests of this test's ServiceAccounts used or lacked so far, on a
    /// cluster from [`TestCluster::observed`].
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for event in self.audited() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let object = &event["objectRef"];
            // Discovery is allowed to every account.
            let Some(resource) = object["resource"].as_str() else { continue };
            let resource = match object["subresource"].as_str() {
                Some(subresource) => format!("{resource}/{subresource}"),
                None => resource.to_owned(),
            };
            let (verb, group) = (text(&event["verb"]), text(&object["apiGroup"]));
            let of = |verb: &str| Right::new(verb, &resource, &group);
            if event["responseStatus"]["code"] == 403 {
                usage.missing.insert(of(&verb));
                continue;
            }
            // An apply that creates the object needs both rights.
            if verb == "patch" && event["responseStatus"]["code"] == 201 {
                usage.used.insert(of("create"));
            }
            // On a server without `sendInitialEvents` the client sends a list instead.
            if text(&event["requestURI"]).contains("sendInitialEvents=true") {
                usage.used.insert(of("list"));
            }
            usage.used.insert(of(&verb));
        }
        usage
    }
}
