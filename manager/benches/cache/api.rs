//! The responses of an API server, made in this process: one streamed list, then a watch fed by the
//! benchmark.
//!
//! Both stores under measurement get the same bytes through the same `kube::Client`. There is no socket, so
//! the figures contain no time of the kernel or of a server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

type Frames = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// A server with a number of Pods, and the sending end of its watch.
pub(crate) struct Api {
    client: kube::Client,
    watch: Watch,
}

/// Whether the heap is being counted.
pub(crate) static COUNTED: AtomicBool = AtomicBool::new(false);

/// Sends chunks into the newest watch.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Shared>);

#[derive(Default)]
struct Shared {
    events: Mutex<Option<UnboundedSender<Bytes>>>,
    /// Lists served.
    lists: AtomicU64,
    /// The most heap bytes during a list, if the heap is being counted.
    peak: AtomicUsize,
}

/// The version of the first list. Later ones have every object changed.
pub(crate) const LISTED: u64 = 1_000_000;
/// Difference between the versions of one list and the next.
const APART: u64 = 100_000_000;
/// Objects between two readings of the heap while a list is served.
const READING_PERIOD: u32 = 16;

// === impl Api ===

impl Api {
    /// Serves Pods `0..pods` at version [`LISTED`], written by number and version while they are read.
    pub(crate) fn serve(pods: u32, write: fn(u32, u64) -> String) -> Self {
        let watch = Watch::default();
        let sending = watch.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (sender, events) = unbounded_channel();
            *sending.0.events.lock() = Some(sender);
            let initial = request.uri().query().is_some_and(|query| query.contains("sendInitialEvents=true"));
            let listed = initial.then(|| sending.list(pods, write));
            let live =
                stream::unfold(events, |mut events| async move { Some((events.recv().await?, events)) });
            let chunks = stream::iter(listed.into_iter().flatten()).chain(live);
            let answer: Response<Frames> =
                Response::new(StreamBody::new(chunks.map(|bytes| Ok(Frame::data(bytes))).boxed()));
            async move { Ok::<_, Infallible>(answer) }
        });
        Self { client: kube::Client::new(service, "default"), watch }
    }

    /// Returns a client of this server.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns the sending end of its watch.
    pub(crate) fn watch(&self) -> Watch {
        self.watch.clone()
    }
}

// === impl Watch ===

impl Watch {
    /// Sends bytes as the result of one read from a socket.
    pub(crate) fn send(&self, bytes: Bytes) {
        if let Some(sender) = &*self.0.events.lock() {
            drop(sender.send(bytes));
        }
    }

    /// Ends the watch as expired: its reader has to relist.
    pub(crate) fn expire(&self) {
        let status = r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#;
        self.send(Bytes::from(format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n")));
        *self.0.events.lock() = None;
    }

    /// Returns the most heap bytes during a list, and resets them; 0 if the heap was not counted.
    pub(crate) fn take_peak(&self) -> usize {
        self.0.peak.swap(0, Ordering::Relaxed)
    }

    /// Returns one whole list as a stream of events, each written when it is polled.
    fn list(&self, pods: u32, write: fn(u32, u64) -> String) -> impl Iterator<Item = Bytes> + use<> {
        let version = LISTED + APART * self.0.lists.fetch_add(1, Ordering::Relaxed);
        let shared = self.clone();
        let objects = (0..pods).map(move |number| {
            if number % READING_PERIOD == 0 && COUNTED.load(Ordering::Relaxed) {
                shared.0.peak.fetch_max(dhat::HeapStats::get().curr_bytes, Ordering::Relaxed);
            }
            event("ADDED", &write(number, version - u64::from(pods - number)))
        });
        let annotations = r#"{"k8s.io/initial-events-end":"true"}"#;
        let metadata = format!(r#"{{"resourceVersion":"{version}","annotations":{annotations}}}"#);
        let spec = r#"{"containers":[]}"#;
        let end = format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{spec}}}"#);
        objects.chain([event("BOOKMARK", &end)]).map(Bytes::from)
    }
}

/// Returns one event as a line.
pub(crate) fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}
