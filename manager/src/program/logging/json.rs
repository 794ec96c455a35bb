//! JSON lines: each event as one flat object, with the fields of the spans around it.
//!
//! tracing-subscriber's own JSON nests spans in a list, so that queries for `namespace` and `name` cannot
//! find them.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

use super::{Clock, lenient};
use crate::key::Chain;

/// Keys of every JSON log line; an underscore is appended to a field of the same name.
const OWN_KEYS: [&str; 4] = ["ts", "level", "msg", "logger"];
/// The fields that come first in a JSON log line, in this order; the others follow by name.
const FIRST: [&str; 6] =
    ["controller", "controllerGroup", "controllerKind", "namespace", "name", "reconcileID"];
/// The field that comes last in a JSON log line.
const LAST: &str = "error";

/// Formats log events as JSON, one object per line.
pub(super) struct Json {
    pub(super) now: Clock,
}

/// Formats the fields of a tracing span as a JSON object.
pub(super) struct SpanFields;

/// Fields of a log event or a span as an unfinished JSON object, such as `{"name":"web","attempt":1`.
struct JsonFields(Vec<u8>);

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
        fields.extend(parse(&JsonFields::of(event)));
        let metadata = event.metadata();
        let message = fields.remove("message");
        let message = message.as_deref().map_or("\"\"", RawValue::get);
        let level = metadata.level().as_str().to_ascii_lowercase();
        let logger = Value::from(metadata.target());
        let mut line = r#"{"ts":""#.to_owned();
        (self.now)(&mut Writer::new(&mut line))?;
        write!(line, r#"","level":"{level}","msg":{message},"logger":{logger}"#)?;
        let first: Vec<_> = FIRST.iter().filter_map(|name| fields.remove_entry(*name)).collect();
        let last = fields.remove_entry(LAST);
        for (name, value) in first.into_iter().chain(fields).chain(last) {
            let name = if OWN_KEYS.contains(&&*name) { name + "_" } else { name };
            write!(line, ",{}:{value}", Value::from(name))?;
        }
        // serde_json does not escape DEL and the C1 controls, which control some terminals.
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
        writer.write_str(&JsonFields::of(&fields))
    }

    fn add_fields(&self, current: &'w mut FormattedFields<Self>, fields: &Record<'_>) -> fmt::Result {
        // A value is replaced, not appended, because a span that lives for days may record its progress many
        // times.
        let mut all = parse(&current.fields);
        all.extend(parse(&JsonFields::of(fields)));
        current.fields = serde_json::to_string(&all).map_err(|_| fmt::Error)?;
        Ok(())
    }
}

impl JsonFields {
    /// Returns a JSON object of the fields of a log event or a span.
    fn of(fields: &impl RecordFields) -> String {
        // Enough for most spans. Each reconcile has one, and its fields are formatted even if it logs
        // nothing.
        let mut members = Self(Vec::with_capacity(256));
        fields.record(&mut members);
        if members.0.is_empty() {
            members.0.push(b'{');
        }
        members.0.push(b'}');
        // serde_json writes only UTF-8.
        String::from_utf8(members.0).unwrap_or_default()
    }

    fn member(&mut self, field: &Field, value: &(impl Serialize + ?Sized)) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        // Neither can fail: a scalar is written to memory.
        serde_json::to_writer(&mut self.0, field.name()).ok();
        self.0.push(b':');
        serde_json::to_writer(&mut self.0, value).ok();
    }
}

impl Visit for JsonFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.member(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.member(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.member(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.member(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.member(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record_debug(field, &format_args!("{}", Chain(value)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.member(field, &format_args!("{}", lenient(value)));
    }
}

fn parse(fields: &str) -> BTreeMap<String, Box<RawValue>> {
    serde_json::from_str(fields).unwrap_or_default()
}
