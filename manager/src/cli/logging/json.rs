//! One JSON object per event, spans flattened into it.
//!
//! tracing-subscriber's own JSON nests spans in a list, which no query for `namespace` and `name` would find.

use std::error::Error;
use std::fmt;
use std::io::Write as _;

use jiff::Timestamp;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use crate::key::Chain;

/// The field of an event that holds its text; tracing's name, ours is `msg`.
const MESSAGE: &str = "message";
/// Keys every line has; a field of the same name gets an underscore.
const OWN_KEYS: [&str; 4] = ["ts", "level", "msg", "logger"];
/// Fields that come first, in this order.
const FIRST: [&str; 6] =
    ["controller", "controllerGroup", "controllerKind", "namespace", "name", "reconcileID"];
/// The field that comes last.
const LAST: &str = "error";

/// The layer.
#[derive(Debug)]
pub(super) struct JsonLines<W> {
    writer: W,
    now: fn() -> Timestamp,
}

/// Fields in the order they came, each name once. Kept with a span for as long as it lives.
#[derive(Clone, Debug, Default)]
struct Fields(Vec<(&'static str, Value)>);

// === impl JsonLines ===

impl<W> JsonLines<W> {
    pub(super) fn new(writer: W, now: fn() -> Timestamp) -> Self {
        Self { writer, now }
    }

    fn line(&self, level: Level, logger: &str, fields: Fields) -> String {
        let (message, mut fields): (Vec<_>, Vec<_>) =
            fields.0.into_iter().partition(|(name, _)| *name == MESSAGE);
        let message = message.into_iter().next().map_or_else(|| Value::from(""), |(_, text)| text);
        fields.sort_by_key(|(name, _)| match FIRST.iter().position(|first| first == name) {
            Some(place) => place,
            None if *name == LAST => FIRST.len() + 1,
            None => FIRST.len(),
        });
        let time = format!("{:.6}", (self.now)());
        let mut line = format!(
            r#"{{"ts":"{time}","level":"{}","msg":{message},"logger":{}"#,
            level.as_str().to_ascii_lowercase(),
            Value::from(logger),
        );
        for (name, value) in fields {
            let own = if OWN_KEYS.contains(&name) { "_" } else { "" };
            let key = Value::from(format!("{name}{own}")).to_string();
            line.extend([",", &key, ":", &value.to_string()]);
        }
        line.push_str("}\n");
        line
    }
}

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
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

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                for (name, value) in &of_span.0 {
                    fields.set(name, value.clone());
                }
            }
        }
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = self.line(*metadata.level(), metadata.target(), fields);
        // One write per line keeps lines of several threads apart. A log that cannot be written has nobody to tell.
        self.writer.make_writer_for(metadata).write_all(line.as_bytes()).ok();
    }
}

// === impl Fields ===

impl Fields {
    fn set(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(present, _)| *present == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value.into());
    }

    /// Writes the whole chain of causes, because a log line is where it is read.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.set(field.name(), Chain(value).to_string().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field.name(), format!("{value:?}").into());
    }
}
