//! Maps an HTTP method at an endpoint to a verb, or to an error.
//!
//! kube-apiserver has two routers with different errors: the one for built-in kinds has a fixed table of
//! paths, the one for custom resources interprets the parts of the path.

use http::Method;

use super::path::ResourcePath;
use crate::api::{Access, Details, PatchType, Query, Status, Verb};
use crate::kinds::Kind;

/// An error response.
#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    /// 404 in plain text, for an unknown path.
    NoPage,
    /// An error with a `Status` object.
    Status(Status),
}

const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

const CUSTOM_PATCHES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Returns the 404 error of the router of built-in kinds.
pub(crate) fn unknown_resource() -> Status {
    let message = "the server could not find the requested resource";
    Status::new(404, "NotFound", message).with_details(Details::default())
}

/// Returns the 405 error of the router of built-in kinds.
pub(crate) fn wrong_method() -> Status {
    let message = "the server does not allow this method on the requested resource";
    Status::new(405, "MethodNotAllowed", message).with_details(Details::default())
}

/// Returns the authorization verb of a request, which does not depend on the kind; empty for an unknown
/// method.
fn verb_name(method: &Method, path: &ResourcePath, query: &Query) -> &'static str {
    if path.watch {
        return "watch";
    }
    match (method.as_str(), path.name.is_empty()) {
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", false) => "delete",
        ("DELETE", true) => "deletecollection",
        ("GET" | "HEAD", false) => "get",
        ("GET" | "HEAD", true) if wants_watch(query) => "watch",
        ("GET" | "HEAD", true) => "list",
        _ => "",
    }
}

/// Returns what a request to a resource asks for, in the terms of rules.
pub(crate) fn access<'a>(method: &Method, path: &'a ResourcePath, query: &'a Query) -> Access<'a> {
    let verb = verb_name(method, path, query);
    let lists = !path.watch && path.name.is_empty() && matches!(verb, "list" | "watch");
    let name = if lists { selected_name(query) } else { path.name.as_str() };
    // The namespace of a request for a Namespace is that Namespace, also in other groups.
    let namespace = if path.resource == "namespaces" { path.name.as_str() } else { path.namespace.as_str() };
    let (group, resource) = (path.group.as_str(), path.resource.as_str());
    Access { verb, group, resource, subresource: &path.subresource, namespace, name }
}

/// Returns the name that the field selector of a list or watch asks for; empty if it asks for no single name.
fn selected_name(query: &Query) -> &str {
    let terms = query.get("fieldSelector").unwrap_or_default().split(',');
    let named = terms.filter_map(|term| term.strip_prefix("metadata.name="));
    let name = named.map(|name| name.strip_prefix('=').unwrap_or(name)).next().unwrap_or_default();
    if matches!(name, "." | "..") || name.contains(['/', '%']) { "" } else { name }
}

/// Returns the verb of a request, or the error if the endpoint does not support it.
pub(crate) fn verb(
    method: &Method,
    path: &ResourcePath,
    kind: &Kind,
    query: &Query,
    content_type: &str,
) -> Result<Verb, Refusal> {
    let name = verb_name(method, path, query);
    if kind.type_name.is_some() {
        check_built_in(method, path, kind, name)?;
    } else {
        check_custom(path, kind, name)?;
    }
    let verb = match name {
        "get" => Verb::Get,
        "list" => Verb::List,
        "watch" => Verb::Watch,
        "create" => Verb::Create,
        "update" => Verb::Update,
        "patch" => Verb::Patch(patch_type(kind, content_type)?),
        "delete" => Verb::Delete,
        _ => Verb::DeleteCollection,
    };
    if matches!(verb, Verb::Update | Verb::Patch(_)) && path.name.is_empty() {
        return Err(Status::bad_request("name must be provided").into());
    }
    Ok(verb)
}

/// Whether the query requests a watch. As in Go, every value except `0` and `false` counts as true.
fn wants_watch(query: &Query) -> bool {
    query.get("watch").is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

fn check_built_in(method: &Method, path: &ResourcePath, kind: &Kind, verb: &str) -> Result<(), Status> {
    let named = !path.name.is_empty();
    let verbs = if path.watch {
        let watchable = kind.has_verb("watch") && path.subresource.is_empty();
        if watchable { vec!["watch"] } else { Vec::new() }
    } else if !path.subresource.is_empty() {
        subresource_verbs(kind, &path.subresource)
    } else {
        let of_objects = |verb: &&str| matches!(*verb, "get" | "update" | "patch" | "delete");
        kind.verbs.iter().map(String::as_str).filter(|verb| of_objects(verb) == named).collect()
    };
    let across_namespaces = kind.namespaced && path.namespace.is_empty();
    let exists = if across_namespaces {
        !named && verbs.iter().any(|verb| matches!(*verb, "list" | "watch"))
    } else {
        kind.namespaced || path.namespace.is_empty()
    };
    if !exists || verbs.is_empty() || path.longer {
        return Err(unknown_resource());
    }
    let reads = matches!(verb, "list" | "watch");
    let method_matches = *method != Method::HEAD && (!path.watch || *method == Method::GET);
    if !method_matches || !verbs.contains(&verb) || (across_namespaces && !reads) {
        return Err(wrong_method());
    }
    Ok(())
}

fn subresource_verbs<'a>(kind: &'a Kind, name: &str) -> Vec<&'a str> {
    match name {
        "status" if kind.status => STATUS_VERBS.to_vec(),
        "scale" if kind.scale.is_some() => STATUS_VERBS.to_vec(),
        name => {
            let found = kind.subresources.iter().find(|subresource| subresource.name == name);
            found.map(|found| found.verbs.iter().map(String::as_str).collect()).unwrap_or_default()
        }
    }
}

fn check_custom(path: &ResourcePath, kind: &Kind, verb: &str) -> Result<(), Refusal> {
    let across_namespaces = kind.namespaced && path.namespace.is_empty();
    let misplaced = !kind.namespaced && !path.namespace.is_empty();
    if misplaced || (across_namespaces && !matches!(verb, "list" | "watch")) {
        return Err(Refusal::NoPage);
    }
    let has_subresource = match path.subresource.as_str() {
        "" => return if verb.is_empty() { Err(Status::method_not_allowed(kind, "").into()) } else { Ok(()) },
        "status" => kind.status,
        "scale" => kind.scale.is_some(),
        _ => false,
    };
    if !has_subresource {
        return Err(Status::not_found(kind, &path.name).into());
    }
    if STATUS_VERBS.contains(&verb) { Ok(()) } else { Err(Status::method_not_allowed(kind, verb).into()) }
}

fn patch_type(kind: &Kind, content_type: &str) -> Result<PatchType, Status> {
    let built_in = kind.type_name.is_some();
    match content_type.split(';').next().unwrap_or_default() {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" if built_in => Ok(PatchType::Strategic),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        _ if built_in => Err(Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            .with_details(Details::default())),
        _ => Err(unsupported_media_type(CUSTOM_PATCHES)),
    }
}

/// Returns the 415 error for a request body with an unsupported media type.
pub(crate) fn unsupported_media_type(accepted: &str) -> Status {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {accepted}"
    );
    Status::new(415, "UnsupportedMediaType", message)
}
