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
//! What a person does is a POST with `Content-Type: application/json`. It is done on this replica alone, in memory, and a line
//! of the log says so, as a warning.
//!
//! | path | body | what it does |
//! |---|---|---|
//! | `/debug/controllers/NAME/reconcile` | `{"namespace": "shop", "name": "web"}` | runs one object now, whatever its backoff |
//! | `.../forget` | `{}`, or either or both | forgets how often keys have failed, and runs those now |
//! | `.../pause` | `{}`, or either or both | begins no run of these keys; `{}`: no run at all |
//! | `.../resume` | as it was paused; `{}`: all | ends a pause |
//! | `/debug/log` | `{"level": "info,mainstay::queue=debug"}` | changes what is logged |
//!
//! The answer to the first four is `{"matched": 1}`, the number of keys on the queue that it concerned.
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
//! Times are seconds with a fraction, counted from the moment of the answer; what is not known is `null`. Refusals are
//! JSON too: `{"error": "..."}`. Only where no answer came about, in time (503) or at all (500), a line of text says so.
//!
//! # Invariants
//! 1. Nothing is said to who neither was [`Admitted`] by token nor names a loopback host, so that a web page whose name is made to resolve to this
//!    machine reads nothing.
//! 2. The control thread does not wait for an answer to be put together: a queue may hold a million keys, and the
//!    texts of keys are users' code. One answer about a queue is in memory at a time, from its first key until its
//!    reader has taken it all, and one other is put together at a time: that bounds what they cost, and who reads a
//!    queue slowly keeps nobody from acting.

mod actions;
mod caches;
mod configuration;
mod controllers;
mod host;
mod keys;
mod leader;
mod own;
mod query;
mod watches;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use serde::Serialize;
use tokio::sync::watch;

use self::query::Query;
use crate::cache::Cache;
use crate::config::{Loaded, LogFilter, Setting, Standing};
use crate::controller::{ControllerView, Directory, Intervention};
use crate::serve::{Handler, blocking, blocking_until_taken};

pub use actions::SetLogLevel;
pub use host::Admitted;
pub use leader::{Election, History, Leader};
pub use own::{OwnPage, OwnPages, PageError};
pub(crate) use query::{sorts, states};

/// What can be looked at, and changed.
pub struct Inspect {
    controllers: Directory,
    cache: Cache,
    leader: Leader,
    /// `None` where nobody tells.
    configuration: Option<Configuration>,
    /// `None` where the logs are not the manager's to change.
    set_log_level: Option<Box<SetLogLevel>>,
    own: OwnPages,
}

/// How the configuration stands.
struct Configuration {
    standing: watch::Receiver<Standing>,
    /// Every key of every controller there is.
    controllers: Box<OfControllers>,
}

type OfControllers = dyn Fn(&Loaded) -> Vec<Setting> + Send + Sync;

/// What a path asks for.
enum Page<'a> {
    Controllers,
    Queue(&'a str),
    Caches,
    Watches,
    Config,
    Leader,
    Intervene(&'a str, Intervention),
    Log,
    /// By name, and what follows it.
    Own(&'a str, Vec<&'a str>),
}

/// A request that is not answered with a page. The text is for who sent it.
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

    /// Shows how the configuration stands. `controllers` returns every key of every controller there is, with what its
    /// code sets: see [`Loaded::controller`].
    #[must_use]
    pub fn with_configuration(
        self,
        standing: watch::Receiver<Standing>,
        controllers: impl Fn(&Loaded) -> Vec<Setting> + Send + Sync + 'static,
    ) -> Self {
        Self { configuration: Some(Configuration { standing, controllers: Box::new(controllers) }), ..self }
    }

    /// Lets people change what is logged.
    #[must_use]
    pub fn with_log_level(
        self,
        set: impl Fn(LogFilter) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { set_log_level: Some(Box::new(set)), ..self }
    }

    /// Shows these as well.
    #[must_use]
    pub fn with_own(self, own: OwnPages) -> Self {
        Self { own, ..self }
    }

    /// Returns what a server answers with, away from the runtime's own threads: one queue and one other page at a time.
    pub fn handler(self) -> Handler {
        let queues = Arc::new(self);
        let others = Arc::clone(&queues);
        let queues = blocking_until_taken(1, move |request| queues.answer(request));
        let others = blocking(1, move |request| others.answer(request));
        Arc::new(move |request| match Page::at(request.uri().path()) {
            Some(Page::Queue(_)) => queues(request),
            _ => others(request),
        })
    }

    /// Answers one request; may take long where a queue is large.
    pub fn answer(&self, request: &Request<Bytes>) -> Response<Bytes> {
        self.page(request).unwrap_or_else(Response::from)
    }

    fn page(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, Refusal> {
        if request.extensions().get::<Admitted>().is_none() && !host::is_loopback(request) {
            let text =
                "the Host header does not name this machine; connect to localhost or a loopback address";
            return Err(Refusal(StatusCode::FORBIDDEN, text.to_owned()));
        }
        let page = Page::at(request.uri().path()).ok_or_else(|| Refusal::no_path(&self.own))?;
        let method = page.method();
        if request.method().as_str() != method {
            return Ok(wrong_method(request.method(), method));
        }
        if page.is_action() {
            actions::admit(request)?;
        }
        let bad = |text| Refusal(StatusCode::BAD_REQUEST, text);
        let query = request.uri().query();
        if !matches!(page, Page::Queue(_)) {
            query::none(query).map_err(bad)?;
        }
        let Self { controllers, cache, leader, configuration, set_log_level, own } = self;
        let body = request.body();
        match page {
            Page::Controllers => json(StatusCode::OK, &controllers::page(controllers)),
            Page::Queue(name) => {
                let query = Query::parse(query).map_err(bad)?;
                json(StatusCode::OK, &keys::page(&*self.controller(name)?, &query))
            }
            Page::Caches => json(StatusCode::OK, &caches::page(cache.kinds_everywhere())),
            Page::Watches => json(StatusCode::OK, &watches::page(&cache.kinds_everywhere())),
            Page::Config => {
                let unknown = || Refusal(StatusCode::NOT_FOUND, "no configuration is known here".to_owned());
                let Configuration { standing, controllers } = configuration.as_ref().ok_or_else(unknown)?;
                let standing = standing.borrow().clone();
                let controllers = controllers(&standing.accepted);
                json(StatusCode::OK, &configuration::page(&standing, controllers))
            }
            Page::Leader => json(StatusCode::OK, &leader.page()),
            Page::Intervene(name, what) => {
                json(StatusCode::OK, &actions::intervene(&*self.controller(name)?, what, body)?)
            }
            Page::Own(name, rest) => {
                let answer = own.find(name).ok_or_else(|| Refusal::no_path(own))?;
                json(StatusCode::OK, &answer(&rest)?)
            }
            Page::Log => json(StatusCode::OK, &actions::set_log_level(set_log_level.as_deref(), body)?),
        }
    }

    fn controller(&self, name: &str) -> Result<Arc<dyn ControllerView>, Refusal> {
        let controllers = &self.controllers;
        controllers.find(name).ok_or_else(|| Refusal::no_controller(name, controllers))
    }
}

impl fmt::Debug for Inspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspect").field("controllers", &self.controllers).finish_non_exhaustive()
    }
}

// === impl Page ===

impl<'a> Page<'a> {
    fn at(path: &'a str) -> Option<Self> {
        let segments: Vec<_> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        match segments[..] {
            ["debug", "controllers"] => Some(Self::Controllers),
            ["debug", "controllers", name, "queue"] => Some(Self::Queue(name)),
            ["debug", "caches"] => Some(Self::Caches),
            ["debug", "watches"] => Some(Self::Watches),
            ["debug", "config"] => Some(Self::Config),
            ["debug", "leader"] => Some(Self::Leader),
            ["debug", "log"] => Some(Self::Log),
            ["debug", "controllers", name, word] => {
                actions::intervention(word).map(|what| Self::Intervene(name, what))
            }
            ["debug", name, ref rest @ ..] => Some(Self::Own(name, rest.to_vec())),
            _ => None,
        }
    }

    fn is_action(&self) -> bool {
        matches!(self, Self::Intervene(..) | Self::Log)
    }

    fn method(&self) -> &'static str {
        if self.is_action() { "POST" } else { "GET" }
    }
}

// === impl Refusal ===

impl Refusal {
    fn no_path(own: &OwnPages) -> Self {
        let own: Vec<_> = own.names().iter().map(|name| format!("/debug/{name}, ")).collect();
        let own = own.concat();
        let text = format!(
            "no such path; there are {own}/debug/controllers, /debug/controllers/NAME/queue, /debug/caches, \
             /debug/watches, /debug/config and /debug/leader, and by POST /debug/controllers/NAME/reconcile, forget, \
             pause, resume and /debug/log"
        );
        Self(StatusCode::NOT_FOUND, text)
    }

    fn no_controller(name: &str, controllers: &Directory) -> Self {
        let running: Vec<_> = controllers.names().collect();
        let running = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
        Self(StatusCode::NOT_FOUND, format!("controller {name:?} does not run here; there are {running}"))
    }

    fn internal(text: &str) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, text.to_owned())
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

impl From<Refusal> for Response<Bytes> {
    fn from(Refusal(status, text): Refusal) -> Self {
        // A text can always be written as JSON; if it could not, the status would still say enough.
        let mut response = json(status, &Error { error: &text }).unwrap_or_default();
        *response.status_mut() = status;
        response
    }
}

fn wrong_method(method: &Method, right: &'static str) -> Response<Bytes> {
    let text = format!("{method} is not answered here; use {right}");
    let mut response = Response::from(Refusal(StatusCode::METHOD_NOT_ALLOWED, text));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(right));
    response
}

/// Writes an answer, with a line feed for terminals.
fn json(status: StatusCode, page: &impl Serialize) -> Result<Response<Bytes>, Refusal> {
    let mut body = serde_json::to_vec(page).map_err(|error| Refusal::internal(&error.to_string()))?;
    body.push(b'\n');
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
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
