//! `/debug/config`: the values in force with their origins, values that wait for a restart, and a refused
//! file.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::seconds;
use crate::config::{Applies, Change, Loaded, Origin, ReloadStatus, Setting};

/// The configuration key that `POST /debug/log` overrides.
const LOG_LEVEL: &str = "logging.level";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    /// The path of the configuration file that the manager follows; `null` if it follows none.
    pub(crate) file: Option<String>,
    /// The SHA-256 of the configuration text accepted last, as `sha256sum` prints it; empty if there was no
    /// text.
    pub(crate) hash: String,
    /// Seconds since the configuration was accepted last.
    pub(crate) loaded_seconds: f64,
    /// The problems of the configuration file in its present form; `null` if it is the text accepted last.
    pub(crate) refused: Option<Refused>,
    /// Differences between the configuration in force and the file that remain until the next start, such as
    /// `cache.resync 10h -> 1h`.
    pub(crate) restart_needed: Vec<String>,
    /// Every configuration key with the value in force, sorted by path: keys of the manager, of `"*"`, of
    /// every running controller, and of controllers that only the file names.
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
    /// The origin of the key's value: `default`, `file`, `"*"` (the entry of all controllers), `flag
    /// --log-level`, `code`, `action`, or `file at the start` if the file has another value now.
    pub(crate) from: String,
    /// Whether a change of the key in the file applies at once; if `false`, it applies at the next start.
    pub(crate) live: bool,
}

/// Makes the data of `/debug/config`. `controllers` has every key of every running controller with the
/// configuration accepted last.
pub(super) fn page(status: &ReloadStatus, controllers: Vec<Setting>) -> Page {
    let ReloadStatus { started, accepted, .. } = status;
    let change = Change::between(&started.configuration, &accepted.configuration);
    let in_file: HashMap<_, _> =
        accepted.settings().into_iter().map(|setting| (setting.path.clone(), setting)).collect();
    let in_force = Loaded {
        configuration: started.configuration.reloaded(&accepted.configuration),
        ..Loaded::clone(started)
    };
    let in_force = in_force.settings().into_iter().map(|setting| match in_file.get(&setting.path) {
        Some(now) if now.value == setting.value => Row::from(now.clone()),
        _ => Row::at_start(setting),
    });
    // The settings of a running controller replace the keys of the file: its code may override the file's
    // `"*"`.
    let mut rows: BTreeMap<_, _> = in_force.map(|row| (row.path.clone(), row)).collect();
    rows.extend(controllers.into_iter().map(|setting| (setting.path.clone(), Row::from(setting))));
    if let Some((level, row)) = status.log_level.as_ref().zip(rows.get_mut(LOG_LEVEL)) {
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
        settings: rows.into_values().collect(),
    }
}

// === impl Row ===

impl Row {
    /// Makes the row of a key with the value from the start of the process, which the file has changed or
    /// removed since.
    fn at_start(setting: Setting) -> Self {
        let from = match setting.origin {
            Origin::File => "file at the start".to_owned(),
            origin => origin.to_string(),
        };
        Self { from, ..Self::from(setting) }
    }
}

impl From<Setting> for Row {
    fn from(setting: Setting) -> Self {
        let live = setting.applies == Applies::Live;
        Self { path: setting.path, value: setting.value, from: setting.origin.to_string(), live }
    }
}
