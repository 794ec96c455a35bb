//! The keys that a file may have: those of the runtime, and those that a program adds.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};

use super::controllers::{ControllerKeys, RESTART, tree_of};
use super::messages::child;
use super::section::{Applies, DeclaredSection, Section, applies, schema_of};
use super::{
    API_VERSION, Cache, EVERY_CONTROLLER, Health, Inspect, KIND, LeaderElection, Logging, Metrics, Shutdown,
    default_file,
};
use crate::controller::ControllerSettings;

/// The URL of the JSON Schema version in which the configuration file is described.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// The schema keyword that has the time a change of a key applies: `live` or `restart`.
pub(super) const APPLIES: &str = "x-mainstay-applies";

/// The runtime's own sections of the configuration file, except `controllers`.
pub(super) static RUNTIME: LazyLock<[DeclaredSection; 7]> = LazyLock::new(|| {
    [
        DeclaredSection::of::<LeaderElection>("leaderElection"),
        DeclaredSection::of::<Health>("health"),
        DeclaredSection::of::<Metrics>("metrics"),
        DeclaredSection::of::<Inspect>("inspect"),
        DeclaredSection::of::<Cache>("cache"),
        DeclaredSection::of::<Shutdown>("shutdown"),
        DeclaredSection::of::<Logging>("logging"),
    ]
});

/// The JSON Schema of one controller's entry in the configuration file.
pub(super) static CONTROLLER: LazyLock<Json> = LazyLock::new(schema_of::<ControllerKeys>);

/// The keys that a configuration file may have.
///
/// The sections of the runtime are always among them. A program adds sections of its own, each with a type,
/// and the names of its controllers.
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
    /// The only names that controllers may have in the configuration file; `None` for any name.
    pub(super) controllers: Option<Vec<String>>,
    /// The sections that the program adds to the configuration file.
    pub(super) sections: Vec<DeclaredSection>,
}

// === impl ConfigSchema ===

impl ConfigSchema {
    /// Returns a schema of the configuration file without sections of a program; the file may name any
    /// controller.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds names of controllers. Once called, the configuration file may have settings of these controllers
    /// only.
    pub fn controllers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.controllers.get_or_insert_default().extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds a section to the configuration file: a mapping below this name. A later section of the same name
    /// replaces the earlier one. The names of the runtime's sections are reserved.
    pub fn section<S: Section>(mut self, name: &'static str) -> Self {
        self.sections.retain(|declared| declared.name != name);
        self.sections.push(DeclaredSection::of::<S>(name));
        self
    }

    /// Returns the text of a configuration file with every key at its default, and with its meaning, its
    /// range and the time a change applies in comments. `program` is the name of the command.
    pub fn default_file(&self, program: &str) -> String {
        default_file::text(program, self)
    }

    /// Returns the JSON Schema (2020-12) of the configuration file, for editors and for programs that write
    /// such files.
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

    /// Returns the names of all sections that a configuration file may have, those of the program included.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let runtime = RUNTIME.iter().map(|declared| declared.name);
        runtime.chain(["controllers"]).chain(self.sections.iter().map(|declared| declared.name)).collect()
    }
}

// === impl DeclaredSection ===

impl DeclaredSection {
    /// Returns the JSON Schema of this section with the default of each key and the time its changes apply.
    pub(super) fn described(&self) -> Json {
        described(&self.schema, self.default.tree(), self.default.restart())
    }
}

/// Returns the JSON Schema of one controller's entry with the default of each key and the time its changes
/// apply.
pub(super) fn controller_described() -> Json {
    described(&CONTROLLER, &tree_of(&ControllerSettings::default()), RESTART)
}

fn described(schema: &Json, default: &Json, restart: &[&str]) -> Json {
    let mut schema = schema.clone();
    describe(&mut schema, default, "", restart);
    // null means an empty section.
    schema["type"] = json!(["object", "null"]);
    schema
}

/// Returns whether the value of a key is a mapping with fixed keys.
pub(super) fn is_section(schema: &Json, default: &Json) -> bool {
    schema.get("properties").is_some() && default.as_object().is_some_and(|keys| !keys.is_empty())
}

/// Adds its default, and the time its changes apply, to each key below a schema.
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
