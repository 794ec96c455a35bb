//! Settings of controllers, merged from four places.
//!
//! In ascending precedence: the defaults; the file's `"*"`; the controller's own code; the file's entry of
//! its name. So code overrides the settings of all controllers, and an operator overrides code. An entry
//! overrides only the keys that are written in it.

mod keys;

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::check::check;
use super::messages::{child, hint, one_of, shown};
use super::schema::CONTROLLER;
use super::{EVERY_CONTROLLER, Problem};
use crate::controller::ControllerSettings;

pub(super) use keys::ControllerKeys;

/// Keys of a controller that apply at the next start; all other keys apply live.
pub(super) const RESTART: &[&str] = &["enabled"];

/// The longest name of a controller in bytes: a namespace, a slash and the name of an object.
const MAX_NAME_BYTES: usize = 317;

/// The section `controllers` of the configuration file: settings of all controllers and of single ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Controllers {
    /// The defaults with the keys of `"*"` applied: the settings of a controller that has neither settings in
    /// code nor an entry in the file.
    pub every: ControllerSettings,
    /// The entries of single controllers by name, with the keys that the file has. Each is valid on top of
    /// `every`.
    pub(super) named: BTreeMap<String, ControllerKeys>,
}

// === impl Controllers ===

impl Controllers {
    /// Merges the controllers' entries of a file, and adds all their problems to `problems`. If `known` has
    /// the names of the program's controllers, any other name is a problem. `tree` is the section as it is
    /// written.
    pub(super) fn new(
        entries: BTreeMap<String, Option<ControllerKeys>>,
        tree: &Json,
        known: Option<&[String]>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let entries = entries.into_iter().map(|(name, keys)| (name, keys.unwrap_or_default()));
        let (mut named, mut every) = (entries.collect::<BTreeMap<_, _>>(), ControllerSettings::default());
        let before = problems.len();
        for (name, keys) in &named {
            check_name(name, known, problems);
            check(&CONTROLLER, &tree[name], &path_of(name), problems);
            keys.check_forms(name, problems);
        }
        if let Some(star) = named.remove(EVERY_CONTROLLER) {
            star.check_rate(EVERY_CONTROLLER, &every, problems);
            star.apply_to(&mut every, &ControllerSettings::default());
        }
        for (name, keys) in &named {
            keys.check_rate(name, &every, problems);
        }
        let controllers = Self { every, named };
        // Relations between values are checked only if each value is valid.
        if problems.len() == before {
            controllers.check_relations(problems);
        }
        controllers
    }

    /// Returns the settings of one controller; `code` makes the changes of its code to the settings of all
    /// controllers.
    ///
    /// Code and file may each be valid, and invalid together; [`ControllerSettings::problems`] returns such
    /// conflicts.
    pub fn settings(&self, name: &str, code: impl FnOnce(&mut ControllerSettings)) -> ControllerSettings {
        let mut settings = self.every.clone();
        code(&mut settings);
        if let Some(keys) = self.named.get(name) {
            keys.apply_to(&mut settings, &self.every);
        }
        settings
    }

    /// Returns the controllers' settings in force after a reload of the file: live keys from `new`, all
    /// others as they are now. See [`ManagerConfiguration::reloaded`](super::ManagerConfiguration::reloaded).
    pub(super) fn reloaded(&self, new: &Self) -> Self {
        let mut merged = new.clone();
        merged.every.enabled = self.every.enabled;
        for (name, keys) in &mut merged.named {
            keys.enabled = self.named.get(name).and_then(|old| old.enabled);
        }
        for (name, old) in self.named.iter().filter(|(_, old)| old.enabled.is_some()) {
            merged.named.entry(name.clone()).or_default().enabled = old.enabled;
        }
        merged
    }

    /// Returns the section `controllers` as the file spells it: `"*"` with every key, the other entries with
    /// the keys they set.
    pub(super) fn tree(&self) -> Json {
        let every = (EVERY_CONTROLLER.to_owned(), tree_of(&self.every));
        let named = self.named.iter();
        let named = named.map(|(name, keys)| (name.clone(), serde_json::to_value(keys).unwrap_or_default()));
        Json::Object([every].into_iter().chain(named).collect())
    }

    fn check_relations(&self, problems: &mut Vec<Problem>) {
        let before = problems.len();
        check_settings(EVERY_CONTROLLER, &self.every, problems);
        // A problem of "*" would be repeated for every controller that inherits the value.
        if problems.len() == before {
            for name in self.named.keys() {
                check_settings(name, &self.settings(name, |_| {}), problems);
            }
        }
    }
}

/// Returns every key of a controller with these settings as JSON, as the file spells it.
pub(super) fn tree_of(settings: &ControllerSettings) -> Json {
    serde_json::to_value(ControllerKeys::from(settings)).unwrap_or_default()
}

/// Returns the path of a controller's entry in the configuration file, such as `controllers.web`.
pub(super) fn path_of(name: &str) -> String {
    child("controllers", name)
}

fn check_name(name: &str, known: Option<&[String]>, problems: &mut Vec<Problem>) {
    if name.len() > MAX_NAME_BYTES {
        let message = format!("{} as a key; expected at most {MAX_NAME_BYTES} bytes", shown(&name.into()));
        problems.push(Problem::message("controllers", message));
    } else if let Some(known) = known
        && name != EVERY_CONTROLLER
        && !known.iter().any(|known| known == name)
    {
        let all: Vec<&str> = known.iter().map(String::as_str).chain([r#""*""#]).collect();
        let message = format!("unknown controller; expected {}{}", one_of(&all), hint(name, known));
        problems.push(Problem::message(path_of(name), message));
    }
}

/// Adds a problem for each relation between values of one controller that does not hold.
fn check_settings(name: &str, settings: &ControllerSettings, problems: &mut Vec<Problem>) {
    let path = path_of(name);
    problems.extend(settings.problems().into_iter().map(|problem| {
        Problem::message(format!("{path}.{}", problem.field), format!("{} {}", problem.value, problem.reason))
    }));
}
