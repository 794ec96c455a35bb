//! A configuration with the origin of each value, and the file to read it from.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::change::leaves;
use super::controllers::{path_of, tree_of};
use super::document::Document;
use super::schema::{CONTROLLER, RUNTIME};
use super::section::{Applies, Section, is_within};
use super::{
    API_VERSION, ConfigError, ConfigSchema, Controllers, EVERY_CONTROLLER, FILE_NAME, KIND,
    ManagerConfiguration, Overrides, Problem, Sections,
};
use crate::controller::ControllerSettings;
use crate::util::MAX_FILE_BYTES;

/// A manager's configuration as it was loaded, with the origin of each value.
///
/// ```
/// use mainstay::config::{ConfigSchema, Overrides};
///
/// let text = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
///             controllers: {\"*\": {workers: 4}, web: {reconcileTimeout: 10s}}\n";
/// let loaded = ConfigSchema::new().parse(text, "manager.yaml", &Overrides::default())?;
///
/// let settings = loaded.controller("web", |code| code.queue.max_depth = 500);
/// let from = |path: &str| {
///     let setting = settings.iter().find(|setting| setting.path == path).unwrap();
///     format!("{} from {}", setting.value, setting.origin)
/// };
/// assert_eq!(from("controllers.web.reconcileTimeout"), r#""10s" from file"#);
/// assert_eq!(from("controllers.web.workers"), r#"4 from "*""#);
/// assert_eq!(from("controllers.web.queue.maxDepth"), "500 from code");
/// assert_eq!(from("controllers.web.queue.retryShare"), "10 from default");
/// # Ok::<(), mainstay::config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Loaded {
    /// All settings of the manager, complete and valid.
    pub configuration: ManagerConfiguration,
    /// The origin of each value of the configuration, such as the file or a flag.
    pub origins: Origins,
    /// The SHA-256 of the configuration file's text in hexadecimal, as `sha256sum` prints it; empty if there
    /// was no text.
    pub hash: String,
}

/// The origins of the values of one configuration: default, file, flag or code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// Paths of the keys that the configuration file sets.
    file: HashSet<String>,
    /// Paths of the configuration keys that flags set, with the names of the flags.
    flags: HashMap<&'static str, &'static str>,
    /// Whether all values that neither file nor flag sets come from code; if `false`, they are defaults.
    from_code: bool,
}

/// The origin of one configuration value.
///
/// Displays as `default`, `file`, `"*"`, `flag --log-level` or `code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The value is the default.
    Default,
    /// The value comes from the configuration file.
    File,
    /// The value comes from the file's entry `"*"`: the controller's own entry does not set the key.
    Every,
    /// The value comes from the flag of this name.
    Flag(&'static str),
    /// The value comes from the program's own code.
    Code,
}

/// One configuration key with the value in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The path of the key, such as `controllers.web.workers`.
    pub path: String,
    /// The value of the key in force, as the file spells it.
    pub value: Json,
    /// The origin of the value, such as the file or a flag.
    pub origin: Origin,
    /// When a change of the key in the file applies: at once or at the next start.
    pub applies: Applies,
}

/// The configuration file of a manager, with the flags that override it and the keys it may have. A manager
/// reloads the file when it changes: see [`ManagerOptions::source`](crate::manager::ManagerOptions::source).
#[derive(Clone, Debug)]
pub struct ConfigSource {
    file: PathBuf,
    overrides: Overrides,
    schema: ConfigSchema,
}

// === impl ConfigSchema ===

impl ConfigSchema {
    /// Loads a configuration file, or `manager.yaml` in a directory, and replaces the values that flags
    /// override.
    ///
    /// # Errors
    /// If the file cannot be read or has a problem; see [`ConfigError::lines`].
    pub fn load(&self, path: &Path, overrides: &Overrides) -> Result<Loaded, ConfigError> {
        let source = ConfigSource::new(path, overrides.clone(), self.clone());
        source.parse(read(source.file()))
    }

    /// Parses the text of a configuration file and replaces the values that flags override. `origin` is the
    /// name of the text in error messages.
    ///
    /// # Errors
    /// If the text has a problem, also in combination with the flags. The error has the first value of a
    /// wrong type in each section, and all other values that are out of bounds or conflict with each other.
    pub fn parse(&self, text: &str, origin: &str, overrides: &Overrides) -> Result<Loaded, ConfigError> {
        let mut document =
            Document::parse(text).map_err(|problem| ConfigError::invalid(origin, vec![problem]))?;
        document.check_keys([("apiVersion", API_VERSION), ("kind", KIND)], &self.names());
        let loaded = Loaded::read(document, origin, overrides, self)?;
        Ok(Loaded { hash: crate::util::sha256(text.as_bytes()), ..loaded })
    }

    /// Returns the default configuration with the values that flags override.
    ///
    /// # Errors
    /// If flags contradict each other or a default, such as two servers on one address.
    pub fn from_overrides(&self, overrides: &Overrides) -> Result<Loaded, ConfigError> {
        Loaded::read(Document::default(), "flags", overrides, self)
    }
}

// === impl ConfigSource ===

impl ConfigSource {
    /// Makes the source of a configuration from a file, or from a directory with a `manager.yaml`, without
    /// reading it yet. The arguments are those of [`ConfigSchema::load`].
    pub fn new(path: &Path, overrides: Overrides, schema: ConfigSchema) -> Self {
        let file = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
        Self { file, overrides, schema }
    }

    /// Returns the path of the configuration file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Parses and checks the text of the configuration file; `read` is the result of reading it.
    ///
    /// # Errors
    /// If the file could not be read, or anything in it is wrong.
    pub(crate) fn parse(&self, read: io::Result<String>) -> Result<Loaded, ConfigError> {
        let text = read.map_err(|source| ConfigError::Read { path: self.file.clone(), source })?;
        self.schema.parse(&text, &self.file.display().to_string(), &self.overrides)
    }
}

// === impl Loaded ===

impl Loaded {
    fn read(
        mut document: Document<'_>,
        origin: &str,
        overrides: &Overrides,
        schema: &ConfigSchema,
    ) -> Result<Self, ConfigError> {
        let mut configuration = ManagerConfiguration {
            leader_election: own_section(&mut document, "leaderElection"),
            health: own_section(&mut document, "health"),
            metrics: own_section(&mut document, "metrics"),
            inspect: own_section(&mut document, "inspect"),
            cache: own_section(&mut document, "cache"),
            shutdown: own_section(&mut document, "shutdown"),
            logging: own_section(&mut document, "logging"),
            controllers: Controllers::default(),
            sections: Sections::default(),
        };
        for declared in &schema.sections {
            let mut report =
                |message: String| document.problems.push(Problem::message(declared.name, message));
            if schema.names().iter().filter(|name| **name == declared.name).count() > 1 {
                report("this name of a section is one of the runtime; expected another name".to_owned());
            }
            for path in declared.unknown_restart_keys() {
                report(format!("RESTART of this section has {path:?}; expected a key of the section"));
            }
        }
        let entries = json!({"type": "object", "additionalProperties": &*CONTROLLER});
        let controllers = document.section("controllers", &entries);
        let sections = schema.sections.iter();
        let sections: Vec<_> =
            sections.map(|declared| (declared.name, (declared.read)(&mut document, declared))).collect();
        let Document { tree, mut problems, .. } = document;
        // By position in the file.
        problems.sort_by_key(|problem| problem.position);
        let mut values = Vec::new();
        let flags = overrides.apply_to(&mut configuration);
        configuration.check_sections(&tree, &mut values);
        if problems.is_empty() {
            values.extend(configuration.check_addresses());
        }
        let known = schema.controllers.as_deref();
        configuration.controllers = Controllers::new(controllers, &tree["controllers"], known, &mut values);
        for (declared, (name, value)) in schema.sections.iter().zip(&sections) {
            declared.check(&tree[*name], value.validate(), &mut values);
        }
        configuration.sections = Sections::new(sections);
        // A value of a wrong type is reported once, without the problems of values below it.
        values.retain(|value| !problems.iter().any(|shape| is_within(&value.path, &shape.path)));
        problems.append(&mut values);
        if !problems.is_empty() {
            return Err(ConfigError::invalid(origin, problems));
        }
        let file = leaves(&tree).into_iter().map(|(path, _)| path).collect();
        let origins = Origins { file, flags, from_code: false };
        Ok(Self { configuration, origins, hash: String::new() })
    }

    /// Returns every key of the configuration with its value, in the order of the paths. For controllers
    /// these are all keys of `"*"`, and the keys that the file has for single controllers.
    /// [`Loaded::controller`] returns the settings in force for one.
    pub fn settings(&self) -> Vec<Setting> {
        let setting = |(path, value): (String, Json)| {
            let (origin, applies) = (self.origins.of(&path), self.configuration.applies(&path));
            Setting { path, value, origin, applies }
        };
        leaves(&self.configuration.tree()).into_iter().map(setting).collect()
    }

    /// Returns every key of one controller with the value in force. `code` makes the changes of the
    /// controller's code, as in [`Controllers::settings`](super::Controllers::settings).
    pub fn controller(&self, name: &str, code: impl FnOnce(&mut ControllerSettings)) -> Vec<Setting> {
        let controllers = &self.configuration.controllers;
        let mut coded = controllers.every.clone();
        let settings = controllers.settings(name, |settings| {
            code(settings);
            coded = settings.clone();
        });
        let [path, every_path] = [name, EVERY_CONTROLLER].map(path_of);
        let keys = |settings: &ControllerSettings| -> BTreeMap<String, Json> {
            leaves(&tree_of(settings)).into_iter().collect()
        };
        let (every, coded) = (keys(&controllers.every), keys(&coded));
        let setting = |(key, value): (String, Json)| {
            let path = format!("{path}.{key}");
            let origin = if self.origins.file.contains(&path) {
                Origin::File
            } else if coded.get(&key) != every.get(&key) {
                Origin::Code
            } else {
                match self.origins.of(&format!("{every_path}.{key}")) {
                    Origin::File => Origin::Every,
                    other => other,
                }
            };
            let applies = self.configuration.applies(&path);
            Setting { path, value, origin, applies }
        };
        keys(&settings).into_iter().map(setting).collect()
    }
}

/// Converts a configuration made in code; all values have [`Origin::Code`].
impl From<ManagerConfiguration> for Loaded {
    fn from(configuration: ManagerConfiguration) -> Self {
        let origins = Origins { from_code: true, ..Origins::default() };
        Self { configuration, origins, hash: String::new() }
    }
}

// === impl Origins ===

impl Origins {
    /// Returns the origin of a key's value; `path` is the one in [`Setting::path`].
    pub fn of(&self, path: &str) -> Origin {
        match self.flags.get(path) {
            Some(flag) => Origin::Flag(flag),
            None if self.file.contains(path) => Origin::File,
            None if self.from_code => Origin::Code,
            None => Origin::Default,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File => f.write_str("file"),
            Self::Every => write!(f, "\"{EVERY_CONTROLLER}\""),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Code => f.write_str("code"),
        }
    }
}

/// Deserializes one of the runtime's own sections, such as `cache`, from a document.
fn own_section<S: Section>(document: &mut Document<'_>, name: &str) -> S {
    let declared = RUNTIME.iter().find(|declared| declared.name == name);
    document.section(name, declared.map_or(&Json::Null, |declared| &declared.schema))
}

/// Reads the configuration from a file or a pipe. A text above the maximal length is an error.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One byte more than allowed, to detect a file that is too long.
    let length = File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if u64::try_from(length).is_ok_and(|length| length > MAX_FILE_BYTES) {
        return Err(io::Error::other("longer than 1 MiB"));
    }
    Ok(text)
}
