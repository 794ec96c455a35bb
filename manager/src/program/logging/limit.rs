//! Limits how often the same warning or error is logged: an error of one object often occurs for all objects,
//! and five thousand such lines must not fill a disk.
//!
//! Lines are the same if they come from one place in the code and have the same `controller` and `kind`; so a
//! failing controller does not use up the limit of another one. A hundred are logged at once, and ten per
//! second. Every ten seconds, and at the end of the process, one line reports the number of lines left out.
//! Lines below a warning are not limited, because each reports a single event.

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

use super::lenient;
use crate::util::{self, BoundedMap, TokenBucket};

/// The limit of log lines with the same key: a hundred at once, and then one each 100 ms.
const RATE: util::Limit = util::Limit { interval: Duration::from_millis(100), burst: 100 };
/// Time between two reports of log lines left out.
pub(super) const REPORT: Duration = Duration::from_secs(10);
/// The most keys of log lines to remember: far more than there are, unless controllers are named after
/// objects.
const MAX_KEYS: usize = 1024;
/// The log target of the reports of lines left out. They are the only lines of this module, and are not
/// limited.
pub(super) const TARGET: &str = module_path!();

/// The tracing layer that limits repeated warnings and errors.
#[derive(Clone, Debug)]
pub(super) struct LineLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Time between two reports of log lines left out.
    report: Duration,
    /// The log subscriber that this layer is part of; the reports are sent to it.
    subscriber: OnceLock<WeakDispatch>,
    /// Held until the lines taken from `inner` have been reported, so that `flush` waits for the other
    /// thread.
    reporting: Mutex<()>,
    /// The state of the limits; never locked while a line is logged.
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    buckets: BoundedMap<LineKey, TokenBucket>,
    suppressed: HashMap<LineKey, Suppressed>,
    /// Whether a thread runs that will report the lines in `suppressed`.
    reported: bool,
}

/// The key of a log line: its place in the code and some fields. Lines with the same key share one limit.
type LineKey = (Identifier, KeyFields);

/// The fields of a log line that are part of its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct KeyFields {
    controller: Option<String>,
    kind: Option<String>,
}

/// Log lines of one key that were left out since the last report.
#[derive(Debug)]
struct Suppressed {
    level: Level,
    /// The text of the first line that was left out.
    line: String,
    count: u64,
}

/// Collects the message of a log line and the fields of its key.
#[derive(Default)]
struct Reader {
    names: KeyFields,
    message: String,
}

// === impl LineLimit ===

impl LineLimit {
    /// Makes a layer that reports the log lines left out each time this duration has passed.
    pub(super) fn new(report: Duration) -> Self {
        let inner = Inner { buckets: BoundedMap::new(MAX_KEYS), suppressed: HashMap::new(), reported: false };
        Self(Arc::new(Shared {
            report,
            subscriber: OnceLock::new(),
            reporting: Mutex::new(()),
            inner: Mutex::new(inner),
        }))
    }

    /// Reports the log lines left out since the last report.
    pub(super) fn flush(&self) {
        let _reporting = self.0.reporting.lock();
        let suppressed = std::mem::take(&mut self.0.inner.lock().suppressed);
        self.0.log(suppressed);
    }
}

impl<S> Layer<S> for LineLimit
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        // A failure would mean that the layer is part of two subscribers.
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
        let key = (metadata.callsite(), reader.names);
        let suppressed = self.0.inner.lock().suppress(key, *metadata.level(), reader.message, Instant::now());
        if suppressed == Some(true) {
            let shared = Arc::clone(&self.0);
            // A thread, because the runtime of the line may end first. If it cannot start, `flush` reports.
            thread::Builder::new().name("log-limit".to_owned()).spawn(move || shared.report()).ok();
        }
        suppressed.is_none()
    }
}

// === impl Shared ===

impl Shared {
    /// Logs a report of lines left out each time the period has passed, until no line was left out in
    /// between.
    fn report(&self) {
        loop {
            thread::park_timeout(self.report);
            let _reporting = self.reporting.lock();
            let suppressed = self.inner.lock().take();
            if suppressed.is_empty() {
                return;
            }
            self.log(suppressed);
        }
    }

    fn log(&self, suppressed: HashMap<LineKey, Suppressed>) {
        let Some(subscriber) = self.subscriber.get().and_then(WeakDispatch::upgrade) else { return };
        dispatcher::with_default(&subscriber, || {
            for ((_, KeyFields { controller, kind }), Suppressed { level, line, count }) in suppressed {
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
    /// Returns `None` for a log line within the limit. Otherwise counts the line as left out, and returns
    /// whether the caller has to start the thread that reports.
    fn suppress(&mut self, key: LineKey, level: Level, line: String, now: Instant) -> Option<bool> {
        let bucket = self.buckets.get_or_insert_with(&key, now, || TokenBucket::new(RATE));
        if bucket.take(now).is_ok() {
            return None;
        }
        self.suppressed.entry(key).or_insert(Suppressed { level, line, count: 0 }).count += 1;
        Some(!std::mem::replace(&mut self.reported, true))
    }

    /// Takes the left-out lines to report. If there are none, the thread that reports ends.
    fn take(&mut self) -> HashMap<LineKey, Suppressed> {
        self.reported = !self.suppressed.is_empty();
        std::mem::take(&mut self.suppressed)
    }
}

// === impl Reader ===

impl Reader {
    /// Returns the text in which the value of a log field is stored; `None` for fields that are not
    /// collected.
    fn slot(&mut self, field: &Field) -> Option<&mut String> {
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
        if let Some(slot) = self.slot(field) {
            *slot = lenient(value).to_string();
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(slot) = self.slot(field) {
            value.clone_into(slot);
        }
    }
}

#[cfg(test)]
mod tests;
