//! The file's JSON Schema, for editors and for whoever makes such files.
//!
//! It is derived from the keys as they are read. What a schema cannot say, such as the ends of a duration or what two
//! keys must be to each other, only reading the file refuses.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::EVERY_CONTROLLER;
use super::raw::{RawController, RawManager};
use super::walk::{Applies, Section, Shape, Walk};

/// The version of JSON Schema that is written.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Returns the JSON Schema (2020-12) of the file for a program with these controllers; `None` lets any be named.
///
/// ```
/// let schema = mainstay::config::schema(Some(&["web"]));
/// let workers = &schema["$defs"]["controller"]["properties"]["workers"];
/// assert_eq!((&workers["minimum"], &workers["maximum"]), (&1.into(), &1000.into()));
/// assert_eq!(schema["properties"]["controllers"]["additionalProperties"], false);
/// ```
pub fn schema(controllers: Option<&[&str]>) -> Json {
    let mut describer = Describer { known: controllers, ..Describer::default() };
    RawManager::default().walk(&mut describer);
    json!({
        "$schema": DIALECT,
        "title": super::KIND,
        "type": "object",
        "properties": describer.properties,
        "required": describer.required,
        "additionalProperties": false,
        "$defs": {"controller": section::<RawController>()},
    })
}

/// Returns the schema of one section, `null` being an empty one.
pub(super) fn section<S: Section>() -> Json {
    describe(&mut S::default())
}

fn describe(section: &mut impl Section) -> Json {
    let mut describer = Describer::default();
    section.walk(&mut describer);
    json!({"type": ["object", "null"], "properties": describer.properties, "additionalProperties": false})
}

#[derive(Default)]
struct Describer<'k> {
    properties: Map<String, Json>,
    required: Vec<&'static str>,
    /// The only names that controllers may have; `None` for any.
    known: Option<&'k [&'k str]>,
}

// === impl Describer ===

impl Walk for Describer<'_> {
    fn constant(&mut self, name: &'static str, value: &'static str) {
        self.properties.insert(name.to_owned(), json!({"const": value}));
        self.required.push(name);
    }

    fn key<T>(&mut self, name: &'static str, _: Applies, _: &mut Option<T>, shape: impl Shape<Value = T>) {
        self.properties.insert(name.to_owned(), shape.schema());
    }

    fn section(&mut self, name: &'static str, section: &mut impl Section) {
        self.properties.insert(name.to_owned(), describe(section));
    }

    fn controllers(&mut self, name: &'static str, _: &mut BTreeMap<String, RawController>) {
        let controller = json!({"$ref": "#/$defs/controller"});
        let names = self.known.unwrap_or_default().iter().copied().chain([EVERY_CONTROLLER]);
        let each: Map<String, Json> = names.map(|name| (name.to_owned(), controller.clone())).collect();
        let others = if self.known.is_some() { false.into() } else { controller };
        let controllers =
            json!({"type": ["object", "null"], "properties": each, "additionalProperties": others});
        self.properties.insert(name.to_owned(), controllers);
    }
}
