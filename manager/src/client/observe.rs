//! What our own client wrote, told to whoever keeps a copy of it.
//!
//! A layer of [`Role::Writes`](super::Role::Writes) looks at every successful POST, PUT, PATCH and DELETE. It stands
//! outside the base-URI layer, so the paths it reads are the API's own even behind a server with a path prefix.
//! The caller gets the response only after the observer has seen it: a read of the cache that follows a write in
//! the same reconcile sees that write.
//!
//! # Invariants
//! 1. A dry run is never reported: nothing happened.
//! 2. What cannot be told exactly is reported as [`Uncovered`], never guessed.
//! 3. The response reaches the caller byte for byte.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream;
use http::{Method, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use kube::client::Body;
use parking_lot::RwLock;
use serde::Deserialize;
use tower::{BoxError, Service as _, service_fn};

use super::connect::{ResponseBody, Stack};
use super::writer::Writer;

/// Longest response that is collected for the observer; etcd refuses objects a fifth of this size.
const MAX_OBSERVED_BYTES: usize = 8 << 20;

/// A resource as a request path names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourcePath {
    /// Empty for the core group.
    pub group: String,
    /// Such as `v1`.
    pub version: String,
    /// Such as `deployments`.
    pub plural: String,
    /// `None` for cluster-scoped resources and for a look across namespaces.
    pub namespace: Option<String>,
    /// `None` for a collection, that is for creates and `deletecollection`.
    pub name: Option<String>,
    /// Such as `status`.
    pub subresource: Option<String>,
}

/// Why a write could not be told exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Uncovered {
    /// A `deletecollection`: which objects it took is not in the answer.
    Collection,
    /// A subresource other than `status`: the answer is not the object.
    Subresource,
    /// The caller asked for another representation, such as metadata only.
    Representation,
    /// The answer was longer than an object can be.
    TooLarge,
    /// The answer was not read to its end: the connection broke, or the caller gave up waiting.
    Unread,
}

/// Learns of every successful write of this replica.
///
/// Called on the writer's own task, between the server's answer and the writer seeing it: be quick and never block.
pub trait WriteObserver: Send + Sync + 'static {
    /// An object was created or changed; `body` is the object as the server now has it. `path.subresource` is `None`
    /// or `status`, and `path.name` is `None` for a create.
    fn written(&self, path: &ResourcePath, body: &Bytes, writer: Writer);

    /// Returns the uids that reads show under a name. Asked before its DELETE is sent: one of them that is not what the
    /// DELETE then removes was gone already, which nothing in the answer tells.
    fn shown(&self, path: &ResourcePath) -> Vec<String>;

    /// An object was deleted or began to be; `body` is the object, or a `Status` that names its uid. `shown` is what was
    /// said before.
    fn deleted(&self, path: &ResourcePath, body: &Bytes, shown: &[String], writer: Writer);

    /// Something was written that the answer does not describe.
    fn uncovered(&self, path: &ResourcePath, why: Uncovered);
}

/// The observer of one [`Connections`](super::Connections), shared with the clients already handed out.
pub(super) type ObserverSlot = Arc<RwLock<Option<Arc<dyn WriteObserver>>>>;

/// What a request is about to do, as far as it can be known before the answer.
#[derive(Debug, PartialEq, Eq)]
enum Intent {
    Write,
    Delete,
    Unclear(Uncovered),
}

/// A write that the server has made and whose answer is being read. Reports when it is dropped why the answer was not
/// read to its end.
struct Reading<'a> {
    observer: &'a dyn WriteObserver,
    path: &'a ResourcePath,
    uncovered: Option<Uncovered>,
}

// === impl ResourcePath ===

impl ResourcePath {
    /// Reads a path such as `/apis/apps/v1/namespaces/shop/deployments/web/status`; `None` if it names no resource.
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
            // The namespace itself: `status` and `finalize` are the two subresources it has.
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

    fn intent(&self, method: &Method, headers: &http::HeaderMap) -> Option<Intent> {
        let deleting = match *method {
            Method::DELETE => true,
            Method::POST | Method::PUT | Method::PATCH => false,
            _ => return None,
        };
        Some(match self.subresource.as_deref() {
            Some("status") if !deleting => Intent::Write,
            Some(_) => Intent::Unclear(Uncovered::Subresource),
            None if deleting && self.name.is_none() => Intent::Unclear(Uncovered::Collection),
            None if asks_for_other_form(headers) => Intent::Unclear(Uncovered::Representation),
            None if deleting => Intent::Delete,
            None => Intent::Write,
        })
    }
}

// === impl Uncovered ===

impl Uncovered {
    /// Returns the lower-case word used in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Collection => "collection",
            Self::Subresource => "subresource",
            Self::Representation => "representation",
            Self::TooLarge => "too-large",
            Self::Unread => "unread",
        }
    }
}

/// Reports the successful writes of a stack.
pub(super) fn observed(inner: Stack, slot: ObserverSlot) -> Stack {
    Stack::new(service_fn(move |request: Request<Body>| {
        let intent = slot.read().clone().and_then(|observer| {
            let path = ResourcePath::parse(request.uri().path())?;
            let intent = path.intent(request.method(), request.headers())?;
            Some((observer, path, intent))
        });
        let mut inner = inner.clone();
        async move {
            let Some((observer, path, intent)) = intent else { return inner.call(request).await };
            let writer = Writer::of(&request);
            let shown = if intent == Intent::Delete { observer.shown(&path) } else { Vec::new() };
            let (request, dry) = detect_dry_run(request).await?;
            let (request, writer) = detect_version(request, writer).await?;
            let response = inner.call(request).await?;
            if dry || !response.status().is_success() {
                return Ok(response);
            }
            match intent {
                Intent::Write => {
                    report(response, |body| observer.written(&path, body, writer), &*observer, &path).await
                }
                Intent::Delete => {
                    let told = |body: &Bytes| observer.deleted(&path, body, &shown, writer);
                    report(response, told, &*observer, &path).await
                }
                Intent::Unclear(why) => {
                    observer.uncovered(&path, why);
                    Ok(response)
                }
            }
        }
    }))
}

/// Tells `seen` the whole body and gives the response back with it.
async fn report(
    response: Response<ResponseBody>,
    seen: impl FnOnce(&Bytes),
    observer: &dyn WriteObserver,
    path: &ResourcePath,
) -> Result<Response<ResponseBody>, BoxError> {
    let (head, mut body) = response.into_parts();
    let mut reading = Reading { observer, path, uncovered: Some(Uncovered::Unread) };
    let mut start = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Trailers are dropped: HTTP/1 answers of an API server have none.
        if let Ok(data) = frame?.into_data() {
            start.extend_from_slice(&data);
        }
        if start.len() > MAX_OBSERVED_BYTES {
            reading.uncovered = Some(Uncovered::TooLarge);
            let begun = stream::iter([Ok(Frame::data(start.freeze()))]);
            let whole = StreamBody::new(begun.chain(BodyStream::new(body)));
            return Ok(Response::from_parts(head, whole.boxed_unsync()));
        }
    }
    reading.uncovered = None;
    let whole = start.freeze();
    seen(&whole);
    Ok(Response::from_parts(head, Full::new(whole).map_err(|never| match never {}).boxed_unsync()))
}

// === impl Reading ===

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(why) = self.uncovered {
            self.observer.uncovered(self.path, why);
        }
    }
}

/// Says whether a request is a dry run. A delete says so in its body, where kube puts its options.
async fn detect_dry_run(request: Request<Body>) -> Result<(Request<Body>, bool), BoxError> {
    let in_query = request.uri().query().is_some_and(|query| {
        query.split('&').any(|pair| pair.strip_prefix("dryRun=").is_some_and(|value| !value.is_empty()))
    });
    if in_query || request.method() != Method::DELETE {
        return Ok((request, in_query));
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let dry_run = serde_json::from_slice::<DeleteOptions>(&body).ok().and_then(|options| options.dry_run);
    let dry = dry_run.is_some_and(|stages| !stages.is_empty());
    Ok((Request::from_parts(head, Body::from(body)), dry))
}

/// The part of a request body that may name the version it is for. A JSON patch has a test operation instead, and counts
/// as a write without a version.
#[derive(Deserialize)]
struct ForVersion {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

/// Adds to the writer the version that a run's write is for, if the body names one.
async fn detect_version(request: Request<Body>, writer: Writer) -> Result<(Request<Body>, Writer), BoxError> {
    if !writer.is_run() || !matches!(*request.method(), Method::PUT | Method::PATCH) {
        return Ok((request, writer));
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let version = serde_json::from_slice::<ForVersion>(&body).ok();
    let version = version.and_then(|body| body.metadata.resource_version.parse().ok());
    Ok((Request::from_parts(head, Body::from(body)), writer.on(version)))
}

/// `Accept: application/json;as=PartialObjectMetadata;...` gives an answer that is not the object.
fn asks_for_other_form(headers: &http::HeaderMap) -> bool {
    headers.get_all(header::ACCEPT).iter().any(|accept| {
        accept.to_str().is_ok_and(|accept| accept.contains("as=") || accept.contains("protobuf"))
    })
}

#[cfg(test)]
mod tests;
