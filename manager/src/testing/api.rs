//! An API server in memory, for unit tests of reconcilers.
//!
//! It records every write and answers with the object as a server would store it: the object of a
//! [served](super::TestContext::with_store) store, changed by the request. It checks uids and
//! resourceVersions, keeps objects with finalizers while they are deleted, and makes no new version if a
//! write changes no field. Every kind has the subresource `status`, and only a write to this subresource
//! changes the status.
//!
//! Limits: it neither validates nor sets defaults, never changes `generation`, replaces lists as a whole,
//! keeps a field that an apply no longer has, and reads only single objects of served kinds. It refuses every
//! other request with 501 and the reason; a test that needs more scripts the answer, or belongs on a real
//! control plane.

mod effect;
mod request;
mod write;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::effect::{changed, check, has_finalizers, is_empty, keep, of_kind};
use self::request::{ApiRequest, Refusal, failure, not_found, unsupported};
use crate::cache::{Select, UntypedStore};

pub use self::write::{Verb, Write};

/// The in-memory API server of one unit test. Cheap to clone; all clones are one server.
#[derive(Clone, derive_more::Debug)]
#[debug("TestApi {{ writes: {:?}, .. }}", self.0.lock().writes)]
pub struct TestApi(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    stores: Vec<Arc<UntypedStore>>,
    /// Scripted answers to the next requests: HTTP status and body.
    script: VecDeque<(u16, Value)>,
    writes: Vec<Write>,
    /// The highest resourceVersion that was assigned, or seen in a store.
    version: u64,
}

// === impl TestApi ===

impl TestApi {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn serve(&self, store: &Arc<UntypedStore>) {
        let mut inner = self.0.lock();
        // A store that was just made is readable.
        let views = store.list(&Select::all()).unwrap_or_default();
        let versions = views.iter().filter_map(|view| view.meta().resource_version.to_string().parse().ok());
        inner.version = versions.fold(inner.version, u64::max);
        inner.stores.push(Arc::clone(store));
    }

    /// Returns a kube client that sends its requests to this test server.
    pub fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.respond(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Scripts a successful answer with this body to the next request, a read or a write, that has no script
    /// yet. The body is not stored.
    pub fn answer_next(&self, body: Value) {
        self.0.lock().script.push_back((200, body));
    }

    /// Scripts the answer to the next request as [`answer_next`](Self::answer_next) does, but with a refusal
    /// such as `(409, "Conflict", "the object has been modified")`.
    pub fn refuse_next(&self, code: u16, reason: &str, message: &str) {
        self.0.lock().script.push_back((code, failure(code, reason, message)));
    }

    pub(super) fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.0.lock().writes)
    }

    async fn respond(&self, request: Request<Body>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        // A body made by kube is in memory.
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let (code, answer) = self.0.lock().answer(ApiRequest::new(&head, &body));
        let mut response = Response::new(Full::from(answer.to_string()));
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
        response
    }
}

// === impl Inner ===

impl Inner {
    /// Returns HTTP status and body of the answer to a request. A scripted answer comes first, also if the
    /// request could not be parsed.
    fn answer(&mut self, request: Result<ApiRequest, Refusal>) -> (u16, Value) {
        let scripted = self.script.pop_front().map(Ok);
        let answer = scripted
            .unwrap_or_else(|| request.as_ref().map_err(Clone::clone).and_then(|request| self.act(request)));
        let (code, answer) =
            answer.unwrap_or_else(|Refusal(code, reason, message)| (code, failure(code, reason, &message)));
        if let Ok(ApiRequest { verb: Some(verb), path, body, dry_run }) = request {
            self.writes.push(Write { verb, path, body, dry_run, code });
        }
        (code, answer)
    }

    fn act(&mut self, request: &ApiRequest) -> Result<(u16, Value), Refusal> {
        let path = &request.path;
        let same = |store: &&Arc<UntypedStore>| {
            let kind = store.kind();
            (kind.group(), kind.version(), kind.plural()) == (&*path.group, &*path.version, &*path.plural)
        };
        let store = self.stores.iter().find(same).cloned();
        let old = store.as_ref().zip(request.name()).and_then(|(store, name)| {
            let view = store.get(&name).ok()??;
            let old = serde_json::from_slice::<Value>(&view.bytes().ok()?).ok()?;
            Some(of_kind(old, store.kind()))
        });
        let Some(verb) = request.verb else { return Ok((200, read(request, store.is_some(), old)?)) };
        let status_only = match path.subresource.as_deref() {
            None => false,
            Some("status") => true,
            Some(_) => return Err(unsupported(request, "a subresource other than status")),
        };
        if verb == Verb::Delete && path.name.is_none() {
            return Err(unsupported(request, "the deletion of a collection"));
        }
        check(request, old.as_ref(), store.is_some(), status_only)?;
        if verb == Verb::Delete && !old.as_ref().is_some_and(has_finalizers) {
            let mut answer =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {}});
            if let Some(old) = &old {
                answer["details"]["uid"] = old["metadata"]["uid"].clone();
            }
            enter(store.as_deref(), request, &answer);
            return Ok((200, answer));
        }
        let applied_anew = verb == Verb::Apply && store.is_some() && old.is_none();
        let code = if verb == Verb::Create || applied_anew { 201 } else { 200 };
        let mut new = changed(verb, request, old.as_ref(), status_only)?;
        if let Some(store) = &store {
            if verb != Verb::Delete {
                keep(&mut new, old.as_ref(), status_only);
            }
            new = of_kind(new, store.kind());
        }
        let new = self.stamped(new, request, old.as_ref());
        if old.as_ref() != Some(&new) {
            enter(store.as_deref(), request, &new);
        }
        Ok((code, new))
    }

    /// Sets name and uid of a written object as a server does and, if the object has changed, the next
    /// resourceVersion.
    fn stamped(&mut self, mut new: Value, request: &ApiRequest, old: Option<&Value>) -> Value {
        let next = self.version + 1;
        let metadata = &mut new["metadata"];
        if let Some(namespace) = &request.path.namespace {
            metadata["namespace"] = json!(namespace);
        }
        match (&request.path.name, metadata["generateName"].as_str()) {
            (Some(name), _) => metadata["name"] = json!(name),
            (None, Some(prefix)) if metadata["name"].is_null() => {
                metadata["name"] = json!(format!("{prefix}{next}"));
            }
            _ => {}
        }
        if let Some(fields) = metadata.as_object_mut() {
            // `finalizers: []` and the like count as absent.
            fields.retain(|_, value| !is_empty(value));
        }
        let given = |field: &str| old.map(|old| old["metadata"][field].clone());
        metadata["uid"] = given("uid").unwrap_or_else(|| json!(format!("uid-v{next}")));
        metadata["resourceVersion"] = given("resourceVersion").unwrap_or_default();
        // The answer to a write that removes the last finalizer has the version before.
        let gone = !metadata["deletionTimestamp"].is_null() && !has_finalizers(&new);
        if old.is_none() || !gone && old != Some(&new) {
            self.version = next;
            new["metadata"]["resourceVersion"] = json!(next.to_string());
        }
        new
    }
}

/// Puts the object in the answer to a write into the store, unless the write is a dry run.
fn enter(store: Option<&UntypedStore>, request: &ApiRequest, answer: &Value) {
    let Some(store) = store.filter(|_| !request.dry_run) else { return };
    let body = Bytes::from(answer.to_string());
    if request.verb == Some(Verb::Delete) {
        store.apply_delete(&request.path, &body);
    } else {
        store.apply_write(&request.path, &body);
    }
}

/// Returns the answer to a read of one object; fails for kinds that are not served and for lists.
fn read(request: &ApiRequest, served: bool, old: Option<Value>) -> Result<Value, Refusal> {
    match (served, request.name()) {
        (true, Some(_)) => old.ok_or_else(|| not_found(request)),
        (false, _) => Err(unsupported(request, "a read of a kind that no store given to the context holds")),
        (true, None) => Err(unsupported(request, "a list or watch")),
    }
}
