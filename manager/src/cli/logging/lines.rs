//! One line per event, with the fields of the spans around it.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use super::fields::Fields;
use super::limit::Limit;

/// The field of an event that holds its text; tracing's name.
pub(super) const MESSAGE: &str = "message";
/// The field that says how many lines as this one were left out before it.
const LEFT_OUT: &str = "left_out";
/// Fields that come first, in this order.
const FIRST: [&str; 6] =
    ["controller", "controllerGroup", "controllerKind", "namespace", "name", "reconcileID"];
/// The field that comes last.
const LAST: &str = "error";

/// The layer.
pub(super) struct Lines<W> {
    writer: W,
    now: fn() -> Timestamp,
    form: fn(&Line<'_>) -> String,
    limit: Limit,
    hasher: RandomState,
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
    pub(super) fn new(writer: W, now: fn() -> Timestamp, form: fn(&Line<'_>) -> String) -> Self {
        Self { writer, now, form, limit: Limit::default(), hasher: RandomState::new() }
    }
}

impl<W> fmt::Debug for Lines<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + 'static,
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
        let metadata = event.metadata();
        let level = *metadata.level();
        let mut left_out = 0;
        if level <= Level::INFO {
            let controller = self.hasher.hash_one(fields.get(FIRST[0]));
            match self.limit.admit((metadata.callsite(), controller), Instant::now()) {
                Some(before) => left_out = before,
                None => return fields.give_back(),
            }
        }
        event.record(&mut fields);
        if left_out > 0 {
            fields.number(LEFT_OUT, left_out);
        }
        let line = Line { time: (self.now)(), level, logger: metadata.target(), fields: &fields };
        let line = (self.form)(&line);
        fields.give_back();
        // One write per line keeps lines of several threads apart. A log that cannot be written has nobody to tell.
        self.writer.make_writer_for(metadata).write_all(line.as_bytes()).ok();
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
