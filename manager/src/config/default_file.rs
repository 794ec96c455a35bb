//! The file with every key at its default, explained: made from the types of the sections and their defaults.

use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::check::range_comment;
use super::controllers::ControllerKeys;
use super::schema::{APPLIES, RUNTIME, controller_described, is_section};
use super::{API_VERSION, ConfigSchema, EVERY_CONTROLLER, KIND};

/// The longest line of a comment.
const WIDTH: usize = 118;

const CONTROLLERS: &str = "Settings by controller. \"*\" holds those of every controller; a controller named beside it \
    overrides single fields, as in\n\n  web: {workers: 8, queue: {retryRate: {perSecond: 50, burst: 200}, maxDepth: \
    100000}}\n\nA name that this program does not have is an error. A controller's code may have settings of its own: they \
    override those of \"*\" and are overridden by those under its name. The result is checked at the start of the \
    controller, and before anything of a saved file is applied.";

/// Writes the file of a program, whose command has this name.
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
        ("run --config manager.yaml", "a file, or a directory that holds a manager.yaml"),
        ("config validate manager.yaml", "print the mistakes, one line each; exit code 2"),
        ("config print-defaults", "print this text"),
        ("config schema", "print a JSON Schema of it, for editors"),
    ];
    let commands =
        commands.map(|(command, text)| format!("#   {:<48} {text}\n", format!("{program} {command}")));
    format!(
        "# The configuration of a manager: every key with its meaning, unit, range and default. This file is the defaults;\n\
         # copy it, keep the lines you change and delete the rest, because a missing key means its default.\n\
         #\n\
         {}#\n\
         # Flags override this file; this file overrides the defaults. Unknown keys are errors.\n\
         # Saving the file changes a manager that runs by it, for the keys that are applied live; those applied at next\n\
         # start are named in the log. A file with a mistake changes nothing.\n\
         # Durations are written with units: 5ms, 30s, 2m, 10h, 1h30m. Sizes too: 512Ki, 8Mi, 1Gi.\n\
         apiVersion: {API_VERSION}\n\
         kind: {KIND}\n",
        commands.concat()
    )
}

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

    /// Writes the keys of a mapping, given as JSON in the order of the fields.
    fn keys(&mut self, depth: usize, schema: &Json, keys: &str) {
        let indent = "  ".repeat(depth);
        for (name, value) in entries(keys) {
            let schema = &schema["properties"][&name];
            let description = schema["description"].as_str().unwrap_or_default();
            let parsed = serde_json::from_str(value.get()).unwrap_or(Json::Null);
            if is_section(schema, &parsed) {
                self.comment(depth, description);
                self.text.extend([&*indent, &name, ":\n"]);
                self.keys(depth + 1, schema, value.get());
                continue;
            }
            self.comment(depth, description);
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

/// Spells a value on one line of YAML.
fn spelled(value: &Json, raw: &RawValue) -> String {
    let text = value.as_str().and_then(|text| serde_saphyr::to_string(&text).ok());
    text.map(|text| text.trim_end().to_owned())
        // JSON is YAML; only text reads better without its quotes.
        .filter(|text| !text.contains('\n'))
        .unwrap_or_else(|| raw.get().to_owned())
}

/// Reads a JSON object in its order, which the values of `serde_json` do not keep.
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
