//! What is queued, cached and led, as JSON under `/debug`.
//!
//! For people and their scripts: `mainstay inspect`, or `curl 127.0.0.1:8082/debug/controllers | jq`, in a cluster through
//! `kubectl port-forward`. The numbers are read where they live at the moment of the request.
//!
//! | path | answer |
//! |---|---|
//! | `/debug/controllers` | every running controller with the counts of its queue |
//! | `/debug/controllers/NAME/queue` | its keys, those in trouble first |
//! | `/debug/caches` | every store of the cache, those of other clusters last |
//! | `/debug/watches` | every list and watch of those stores, what does not work first |
//! | `/debug/config` | the configuration in force, where each value came from, what was refused |
//! | `/debug/leader` | who leads, and what has happened to the Lease |
//!
//! A program may have [pages of its own](OwnPages) under names of its own.
//!
//! An action is a POST with `Content-Type: application/json`. It concerns this replica alone, in memory, and is logged as
//! a warning.
//!
//! | path | body | what it does |
//! |---|---|---|
//! | `/debug/controllers/NAME/reconcile` | `{"namespace": "shop", "name": "web"}` | runs one object now, whatever its backoff |
//! | `/debug/log` | `{"level": "info,mainstay::queue=debug"}` | changes what is logged |
//!
//! The answer to the first is `{"matched": 1}`, the number of keys that were enqueued.
//!
//! The keys of a queue are chosen by `?state=` (several times for several), `?namespace=` (empty: keys without one) and
//! `?name=`, which all have to fit, and at most `?limit=` of them are listed, 1000 unless said. The states are
//! `backoff` (failed, waits for its next attempt), `requeued` (waits for a moment that was asked for), `parked`,
//! `running`, `dirty` and `ready`; `delayed` asks for the first two at once.
//!
//! `?sort=` orders them: by `attempts`, by their `next` run, by how long they have been in their state (`since`), by `name`,
//! or by `trouble` unless said: first keys in backoff, then parked ones, those with a worker, ready ones, and last
//! those that merely wait for a moment. Among keys that wait the soonest is first, among others the one that has been
//! in its state for longest; equals are in the order of their texts. With `?sort=name`, `?after=` goes on behind the
//! key that the page before gave as `next`, and `matched` counts from there.
//!
//! The answers of a replica that does not lead have a header `Mainstay-Standby`, which names the one that does. With
//! [`Peers`] it has that one answer what is about the leader's work; a request with the header `Mainstay-Own` is
//! answered by the replica that gets it.
//!
//! Times are seconds with a fraction, counted from the moment of the answer; what is not known is `null`. Refusals are
//! JSON too: `{"error": "..."}`. Only where no answer came about, in time (503) or at all (500), a line of text says so.
//!
//! # Invariants
//! 1. Nothing is said to who neither was [`Authorized`] by token nor names a loopback host, so that a web page whose name is made to resolve to this
//!    machine reads nothing.
//! 2. The control thread does not wait for an answer to be put together: a queue may hold a million keys, and the
//!    texts of keys are users' code. One answer about a queue is in memory at a time, from its first key until its
//!    reader has taken it all, and one other is put together at a time: that bounds what they cost, and who reads a
//!    queue slowly keeps nobody from acting.

mod actions;
mod caches;
pub(crate) mod configuration;
mod controllers;
mod host;
mod keys;
mod leader;
mod own;
pub(crate) mod pages;
mod peers;
mod query;
mod standby;
mod watches;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{self, IntoResponse as _};
use axum::routing::{MethodRouter, any};
use axum::{Router, extract};
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use serde::Serialize;
use tokio::sync::watch;

use self::query::Query;
use crate::cache::Cache;
use crate::config::{Loaded, Setting, ReloadStatus};
use crate::controller::{ControllerView, Directory};
use crate::serve::Turns;

pub use actions::SetLogLevel;
pub use host::Authorized;
pub use leader::{Election, LeaseHistory, Leader};
pub use own::{OwnPage, OwnPages, PageError};
#[cfg(feature = "program")]
pub(crate) use peers::OWN;
pub use peers::{Address, Peers};
pub use query::{sorts, states};
pub(crate) use standby::STANDBY;

/// What can be looked at, and changed.
pub struct Inspect {
    controllers: Directory,
    cache: Cache,
    leader: Leader,
    /// How the configuration stands; `None` where it is not known.
    pub(crate) configuration: Option<Configuration>,
    /// Changes what is logged; `None` where the logs are not the manager's to change.
    pub(crate) set_log_level: Option<Box<SetLogLevel>>,
    /// Pages of the program's own.
    pub(crate) own: OwnPages,
}

/// How the configuration stands.
pub(crate) struct Configuration {
    /// What is in force, and what was refused.
    pub(crate) status: watch::Receiver<ReloadStatus>,
    /// Returns every key of every controller there is, with what its code sets: see [`Loaded::controller`].
    pub(crate) controllers: Box<OfControllers>,
}

type OfControllers = dyn Fn(&Loaded) -> Vec<Setting> + Send + Sync;

/// Makes the answer to one request; may take long where a queue is large.
type Answer = fn(&Inspect, &Request<Bytes>) -> Result<Response<Bytes>, Refusal>;

/// A request that is not answered with a page, and the text for its sender.
struct Refusal(StatusCode, String);

#[derive(Serialize)]
struct Error<'a> {
    error: &'a str,
}

// === impl Inspect ===

impl Inspect {
    /// Looks at these, and at the caches beside this one.
    pub fn new(controllers: Directory, cache: Cache, leader: Leader) -> Self {
        Self {
            controllers,
            cache,
            leader,
            configuration: None,
            set_log_level: None,
            own: OwnPages::default(),
        }
    }

    /// Returns the pages, made away from the runtime's own threads: one queue and one other page at a time.
    pub fn router(self) -> Router {
        let (queues, others) = (Turns::until_read(1), Turns::new(1));
        self.pages().layer(from_fn(move |request: extract::Request, next| {
            let turns = if request.uri().path().ends_with("/queue") { &queues } else { &others };
            turns.clone().run(request, next)
        }))
    }

    /// Returns the pages, made by handlers that block where a queue is large.
    fn pages(self) -> Router {
        let mark = from_fn_with_state(self.leader.clone(), standby::mark);
        let inspect = Arc::new(self);
        let get = |answer: Answer| {
            page(&inspect, Method::GET, move |inspect, request| {
                query::none(request.uri().query())?;
                answer(inspect, request)
            })
        };
        let post = |answer: Answer| {
            page(&inspect, Method::POST, move |inspect, request| {
                actions::admit(request)?;
                query::none(request.uri().query())?;
                answer(inspect, request)
            })
        };
        Router::new()
            .route("/debug/controllers", get(|inspect, _| json(&controllers::page(&inspect.controllers))))
            .route("/debug/controllers/{name}/queue", page(&inspect, Method::GET, Self::queue))
            .route("/debug/controllers/{name}/reconcile", post(Self::reconcile))
            .route("/debug/caches", get(|inspect, _| json(&caches::page(inspect.cache.kinds_of_all_clusters()))))
            .route(
                "/debug/watches",
                get(|inspect, _| json(&watches::page(&inspect.cache.kinds_of_all_clusters()))),
            )
            .route("/debug/config", get(Self::config))
            .route("/debug/leader", get(|inspect, _| json(&inspect.leader.page())))
            .route("/debug/log", post(Self::set_log_level))
            .fallback_service(page(&inspect, Method::GET, Self::own_page))
            .layer(mark)
            .layer(from_fn(for_this_host))
    }

    fn queue(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, Refusal> {
        let query = Query::parse(request.uri().query())?;
        json(&keys::page(&*self.controller(request)?, &query))
    }

    fn reconcile(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, Refusal> {
        json(&actions::reconcile(&*self.controller(request)?, request.body())?)
    }

    fn config(&self, _: &Request<Bytes>) -> Result<Response<Bytes>, Refusal> {
        let unknown = || Refusal(StatusCode::NOT_FOUND, "no configuration is known here".to_owned());
        let Configuration { status, controllers } = self.configuration.as_ref().ok_or_else(unknown)?;
        let status = status.borrow().clone();
        let controllers = controllers(&status.accepted);
        json(&configuration::page(&status, controllers))
    }

    fn set_log_level(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, Refusal> {
        json(&actions::set_log_level(self.set_log_level.as_deref(), request.body())?)
    }

    fn own_page(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, Refusal> {
        let path: Vec<_> = segments(request).collect();
        let (answer, rest) = match path[..] {
            ["debug", name, ref rest @ ..] => (self.own.find(name), rest),
            _ => (None, &[][..]),
        };
        let answer = answer.ok_or_else(|| Refusal::no_path(&self.own))?;
        query::none(request.uri().query())?;
        json(&answer(rest)?)
    }

    /// Returns the controller that the path names.
    fn controller(&self, request: &Request<Bytes>) -> Result<Arc<dyn ControllerView>, Refusal> {
        let (controllers, name) = (&self.controllers, segments(request).nth(2).unwrap_or_default());
        controllers.find(name).ok_or_else(|| Refusal::no_controller(name, controllers))
    }
}

impl fmt::Debug for Inspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspect").field("controllers", &self.controllers).finish_non_exhaustive()
    }
}

// === impl Refusal ===

impl Refusal {
    fn no_path(own: &OwnPages) -> Self {
        let own: Vec<_> = own.names().iter().map(|name| format!("/debug/{name}, ")).collect();
        let own = own.concat();
        let text = format!(
            "no such path; there are {own}/debug/controllers, /debug/controllers/NAME/queue, /debug/caches, \
             /debug/watches, /debug/config and /debug/leader, and by POST /debug/controllers/NAME/reconcile and \
             /debug/log"
        );
        Self(StatusCode::NOT_FOUND, text)
    }

    fn no_controller(name: &str, controllers: &Directory) -> Self {
        let running: Vec<_> = controllers.names().collect();
        let running = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
        Self(StatusCode::NOT_FOUND, format!("controller {name:?} does not run here; there are {running}"))
    }
}

impl From<PageError> for Refusal {
    fn from(error: PageError) -> Self {
        match error {
            PageError::NotFound(text) => Self(StatusCode::NOT_FOUND, text),
            PageError::BadRequest(text) => Self(StatusCode::BAD_REQUEST, text),
            PageError::Unavailable(text) => Self(StatusCode::SERVICE_UNAVAILABLE, text),
        }
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self(StatusCode::BAD_REQUEST, text)
    }
}

impl From<Refusal> for Response<Bytes> {
    fn from(Refusal(status, text): Refusal) -> Self {
        // A text can always be written as JSON; if it could not, the status would still say enough.
        let mut response = json(&Error { error: &text }).unwrap_or_default();
        *response.status_mut() = status;
        response
    }
}

/// Returns the answer to a request that is refused, with this text.
pub(crate) fn refusal(status: StatusCode, text: &str) -> response::Response {
    Response::from(Refusal(status, text.to_owned())).map(Body::from)
}

/// Answers one method of a path.
fn page<A>(inspect: &Arc<Inspect>, method: Method, answer: A) -> MethodRouter
where
    A: Fn(&Inspect, &Request<Bytes>) -> Result<Response<Bytes>, Refusal> + Clone + Send + Sync + 'static,
{
    let inspect = Arc::clone(inspect);
    any(async move |head: Parts, body: Bytes| {
        if head.method != method {
            let text = format!("{} is not answered here; use {method}", head.method);
            let refusal = refusal(StatusCode::METHOD_NOT_ALLOWED, &text);
            return ([(ALLOW, method.to_string())], refusal).into_response();
        }
        let request = Request::from_parts(head, body);
        answer(&inspect, &request).unwrap_or_else(Response::from).map(Body::from)
    })
}

/// Refuses requests that were not meant for this machine.
async fn for_this_host(request: extract::Request, next: Next) -> response::Response {
    if request.extensions().get::<Authorized>().is_none() && !host::is_loopback(&request) {
        let text = "the Host header does not name this machine; connect to localhost or a loopback address";
        return refusal(StatusCode::FORBIDDEN, text);
    }
    next.run(request).await
}

/// Returns the segments of the path as they are written, `debug` first.
fn segments(request: &Request<Bytes>) -> impl Iterator<Item = &str> {
    request.uri().path().split('/').filter(|segment| !segment.is_empty())
}

/// Writes an answer, with a line feed for terminals.
fn json(page: &impl Serialize) -> Result<Response<Bytes>, Refusal> {
    let mut body = serde_json::to_vec(page)
        .map_err(|error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    body.push(b'\n');
    let mut response = Response::new(Bytes::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Seconds to the microsecond: what lies below is noise to a reader.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests;
