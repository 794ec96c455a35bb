//! `/debug/config`: what is in force, where each value came from, and what has become of the file since.

use serde::Serialize;
use serde_json::Value;

use super::seconds;
use crate::config::{Applies, Change, Setting, Standing};

/// The key whose value a person may set by hand.
const LOG_LEVEL: &str = "logging.level";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    /// `null` where no file is followed.
    file: Option<String>,
    /// SHA-256 of the text that was accepted last, as `sha256sum` prints it; empty where there was none.
    hash: String,
    loaded_seconds: f64,
    /// What is wrong with the file as it is now; `null` if it is what was accepted last.
    refused: Option<Refused>,
    /// What differs from the file until the next start, as `cache.resync 10h -> 1h`.
    restart_needed: Vec<String>,
    /// Every key with the value in force, by path. What a controller's own code says is not in it.
    settings: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Refused {
    seconds_ago: f64,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    path: String,
    value: Value,
    /// `default`, `file 12:14` (line and column), `flag --log-level`, `code` or `action`.
    from: String,
    /// A change in the file applies at once, and not at the next start.
    live: bool,
}

pub(super) fn page(standing: &Standing) -> Page {
    let Standing { started, accepted, .. } = standing;
    let change = Change::between(&started.configuration, &accepted.configuration);
    // What needs a restart is in force as it was at the start.
    let of = |setting: &Setting, applies: Applies| setting.applies == applies;
    let old = started.settings().into_iter().filter(|setting| of(setting, Applies::AtNextStart));
    let new = accepted.settings().into_iter().filter(|setting| of(setting, Applies::Live));
    let mut settings: Vec<_> = old.chain(new).map(Row::from).collect();
    settings.sort_by(|one, other| one.path.cmp(&other.path));
    let by_hand = standing.log_level.as_ref();
    if let Some((level, row)) = by_hand.zip(settings.iter_mut().find(|row| row.path == LOG_LEVEL)) {
        (row.value, row.from) = (level.to_string().into(), "action".to_owned());
    }
    Page {
        file: standing.file.as_ref().map(|file| file.display().to_string()),
        hash: accepted.hash.clone(),
        loaded_seconds: seconds(standing.accepted_at.elapsed()),
        refused: standing.refused.as_ref().map(|refused| Refused {
            seconds_ago: seconds(refused.at.elapsed()),
            problems: refused.problems.clone(),
        }),
        restart_needed: change.restart.iter().map(ToString::to_string).collect(),
        settings,
    }
}

impl From<Setting> for Row {
    fn from(setting: Setting) -> Self {
        let live = setting.applies == Applies::Live;
        Self { path: setting.path, value: setting.value, from: setting.origin.to_string(), live }
    }
}
