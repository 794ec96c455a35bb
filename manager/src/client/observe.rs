//! Reports this process's own writes to an observer, such as the cache.
//!
//! A layer of [`Role::Writes`](super::Role::Writes) reports every successful POST, PUT, PATCH and DELETE. It
//! is outside the base-URI layer, so the paths it reads are the API's own even behind a server with a path
//! prefix. The caller gets the response only after the observer has seen it: a read of the cache that follows
//! a write in the same reconcile sees that write.
//!
//! # Invariants
//! 1. A dry run is never reported, because it stores no object.
//! 2. A write whose effect the response does not describe is reported as uncovered, never guessed.
//! 3. The response reaches the caller byte for byte.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream;
use http::request::Parts;
use http::{Method, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use kube::client::Body;
use parking_lot::RwLock;
use serde::Deserialize;
use tower::{BoxError, Service as _, service_fn};

use super::connect::{ResponseBody, Stack, whole};
use super::writer::Writer;

/// Longest response, in bytes, that is collected for the write observer; etcd refuses objects a fifth of this
/// size.
const MAX_OBSERVED_BYTES: usize = 8 << 20;

/// The API resource that the path of a request names, in its parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourcePath {
    /// API group of the resource; empty for the core group.
    pub group: String,
    /// API version of the resource, such as `v1`.
    pub version: String,
    /// Plural name of the resource, such as `deployments`.
    pub plural: String,
    /// Namespace in the path; `None` for cluster-scoped resources and for requests across namespaces.
    pub namespace: Option<String>,
    /// Name of the object in the path; `None` for a collection, that is for creates and `deletecollection`.
    pub name: Option<String>,
    /// Subresource in the path, such as `status`; `None` for the object itself.
    pub subresource: Option<String>,
}

/// An observer that is called for every successful write of this replica to the API server.
///
/// The methods run on the writer's own task, after the response came and before the writer gets it: they must
/// be quick and never block.
pub trait WriteObserver: Send + Sync + 'static {
    /// Called after an object was created or changed; `body` is the object as stored. `path.subresource` is
    /// `None` or `status`, and `path.name` is `None` for a create.
    fn written(&self, path: &ResourcePath, body: &Bytes, writer: Writer);

    /// Returns the uids of the cached objects of this name. Called before a DELETE is sent: if the response
    /// names another uid, the cached objects were deleted earlier, which the response alone does not show.
    fn cached_uids(&self, path: &ResourcePath) -> Vec<String>;

    /// Called after an object was deleted or marked as being deleted; `body` is the object, or a `Status`
    /// that names its uid. `cached_uids` is the result of [`cached_uids`](Self::cached_uids) before the
    /// DELETE was sent.
    fn deleted(&self, path: &ResourcePath, body: &Bytes, cached_uids: &[String], writer: Writer);

    /// Called after a write whose effect the response does not describe: it was for a collection or a
    /// subresource other than `status`, has another representation than the caller's object, is longer than
    /// an object can be, or was not read to its end.
    fn uncovered(&self, path: &ResourcePath);
}

/// The write observer of one [`Connections`](super::Connections), shared with the clients that were made
/// before it was set.
pub(super) type ObserverSlot = Arc<RwLock<Option<Arc<dyn WriteObserver>>>>;

/// The kind of report to the write observer that a request will need, as far as the request alone determines
/// it.
#[derive(Debug, PartialEq, Eq)]
enum Report {
    Written,
    Deleted,
    Uncovered,
}

/// Reports a write as uncovered when this value is dropped before the whole response was read.
struct UncoveredOnDrop<'a> {
    observer: &'a dyn WriteObserver,
    path: &'a ResourcePath,
    /// Whether the whole response to the write was read.
    read: bool,
}

// === impl ResourcePath ===

impl ResourcePath {
    /// Parses a URL path such as `/apis/apps/v1/namespaces/shop/deployments/web/status`; `None` if it names
    /// no resource.
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        let (namespace, resource) = match rest.as_slice() {
            // The namespace itself: its only subresources are `status` and `finalize`.
            ["namespaces", ..] if rest.len() <= 2 || matches!(rest[2], "status" | "finalize") => {
                (None, &rest[..])
            }
            ["namespaces", namespace, ..] => (Some(*namespace), &rest[2..]),
            _ => (None, &rest[..]),
        };
        let (plural, name, below) = match resource {
            [plural] => (plural, None, &[][..]),
            [plural, name, below @ ..] => (plural, Some((*name).to_owned()), below),
            [] => return None,
        };
        if version.is_empty() || plural.is_empty() {
            return None;
        }
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: (*plural).to_owned(),
            namespace: namespace.map(str::to_owned),
            name,
            subresource: (!below.is_empty()).then(|| below.join("/")),
        })
    }

    /// Returns the kind of report that a request to this path needs; `None` for a read, which is not
    /// reported.
    fn report(&self, method: &Method, headers: &http::HeaderMap) -> Option<Report> {
        let deleting = match *method {
            Method::DELETE => true,
            Method::POST | Method::PUT | Method::PATCH => false,
            _ => return None,
        };
        Some(match self.subresource.as_deref() {
            Some("status") if !deleting => Report::Written,
            Some(_) => Report::Uncovered,
            // The response to a `deletecollection` does not list the deleted objects.
            None if deleting && self.name.is_none() || wants_other_form(headers) => Report::Uncovered,
            None if deleting => Report::Deleted,
            None => Report::Written,
        })
    }
}

/// Makes a stack that reports its successful writes to the observer in `slot`.
pub(super) fn observed(inner: Stack, slot: ObserverSlot) -> Stack {
    Stack::new(service_fn(move |request: Request<Body>| {
        let report = slot.read().clone().and_then(|observer| {
            let path = ResourcePath::parse(request.uri().path())?;
            let report = path.report(request.method(), request.headers())?;
            Some((observer, path, report))
        });
        let mut inner = inner.clone();
        async move {
            let Some((observer, path, report)) = report else { return inner.call(request).await };
            let cached = if report == Report::Deleted { observer.cached_uids(&path) } else { Vec::new() };
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let dry_run = is_dry_run(&head, &body);
            let writer = writer_of(&head, &body);
            let response = inner.call(Request::from_parts(head, Body::from(body))).await?;
            if dry_run || !response.status().is_success() {
                return Ok(response);
            }
            let pass_body = |body: &Bytes| match report {
                Report::Deleted => observer.deleted(&path, body, &cached, writer),
                _ => observer.written(&path, body, writer),
            };
            if report == Report::Uncovered {
                observer.uncovered(&path);
                return Ok(response);
            }
            read_whole(response, pass_body, &*observer, &path).await
        }
    }))
}

/// Reads the response to a write, calls `pass_body` with its whole body, and returns the response with the
/// same body. Reports the write as uncovered if the body is too large or ends early.
async fn read_whole(
    response: Response<ResponseBody>,
    pass_body: impl FnOnce(&Bytes),
    observer: &dyn WriteObserver,
    path: &ResourcePath,
) -> Result<Response<ResponseBody>, BoxError> {
    let (head, mut body) = response.into_parts();
    let mut uncovered = UncoveredOnDrop { observer, path, read: false };
    let mut start = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Trailers are dropped: HTTP/1 answers of an API server have none.
        if let Ok(data) = frame?.into_data() {
            start.extend_from_slice(&data);
        }
        if start.len() > MAX_OBSERVED_BYTES {
            let begun = stream::iter([Ok(Frame::data(start.freeze()))]);
            let rest = StreamBody::new(begun.chain(BodyStream::new(body)));
            return Ok(Response::from_parts(head, rest.boxed_unsync()));
        }
    }
    uncovered.read = true;
    let body = start.freeze();
    pass_body(&body);
    Ok(Response::from_parts(head, whole(body)))
}

// === impl UncoveredOnDrop ===

impl Drop for UncoveredOnDrop<'_> {
    fn drop(&mut self) {
        if !self.read {
            self.observer.uncovered(self.path);
        }
    }
}

/// Returns whether a request is a dry run. For a DELETE that option is in the body, where kube puts it.
fn is_dry_run(head: &Parts, body: &[u8]) -> bool {
    let in_query = head.uri.query().is_some_and(|query| {
        query.split('&').any(|pair| pair.strip_prefix("dryRun=").is_some_and(|value| !value.is_empty()))
    });
    let in_body = || serde_json::from_slice::<DeleteOptions>(body).ok()?.dry_run;
    in_query || head.method == Method::DELETE && in_body().is_some_and(|stages| !stages.is_empty())
}

/// The part of a request body that names the resourceVersion that the write requires. No other field is
/// decoded: a merge patch may have `null` where an object has a text. A JSON patch has a `test` operation
/// instead, and counts as a write without a version.
#[derive(Deserialize)]
struct ForVersion {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

/// Returns the writer of a request. For a PUT or PATCH by a reconcile it includes the resourceVersion that
/// the body names, if any.
fn writer_of(head: &Parts, body: &[u8]) -> Writer {
    let writer = Writer::of(&head.extensions);
    if !writer.is_run() || !matches!(head.method, Method::PUT | Method::PATCH) {
        return writer;
    }
    let version = serde_json::from_slice::<ForVersion>(body).ok();
    writer.for_version(version.and_then(|body| body.metadata.resource_version.parse().ok()))
}

/// Returns whether the `Accept` header requests another form than the JSON object: protobuf, or a form such
/// as `as=PartialObjectMetadata`.
fn wants_other_form(headers: &http::HeaderMap) -> bool {
    headers.get_all(header::ACCEPT).iter().any(|accept| {
        accept.to_str().is_ok_and(|accept| accept.contains("as=") || accept.contains("protobuf"))
    })
}

/// Returns the only object name that a field selector allows; `None` if it does not name one. An RBAC rule
/// for one object by name also allows to watch that object.
pub(crate) fn only_name(fields: &str) -> Option<&str> {
    fields.split(',').find_map(|field| {
        let value = field.trim().strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    })
}

#[cfg(test)]
mod tests;
