//! Discovery: lists the served groups, versions and resources, in the plain and the aggregated form.
//!
//! The lists are built from the served kinds at each request. Built-in groups come first, in the order of
//! kube-apiserver, then custom groups by name; versions are ordered from stable to alpha, resources by name.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::accept::{self, Accepted};
use super::answer::Answer;
use super::path::Path;
use super::route;
use crate::kinds::Kind;

mod resources;

/// The groups of built-in kinds in the order in which kube-apiserver lists them.
const GROUPS: [&str; 21] = [
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

/// The served kinds by group and version, in the order of discovery.
struct Catalogue {
    groups: Vec<Group>,
}

struct Group {
    name: String,
    versions: Vec<Version>,
}

struct Version {
    name: String,
    kinds: Vec<Arc<Kind>>,
}

/// Returns the response to a discovery request; 404 for a path that is not part of discovery.
pub(super) fn answer(path: &Path, kinds: Vec<Arc<Kind>>, request: &Request<'_>) -> Answer {
    match find(path, kinds, request) {
        Ok(answer) => answer,
        Err(route::Refusal::NoPage) => Answer::no_page(),
        Err(route::Refusal::Status(status)) => Answer::status(&status, &Accepted::default()),
    }
}

/// The parts of a request that discovery uses; `host` is the address that the client connected to.
pub(super) struct Request<'a> {
    pub(super) accept: &'a str,
    pub(super) pretty: bool,
    pub(super) host: &'a str,
    pub(super) if_none_match: Option<&'a str>,
    pub(super) is_get: bool,
}

fn find(path: &Path, kinds: Vec<Arc<Kind>>, request: &Request<'_>) -> Result<Answer, route::Refusal> {
    let aggregates = matches!(path, Path::LegacyVersions | Path::Groups);
    let catalogue = Catalogue::new(kinds);
    let value = match path {
        Path::LegacyVersions => json!({
            "kind": "APIVersions",
            "versions": catalogue.group("").map(Group::version_names).unwrap_or_default(),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": request.host}],
        }),
        Path::Groups => json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": catalogue.named_groups().map(Group::plain).collect::<Vec<_>>(),
        }),
        Path::Group(name) => {
            let group = catalogue.group(name).ok_or(route::Refusal::NoPage)?;
            let mut value = group.plain();
            value.insert("kind".to_owned(), json!("APIGroup"));
            value.insert("apiVersion".to_owned(), json!("v1"));
            Value::Object(value)
        }
        Path::GroupVersion { group, version } => {
            let version = catalogue.version(group, version)?;
            json!({
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": api_version(group, &version.name),
                "resources": version.kinds.iter().flat_map(|kind| resources::plain(kind)).collect::<Vec<_>>(),
            })
        }
        Path::Root => json!({"paths": catalogue.paths()}),
        _ => return Err(route::Refusal::NoPage),
    };
    if !request.is_get && !matches!(path, Path::Group(_)) {
        return Err(route::wrong_method().into());
    }
    let mut accepted = accept::negotiate(request.accept, |convert| aggregates && convert.is_discovery())?;
    accepted.pretty |= request.pretty || *path == Path::Root;
    if accepted.convert.is_none() {
        return Ok(Answer::value(200, &value, &accepted));
    }
    let groups: Vec<_> = match path {
        Path::LegacyVersions => catalogue.group("").into_iter().map(Group::aggregated).collect(),
        _ => catalogue.named_groups().map(Group::aggregated).collect(),
    };
    let value = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": groups,
    });
    Ok(aggregated_answer(&value, &accepted, request.if_none_match))
}

fn aggregated_answer(value: &Value, accepted: &Accepted, if_none_match: Option<&str>) -> Answer {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    let tag = format!("\"{:016X}\"", hasher.finish());
    let answer = if if_none_match == Some(tag.as_str()) {
        Answer::text(304, "")
    } else {
        Answer::value(200, value, accepted)
    };
    let content_type =
        format!("{};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", accepted.format.content_type());
    answer.with("content-type", &content_type).with("etag", &tag).with("vary", "Accept")
}

// === impl Catalogue ===

impl Catalogue {
    fn new(mut kinds: Vec<Arc<Kind>>) -> Self {
        kinds.sort_by(|a, b| {
            rank(&a.group)
                .cmp(&rank(&b.group))
                .then_with(|| a.group.cmp(&b.group))
                .then_with(|| priority(&b.version).cmp(&priority(&a.version)))
                .then_with(|| a.version.cmp(&b.version))
                .then_with(|| a.plural.cmp(&b.plural))
        });
        let mut groups: Vec<Group> = Vec::new();
        for kind in kinds {
            if groups.last().is_none_or(|group| group.name != kind.group) {
                groups.push(Group { name: kind.group.clone(), versions: Vec::new() });
            }
            let Some(group) = groups.last_mut() else { continue };
            match group.versions.last_mut() {
                Some(version) if version.name == kind.version => version.kinds.push(kind),
                _ => group.versions.push(Version { name: kind.version.clone(), kinds: vec![kind] }),
            }
        }
        Self { groups }
    }

    fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    fn named_groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| !group.name.is_empty())
    }

    fn version(&self, group: &str, version: &str) -> Result<&Version, route::Refusal> {
        let Some(found) = self.group(group) else {
            let refusal =
                if group.is_empty() { route::unknown_resource().into() } else { route::Refusal::NoPage };
            return Err(refusal);
        };
        let version = found.versions.iter().find(|known| known.name == version);
        version.ok_or_else(|| match rank(group) {
            0..CUSTOM => route::unknown_resource().into(),
            _ => route::Refusal::NoPage,
        })
    }

    fn paths(&self) -> Vec<String> {
        let mut paths = vec!["/api".to_owned(), "/apis".to_owned()];
        for group in &self.groups {
            let prefix =
                if group.name.is_empty() { "/api".to_owned() } else { format!("/apis/{}", group.name) };
            paths.extend(group.versions.iter().map(|version| format!("{prefix}/{}", version.name)));
            paths.push(prefix);
        }
        paths.extend(["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
        paths.sort();
        paths.dedup();
        paths
    }
}

// === impl Group ===

impl Group {
    fn version_names(&self) -> Vec<&str> {
        self.versions.iter().map(|version| version.name.as_str()).collect()
    }

    fn plain(&self) -> Map<String, Value> {
        let version = |version: &Version| {
            let group_version = api_version(&self.name, &version.name);
            json!({"groupVersion": group_version, "version": version.name})
        };
        let versions: Vec<_> = self.versions.iter().map(version).collect();
        let mut value = Map::new();
        value.insert("name".to_owned(), json!(self.name));
        value.insert("preferredVersion".to_owned(), versions.first().cloned().unwrap_or_default());
        value.insert("versions".to_owned(), Value::Array(versions));
        value
    }

    fn aggregated(&self) -> Value {
        let version = |version: &Version| {
            let resources: Vec<_> = version.kinds.iter().map(|kind| resources::aggregated(kind)).collect();
            json!({"version": version.name, "resources": resources, "freshness": "Current"})
        };
        let metadata = if self.name.is_empty() { json!({}) } else { json!({"name": self.name}) };
        json!({"metadata": metadata, "versions": self.versions.iter().map(version).collect::<Vec<_>>()})
    }
}

/// The rank of all custom groups, after the built-in ones.
const CUSTOM: usize = GROUPS.len();

/// Whether a group is built in; the core group is the empty string.
pub(super) fn is_built_in(group: &str) -> bool {
    rank(group) < CUSTOM
}

fn rank(group: &str) -> usize {
    GROUPS.iter().position(|known| *known == group).unwrap_or(CUSTOM)
}

/// Returns the priority of a version: stable over beta over alpha, each by number; other names are lowest.
fn priority(version: &str) -> (u8, u32, u32) {
    fn numbers(version: &str) -> Option<(u8, u32, u32)> {
        let rest = version.strip_prefix('v')?;
        for (stage, word) in [(2, "beta"), (1, "alpha")] {
            if let Some((major, minor)) = rest.split_once(word) {
                return Some((stage, major.parse().ok()?, minor.parse().ok()?));
            }
        }
        Some((3, rest.parse().ok()?, 0))
    }
    numbers(version).unwrap_or_default()
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests;
