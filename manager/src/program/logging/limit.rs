//! Limits how often the same warning or error is logged: a failure of one object is mostly one of all objects, and five
//! thousand of them must not fill a disk.
//!
//! Lines are the same if they come from one place in the code and have the same `controller` and `kind`; so a controller
//! in trouble takes no lines from another. A hundred are logged at once and ten a second. Each ten seconds, and at the end
//! of the process, one line has the number of those that were left out. Lines below a warning are not limited: each
//! reports something that happened once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::dispatcher::{self, Dispatch, WeakDispatch};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber, error, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use crate::util::{self, BoundedMap, TokenBucket};

/// Lines of one sort.
const RATE: util::Limit = util::Limit { interval: Duration::from_millis(100), burst: 100 };
/// Between two reports of the lines that were left out.
pub(super) const REPORT: Duration = Duration::from_secs(10);
/// Sorts of lines that are remembered: far more than there are, unless controllers are named after objects.
const MAX_KEYS: usize = 1024;
/// The only lines of this module; they are not limited.
pub(super) const TARGET: &str = module_path!();

/// The layer that leaves lines out.
#[derive(Clone, Debug)]
pub(super) struct LineLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    report: Duration,
    /// Where the reports go: the subscriber that this layer is part of.
    subscriber: OnceLock<WeakDispatch>,
    /// Never locked while a line is written.
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    buckets: BoundedMap<LineKey, TokenBucket>,
    left_out: HashMap<LineKey, Suppressed>,
    /// Whether a thread runs that will report `left_out`.
    reported: bool,
}

/// Lines that count as the same.
type LineKey = (Identifier, KeyFields);

/// The fields that tell lines of one place in the code apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct KeyFields {
    controller: Option<String>,
    kind: Option<String>,
}

#[derive(Debug)]
struct Suppressed {
    level: Level,
    /// The text of the first.
    line: String,
    count: u64,
}

/// Reads the fields that matter here.
#[derive(Default)]
struct Reader {
    names: KeyFields,
    message: String,
}

// === impl LineLimit ===

impl LineLimit {
    /// Reports the lines that were left out after this time.
    pub(super) fn new(report: Duration) -> Self {
        let inner = Inner { buckets: BoundedMap::new(MAX_KEYS), left_out: HashMap::new(), reported: false };
        Self(Arc::new(Shared { report, subscriber: OnceLock::new(), inner: Mutex::new(inner) }))
    }

    /// Reports the lines that were left out since the last report.
    pub(super) fn flush(&self) {
        let left_out = std::mem::take(&mut self.0.inner.lock().left_out);
        self.0.log(left_out);
    }
}

impl<S> Layer<S> for LineLimit
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        // Set already only if one layer were part of two subscribers.
        self.0.subscriber.set(subscriber.downgrade()).ok();
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let fields = attributes.metadata().fields();
        if fields.field("controller").is_none() && fields.field("kind").is_none() {
            return;
        }
        if let Some(span) = context.span(id) {
            let mut reader = Reader::default();
            attributes.record(&mut reader);
            span.extensions_mut().insert(reader.names);
        }
    }

    fn event_enabled(&self, event: &Event<'_>, context: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN || metadata.target() == TARGET {
            return true;
        }
        let mut reader = Reader::default();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(KeyFields { controller, kind }) = span.extensions().get() {
                reader.names.controller = controller.clone().or(reader.names.controller);
                reader.names.kind = kind.clone().or(reader.names.kind);
            }
        }
        event.record(&mut reader);
        let sort = (metadata.callsite(), reader.names);
        let unreported =
            self.0.inner.lock().suppress(sort, *metadata.level(), reader.message, Instant::now());
        if unreported == Some(true) {
            let shared = Arc::clone(&self.0);
            // A thread, since the runtime of the line may end first. Without it the end of the process reports.
            thread::Builder::new().name("log-limit".to_owned()).spawn(move || shared.report()).ok();
        }
        unreported.is_none()
    }
}

// === impl Shared ===

impl Shared {
    /// Reports until no line has been left out for a while.
    fn report(&self) {
        loop {
            thread::park_timeout(self.report);
            let left_out = self.inner.lock().take();
            if left_out.is_empty() {
                return;
            }
            self.log(left_out);
        }
    }

    fn log(&self, left_out: HashMap<LineKey, Suppressed>) {
        let Some(subscriber) = self.subscriber.get().and_then(WeakDispatch::upgrade) else { return };
        dispatcher::with_default(&subscriber, || {
            for ((_, KeyFields { controller, kind }), Suppressed { level, line, count }) in left_out {
                if level == Level::ERROR {
                    error!(controller, kind, line, left_out = count, "lines were left out");
                } else {
                    warn!(controller, kind, line, left_out = count, "lines were left out");
                }
            }
        });
    }
}

// === impl Inner ===

impl Inner {
    /// Returns `None` for a line that is logged; otherwise counts it, and returns whether a report has to be arranged.
    fn suppress(&mut self, sort: LineKey, level: Level, line: String, now: Instant) -> Option<bool> {
        let bucket = self.buckets.get_or_insert_with(&sort, now, || TokenBucket::new(RATE));
        if bucket.take(now).is_ok() {
            return None;
        }
        self.left_out.entry(sort).or_insert(Suppressed { level, line, count: 0 }).count += 1;
        Some(!std::mem::replace(&mut self.reported, true))
    }

    /// Takes what is to be reported. The thread that reports ends if there is nothing.
    fn take(&mut self) -> HashMap<LineKey, Suppressed> {
        self.reported = !self.left_out.is_empty();
        std::mem::take(&mut self.left_out)
    }
}

// === impl Reader ===

impl Reader {
    /// Returns where this field belongs.
    fn place(&mut self, field: &Field) -> Option<&mut String> {
        match field.name() {
            "controller" => Some(self.names.controller.get_or_insert_default()),
            "kind" => Some(self.names.kind.get_or_insert_default()),
            "message" => Some(&mut self.message),
            _ => None,
        }
    }
}

impl Visit for Reader {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if let Some(place) = self.place(field) {
            place.clear();
            // If a user's implementation fails midway, its partial output is kept.
            fmt::write(place, format_args!("{value:?}")).ok();
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(place) = self.place(field) {
            value.clone_into(place);
        }
    }
}

#[cfg(test)]
mod tests;
