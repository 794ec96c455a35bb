//! The fields of a span or a line, written as JSON when they are recorded.
//!
//! Every reconcile has a span, and hardly any of them a line: what a span costs is paid without being read. So all its
//! values stand in one buffer, and the buffers go round.

use std::cell::RefCell;
use std::error::Error;
use std::fmt::{self, Write};
use std::ops::Range;

use tracing::field::{Field, Visit};

use crate::key::Chain;

/// Buffers that a thread keeps for its next spans.
const SPARE: usize = 8;
/// The longest buffer that is kept: an error's text may be of any length.
const SPARE_BYTES: usize = 4096;
/// A text that is no longer than this is not worth tidying.
const TIDY_BYTES: usize = 256;

thread_local! {
    static SPARES: RefCell<Vec<Fields>> = const { RefCell::new(Vec::new()) };
}

/// Fields in the order they came, each name once.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// JSON values, one behind the other.
    text: String,
    /// Where the value of each name is; what is in none of the ranges has been replaced, and goes when it is the most.
    places: Vec<(&'static str, Range<usize>)>,
}

/// Writes into a JSON string.
struct Escaped<'a>(&'a mut String);

// === impl Fields ===

impl Fields {
    /// Returns empty ones, with the room of others that were given back if there are any.
    pub(super) fn take() -> Self {
        // While the thread ends there are none.
        SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten().unwrap_or_default()
    }

    /// Keeps their room for the next ones.
    pub(super) fn give_back(mut self) {
        if self.text.capacity() > SPARE_BYTES {
            return;
        }
        self.text.clear();
        self.places.clear();
        // An error means that the thread ends, and its spares with it.
        SPARES
            .try_with(|spares| {
                let mut spares = spares.borrow_mut();
                if spares.len() < SPARE {
                    spares.push(self);
                }
            })
            .ok();
    }

    /// Returns names and JSON values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.places.iter().map(|(name, place)| (*name, &self.text[place.clone()]))
    }

    /// Returns the JSON value of a name.
    pub(super) fn get(&self, wanted: &str) -> Option<&str> {
        self.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value)
    }

    /// Takes all of the others over; where names meet, theirs hold.
    pub(super) fn extend(&mut self, others: &Self) {
        for (name, value) in others.iter() {
            self.json(name, value);
        }
    }

    /// Returns those of these names, and the one called `old` as `new`.
    pub(super) fn only(&self, names: &[&'static str], old: &str, new: &'static str) -> Self {
        let mut chosen = Self::take();
        let renamed = names.iter().map(|name| (*name, self.get(name))).chain([(new, self.get(old))]);
        for (name, value) in renamed {
            if let Some(value) = value {
                chosen.json(name, value);
            }
        }
        chosen
    }

    /// Sets what is JSON already.
    pub(super) fn json(&mut self, name: &'static str, value: &str) {
        self.set(name, |text| text.push_str(value));
    }

    /// Sets a number.
    pub(super) fn number(&mut self, name: &'static str, value: impl fmt::Display) {
        // A String takes all.
        self.set(name, |text| {
            write!(text, "{value}").ok();
        });
    }

    fn set(&mut self, name: &'static str, write: impl FnOnce(&mut String)) {
        let start = self.text.len();
        write(&mut self.text);
        let place = start..self.text.len();
        match self.places.iter_mut().find(|(present, _)| *present == name) {
            Some((_, old)) => {
                *old = place;
                self.tidy();
            }
            None => self.places.push((name, place)),
        }
    }

    /// Leaves out what has been replaced if that is most of the text: a task that lives for days may say in its span how
    /// far it is.
    fn tidy(&mut self) {
        let present: usize = self.places.iter().map(|(_, place)| place.len()).sum();
        if self.text.len() <= TIDY_BYTES.max(2 * present) {
            return;
        }
        let mut text = String::with_capacity(self.text.capacity().min(2 * present));
        for (_, place) in &mut self.places {
            let start = text.len();
            text.push_str(&self.text[place.clone()]);
            *place = start..text.len();
        }
        self.text = text;
    }

    fn string(&mut self, name: &'static str, value: fmt::Arguments<'_>) {
        self.set(name, |text| {
            text.push('"');
            // What of the user's cannot be displayed is shown as far as it got.
            Escaped(text).write_fmt(value).ok();
            text.push('"');
        });
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has neither infinities nor NaN.
        if value.is_finite() {
            self.number(field.name(), format_args!("{value:?}"));
        } else {
            self.set(field.name(), |text| text.push_str("null"));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.number(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), |text| write_string(text, value));
    }

    /// Writes the whole chain of causes, because a log line is where it is read.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.string(field.name(), format_args!("{}", Chain(value)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.string(field.name(), format_args!("{value:?}"));
    }
}

// === impl Escaped ===

impl Write for Escaped<'_> {
    /// Escapes all control characters, though JSON asks for those of ASCII only: a terminal obeys the others too.
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let mut written = 0;
        for (at, special) in part.match_indices(|c: char| c.is_control() || matches!(c, '"' | '\\')) {
            self.0.push_str(&part[written..at]);
            match special {
                "\"" => self.0.push_str("\\\""),
                "\\" => self.0.push_str("\\\\"),
                "\n" => self.0.push_str("\\n"),
                "\r" => self.0.push_str("\\r"),
                "\t" => self.0.push_str("\\t"),
                others => {
                    for control in others.chars() {
                        write!(self.0, "\\u{:04x}", u32::from(control))?;
                    }
                }
            }
            written = at + special.len();
        }
        self.0.push_str(&part[written..]);
        Ok(())
    }
}

/// Writes a JSON string with its quotes.
pub(super) fn write_string(text: &mut String, value: &str) {
    text.push('"');
    // A String takes all.
    Escaped(text).write_str(value).ok();
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_recorded_is_one_json_value() {
        let all: String = (0_u32..0x250).filter_map(char::from_u32).chain("\u{2028}😀".chars()).collect();
        let mut text = String::new();
        write_string(&mut text, &all);
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), all);
        assert!(!text.contains(char::is_control), "no terminal is driven by it: {text:?}");
    }

    #[test]
    fn a_value_that_is_set_again_and_again_takes_no_more_room() {
        let mut fields = Fields::default();
        fields.string("name", format_args!("cart"));
        for progress in 0..100_000 {
            fields.number("progress", progress);
        }
        assert!(fields.text.capacity() < 4 * TIDY_BYTES, "{} bytes", fields.text.capacity());
        assert_eq!(fields.iter().collect::<Vec<_>>(), [("name", "\"cart\""), ("progress", "99999")]);
    }

    #[test]
    fn the_room_of_fields_that_were_given_back_is_used_again_and_their_values_are_not() {
        let mut fields = Fields::take();
        fields.number("attempt", 1);
        fields.number("attempt", 22);
        assert_eq!(fields.iter().collect::<Vec<_>>(), [("attempt", "22")]);
        let room = fields.text.as_ptr();
        fields.give_back();
        let mut again = Fields::take();
        assert_eq!(again.iter().count(), 0);
        again.number("attempt", 3);
        assert_eq!((again.text.as_ptr(), again.get("attempt")), (room, Some("3")));

        again.set("error", |text| text.push_str(&"x".repeat(SPARE_BYTES + 1)));
        again.give_back();
        assert_eq!(Fields::take().text.capacity(), 0, "a room that large is not kept");
    }
}
