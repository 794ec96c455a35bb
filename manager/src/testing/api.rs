//! The API server of unit tests of reconcilers: it records writes, and answers by script or with the embedded
//! server of `mainstay-devcluster`.
//!
//! The embedded server validates, sets defaults and generations, knows all patches and server-side apply, and
//! serves lists and watches, as a real server does. It starts with the objects of the stores that the test
//! gives, which thereby count as stored. Four things are simpler than on a cluster:
//!
//! - A kind that is not built in is served as soon as the test gives a store of it, with the subresource
//!   `status` and without a schema; [`with_definition`](super::TestContext::with_definition) gives a schema.
//! - A namespace exists as soon as a store or a write names it.
//! - The stores show each write before its response, as own writes in a manager, and also the effects of
//!   other writes.
//! - No controllers run, so no garbage is collected, and a deleted namespace stays. Everything is allowed.
//!   It is always the first second of the year 2000.

mod write;

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use kube::client::Body;
use mainstay_devcluster::api::{self, Api, ApiOptions, Content, Status, Target, User, Watch, WatchEvent};
use mainstay_devcluster::server::{AnswerBody, ApiService};
use mainstay_devcluster::store::EventType;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::cache::{Select, UntypedStore};
use crate::client::ResourcePath;
use crate::key::{Key as _, KindId};

pub use self::write::{Verb, Write};

/// The time of the server in seconds since 1970: fixed, so that tests see the same timestamps in every run.
const NOW: i64 = 946_684_800;

/// The seed of the server: fixed, so that tests see the same uids in every run.
const SEED: u64 = 1;

/// A response, with a body that is complete or streamed.
type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The in-memory API server of one unit test. Cheap to clone; all clones are one server.
#[derive(Clone, derive_more::Debug)]
#[debug("TestApi {{ writes: {:?}, .. }}", self.0.state.lock().writes)]
pub struct TestApi(Arc<Inner>);

struct Inner {
    api: Api,
    service: ApiService,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stores: Vec<(Arc<UntypedStore>, Watch)>,
    /// The namespaces that were named so far. A deleted one is not made again.
    namespaces: HashSet<String>,
    /// Scripted answers to the next requests: HTTP status and body.
    script: VecDeque<(StatusCode, Value)>,
    writes: Vec<Write>,
}

// === impl TestApi ===

impl TestApi {
    pub(super) fn new() -> Self {
        let clock = Arc::new(|| Timestamp::from_second(NOW).unwrap_or_default());
        let api = at_once(Api::new(ApiOptions { seed: SEED, rbac: false, ..ApiOptions::new(clock) }));
        let service = ApiService::new(api.clone(), [], SEED).as_user(User::admin());
        Self(Arc::new(Inner { api, service, state: Mutex::default() }))
    }

    /// Serves a kind without a schema, unless it is served already.
    #[track_caller]
    pub(super) fn serve(&self, kind: &KindId) {
        if self.0.api.kind(kind.group(), kind.version(), kind.plural()).is_none() {
            self.define(definition(kind));
        }
    }

    /// Serves the kind of a `CustomResourceDefinition`.
    #[track_caller]
    pub(super) fn define(&self, definition: Value) {
        let definitions = Target::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        if let Err(status) = self.create(definitions, definition) {
            refuse("this definition", &status);
        }
    }

    /// Takes over the objects of a store, and shows it every later change.
    #[track_caller]
    pub(super) fn follow(&self, store: &Arc<UntypedStore>) {
        let kind = store.kind();
        self.serve(kind);
        let target = Target::new(kind.group(), kind.version(), kind.plural());
        // A store that was just made is readable.
        for view in store.list(&Select::all()).unwrap_or_default() {
            self.make_namespace(view.request().namespace());
            let object = view.bytes().ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            if let Err(status) = self.0.api.import(&target, object.unwrap_or_default()) {
                refuse(&format!("{kind} {}", view.request()), &status);
            }
        }
        let watch = api::Request::new(api::Verb::Watch, target)
            .with("resourceVersion", self.0.api.store().revision().to_string());
        match at_once(self.0.api.call(watch)).map(|response| response.content) {
            Ok(Content::Watch(watch)) => self.0.state.lock().stores.push((Arc::clone(store), watch)),
            Ok(_) => {}
            Err(status) => refuse(&format!("a watch of {kind}"), &status),
        }
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
        self.0.state.lock().script.push_back((StatusCode::OK, body));
    }

    /// Scripts the answer to the next request as [`answer_next`](Self::answer_next) does, but with a refusal
    /// such as `(409, "Conflict", "the object has been modified")`.
    pub fn refuse_next(&self, code: u16, reason: &str, message: &str) {
        let refusal = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "reason": reason, "message": message, "code": code,
        });
        self.0.state.lock().script.push_back((StatusCode::from_u16(code).unwrap_or_default(), refusal));
    }

    pub(super) fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.0.state.lock().writes)
    }

    /// Answers a request by script, or else by the embedded server.
    async fn respond(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        // A body made by kube is in memory.
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let path = ResourcePath::parse(head.uri.path());
        let write = path.clone().and_then(|path| Write::new(&head, path, &body));
        let scripted = self.0.state.lock().script.pop_front();
        let response = match (scripted, path) {
            (Some((code, answer)), _) => response(code, &answer),
            (None, Some(path)) if !self.serves(&path) => {
                let (resource, version) = (write::resource(&path), &path.version);
                let message = format!(
                    "the API server of this test does not serve {resource} in {version}: give the context a \
                     store or a definition of the kind, or declare it by with_writes"
                );
                response(StatusCode::NOT_FOUND, &Status::new(404, "NotFound", message).to_value())
            }
            (None, path) => {
                if let Some(namespace) = path.filter(|_| write.is_some()).and_then(|path| path.namespace) {
                    self.make_namespace(Some(&namespace));
                }
                let request = Request::from_parts(head, Body::from(body));
                let Ok(response) = self.0.service.clone().oneshot(request).await;
                response.map(AnswerBody::boxed_unsync)
            }
        };
        let state = &mut *self.0.state.lock();
        state.show_changes();
        state.writes.extend(write.map(|write| Write { code: response.status().as_u16(), ..write }));
        response
    }

    fn serves(&self, path: &ResourcePath) -> bool {
        self.0.api.kind(&path.group, &path.version, &path.plural).is_some()
    }

    /// Makes a namespace when it is first named.
    fn make_namespace(&self, namespace: Option<&str>) {
        if let Some(name) = namespace
            && self.0.state.lock().namespaces.insert(name.to_owned())
        {
            let target = Target::new("", "v1", "namespaces");
            // It may exist already, and if its name is invalid, the request is refused for that.
            drop(self.create(target, json!({"metadata": {"name": name}})));
        }
    }

    fn create(&self, target: Target, object: Value) -> Result<api::Response, Status> {
        at_once(self.0.api.call(api::Request::new(api::Verb::Create, target).with_body(object)))
    }
}

// === impl State ===

impl State {
    /// Enters the changes of all objects into the stores.
    fn show_changes(&mut self) {
        for (store, watch) in &mut self.stores {
            for event in watch.ready() {
                if let WatchEvent::Object(change, object) = event {
                    store.receive(change == EventType::Deleted, &object.json());
                }
            }
        }
    }
}

#[track_caller]
fn refuse(what: &str, status: &Status) -> ! {
    panic!("the API server of the test refuses {what}: {status}");
}

/// Returns the result of a call of the embedded server, which waits only for streams and injected faults.
fn at_once<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().unwrap_or_else(|| panic!("the API server of the test waits"))
}

fn response(code: StatusCode, body: &Value) -> Answer {
    let mut response = Response::new(Full::from(body.to_string()).boxed_unsync());
    *response.status_mut() = code;
    response
}

/// Returns a definition of a kind that accepts every field.
fn definition(kind: &KindId) -> Value {
    json!({
        "metadata": {
            "name": format!("{}.{}", kind.plural(), kind.group()),
            // Required in groups such as `snapshot.storage.k8s.io`.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a unit test"},
        },
        "spec": {
            "group": kind.group(),
            "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
            "names": {"plural": kind.plural(), "kind": kind.kind()},
            "versions": [{
                "name": kind.version(),
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}
