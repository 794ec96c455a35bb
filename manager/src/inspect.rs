//! Queues, caches, watches, configuration and leadership as JSON under `/debug`.
//!
//! For people and scripts: `mainstay inspect`, or `curl 127.0.0.1:8082/debug/controllers | jq`, in a cluster
//! through `kubectl port-forward`. Each answer has the values at the moment of the request.
//!
//! | path | answer |
//! |---|---|
//! | `/debug/controllers` | every running controller with the counts of its queue |
//! | `/debug/controllers/NAME/queue` | the keys of one controller's queue, failing keys first |
//! | `/debug/caches` | every store of the cache, stores of other clusters last |
//! | `/debug/watches` | every list and watch of these stores, failing watches first |
//! | `/debug/config` | the configuration in force, the origin of each value, a refused file |
//! | `/debug/leader` | the leader, and the history of the Lease |
//!
//! A program may add [pages of its own](OwnPages).
//!
//! An action is a POST with `Content-Type: application/json`. It changes only this replica, only in memory,
//! and is logged as a warning.
//!
//! | path | body | effect |
//! |---|---|---|
//! | `/debug/controllers/NAME/reconcile` | `{"namespace": "shop", "name": "web"}` | enqueues one object now |
//! | `/debug/log` | `{"level": "info,mainstay::queue=debug"}` | changes the log level |
//!
//! The answer to a reconcile is `{"matched": 1}`, the number of enqueued keys.
//!
//! The keys of a queue are filtered by `?state=` (may be repeated), `?namespace=` (empty: keys without a
//! namespace) and `?name=`; a key must match all filters. At most `?limit=` keys are listed, by default 1000.
//! The states are `backoff` (failed, waits for its retry), `requeued` (waits for the time that the reconciler
//! requested), `parked`, `running`, `dirty` and `ready`; `delayed` means `backoff` or `requeued`.
//!
//! `?sort=` orders the keys: by `attempts`, by `next` run, by the time in their state (`since`), by `name`,
//! or by `trouble`, the default: first keys in backoff, then parked keys, keys with a worker, ready keys, and
//! last requeued keys. Among delayed keys the soonest is first, among others the key that has been in its
//! state for longest; equal keys are sorted by their texts. With `?sort=name`, `?after=` continues behind the
//! key that the previous page has as `next`, and `matched` counts from there.
//!
//! The answers of a standby have a header `Mainstay-Standby` with the leader. With [`Peers`] the standby
//! forwards requests about the leader's work to the leader; a request with the header `Mainstay-Own` is never
//! forwarded.
//!
//! Times are seconds with a fraction, relative to the answer; an unknown value is `null`. Errors are JSON
//! too: `{"error": "..."}`. Only a timeout (503) and a panic (500) are a line of text.
//!
//! # Invariants
//! 1. A request is answered only if it is [`Authorized`] by a token or names a loopback host. Otherwise a web
//!    page could read the answers by making its host name resolve to this machine.
//! 2. The control thread never blocks on an answer: a queue may hold a million keys, and user code makes the
//!    texts of keys. At most one answer about a queue is in memory, until the client has read it, and at most
//!    one other answer is being made. So memory is bounded, and a client that reads a queue slowly blocks no
//!    action.

mod actions;
pub(crate) mod configuration;
mod host;
mod keys;
mod leader;
mod own;
pub(crate) mod pages;
mod peers;
mod query;
mod standby;
mod stores;

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
use crate::config::{Loaded, ReloadStatus, Setting};
use crate::controller::{ControllerView, Directory};
use crate::serve::BlockingSlots;

pub use actions::SetLogLevel;
pub use host::Authorized;
pub use leader::{Election, Leader, LeaseHistory};
pub use own::{OwnPage, OwnPages, PageError};
#[cfg(feature = "program")]
pub(crate) use peers::OWN;
pub use peers::{Address, Peers};
pub use query::{sorts, states};
pub(crate) use standby::STANDBY;

/// The debug pages and actions under `/debug`, with the parts of the manager that they read and change.
#[derive(derive_more::Debug)]
#[debug("Inspect {{ controllers: {:?}, .. }}", self.controllers)]
pub struct Inspect {
    controllers: Directory,
    cache: Cache,
    leader: Leader,
    /// The data of the page `/debug/config`; if `None`, the page answers 404.
    pub(crate) configuration: Option<Configuration>,
    /// Changes the log level for `/debug/log`; `None` if the program does not let the manager change it.
    pub(crate) set_log_level: Option<Box<SetLogLevel>>,
    /// The debug pages that the program adds.
    pub(crate) own: OwnPages,
}

/// The data of the debug page `/debug/config`.
pub(crate) struct Configuration {
    /// The status of the configuration: the values in force, and a refused file.
    pub(crate) status: watch::Receiver<ReloadStatus>,
    /// Returns every configuration key of every running controller, settings in code included: see
    /// [`Loaded::controller`].
    pub(crate) controllers: Box<AllSettings>,
}

type AllSettings = dyn Fn(&Loaded) -> Vec<Setting> + Send + Sync;

/// Makes the response to a request for a debug page or action that has no query. Runs on a blocking thread,
/// because it may take long.
type Handler = fn(&Inspect, &Request<Bytes>) -> Result<Response<Bytes>, Refusal>;

/// An error response of a debug page: its status, and a text for the sender of the request.
struct Refusal(StatusCode, String);

// === impl Inspect ===

impl Inspect {
    /// Makes the debug pages of these controllers, of this cache with the caches of other clusters, and of
    /// this election.
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

    /// Returns the router of the debug pages. They are made on blocking threads: one queue and one other page
    /// at a time.
    pub fn router(self) -> Router {
        let (queues, others) = (BlockingSlots::until_sent(1), BlockingSlots::new(1));
        self.pages().layer(from_fn(move |request: extract::Request, next| {
            let turns = if request.uri().path().ends_with("/queue") { &queues } else { &others };
            turns.clone().run(request, next)
        }))
    }

    /// Returns the router of the debug pages without a limit. Their handlers block the thread if a queue is
    /// large.
    fn pages(self) -> Router {
        let standby_header = from_fn_with_state(self.leader.clone(), standby::add_header);
        let inspect = Arc::new(self);
        let get = |answer: Handler| {
            page(&inspect, Method::GET, move |inspect, request| {
                query::none(request.uri().query())?;
                answer(inspect, request)
            })
        };
        let post = |answer: Handler| {
            page(&inspect, Method::POST, move |inspect, request| {
                actions::refuse_cross_site(request)?;
                query::none(request.uri().query())?;
                answer(inspect, request)
            })
        };
        Router::new()
            .route("/debug/controllers", get(|inspect, _| json(&keys::controllers(&inspect.controllers))))
            .route("/debug/controllers/{name}/queue", page(&inspect, Method::GET, Self::queue))
            .route("/debug/controllers/{name}/reconcile", post(Self::reconcile))
            .route(
                "/debug/caches",
                get(|inspect, _| json(&stores::caches(inspect.cache.kinds_of_all_clusters()))),
            )
            .route(
                "/debug/watches",
                get(|inspect, _| json(&stores::watches(&inspect.cache.kinds_of_all_clusters()))),
            )
            .route("/debug/config", get(Self::config))
            .route("/debug/leader", get(|inspect, _| json(&inspect.leader.page())))
            .route("/debug/log", post(Self::set_log_level))
            .fallback_service(page(&inspect, Method::GET, Self::own_page))
            .layer(standby_header)
            .layer(from_fn(for_this_host))
    }

    fn queue(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, Refusal> {
        let query = Query::parse(request.uri().query())?;
        json(&keys::queue(&*self.controller(request)?, &query))
    }

    fn reconcile(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, Refusal> {
        json(&actions::reconcile(&*self.controller(request)?, request.body())?)
    }

    fn config(&self, _: &Request<Bytes>) -> Result<Response<Bytes>, Refusal> {
        let unknown = || Refusal(StatusCode::NOT_FOUND, "the configuration is not available".to_owned());
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

    /// Returns the controller named in the path of a request.
    fn controller(&self, request: &Request<Bytes>) -> Result<Arc<dyn ControllerView>, Refusal> {
        let (controllers, name) = (&self.controllers, segments(request).nth(2).unwrap_or_default());
        controllers.find(name).ok_or_else(|| Refusal::no_controller(name, controllers))
    }
}

// === impl Refusal ===

impl Refusal {
    fn no_path(own: &OwnPages) -> Self {
        let own: Vec<_> = own.names().iter().map(|name| format!("/debug/{name}, ")).collect();
        let own = own.concat();
        let text = format!(
            "no such path; there are {own}/debug/controllers, /debug/controllers/NAME/queue, /debug/caches, \
             /debug/watches, /debug/config and /debug/leader, and by POST \
             /debug/controllers/NAME/reconcile and /debug/log"
        );
        Self(StatusCode::NOT_FOUND, text)
    }

    fn no_controller(name: &str, controllers: &Directory) -> Self {
        let running: Vec<_> = controllers.names().collect();
        let running = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
        Self(StatusCode::NOT_FOUND, format!("controller {name:?} does not run here; running: {running}"))
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
        // A text can always be serialized; if it could not, the status alone would be the answer.
        let mut response = json(&pages::Error { error: text }).unwrap_or_default();
        *response.status_mut() = status;
        response
    }
}

/// Returns an error response of a debug page with this status and text.
pub(crate) fn refusal(status: StatusCode, text: &str) -> response::Response {
    Response::from(Refusal(status, text.to_owned())).map(Body::from)
}

/// Returns the handler of one method of a path; other methods get an error response.
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

/// Middleware that refuses requests which neither are authorized nor name a loopback host.
async fn for_this_host(request: extract::Request, next: Next) -> response::Response {
    if request.extensions().get::<Authorized>().is_none() && !host::is_loopback(&request) {
        let text = "the Host header does not name this machine; connect to localhost or a loopback address";
        return refusal(StatusCode::FORBIDDEN, text);
    }
    next.run(request).await
}

/// Returns the segments of a request's path, still escaped; the first is `debug`.
fn segments(request: &Request<Bytes>) -> impl Iterator<Item = &str> {
    request.uri().path().split('/').filter(|segment| !segment.is_empty())
}

/// Returns a JSON response with a serialized page, and a line feed at the end for terminals.
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

/// Returns a duration as a number of seconds, rounded to the microsecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests;
