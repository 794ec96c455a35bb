//! JSON lines: each event as one flat object, with the fields of the spans around it.
//!
//! tracing-subscriber's own JSON nests spans in a list, where no query for `namespace` and `name` finds them.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Write as _};

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

use crate::key::Chain;

/// Keys that every line has; a field of the same name gets an underscore.
const OWN_KEYS: [&str; 4] = ["ts", "level", "msg", "logger"];
/// Fields that come first, in this order; the others follow by name.
const FIRST: [&str; 6] =
    ["controller", "controllerGroup", "controllerKind", "namespace", "name", "reconcileID"];
/// The field that comes last.
const LAST: &str = "error";

/// Formats events.
pub(super) struct Json {
    pub(super) now: fn() -> Timestamp,
}

/// Formats the fields of a span, as a JSON object.
pub(super) struct SpanFields;

/// Passes each field on, with what displays it as JSON.
struct Each<F>(F);

/// Displays a text as JSON.
struct Quoted<'a>(&'a str);

impl<S> FormatEvent<S, SpanFields> for Json
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, SpanFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = BTreeMap::new();
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            if let Some(of_span) = span.extensions().get::<FormattedFields<SpanFields>>() {
                fields.extend(parse(&of_span.fields));
            }
        }
        record_into(&mut fields, event);
        let metadata = event.metadata();
        let message = fields.remove("message");
        let message = message.as_deref().map_or("\"\"", RawValue::get);
        let level = metadata.level().as_str().to_ascii_lowercase();
        let logger = Quoted(metadata.target());
        let mut line =
            format!(r#"{{"ts":"{:.6}","level":"{level}","msg":{message},"logger":{logger}"#, (self.now)());
        let first: Vec<_> = FIRST.iter().filter_map(|name| fields.remove_entry(*name)).collect();
        let last = fields.remove_entry(LAST);
        for (name, value) in first.into_iter().chain(fields).chain(last) {
            let name = if OWN_KEYS.contains(&&*name) { name + "_" } else { name };
            write!(line, ",{}:{value}", Quoted(&name))?;
        }
        // serde_json leaves DEL and the C1 controls as they are, which some terminals act on.
        for letter in line.chars() {
            if letter.is_control() {
                write!(writer, "\\u{:04x}", u32::from(letter))?;
            } else {
                writer.write_char(letter)?;
            }
        }
        writeln!(writer, "}}")
    }
}

impl<'w> FormatFields<'w> for SpanFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let (mut result, mut before) = (Ok(()), '{');
        fields.record(&mut Each(|name: &str, value: &dyn fmt::Display| {
            result = result.and_then(|()| write!(writer, "{before}{}:{value}", Quoted(name)));
            before = ',';
        }));
        result.and_then(|()| writer.write_str(if before == '{' { "{}" } else { "}" }))
    }

    fn add_fields(&self, current: &'w mut FormattedFields<Self>, fields: &Record<'_>) -> fmt::Result {
        // Replaced instead of appended: a span that lives for days may record its progress again and again.
        let mut all = parse(&current.fields);
        record_into(&mut all, fields);
        current.fields = serde_json::to_string(&all).map_err(|_| fmt::Error)?;
        Ok(())
    }
}

impl<F: FnMut(&'static str, &dyn fmt::Display)> Visit for Each<F> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no numbers beyond the finite ones; serde_json writes null.
        (self.0)(field.name(), &Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        (self.0)(field.name(), &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        (self.0)(field.name(), &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        (self.0)(field.name(), &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        (self.0)(field.name(), &Quoted(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record_debug(field, &format_args!("{}", Chain(value)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // If a user's implementation fails midway, its partial output is kept.
        write!(text, "{value:?}").ok();
        (self.0)(field.name(), &Quoted(&text));
    }
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs_escapes = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\\');
        if self.0.bytes().any(needs_escapes) {
            return Value::from(self.0).fmt(f);
        }
        // As nearly all are: the fields of a span are written for each reconcile.
        f.write_str("\"")?;
        f.write_str(self.0)?;
        f.write_str("\"")
    }
}

fn record_into(all: &mut BTreeMap<String, Box<RawValue>>, fields: &impl RecordFields) {
    fields.record(&mut Each(|name: &str, value: &dyn fmt::Display| {
        if let Ok(value) = RawValue::from_string(value.to_string()) {
            all.insert(name.to_owned(), value);
        }
    }));
}

fn parse(fields: &str) -> BTreeMap<String, Box<RawValue>> {
    serde_json::from_str(fields).unwrap_or_default()
}
