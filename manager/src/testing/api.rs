//! An API server in memory, for unit tests of reconcilers.
//!
//! It records every write and answers with the object that would be stored: the one of the
//! [served](super::TestContext::with_store) stores, changed by the request. It checks uids and resourceVersions, keeps
//! objects with finalizers while they are deleted, and makes no new version if a write changes nothing. Every kind has
//! the subresource `status`, and only a write to that changes the status. Limits: it validates and defaults nothing, keeps
//! `generation`, replaces lists whole, keeps a field that an apply no longer has, and reads single objects of served kinds
//! only. It refuses every other request with 501 and the reason; a test that needs more scripts the answer, or belongs on
//! a real control plane.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cache::{Select, UntypedStore};
use crate::client::ResourcePath;
use crate::key::{KindId, NamespacedName};

/// Fields of the metadata that only the server writes: a request never changes them.
const SERVERS_OWN: [&str; 5] =
    ["creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields"];
/// The time of every write.
const ONCE: &str = "2000-01-01T00:00:00Z";

/// The API server of one test. Cheap to clone; all clones are one server.
#[derive(Clone, derive_more::Debug)]
#[debug("TestApi {{ writes: {:?}, .. }}", self.0.lock().writes)]
pub struct TestApi(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    stores: Vec<Arc<UntypedStore>>,
    /// Scripted answers to the next requests.
    script: VecDeque<(u16, Value)>,
    writes: Vec<Write>,
    /// The last resourceVersion that was assigned, or seen in a store.
    version: u64,
}

/// A request that writes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Write {
    /// The kind of write.
    pub verb: Verb,
    /// The resource.
    pub path: ResourcePath,
    /// The body; `Null` if there was none.
    pub body: Value,
    /// Whether it is a dry run.
    pub dry_run: bool,
    /// The HTTP status of the answer.
    pub code: u16,
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verb {
    /// POST.
    Create,
    /// PUT.
    Replace,
    /// Server-side apply.
    Apply,
    /// A JSON merge patch.
    Merge,
    /// Any other patch.
    Patch,
    /// DELETE.
    Delete,
}

/// A refusal: its HTTP status, reason and message.
#[derive(Clone)]
struct Refusal(u16, &'static str, String);

/// A parsed request.
struct Asked {
    /// `None` for a read.
    verb: Option<Verb>,
    path: ResourcePath,
    body: Value,
    dry_run: bool,
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

    /// Returns a client of this server.
    pub fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.respond(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Answers the next request that no earlier script answers, a read or a write, with this, and stores nothing.
    pub fn answer_next(&self, body: Value) {
        self.0.lock().script.push_back((200, body));
    }

    /// As [`answer_next`](Self::answer_next), with a refusal such as `(409, "Conflict", "the object has been modified")`.
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
        let (code, answer) = self.0.lock().answer(Asked::new(&head, &body));
        let mut response = Response::new(Full::from(answer.to_string()));
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
        response
    }
}

// === impl Asked ===

impl Asked {
    fn new(head: &http::request::Parts, body: &Bytes) -> Result<Self, Refusal> {
        let cannot = |why: &str| {
            let message = format!("{} {}: {why}; script the answer", head.method, head.uri);
            Refusal(501, "NotImplemented", message)
        };
        let path = ResourcePath::parse(head.uri.path()).ok_or_else(|| cannot("names no resource"))?;
        let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let verb = match (&head.method, content_type.unwrap_or_default()) {
            (&Method::GET, _) => None,
            (&Method::POST, _) => Some(Verb::Create),
            (&Method::PUT, _) => Some(Verb::Replace),
            (&Method::DELETE, _) => Some(Verb::Delete),
            (&Method::PATCH, "application/apply-patch+yaml") => Some(Verb::Apply),
            (&Method::PATCH, "application/merge-patch+json") => Some(Verb::Merge),
            (&Method::PATCH, _) => Some(Verb::Patch),
            _ => return Err(cannot("is no method of the API")),
        };
        let body = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(body) };
        let body = body.map_err(|error| cannot(&format!("has a body that is not JSON ({error})")))?;
        let in_query = head.uri.query().is_some_and(|query| query.contains("dryRun=All"));
        let dry_run = in_query || body["dryRun"] == json!(["All"]);
        Ok(Self { verb, path, body, dry_run })
    }

    /// Returns the name of the object; `None` for a create with a generated name.
    fn name(&self) -> Option<NamespacedName> {
        let created = || self.body["metadata"]["name"].as_str().filter(|_| self.verb == Some(Verb::Create));
        let name = self.path.name.as_deref().or_else(created)?;
        Some(NamespacedName::new(self.path.namespace.as_deref(), name))
    }
}

// === impl Inner ===

impl Inner {
    /// Answers a request, or one that could not be parsed: a script may answer that too.
    fn answer(&mut self, asked: Result<Asked, Refusal>) -> (u16, Value) {
        let scripted = self.script.pop_front().map(Ok);
        let answer = scripted
            .unwrap_or_else(|| asked.as_ref().map_err(Clone::clone).and_then(|asked| self.act(asked)));
        let (code, answer) =
            answer.unwrap_or_else(|Refusal(code, reason, message)| (code, failure(code, reason, &message)));
        if let Ok(Asked { verb: Some(verb), path, body, dry_run }) = asked {
            self.writes.push(Write { verb, path, body, dry_run, code });
        }
        (code, answer)
    }

    fn act(&mut self, asked: &Asked) -> Result<(u16, Value), Refusal> {
        let path = &asked.path;
        let same = |store: &&Arc<UntypedStore>| {
            let kind = store.kind();
            (kind.group(), kind.version(), kind.plural()) == (&*path.group, &*path.version, &*path.plural)
        };
        let store = self.stores.iter().find(same).cloned();
        let old = store.as_ref().zip(asked.name()).and_then(|(store, name)| {
            let view = store.get(&name).ok()??;
            let old = serde_json::from_slice::<Value>(&view.bytes().ok()?).ok()?;
            Some(of_kind(old, store.kind()))
        });
        let Some(verb) = asked.verb else { return Ok((200, read(asked, store.is_some(), old)?)) };
        let status_only = match path.subresource.as_deref() {
            None => false,
            Some("status") => true,
            Some(_) => return Err(unable(asked, "a subresource other than status")),
        };
        if verb == Verb::Delete && path.name.is_none() {
            return Err(unable(asked, "the deletion of a collection"));
        }
        check(asked, old.as_ref(), store.is_some(), status_only)?;
        if verb == Verb::Delete && !old.as_ref().is_some_and(has_finalizers) {
            let mut answer =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {}});
            if let Some(old) = &old {
                answer["details"]["uid"] = old["metadata"]["uid"].clone();
            }
            enter(store.as_deref(), asked, &answer);
            return Ok((200, answer));
        }
        let applied_anew = verb == Verb::Apply && store.is_some() && old.is_none();
        let code = if verb == Verb::Create || applied_anew { 201 } else { 200 };
        let mut new = changed(verb, asked, old.as_ref(), status_only)?;
        if let Some(store) = &store {
            if verb != Verb::Delete {
                keep(&mut new, old.as_ref(), status_only);
            }
            new = of_kind(new, store.kind());
        }
        let new = self.stamped(new, asked, old.as_ref());
        if old.as_ref() != Some(&new) {
            enter(store.as_deref(), asked, &new);
        }
        Ok((code, new))
    }

    /// Sets name and uid as a server does and, if the object has changed, the next version.
    fn stamped(&mut self, mut new: Value, asked: &Asked, old: Option<&Value>) -> Value {
        let next = self.version + 1;
        let metadata = &mut new["metadata"];
        if let Some(namespace) = &asked.path.namespace {
            metadata["namespace"] = json!(namespace);
        }
        match (&asked.path.name, metadata["generateName"].as_str()) {
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

/// Puts the answer of a write into the store.
fn enter(store: Option<&UntypedStore>, asked: &Asked, answer: &Value) {
    let Some(store) = store.filter(|_| !asked.dry_run) else { return };
    let body = Bytes::from(answer.to_string());
    if asked.verb == Some(Verb::Delete) {
        store.apply_delete(&asked.path, &body);
    } else {
        store.apply_write(&asked.path, &body);
    }
}

/// Answers the read of one object of a served kind.
fn read(asked: &Asked, served: bool, old: Option<Value>) -> Result<Value, Refusal> {
    match (served, asked.name()) {
        (true, Some(_)) => old.ok_or_else(|| not_found(asked)),
        (false, _) => Err(unable(asked, "a read of a kind that no store given to the context holds")),
        (true, None) => Err(unable(asked, "a list or watch")),
    }
}

/// Refuses a write that a server would refuse because of the stored object.
fn check(asked: &Asked, old: Option<&Value>, served: bool, status_only: bool) -> Result<(), Refusal> {
    let conflict = |reason, message: &str| Err(Refusal(409, reason, message.to_owned()));
    let guards = if asked.verb == Some(Verb::Delete) { "/preconditions" } else { "/metadata" };
    let guard =
        |field: &str| asked.body.pointer(&format!("{guards}/{field}")).filter(|value| !value.is_null());
    match (asked.verb, old) {
        (Some(Verb::Create), Some(_)) => return conflict("AlreadyExists", "an object of this name exists"),
        (Some(Verb::Create), None) => {}
        (_, Some(old)) => {
            for field in ["uid", "resourceVersion"] {
                if guard(field).is_some_and(|guard| *guard != old["metadata"][field]) {
                    return conflict(
                        "Conflict",
                        &format!("the object's {field} is {}", old["metadata"][field]),
                    );
                }
            }
        }
        (Some(Verb::Apply), None) if served && !status_only && guard("uid").is_some() => {
            return conflict("Conflict", "uid mismatch: no existing object was found");
        }
        (Some(Verb::Apply), None) if served && !status_only => {}
        (_, None) if served => return Err(not_found(asked)),
        (_, None) => {}
    }
    Ok(())
}

/// Returns the object as changed by the request.
fn changed(verb: Verb, asked: &Asked, old: Option<&Value>, status_only: bool) -> Result<Value, Refusal> {
    let mut new = old.cloned().unwrap_or_else(|| json!({}));
    match verb {
        Verb::Patch => return Err(unable(asked, "a patch that is neither an apply nor a merge")),
        Verb::Delete => {
            let metadata = &mut new["metadata"];
            if metadata["deletionTimestamp"].is_null() {
                metadata["deletionTimestamp"] = json!(ONCE);
                metadata["deletionGracePeriodSeconds"] = json!(0);
            }
        }
        Verb::Create | Verb::Replace if !status_only => new = asked.body.clone(),
        Verb::Create | Verb::Replace => set(&mut new, "status", asked.body.get("status")),
        Verb::Apply | Verb::Merge if !status_only => merge(&mut new, &asked.body),
        Verb::Apply | Verb::Merge => {
            let only = asked.body.get("status").map_or_else(|| json!({}), |status| json!({"status": status}));
            merge(&mut new, &only);
        }
    }
    Ok(new)
}

/// Restores the fields that a write cannot change, and removes them from a new object.
fn keep(new: &mut Value, old: Option<&Value>, status_only: bool) {
    if !status_only {
        set(new, "status", old.and_then(|old| old.get("status")));
    }
    let metadata = &mut new["metadata"];
    for field in SERVERS_OWN {
        set(metadata, field, old.and_then(|old| old["metadata"].get(field)));
    }
    if old.is_none() {
        metadata["creationTimestamp"] = json!(ONCE);
    }
}

fn set(object: &mut Value, field: &str, value: Option<&Value>) {
    match (value, object.as_object_mut()) {
        (Some(value), _) => object[field] = value.clone(),
        (None, Some(fields)) => drop(fields.remove(field)),
        (None, None) => {}
    }
}

fn of_kind(mut object: Value, kind: &KindId) -> Value {
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind());
    object
}

/// RFC 7386: mappings are merged, `null` removes, all else replaces.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(target) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

fn not_found(asked: &Asked) -> Refusal {
    let name = asked.path.name.as_deref().unwrap_or_default();
    Refusal(404, "NotFound", format!("{} {name:?} not found", resource(&asked.path)))
}

fn unable(asked: &Asked, what: &str) -> Refusal {
    let message = format!(
        "the API server of a unit test cannot answer {what} ({}); script the answer with TestApi::answer_next, or test \
         it on a real one",
        resource(&asked.path)
    );
    Refusal(501, "NotImplemented", message)
}

fn resource(path: &ResourcePath) -> String {
    if path.group.is_empty() { path.plural.clone() } else { format!("{}.{}", path.plural, path.group) }
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "reason": reason, "message": message, "code": code,
    })
}

// === impl Write ===

impl Write {
    /// Returns the namespace and name of the object; for a create, those of its body.
    pub fn request(&self) -> NamespacedName {
        let in_body = self.body["metadata"]["name"].as_str();
        let name = self.path.name.as_deref().or(in_body).unwrap_or_default();
        NamespacedName::new(self.path.namespace.as_deref(), name)
    }
}

/// Displays as `apply deployments.apps shop/web`, with `/status` after the resource, and ` (dry run)` and the code of a
/// refusal at the end.
impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb.as_str(), resource(&self.path))?;
        if let Some(subresource) = &self.path.subresource {
            write!(f, "/{subresource}")?;
        }
        write!(f, " {}", self.request())?;
        if self.dry_run {
            f.write_str(" (dry run)")?;
        }
        if self.code < 300 { Ok(()) } else { write!(f, " ({})", self.code) }
    }
}

impl Verb {
    /// Returns the lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Apply => "apply",
            Self::Merge => "merge",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}
