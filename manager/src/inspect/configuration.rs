//! `/debug/config`: what is in force, where each value came from, and what has become of the file since.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::seconds;
use crate::config::{Applies, Change, Origin, Setting, ReloadStatus};

/// The key whose value a person may set by hand.
const LOG_LEVEL: &str = "logging.level";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    /// `null` where no file is followed.
    pub(crate) file: Option<String>,
    /// SHA-256 of the text that was accepted last, as `sha256sum` prints it; empty where there was none.
    pub(crate) hash: String,
    pub(crate) loaded_seconds: f64,
    /// What is wrong with the file as it is now; `null` if it is what was accepted last.
    pub(crate) refused: Option<Refused>,
    /// What differs from the file until the next start, as `cache.resync 10h -> 1h`.
    pub(crate) restart_needed: Vec<String>,
    /// Every key with the value in force, by path: those of the manager, of `"*"`, of every controller there is, and of
    /// those that only the file names.
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
    /// `default`, `file`, `"*"` (the entry of all controllers), `flag --log-level`, `code`, `action`, or `file at the start`
    /// where the file says something else by now.
    pub(crate) from: String,
    /// A change in the file applies at once, and not at the next start.
    pub(crate) live: bool,
}

/// `controllers`: every key of every controller there is, under what was accepted last.
pub(super) fn page(status: &ReloadStatus, controllers: Vec<Setting>) -> Page {
    let ReloadStatus { started, accepted, .. } = status;
    let change = Change::between(&started.configuration, &accepted.configuration);
    let asked: HashSet<String> = controllers.iter().map(|setting| setting.path.clone()).collect();
    // What the file alone says of a controller is less than what its code says to that.
    let (live, waiting): (Vec<_>, Vec<_>) = accepted
        .settings()
        .into_iter()
        .filter(|setting| !asked.contains(&setting.path))
        .partition(|setting| setting.applies == Applies::Live);
    let waiting: HashMap<_, _> = waiting.into_iter().map(|setting| (setting.path.clone(), setting)).collect();
    // What needs a restart is in force as it was at the start.
    let old = started.settings().into_iter().filter(|setting| setting.applies == Applies::AtNextStart);
    let old = old.map(|setting| match waiting.get(&setting.path) {
        Some(now) if now.value == setting.value => Row::from(now.clone()),
        _ => Row::of_the_start(setting),
    });
    let mut settings: Vec<_> = live.into_iter().chain(controllers).map(Row::from).chain(old).collect();
    settings.sort_by(|one, other| one.path.cmp(&other.path));
    let by_hand = status.log_level.as_ref();
    if let Some((level, row)) = by_hand.zip(settings.iter_mut().find(|row| row.path == LOG_LEVEL)) {
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
    /// A key whose value is another one in the file by now, or is not there: its old place means nothing any more.
    fn of_the_start(setting: Setting) -> Self {
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
