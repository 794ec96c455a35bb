//! Which verb a method means at an endpoint, or how the server refuses it.
//!
//! The real server has two routers with different answers: one for built-in kinds, which knows every path,
//! and one for custom resources, which looks at the parts of the path.

use http::Method;

use super::path::ResourcePath;
use crate::api::{Details, PatchType, Query, Status, Verb};
use crate::kinds::Kind;

/// An answer without content.
#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    /// 404 as plain text: the path leads nowhere.
    NoPage,
    /// An error with a `Status`.
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

/// 404 of the router of built-in kinds.
pub(crate) fn unknown_resource() -> Status {
    let message = "the server could not find the requested resource";
    Status::new(404, "NotFound", message).with_details(Details::default())
}

/// 405 of the router of built-in kinds.
pub(crate) fn wrong_method() -> Status {
    let message = "the server does not allow this method on the requested resource";
    Status::new(405, "MethodNotAllowed", message).with_details(Details::default())
}

/// The verb of a request as authorization names it, which needs no kind. Empty for an unknown method.
pub(crate) fn verb_name(method: &Method, path: &ResourcePath, query: &Query) -> &'static str {
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

/// Chooses the verb of a request.
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

/// The option is true unless it has one of two values: so does Go's conversion of a query to a boolean.
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

/// 415: the body has a type that the endpoint does not accept.
pub(crate) fn unsupported_media_type(accepted: &str) -> Status {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {accepted}"
    );
    Status::new(415, "UnsupportedMediaType", message)
}
