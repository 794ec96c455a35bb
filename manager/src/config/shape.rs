//! What the keys of the file take: each shape reads a value, writes it and describes it.
//!
//! Messages are made in `cursor`; here stands only which of its readers goes with which way of writing.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use super::allow::is_dns_name;
use super::cursor::Cursor;
use super::raw::{RawKind, RawRate};
use super::schema;
use super::units::{self, DURATION_PATTERN, SIZE_PATTERN};
use super::walk::{Shape, read};
use super::written::written;

/// `true` or `false`.
pub(super) struct Boolean;

/// A whole number within these ends.
pub(super) struct Whole(pub(super) RangeInclusive<u32>);

/// A port.
pub(super) struct Port;

/// A number within these ends.
pub(super) struct Number(pub(super) RangeInclusive<f64>);

/// A whole number of percent within these ends.
pub(super) struct Percent(pub(super) RangeInclusive<u8>);

/// A duration with units, within these ends.
pub(super) struct Time(pub(super) RangeInclusive<Duration>);

/// A number of bytes with a unit, within these ends.
pub(super) struct Size(pub(super) RangeInclusive<u64>);

/// One of a few words.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

/// Text that is kept as it is if the check accepts it.
pub(super) struct Name {
    /// What a refusal says.
    pub(super) expected: &'static str,
    pub(super) accepts: fn(&str) -> bool,
    /// A regular expression of what is accepted, both ends anchored.
    pub(super) pattern: &'static str,
}

/// Text with a parser whose refusal says what it expected.
pub(super) struct Parsed<T> {
    /// A regular expression that every accepted text matches, both ends anchored.
    pub(super) pattern: &'static str,
    /// How a value is written.
    pub(super) write: fn(&T) -> String,
}

/// An absolute path, or `""` for none. A relative one is refused: the file may be reached through links and the process be
/// started anywhere, so it would mean one thing to whoever wrote it and another to the process.
pub(super) struct AbsolutePath {
    /// A path to repeat in refusals.
    pub(super) example: &'static str,
}

/// A list without duplicates.
pub(super) struct List<S> {
    /// What a refusal calls the items.
    pub(super) of: &'static str,
    pub(super) item: S,
}

/// Settings of single kinds, by name.
pub(super) struct Kinds;

/// What [`is_kind`] accepts.
pub(super) const KIND_PATTERN: &str = "^[A-Z][A-Za-z0-9.-]*$";

/// Returns whether a text looks like a kind with its group, such as `Deployment.apps`.
pub(super) fn is_kind(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
}

/// What [`is_key_or_domain`] accepts.
pub(super) const KEY_OR_DOMAIN_PATTERN: &str = r"^([a-z0-9][a-z0-9.-]*/(\*|[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)|[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)$";

/// Returns whether a text is the key of a label or an annotation, or stands for all keys of a domain.
pub(super) fn is_key_or_domain(text: &str) -> bool {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let is_name = (1..=63).contains(&name.len())
        && is_end(name.bytes().next())
        && is_end(name.bytes().last())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    domain.is_none_or(is_dns_name) && (is_name || domain.is_some() && name == "*")
}

/// `null`, or a mapping with a rate and a burst.
pub(super) struct OptionalRate;

// === impl shapes ===

impl Shape for Boolean {
    type Value = bool;

    fn read(&self, cursor: &Cursor<'_>) -> Option<bool> {
        cursor.boolean()
    }

    fn write(&self, value: &bool) -> Json {
        (*value).into()
    }

    fn schema(&self) -> Json {
        json!({"type": "boolean"})
    }
}

impl Shape for Whole {
    type Value = u32;

    fn read(&self, cursor: &Cursor<'_>) -> Option<u32> {
        cursor.whole(self.0.clone())
    }

    fn write(&self, value: &u32) -> Json {
        (*value).into()
    }

    fn schema(&self) -> Json {
        json!({"type": "integer", "minimum": self.0.start(), "maximum": self.0.end()})
    }
}

impl Shape for Port {
    type Value = u16;

    fn read(&self, cursor: &Cursor<'_>) -> Option<u16> {
        cursor.whole(1..=u32::from(u16::MAX)).and_then(|port| u16::try_from(port).ok())
    }

    fn write(&self, value: &u16) -> Json {
        (*value).into()
    }

    fn schema(&self) -> Json {
        json!({"type": "integer", "minimum": 1, "maximum": u16::MAX})
    }
}

impl Shape for Number {
    type Value = f64;

    fn read(&self, cursor: &Cursor<'_>) -> Option<f64> {
        cursor.number(self.0.clone())
    }

    fn write(&self, value: &f64) -> Json {
        number(*value)
    }

    fn schema(&self) -> Json {
        json!({"type": "number", "minimum": number(*self.0.start()), "maximum": number(*self.0.end())})
    }
}

impl Shape for Percent {
    type Value = u8;

    fn read(&self, cursor: &Cursor<'_>) -> Option<u8> {
        cursor.percent(self.0.clone())
    }

    fn write(&self, value: &u8) -> Json {
        (*value).into()
    }

    fn schema(&self) -> Json {
        json!({"type": "integer", "minimum": self.0.start(), "maximum": self.0.end()})
    }
}

impl Shape for Time {
    type Value = Duration;

    fn read(&self, cursor: &Cursor<'_>) -> Option<Duration> {
        cursor.duration(self.0.clone())
    }

    fn write(&self, value: &Duration) -> Json {
        time(*value)
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": DURATION_PATTERN})
    }
}

impl Shape for Size {
    type Value = u64;

    fn read(&self, cursor: &Cursor<'_>) -> Option<u64> {
        cursor.size(self.0.clone())
    }

    fn write(&self, value: &u64) -> Json {
        units::format_size(*value).into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": SIZE_PATTERN})
    }
}

impl<T: Copy + PartialEq> Shape for Choice<T> {
    type Value = T;

    fn read(&self, cursor: &Cursor<'_>) -> Option<T> {
        cursor.choice(self.0)
    }

    fn write(&self, value: &T) -> Json {
        self.0.iter().find(|(_, choice)| choice == value).map_or(Json::Null, |(name, _)| (*name).into())
    }

    fn schema(&self) -> Json {
        json!({"enum": self.0.iter().map(|(name, _)| *name).collect::<Vec<_>>()})
    }
}

impl Shape for Name {
    type Value = String;

    fn read(&self, cursor: &Cursor<'_>) -> Option<String> {
        cursor.parsed(self.expected, |text| (self.accepts)(text).then(|| text.to_owned()))
    }

    fn write(&self, value: &String) -> Json {
        value.as_str().into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": self.pattern})
    }
}

impl<T: FromStr<Err: Display>> Shape for Parsed<T> {
    type Value = T;

    fn read(&self, cursor: &Cursor<'_>) -> Option<T> {
        cursor.parse()
    }

    fn write(&self, value: &T) -> Json {
        (self.write)(value).into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": self.pattern})
    }
}

impl Shape for AbsolutePath {
    type Value = PathBuf;

    fn read(&self, cursor: &Cursor<'_>) -> Option<PathBuf> {
        let expected = format!("an absolute path such as {}, or \"\" for none", self.example);
        cursor.parsed(&expected, |text| {
            (text.is_empty() || Path::new(text).is_absolute()).then(|| PathBuf::from(text))
        })
    }

    fn write(&self, value: &PathBuf) -> Json {
        value.to_string_lossy().into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": "^(/.*)?$"})
    }
}

impl<S: Shape<Value: Eq + Hash>> Shape for List<S> {
    type Value = Vec<S::Value>;

    fn read(&self, cursor: &Cursor<'_>) -> Option<Vec<S::Value>> {
        cursor.list(self.of, |item| self.item.read(item))
    }

    fn write(&self, value: &Vec<S::Value>) -> Json {
        value.iter().map(|item| self.item.write(item)).collect()
    }

    fn schema(&self) -> Json {
        json!({"type": "array", "items": self.item.schema(), "uniqueItems": true})
    }
}

impl Shape for Kinds {
    type Value = BTreeMap<String, RawKind>;

    fn read(&self, cursor: &Cursor<'_>) -> Option<Self::Value> {
        let mut kinds = BTreeMap::new();
        for (kind, cursor) in cursor.entries("a mapping from kinds to their settings").unwrap_or_default() {
            if !is_kind(&kind) {
                cursor.report("unknown kind; expected a kind such as Pod or Deployment.apps".to_owned());
            }
            kinds.insert(kind, read(&cursor, None));
        }
        Some(kinds)
    }

    fn write(&self, value: &Self::Value) -> Json {
        let kind = |(kind, settings): (&String, &RawKind)| (kind.clone(), mapping(settings));
        value.iter().map(kind).collect::<Map<_, _>>().into()
    }

    fn schema(&self) -> Json {
        json!({
            "type": ["object", "null"],
            "propertyNames": {"pattern": KIND_PATTERN},
            "additionalProperties": schema::section::<RawKind>(),
        })
    }
}

impl Shape for OptionalRate {
    type Value = RawRate;

    fn read(&self, cursor: &Cursor<'_>) -> Option<RawRate> {
        Some(if cursor.is_null() { RawRate::Off } else { RawRate::Limit(read(cursor, None)) })
    }

    fn write(&self, value: &RawRate) -> Json {
        match value {
            RawRate::Off => Json::Null,
            RawRate::Limit(limit) => mapping(limit),
        }
    }

    fn schema(&self) -> Json {
        // A section may be null already, as this may: the same schema does.
        schema::section::<super::raw::RawLimit>()
    }
}

/// Returns a duration as a file says it. Code may ask for finer ones than a file can.
pub(super) fn time(duration: Duration) -> Json {
    if duration.subsec_nanos().is_multiple_of(1_000_000) {
        units::format_duration(duration).into()
    } else {
        format!("{duration:?}").into()
    }
}

/// Returns a number as a file says it: 2 rather than 2.0.
pub(super) fn number(value: f64) -> Json {
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
    if value.fract() == 0.0 && value.abs() < 1e9 { (value as i64).into() } else { value.into() }
}

/// Returns what is written of a section, as a mapping.
fn mapping<S: super::walk::Section + Clone>(section: &S) -> Json {
    written("", &mut section.clone())
        .into_iter()
        .map(|key| (key.path, key.value))
        .collect::<Map<_, _>>()
        .into()
}
