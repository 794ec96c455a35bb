//! Which keys a file may have: those of the runtime, and those that a program adds.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};

use super::controllers::{ControllerKeys, RESTART, tree_of};
use super::section::{Applies, Declared, Section, applies, schema_of};
use super::words::child;
use super::{
    API_VERSION, Cache, EVERY_CONTROLLER, Health, Inspect, KIND, LeaderElection, Logging, Metrics, Shutdown,
    default_file,
};
use crate::controller::ControllerSettings;

/// The version of JSON Schema that is written.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Says of each key when a change of it applies.
pub(super) const APPLIES: &str = "x-mainstay-applies";

/// The runtime's own sections, without those of controllers.
pub(super) static RUNTIME: LazyLock<[Declared; 7]> = LazyLock::new(|| {
    [
        Declared::of::<LeaderElection>("leaderElection"),
        Declared::of::<Health>("health"),
        Declared::of::<Metrics>("metrics"),
        Declared::of::<Inspect>("inspect"),
        Declared::of::<Cache>("cache"),
        Declared::of::<Shutdown>("shutdown"),
        Declared::of::<Logging>("logging"),
    ]
});

/// The settings of one controller.
pub(super) static CONTROLLER: LazyLock<Json> = LazyLock::new(schema_of::<ControllerKeys>);

/// Which keys a configuration file may have.
///
/// The runtime's own are always among them. A program adds sections of its own, each with a type, and says which
/// controllers there are.
///
/// ```
/// use mainstay::config::ConfigSchema;
///
/// let schema = ConfigSchema::new().controllers(["web"]).json();
/// let workers = &schema["$defs"]["controller"]["properties"]["workers"];
/// assert_eq!((&workers["minimum"], &workers["maximum"]), (&1.into(), &1000.into()));
/// assert_eq!(workers["x-mainstay-applies"], "live");
/// assert_eq!(schema["properties"]["controllers"]["additionalProperties"], false);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ConfigSchema {
    /// The only names that controllers may have; `None` for any.
    pub(super) controllers: Option<Vec<String>>,
    pub(super) sections: Vec<Declared>,
}

// === impl ConfigSchema ===

impl ConfigSchema {
    /// Returns the schema of a file for a program without sections, which may name any controller.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the controllers that the file may name.
    pub fn controllers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.controllers = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Adds a section, a mapping below this name. A second one of a name replaces the first; the names of the runtime's
    /// own sections are taken.
    pub fn section<S: Section>(mut self, name: &'static str) -> Self {
        self.sections.retain(|declared| declared.name != name);
        self.sections.push(Declared::of::<S>(name));
        self
    }

    /// Returns the text of a file with every key: its meaning, range and default, and when a change of it applies. `program`
    /// is the name of the command.
    pub fn default_file(&self, program: &str) -> String {
        default_file::text(program, self)
    }

    /// Returns the JSON Schema (2020-12) of the file, for editors and for programs that write such files.
    ///
    /// Each key has its default, and `x-mainstay-applies` is `live` or `restart`.
    pub fn json(&self) -> Json {
        let mut properties = Map::new();
        properties.insert("apiVersion".to_owned(), json!({"const": API_VERSION}));
        properties.insert("kind".to_owned(), json!({"const": KIND}));
        for declared in RUNTIME.iter().chain(&self.sections) {
            properties.insert(declared.name.to_owned(), declared.described());
        }
        let controller = json!({"$ref": "#/$defs/controller"});
        let names = self.controllers.iter().flatten().map(String::as_str).chain([EVERY_CONTROLLER]);
        let each: Map<String, Json> = names.map(|name| (name.to_owned(), controller.clone())).collect();
        let others = if self.controllers.is_some() { false.into() } else { controller };
        let controllers =
            json!({"type": ["object", "null"], "properties": each, "additionalProperties": others});
        properties.insert("controllers".to_owned(), controllers);
        json!({
            "$schema": DIALECT,
            "title": KIND,
            "type": "object",
            "properties": properties,
            "required": ["apiVersion", "kind"],
            "additionalProperties": false,
            "$defs": {"controller": controller_described()},
        })
    }

    /// The names that may stand at the root of a file, beside `apiVersion` and `kind`.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let runtime = RUNTIME.iter().map(|declared| declared.name);
        runtime.chain(["controllers"]).chain(self.sections.iter().map(|declared| declared.name)).collect()
    }
}

// === impl Declared ===

impl Declared {
    /// Returns the schema, with default and time of application of each key.
    pub(super) fn described(&self) -> Json {
        let mut schema = self.schema.clone();
        describe(&mut schema, self.default.tree(), "", self.default.restart());
        // An absent value is an empty section.
        schema["type"] = json!(["object", "null"]);
        schema
    }
}

/// Returns the schema of one controller, as [`Declared::described`].
pub(super) fn controller_described() -> Json {
    let mut schema = CONTROLLER.clone();
    describe(&mut schema, &tree_of(&ControllerSettings::default()), "", RESTART);
    schema["type"] = json!(["object", "null"]);
    schema
}

/// Whether the value of a key is a section with keys of its own.
pub(super) fn is_section(schema: &Json, default: &Json) -> bool {
    schema.get("properties").is_some() && default.as_object().is_some_and(|keys| !keys.is_empty())
}

fn describe(schema: &mut Json, default: &Json, path: &str, restart: &[&str]) {
    let Some(Json::Object(properties)) = schema.get_mut("properties") else { return };
    for (name, schema) in properties {
        let (path, default) = (child(path, name), &default[name]);
        if is_section(schema, default) {
            describe(schema, default, &path, restart);
        } else {
            schema["default"] = default.clone();
            let when = match applies(&path, restart) {
                Applies::Live => "live",
                Applies::AtNextStart => "restart",
            };
            schema[APPLIES] = when.into();
        }
    }
}
