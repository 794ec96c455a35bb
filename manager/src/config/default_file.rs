//! The default file: every key at its default, with comments made from the types of the sections.

use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::check::range_comment;
use super::controllers::ControllerKeys;
use super::schema::{APPLIES, RUNTIME, controller_described, is_section};
use super::{API_VERSION, ConfigSchema, EVERY_CONTROLLER, KIND};

/// The longest line of a comment in the default file, in characters.
const WIDTH: usize = 110;

const CONTROLLERS: &str = concat!(
    "Settings by controller. The entry \"*\" is for all controllers; the entry of one controller overrides ",
    "single keys, as in\n\n",
    "  web: {workers: 8, queue: {retryRate: {perSecond: 50, burst: 200}, maxDepth: 100000}}\n\n",
    "The name of an unknown controller is an error. Settings in a controller's code override \"*\", and the ",
    "entry of the controller overrides both. The merged settings are checked when the controller starts, ",
    "and before a saved file is applied.",
);

/// Returns the text of the default configuration file of the program with the command `program`.
pub(super) fn text(program: &str, schema: &ConfigSchema) -> String {
    let mut file = File { text: header(program) };
    for declared in RUNTIME.iter() {
        file.section(declared.name, &declared.described(), &declared.default.text());
    }
    file.text.push('\n');
    file.comment(0, CONTROLLERS);
    file.text.extend(["controllers:\n  \"", EVERY_CONTROLLER, "\":\n"]);
    file.keys(2, &controller_described(), &ControllerKeys::default_text());
    for declared in &schema.sections {
        file.section(declared.name, &declared.described(), &declared.default.text());
    }
    file.text
}

fn header(program: &str) -> String {
    let commands = [
        ("run --config manager.yaml", "run with a file, or a directory with a manager.yaml"),
        ("config validate manager.yaml", "print the problems, one line each, with exit code 2"),
        ("config print-defaults", "print this text"),
        ("config schema", "print a JSON Schema of the file, for editors"),
    ];
    let commands =
        commands.map(|(command, text)| format!("#   {:<48} {text}\n", format!("{program} {command}")));
    format!(
        "# The configuration of a manager: every key with its meaning, unit, range and default.\n\
         # This file has only defaults: copy it, keep the lines you change and delete the rest.\n\
         #\n\
         {}#\n\
         # Flags override this file; this file overrides the defaults. Unknown keys are errors.\n\
         # A running manager reloads the file when it is saved. It applies live keys at once, and logs\n\
         # changes that apply at the next start. If the file has a problem, nothing changes.\n\
         # Durations are written with units: 5ms, 30s, 2m, 10h, 1h30m. Sizes too: 512Ki, 8Mi, 1Gi.\n\
         apiVersion: {API_VERSION}\n\
         kind: {KIND}\n",
        commands.concat()
    )
}

/// The text of the default configuration file that is being written.
struct File {
    text: String,
}

// === impl File ===

impl File {
    fn section(&mut self, name: &str, schema: &Json, keys: &str) {
        self.text.push('\n');
        self.comment(0, schema["description"].as_str().unwrap_or_default());
        if keys == "{}" {
            self.text.extend([name, ": {}\n"]);
        } else {
            self.text.extend([name, ":\n"]);
            self.keys(1, schema, keys);
        }
    }

    /// Writes the keys of a mapping, with comments, to the default file. `keys` has their defaults as JSON,
    /// in the order of the fields.
    fn keys(&mut self, depth: usize, schema: &Json, keys: &str) {
        let indent = "  ".repeat(depth);
        for (name, value) in entries(keys) {
            let schema = &schema["properties"][&name];
            let description = schema["description"].as_str().unwrap_or_default();
            let parsed = serde_json::from_str(value.get()).unwrap_or(Json::Null);
            self.comment(depth, description);
            if is_section(schema, &parsed) {
                self.text.extend([&*indent, &name, ":\n"]);
                self.keys(depth + 1, schema, value.get());
                continue;
            }
            let default = parsed.as_str().filter(|text| !text.is_empty()).unwrap_or(value.get());
            let range = range_comment(schema).map_or_else(String::new, |range| format!(" {range}"));
            let when = if schema[APPLIES] == "restart" { "at next start" } else { "live" };
            self.comment(depth, &format!("Default: {default}.{range} Applied {when}."));
            self.text.extend([&*indent, &name, ": ", &spelled(&parsed, &value), "\n"]);
        }
    }

    fn comment(&mut self, depth: usize, text: &str) {
        let indent = "  ".repeat(depth);
        let text = text.replace('`', "");
        for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
            if paragraph.starts_with("  ") {
                self.text.extend([&*indent, "# ", paragraph, "\n"]);
                continue;
            }
            let mut line = String::new();
            for word in paragraph.split_whitespace() {
                if !line.is_empty() && indent.len() + 2 + line.len() + 1 + word.chars().count() > WIDTH {
                    self.text.extend([&*indent, "#", &line, "\n"]);
                    line.clear();
                }
                line.extend([" ", word]);
            }
            self.text.extend([&*indent, "#", &line, "\n"]);
        }
    }
}

/// Returns a value as one line of YAML.
fn spelled(value: &Json, raw: &RawValue) -> String {
    let text = value.as_str().and_then(|text| serde_saphyr::to_string(&text).ok());
    text.map(|text| text.trim_end().to_owned())
        // JSON is valid YAML, but text is easier to read without its quotes.
        .filter(|text| !text.contains('\n'))
        .unwrap_or_else(|| raw.get().to_owned())
}

/// Parses a JSON object into its entries, in their order; `serde_json::Map` would sort them.
fn entries(object: &str) -> Vec<(String, Box<RawValue>)> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<(String, Box<RawValue>)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a mapping")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    serde_json::Deserializer::from_str(object).deserialize_map(Entries).unwrap_or_default()
}
