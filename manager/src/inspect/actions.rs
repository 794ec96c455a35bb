//! What a person may do, by POST: to the keys of a controller, and to the log.
//!
//! A browser on this machine can be made to send requests too, by any page it shows. It cannot give them this content
//! type without asking first, which nobody here answers, and it says where the page is from.

use http::header::{CONTENT_TYPE, HeaderValue, ORIGIN};
use http::{Request, StatusCode};
use serde::{Deserialize, Serialize};
use tracing::{Level as Severity, enabled, warn};

use super::{Refusal, host};
use crate::config::LogFilter;
use crate::controller::{ControllerView, Intervention, InterventionError, Target};

/// The words in paths.
const INTERVENTIONS: [(&str, Intervention); 4] = [
    ("reconcile", Intervention::Reconcile),
    ("forget", Intervention::Forget),
    ("pause", Intervention::Pause),
    ("resume", Intervention::Resume),
];

/// Changes what is logged; the text of an error says why it could not.
pub type SetLogLevel = dyn Fn(LogFilter) -> Result<(), String> + Send + Sync;

/// For whom: `{}` is all of the controller.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    namespace: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Level {
    level: String,
}

#[derive(Serialize)]
pub(super) struct Done {
    /// How many keys of the queue that concerns now.
    matched: usize,
}

#[derive(Serialize)]
pub(super) struct Logged {
    /// The filter in force from now on.
    level: String,
}

/// Returns what a word in a path stands for.
pub(super) fn intervention(word: &str) -> Option<Intervention> {
    INTERVENTIONS.into_iter().find(|(known, _)| *known == word).map(|(_, intervention)| intervention)
}

/// Refuses what a browser may have been made to send.
pub(super) fn admit<B>(request: &Request<B>) -> Result<(), Refusal> {
    let mut types = request.headers().get_all(CONTENT_TYPE).iter();
    if (types.next().map(HeaderValue::as_bytes), types.next()) != (Some(b"application/json"), None) {
        let text = "an action is JSON; expected Content-Type: application/json".to_owned();
        return Err(Refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    match request.headers().get(ORIGIN) {
        Some(origin) if !host::is_loopback_origin(origin) => {
            let text = "the request comes from a page of another host, which may do nothing here".to_owned();
            Err(Refusal(StatusCode::FORBIDDEN, text))
        }
        _ => Ok(()),
    }
}

pub(super) fn intervene(
    controller: &dyn ControllerView,
    what: Intervention,
    body: &[u8],
) -> Result<Done, Refusal> {
    let Body { namespace, name } = read(body)?;
    let target = Target { namespace, name };
    let matched = controller.intervene(what, &target).map_err(|error| {
        let nothing =
            matches!(error, InterventionError::NotPaused { .. } | InterventionError::NothingToForget);
        let status = if nothing { StatusCode::NOT_FOUND } else { StatusCode::BAD_REQUEST };
        Refusal(status, error.to_string())
    })?;
    let word = INTERVENTIONS.into_iter().find(|(_, known)| *known == what).map(|(word, _)| word);
    let Target { namespace, name } = target;
    warn!(
        controller = controller.status().name,
        action = word,
        namespace,
        name,
        matched,
        "asked for by hand"
    );
    Ok(Done { matched })
}

pub(super) fn set_log_level(set: Option<&SetLogLevel>, body: &[u8]) -> Result<Logged, Refusal> {
    let Level { level } = read(body)?;
    let filter: LogFilter = level.parse().map_err(|expected| {
        Refusal(StatusCode::BAD_REQUEST, format!("level {level:?} is none; expected {expected}"))
    })?;
    let gone = || "this program sets up its logs by itself".to_owned();
    let level = filter.to_string();
    // The new level may hide what is said after it is set, the old one what is said before.
    let told = enabled!(Severity::WARN);
    warn!(level, "setting the log level, asked for by hand");
    let set = set.ok_or_else(gone).and_then(|set| set(filter));
    set.map_err(|text| Refusal(StatusCode::CONFLICT, text))?;
    if !told {
        warn!(level, "the log level was set by hand");
    }
    Ok(Logged { level })
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal(StatusCode::BAD_REQUEST, format!("the body: {error}")))
}
