//! `OpenAPI`: in version 3 the list of documents, and a document for each version of a group. kubectl reads
//! them to explain fields, and to learn that the server validates fields itself. It asks for version 2 about
//! kinds that version 3 does not have; that document has the built-in kinds only.

use std::sync::Arc;

use serde_json::{Map, json};

use super::accept;
use super::answer::Answer;
use super::discovery::Request;
use crate::api::{Api, Query, Status};
use crate::kinds::custom::CustomKind;
use crate::kinds::openapi;

/// The time for which a client may keep a document, whose hash is in its URL.
const KEEP: jiff::SignedDuration = jiff::SignedDuration::from_hours(365 * 24);

/// Returns the list of all documents. Each URL has the hash of its document, so that clients can keep it.
pub(super) fn index(api: &Api) -> Answer {
    let mut paths = Map::new();
    for document in openapi::documents() {
        paths
            .insert(document.path.clone(), json!({"serverRelativeURL": url(&document.path, &document.hash)}));
    }
    for (path, kinds) in custom(api) {
        let url = url(&path, &openapi::custom_hash(&kinds));
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    // The real server does not set the type either, and its library takes the text for plain text.
    Answer::text(200, json!({"paths": paths}).to_string())
}

/// Returns the document of version 2, which is in protobuf.
pub(super) fn version_2(request: &Request<'_>) -> Answer {
    let headers = |answer: Answer| answer.with("vary", "Accept");
    if !accept::takes_openapi_protobuf(request.accept) {
        return headers(Answer::empty(406));
    }
    let tag = format!("\"{}\"", openapi::version_2_hash());
    if request.if_none_match == Some(tag.as_str()) {
        return headers(Answer::empty(304).with("etag", &tag));
    }
    let Some(text) = openapi::version_2() else { return unavailable() };
    let protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    headers(Answer::json(200, text.into()).with("content-type", protobuf).with("etag", &tag))
}

/// Returns a document of version 3 by its path below `/openapi/v3`.
pub(super) fn document(api: &Api, path: &str, query: &Query, request: &Request<'_>) -> Answer {
    let recorded = openapi::documents().iter().find(|document| document.path == path);
    let kinds = if recorded.is_none() { custom(api).into_iter().find(|(of, _)| of == path) } else { None };
    let hash = match (recorded, &kinds) {
        (Some(document), _) => document.hash.clone(),
        (None, Some((_, kinds))) => openapi::custom_hash(kinds),
        (None, None) => return Answer::empty(404),
    };
    if !accept::takes_json(request.accept) {
        return Answer::empty(406).with("vary", "Accept");
    }
    let tag = format!("\"{hash}\"");
    let asked = query.get("hash").unwrap_or_default();
    let headers = |answer: Answer| answer.with("etag", &tag).with("vary", "Accept");
    if !asked.is_empty() && asked != hash {
        return headers(Answer::json(301, bytes::Bytes::new())).with("location", &url(path, &hash));
    }
    if request.if_none_match == Some(tag.as_str()) {
        return headers(Answer::empty(304));
    }
    let text = match kinds {
        None => openapi::document(path),
        Some((_, kinds)) => openapi::custom_document(&kinds).map(|value| value.to_string().into_bytes()),
    };
    let Some(text) = text else { return unavailable() };
    let answer = headers(Answer::json(200, text.into()));
    if asked.is_empty() {
        return answer;
    }
    let expires = (api.now() + KEEP).strftime("%a, %d %b %Y %H:%M:%S UTC").to_string();
    answer.with("cache-control", "public, immutable").with("expires", &expires)
}

/// The answer if recorded data cannot be read.
fn unavailable() -> Answer {
    let status = Status::new(500, "InternalError", "Internal error occurred: no document");
    Answer::status(&status, &accept::Accepted::default())
}

fn url(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

/// Returns the served custom resources by the paths of their documents.
fn custom(api: &Api) -> Vec<(String, Vec<Arc<CustomKind>>)> {
    let mut all: Vec<(String, Vec<Arc<CustomKind>>)> = Vec::new();
    for custom in api.custom_kinds() {
        let path = format!("apis/{}", custom.api_version);
        match all.iter_mut().find(|(known, _)| *known == path) {
            Some((_, kinds)) => kinds.push(custom),
            None => all.push((path, vec![custom])),
        }
    }
    all
}
