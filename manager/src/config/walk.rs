//! One walk over all keys, for whoever reads, writes or describes them.
//!
//! A section says once what its keys are called, what each takes and when a change of it applies. The reader here fills
//! the settings from a file; `written` turns settings back into values, and `schema` needs no settings at all. So a key
//! that is read is shown and described, and none is that is not read.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::EVERY_CONTROLLER;
use super::cursor::{Cursor, Fields, closest, one_of};
use super::raw::RawController;

/// When a key of a file that is saved again applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// Within the running process.
    Live,
    /// When the process is started again.
    AtNextStart,
}

/// Keys that stand together in one mapping.
pub(super) trait Section: Default {
    /// Names every key, in the order of the file.
    fn walk(&mut self, keys: &mut impl Walk);
}

/// What is done with each key.
pub(super) trait Walk {
    /// A key of which only this value is right, and which has to be there.
    fn constant(&mut self, name: &'static str, value: &'static str);

    /// A key with a value; `None` where nothing is written.
    fn key<T>(
        &mut self,
        name: &'static str,
        applies: Applies,
        value: &mut Option<T>,
        shape: impl Shape<Value = T>,
    );

    /// Further keys below a name. An absent section is an empty one.
    fn section(&mut self, name: &'static str, section: &mut impl Section);

    /// The settings of controllers, by name.
    fn controllers(&mut self, name: &'static str, controllers: &mut BTreeMap<String, RawController>);
}

/// What a key takes.
pub(super) trait Shape {
    type Value;

    /// Reads the value, or reports what is wrong with it.
    fn read(&self, cursor: &Cursor<'_>) -> Option<Self::Value>;

    /// Returns the value as a file would say it: reading it gives the same value.
    fn write(&self, value: &Self::Value) -> Json;

    /// Returns a JSON Schema that refuses as much of what [`Shape::read`] refuses as such a schema can.
    fn schema(&self) -> Json;
}

/// Fills settings from a file.
#[derive(Debug)]
pub(super) struct Reader<'r, 'a> {
    cursor: &'r Cursor<'a>,
    fields: Fields<'a>,
    /// The only names that controllers may have; `None` for any.
    known: Option<&'r [&'r str]>,
}

/// Reads a section. What is refused is reported and left unset.
pub(super) fn read<S: Section>(cursor: &Cursor<'_>, known: Option<&[&str]>) -> S {
    let mut section = S::default();
    read_into(&mut section, cursor, known);
    section
}

fn read_into(section: &mut impl Section, cursor: &Cursor<'_>, known: Option<&[&str]>) {
    let mut reader = Reader { cursor, fields: cursor.fields(), known };
    section.walk(&mut reader);
    reader.fields.close();
}

// === impl Reader ===

impl Walk for Reader<'_, '_> {
    fn constant(&mut self, name: &'static str, value: &'static str) {
        match self.fields.cursor(name) {
            Some(cursor) if cursor.is_text(value) => {}
            Some(cursor) => cursor.refuse(value),
            None => self.cursor.report(format!("{name} is missing; expected {name}: {value}")),
        }
    }

    fn key<T>(
        &mut self,
        name: &'static str,
        _: Applies,
        value: &mut Option<T>,
        shape: impl Shape<Value = T>,
    ) {
        *value = self.fields.cursor(name).and_then(|cursor| shape.read(&cursor));
    }

    fn section(&mut self, name: &'static str, section: &mut impl Section) {
        if let Some(cursor) = self.fields.cursor(name) {
            read_into(section, &cursor, self.known);
        }
    }

    fn controllers(&mut self, name: &'static str, controllers: &mut BTreeMap<String, RawController>) {
        let Some(cursor) = self.fields.cursor(name) else { return };
        for (name, cursor) in
            cursor.entries("a mapping from controllers to their settings").unwrap_or_default()
        {
            if let Some(known) = self.known
                && name != EVERY_CONTROLLER
                && !known.contains(&name.as_str())
            {
                let near =
                    closest(&name, known).map_or_else(String::new, |near| format!("; did you mean {near}?"));
                let all: Vec<&str> = known.iter().copied().chain([r#""*""#]).collect();
                cursor.report(format!("unknown controller; expected {}{near}", one_of(&all)));
            }
            controllers.insert(name, read(&cursor, self.known));
        }
    }
}
