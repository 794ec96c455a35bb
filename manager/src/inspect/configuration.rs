//! `/debug/config`: the values in force with their origins, values that wait for a restart, and a refused
//! file.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::seconds;
use crate::config::{Applies, Change, Origin, ReloadStatus, Setting};

/// The key that `POST /debug/log` overrides.
const LOG_LEVEL: &str = "logging.level";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    /// `null` if the manager follows no file.
    pub(crate) file: Option<String>,
    /// The SHA-256 of the text accepted last, as `sha256sum` prints it; empty if there was no text.
    pub(crate) hash: String,
    /// Since the text was accepted.
    pub(crate) loaded_seconds: f64,
    /// The problems of the file in its present form; `null` if it is the text accepted last.
    pub(crate) refused: Option<Refused>,
    /// Differences between the values in force and the file that remain until the next start, such as
    /// `cache.resync 10h -> 1h`.
    pub(crate) restart_needed: Vec<String>,
    /// Every key with the value in force, sorted by path: keys of the manager, of `"*"`, of every running
    /// controller, and of controllers that only the file names.
    pub(crate) settings: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Refused {
    pub(crate) seconds_ago: f64,
    pub(crate) problems: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) path: String,
    pub(crate) value: Value,
    /// `default`, `file`, `"*"` (the entry of all controllers), `flag --log-level`, `code`, `action`, or
    /// `file at the start` if the file has another value now.
    pub(crate) from: String,
    /// `true`: a change in the file applies at once. `false`: at the next start.
    pub(crate) live: bool,
}

/// Makes the page. `controllers` has every key of every running controller with the configuration accepted
/// last.
pub(super) fn page(status: &ReloadStatus, controllers: Vec<Setting>) -> Page {
    let ReloadStatus { started, accepted, .. } = status;
    let change = Change::between(&started.configuration, &accepted.configuration);
    let of_controllers: HashSet<&str> = controllers.iter().map(|setting| &*setting.path).collect();
    // The settings of a running controller replace the keys of the file: its code may override the file's
    // `"*"`.
    let (live, waiting): (Vec<_>, Vec<_>) = accepted
        .settings()
        .into_iter()
        .filter(|setting| !of_controllers.contains(&*setting.path))
        .partition(|setting| setting.applies == Applies::Live);
    let waiting: HashMap<_, _> = waiting.into_iter().map(|setting| (setting.path.clone(), setting)).collect();
    // Keys that need a restart still have their value of the start.
    let old = started.settings().into_iter().filter(|setting| setting.applies == Applies::AtNextStart);
    let old = old.map(|setting| match waiting.get(&setting.path) {
        Some(now) if now.value == setting.value => Row::from(now.clone()),
        _ => Row::at_start(setting),
    });
    let mut settings: Vec<_> = live.into_iter().chain(controllers).map(Row::from).chain(old).collect();
    settings.sort_by(|one, other| one.path.cmp(&other.path));
    let level = status.log_level.as_ref();
    if let Some((level, row)) = level.zip(settings.iter_mut().find(|row| row.path == LOG_LEVEL)) {
        (row.value, row.from) = (level.to_string().into(), "action".to_owned());
    }
    Page {
        file: status.file.as_ref().map(|file| file.display().to_string()),
        hash: accepted.hash.clone(),
        loaded_seconds: seconds(status.accepted_at.elapsed()),
        refused: status.refused.as_ref().map(|refused| Refused {
            seconds_ago: seconds(refused.at.elapsed()),
            problems: refused.problems.clone(),
        }),
        restart_needed: change.restart.iter().map(ToString::to_string).collect(),
        settings,
    }
}

// === impl Row ===

impl Row {
    /// Makes a row of a value from the start that the file has changed or removed since.
    fn at_start(setting: Setting) -> Self {
        let in_file = matches!(setting.origin, Origin::File);
        let row = Self::from(setting);
        if in_file { Self { from: "file at the start".to_owned(), ..row } } else { row }
    }
}

impl From<Setting> for Row {
    fn from(setting: Setting) -> Self {
        let live = setting.applies == Applies::Live;
        Self { path: setting.path, value: setting.value, from: setting.origin.to_string(), live }
    }
}
