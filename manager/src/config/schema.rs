//! The file's JSON Schema, for editors and for whoever makes such files.
//!
//! It is derived from the keys as they are read; the words come from the shipped file. What a schema cannot say, such as the ends of a duration or what two
//! keys must be to each other, only reading the file refuses.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value as Json, json};

use super::cursor::child;
use super::guide::{self, Comment};
use super::raw::{RawController, RawManager};
use super::walk::{Applies, Section, Shape, Walk};
use super::written::written;
use super::{DEFAULTS_TEXT, EVERY_CONTROLLER, ManagerConfiguration};

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
    let words = Words::of_the_shipped_file();
    let mut describer = Describer { known: controllers, words: Some(&words), ..Describer::default() };
    RawManager::default().walk(&mut describer);
    let every = child("controllers", EVERY_CONTROLLER);
    json!({
        "$schema": DIALECT,
        "title": super::KIND,
        "type": "object",
        "properties": describer.properties,
        "required": describer.required,
        "additionalProperties": false,
        "$defs": {"controller": describe(&mut RawController::default(), every, Some(&words))},
    })
}

/// Returns the schema of a section that is the value of a key, `null` being an empty one.
pub(super) fn section<S: Section>() -> Json {
    describe(&mut S::default(), String::new(), None)
}

fn describe(section: &mut impl Section, path: String, words: Option<&Words>) -> Json {
    let mut describer = Describer { path, words, ..Describer::default() };
    section.walk(&mut describer);
    json!({"type": ["object", "null"], "properties": describer.properties, "additionalProperties": false})
}

#[derive(Default)]
struct Describer<'w> {
    /// Where the keys stand.
    path: String,
    /// `None` where the shipped file does not name the keys, because it explains all of them at once.
    words: Option<&'w Words>,
    properties: Map<String, Json>,
    required: Vec<&'static str>,
    /// The only names that controllers may have; `None` for any.
    known: Option<&'w [&'w str]>,
}

/// What is said of each key, by path.
struct Words {
    comments: HashMap<String, Comment>,
    defaults: HashMap<String, Json>,
}

// === impl Words ===

impl Words {
    fn of_the_shipped_file() -> Self {
        let keys = written("", &mut RawManager::from(&ManagerConfiguration::default()));
        let defaults = keys.into_iter().map(|key| (key.path, key.value)).collect();
        Self { comments: guide::comments(DEFAULTS_TEXT), defaults }
    }

    fn add_to(&self, schema: &mut Json, path: &str) {
        if let Some(comment) = self.comments.get(path) {
            schema["description"] = comment.text.as_str().into();
        }
        if let Some(default) = self.defaults.get(path) {
            schema["default"] = default.clone();
        }
    }
}

// === impl Describer ===

impl Walk for Describer<'_> {
    fn constant(&mut self, name: &'static str, value: &'static str) {
        // The comment above is that of the whole file.
        self.properties.insert(name.to_owned(), json!({"const": value}));
        self.required.push(name);
    }

    fn key<T>(&mut self, name: &'static str, _: Applies, _: &mut Option<T>, shape: impl Shape<Value = T>) {
        self.put(name, shape.schema());
    }

    fn section(&mut self, name: &'static str, section: &mut impl Section) {
        self.put(name, describe(section, child(&self.path, name), self.words));
    }

    fn controllers(&mut self, name: &'static str, _: &mut BTreeMap<String, RawController>) {
        let controller = json!({"$ref": "#/$defs/controller"});
        let names = self.known.unwrap_or_default().iter().copied().chain([EVERY_CONTROLLER]);
        let each: Map<String, Json> = names.map(|name| (name.to_owned(), controller.clone())).collect();
        let others = if self.known.is_some() { false.into() } else { controller };
        let controllers =
            json!({"type": ["object", "null"], "properties": each, "additionalProperties": others});
        self.put(name, controllers);
    }
}

impl Describer<'_> {
    fn put(&mut self, name: &'static str, mut schema: Json) {
        if let Some(words) = self.words {
            words.add_to(&mut schema, &child(&self.path, name));
        }
        self.properties.insert(name.to_owned(), schema);
    }
}
