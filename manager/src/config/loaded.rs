//! A configuration with where it came from.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde_json::Value as Json;

use super::cursor::{self, Cursor};
use super::problem::Problems;
use super::raw::{RawController, RawManager};
use super::shape::{number, time};
use super::walk::{Applies, read as read_section};
use super::written::{Written, written};
use super::{
    ConfigError, EVERY_CONTROLLER, FILE_NAME, ManagerConfiguration, Overrides, Position, resolve, tree,
};
use crate::controller::ControllerSettings;
use crate::queue::{Delay, Rate};

/// The largest file read: what the API server lets a `ConfigMap` hold.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A configuration with where each value came from.
///
/// ```
/// use mainstay::config::{Loaded, Overrides};
///
/// let text = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
///             controllers: {\"*\": {workers: 4}, web: {reconcileTimeout: 10s}}\n";
/// let loaded = Loaded::parse(text, "manager.yaml", &Overrides::default(), None)?;
///
/// let settings = loaded.controller("web", |code| code.queue.max_depth = 500);
/// let from = |path: &str| {
///     let setting = settings.iter().find(|setting| setting.path == path).unwrap();
///     format!("{} from {}", setting.value, setting.origin)
/// };
/// assert_eq!(from("controllers.web.reconcileTimeout"), r#""10s" from file 3:58"#);
/// assert_eq!(from("controllers.web.workers"), r#"4 from "*" 3:30"#);
/// assert_eq!(from("controllers.web.queue.maxDepth"), "500 from code");
/// assert_eq!(from("controllers.web.queue.retryShare"), "50 from default");
/// # Ok::<(), mainstay::config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What was read, complete and valid.
    pub configuration: ManagerConfiguration,
    /// Where its values came from.
    pub origins: Origins,
    /// SHA-256 of the text in hexadecimal, as `sha256sum` prints it; empty where there was no text.
    pub hash: String,
}

/// Where the values of one configuration came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// What is written in the file, by path.
    file: HashMap<String, Position>,
    /// What flags say, by path.
    flags: HashMap<&'static str, &'static str>,
    /// What a value is from that neither names.
    rest: Rest,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    #[default]
    Default,
    Code,
}

/// Where one value came from.
///
/// Displays as `default`, `file 12:14`, `"*" 8:5`, `flag --log-level` or `code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The file, at this key's value.
    File(Position),
    /// The file's entry of `"*"`, for a controller that has none of its own for this key.
    Every(Position),
    /// A flag, by its name.
    Flag(&'static str),
    /// The program's own code.
    Code,
}

/// One key in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The key, such as `controllers.web.workers`.
    pub path: String,
    /// Its value, as the file spells it.
    pub value: Json,
    /// Where that came from.
    pub origin: Origin,
    /// When a change in the file applies.
    pub applies: Applies,
}

// === impl Loaded ===

impl Loaded {
    /// Reads a file, or `manager.yaml` in a directory, and puts flags over it. With the names of the controllers
    /// of this binary given, a name that is not among them is an error.
    ///
    /// # Errors
    /// If the file cannot be read or anything in it is wrong; see [`ConfigError::lines`].
    pub fn load(
        path: &Path,
        overrides: &Overrides,
        controllers: Option<&[&str]>,
    ) -> Result<Self, ConfigError> {
        let path = file_in(path);
        let text = read(&path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        Self::parse(&text, &path.display().to_string(), overrides, controllers)
    }

    /// Reads a text. `origin` names it in messages.
    ///
    /// # Errors
    /// If anything in the text is wrong, or wrong together with the flags.
    pub fn parse(
        text: &str,
        origin: &str,
        overrides: &Overrides,
        controllers: Option<&[&str]>,
    ) -> Result<Self, ConfigError> {
        let problems = Problems::default();
        let resolved = match tree::parse(text) {
            Ok(node) => {
                let mut raw: RawManager = read_section(&Cursor::root(&node, &problems), controllers);
                let flags = raw.put_over(overrides);
                Some((resolve::resolve(&raw, &problems), flags))
            }
            Err(error) => {
                problems.push(error.at, "", format!("not YAML: {}", error.message));
                None
            }
        };
        let hash = sha256(text);
        Self::finish(resolved, problems, hash, origin)
    }

    /// Returns the defaults with flags put over them.
    ///
    /// # Errors
    /// If flags contradict each other or a default, such as two servers on one address.
    pub fn from_overrides(overrides: &Overrides) -> Result<Self, ConfigError> {
        let problems = Problems::default();
        let mut raw = RawManager::default();
        let flags = raw.put_over(overrides);
        let resolved = resolve::resolve(&raw, &problems);
        Self::finish(Some((resolved, flags)), problems, String::new(), "flags")
    }

    fn finish(
        resolved: Option<(ManagerConfiguration, HashMap<&'static str, &'static str>)>,
        problems: Problems,
        hash: String,
        origin: &str,
    ) -> Result<Self, ConfigError> {
        let (problems, file) = problems.finish();
        match resolved {
            Some((configuration, flags)) if problems.is_empty() => {
                Ok(Self { configuration, origins: Origins { file, flags, rest: Rest::Default }, hash })
            }
            _ => Err(ConfigError::Invalid { origin: origin.to_owned(), problems }),
        }
    }

    /// Returns every key with its value, in the order of the file. Of controllers there is what the file says: `"*"`
    /// complete, and the entries that have a name. What holds for one tells [`Loaded::controller`].
    pub fn settings(&self) -> Vec<Setting> {
        let keys = written("", &mut RawManager::from(&self.configuration));
        let setting = |key: Written| {
            let origin = self.origins.of(&key.path);
            Setting { path: key.path, value: key.value, origin, applies: key.applies }
        };
        keys.into_iter().map(setting).collect()
    }

    /// Returns every key of one controller with the value that holds for it, its code being asked as in
    /// [`Controllers::settings`](super::Controllers::settings). Several delays or rates, which only code can ask for, stand
    /// under `queue.retry.delays` and `queue.retryRate`.
    pub fn controller(&self, name: &str, code: impl FnOnce(&mut ControllerSettings)) -> Vec<Setting> {
        let controllers = &self.configuration.controllers;
        let mut coded = controllers.every.clone();
        let settings = controllers.settings(name, |settings| {
            code(settings);
            coded = settings.clone();
        });
        let [path, every_path] = [name, EVERY_CONTROLLER].map(|name| cursor::child("controllers", name));
        // All three have the same keys under other paths, except where code asks for more than a file can.
        let values = |settings: &ControllerSettings| -> HashMap<String, Json> {
            keys_of(&path, settings).into_iter().map(|key| (key.path, key.value)).collect()
        };
        let (every, coded) = (values(&controllers.every), values(&coded));
        let origin = |key: &Written| {
            if let Some(at) = self.origins.file.get(&key.path) {
                return Origin::File(*at);
            }
            if coded.get(&key.path) != every.get(&key.path) {
                return Origin::Code;
            }
            match self.origins.of(&format!("{every_path}{}", key.path.get(path.len()..).unwrap_or_default()))
            {
                Origin::File(at) => Origin::Every(at),
                other => other,
            }
        };
        let setting = |key: Written| {
            let origin = origin(&key);
            Setting { path: key.path, value: key.value, origin, applies: key.applies }
        };
        keys_of(&path, &settings).into_iter().map(setting).collect()
    }
}

/// Everything in a configuration that code has made comes from code.
impl From<ManagerConfiguration> for Loaded {
    fn from(configuration: ManagerConfiguration) -> Self {
        Self {
            configuration,
            origins: Origins { rest: Rest::Code, ..Origins::default() },
            hash: String::new(),
        }
    }
}

// === impl Origins ===

impl Origins {
    /// Returns where the value of a key came from, by the path that [`Setting::path`] has.
    pub fn of(&self, path: &str) -> Origin {
        if let Some(flag) = self.flags.get(path) {
            return Origin::Flag(flag);
        }
        match (self.file.get(path), self.rest) {
            (Some(at), _) => Origin::File(*at),
            (None, Rest::Default) => Origin::Default,
            (None, Rest::Code) => Origin::Code,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(at) => write!(f, "file {at}"),
            Self::Every(at) => write!(f, "\"{EVERY_CONTROLLER}\" {at}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Code => f.write_str("code"),
        }
    }
}

/// Returns the file that a path of `--config` means: itself, or `manager.yaml` in a directory.
pub(crate) fn file_in(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() }
}

/// Reads a file of bounded length, or what comes out of a pipe.
fn read(path: &Path) -> io::Result<String> {
    read_bounded(File::open(path)?)
}

/// As [`read`], and never waits for another process: what is no regular file is refused.
pub(super) fn read_regular(path: &Path) -> io::Result<String> {
    // Opening a pipe would wait for who writes to it.
    let file = File::from(rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is no regular file"));
    }
    read_bounded(file)
}

fn read_bounded(file: File) -> io::Result<String> {
    let mut text = String::new();
    // One byte more than allowed tells a full file from one that is too long.
    let length = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if u64::try_from(length).is_ok_and(|length| length > MAX_FILE_BYTES) {
        return Err(io::Error::other("longer than 1 MiB"));
    }
    Ok(text)
}

/// Returns every key of one controller, with what the file has no words for.
fn keys_of(path: &str, settings: &ControllerSettings) -> Vec<Written> {
    let mut keys = written(path, &mut RawController::from(settings));
    let mut add = |key: &str, values: Vec<Json>| {
        keys.push(Written { path: format!("{path}.{key}"), value: values.into(), applies: Applies::Live });
    };
    let retry = &settings.queue.retry;
    if !matches!(&*retry.delays, [Delay::Exponential { .. }]) {
        add("queue.retry.delays", retry.delays.iter().map(delay).collect());
    }
    if retry.rates.len() > 1 {
        let rate =
            |rate: &Rate| serde_json::json!({"perSecond": number(rate.per_second), "burst": rate.burst});
        add("queue.retryRate", retry.rates.iter().map(rate).collect());
    }
    keys
}

fn delay(delay: &Delay) -> Json {
    match *delay {
        Delay::Exponential { base, factor, max } => {
            serde_json::json!({"baseDelay": time(base), "factor": number(factor), "maxDelay": time(max)})
        }
        Delay::FastSlow { fast, slow, max_fast } => {
            serde_json::json!({"fast": time(fast), "slow": time(slow), "maxFast": max_fast})
        }
        Delay::Fixed(wait) => time(wait),
    }
}

pub(super) fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(digit.into(), 16));
        }
        text
    })
}
