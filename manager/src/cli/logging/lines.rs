//! One line per event, with the fields of the spans around it.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::sync::Arc;
use std::thread;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use super::fields::Fields;
use super::limit::{Admitted, LeftOut, Limit};

/// The field of an event that holds its text; tracing's name.
pub(super) const MESSAGE: &str = "message";
/// The field that says how many lines as this one were left out before it.
const LEFT_OUT: &str = "left_out";
/// What is said of them when no such line follows, in JSON.
const WERE_LEFT_OUT: &str = "\"lines were left out\"";
/// The field that then has their text.
const LINE: &str = "line";
/// Fields that tell lines of one place in the code apart.
const APART: [&str; 2] = [FIRST[0], "kind"];
/// Fields that come first, in this order.
const FIRST: [&str; 6] =
    ["controller", "controllerGroup", "controllerKind", "namespace", "name", "reconcileID"];
/// The field that comes last.
const LAST: &str = "error";

/// The layer.
#[derive(Debug)]
pub(super) struct Lines<W> {
    output: Arc<Output<W>>,
    hasher: RandomState,
}

/// Where lines go.
pub(super) struct Output<W> {
    pub(super) writer: W,
    pub(super) now: fn() -> Timestamp,
    pub(super) form: fn(&Line<'_>) -> String,
    pub(super) limit: Limit,
}

/// Tells what was left out, whatever the writer is.
pub(super) trait Flush: fmt::Debug + Send + Sync {
    fn flush(&self);
}

/// What a line is made of.
pub(super) struct Line<'a> {
    pub(super) time: Timestamp,
    pub(super) level: Level,
    pub(super) logger: &'a str,
    fields: &'a Fields,
}

// === impl Lines ===

impl<W> Lines<W> {
    pub(super) fn new(output: Arc<Output<W>>) -> Self {
        Self { output, hasher: RandomState::new() }
    }
}

impl<W> Lines<W>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    /// Says how many lines as this one were left out before it; `None` if it is left out too.
    fn admit(&self, metadata: &'static Metadata<'static>, fields: &Fields) -> Option<u64> {
        let apart = self.hasher.hash_one(APART.map(|name| fields.get(name)));
        let common = || fields.only(&APART, MESSAGE, LINE);
        match self.output.limit.admit((metadata.callsite(), apart), Instant::now(), metadata, common) {
            Admitted::Written { left_out } => return Some(left_out),
            Admitted::LeftOut { unawaited: false } => {}
            Admitted::LeftOut { unawaited: true } => {
                let output = Arc::clone(&self.output);
                // A thread, for the line may come from anywhere, and that runtime may end first. It lives as long as the
                // flood and ten seconds more. Without it the next line tells, or the end of the process.
                thread::Builder::new().name("log-limit".to_owned()).spawn(move || output.follow()).ok();
            }
        }
        None
    }
}

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::take();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            record.record(fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let fields = context.span(&id).and_then(|span| span.extensions_mut().remove::<Fields>());
        if let Some(fields) = fields {
            fields.give_back();
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::take();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.extend(of_span);
            }
        }
        event.record(&mut fields);
        let metadata = event.metadata();
        let left_out = if *metadata.level() <= Level::WARN { self.admit(metadata, &fields) } else { Some(0) };
        if let Some(left_out) = left_out {
            if left_out > 0 {
                fields.number(LEFT_OUT, left_out);
            }
            self.output.write(metadata, &fields);
        }
        fields.give_back();
    }
}

// === impl Output ===

impl<W> Output<W>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    fn write(&self, metadata: &Metadata<'_>, fields: &Fields) {
        let line = Line { time: (self.now)(), level: *metadata.level(), logger: metadata.target(), fields };
        let line = (self.form)(&line);
        // One write per line keeps lines of several threads apart. A log that cannot be written has nobody to tell.
        self.writer.make_writer_for(metadata).write_all(line.as_bytes()).ok();
    }

    fn tell(&self, left_out: Vec<LeftOut>) {
        for LeftOut { number, metadata, mut fields } in left_out {
            fields.json(MESSAGE, WERE_LEFT_OUT);
            fields.number(LEFT_OUT, number);
            self.write(metadata, &fields);
        }
    }

    /// Tells of each flood when it is over, until there is none.
    fn follow(&self) {
        loop {
            let now = Instant::now();
            let (ended, next) = self.limit.ended(now);
            self.tell(ended);
            let Some(next) = next else { return };
            thread::park_timeout(next.saturating_duration_since(now));
        }
    }
}

impl<W> Flush for Output<W>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    fn flush(&self) {
        self.tell(self.limit.all());
    }
}

impl<W> fmt::Debug for Output<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

// === impl Line ===

impl<'a> Line<'a> {
    /// Returns the text as a JSON string.
    pub(super) fn message(&self) -> &'a str {
        self.fields.get(MESSAGE).unwrap_or("\"\"")
    }

    /// Returns all fields but the text in the order in which they are written, with values as JSON.
    pub(super) fn fields(&self) -> Vec<(&'static str, &'a str)> {
        let mut fields: Vec<_> = self.fields.iter().filter(|(name, _)| *name != MESSAGE).collect();
        fields.sort_by_key(|(name, _)| match FIRST.iter().position(|first| first == name) {
            Some(place) => place,
            None if *name == LAST => FIRST.len() + 1,
            None => FIRST.len(),
        });
        fields
    }
}
