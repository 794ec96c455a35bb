//! Actions by POST: the reconcile of one object, and the log level.
//!
//! Any web page can make a browser on this machine send requests. But the browser cannot send this content
//! type without a preflight request, which is refused here, and it sends the origin of the page.

use http::header::{CONTENT_TYPE, HeaderValue, ORIGIN};
use http::{Request, StatusCode};
use serde::Deserialize;
use tracing::{Level as Severity, enabled, warn};

use super::pages::{LogLevel, Reconciled};
use super::{Refusal, host};
use crate::config::LogFilter;
use crate::controller::ControllerView;

/// A function that changes the log level of the process. The error is the reason for the sender of the
/// request.
pub type SetLogLevel = dyn Fn(LogFilter) -> Result<(), String> + Send + Sync;

/// The body of a request to reconcile an object: the namespace and the name of the object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    namespace: Option<String>,
    name: Option<String>,
}

/// Returns an error for a request that a web page of another host may have sent: one without a JSON body, or
/// with an `Origin` that is not loopback.
pub(super) fn refuse_cross_site<B>(request: &Request<B>) -> Result<(), Refusal> {
    let mut types = request.headers().get_all(CONTENT_TYPE).iter();
    if (types.next().map(HeaderValue::as_bytes), types.next()) != (Some(b"application/json"), None) {
        let text = "an action is JSON; expected Content-Type: application/json".to_owned();
        return Err(Refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    match request.headers().get(ORIGIN) {
        Some(origin) if !host::is_loopback_origin(origin) => {
            let text = "the request comes from a web page of another host".to_owned();
            Err(Refusal(StatusCode::FORBIDDEN, text))
        }
        _ => Ok(()),
    }
}

pub(super) fn reconcile(controller: &dyn ControllerView, body: &[u8]) -> Result<Reconciled, Refusal> {
    let Body { namespace, name } = read(body)?;
    let name = name.unwrap_or_default();
    let matched = controller.reconcile(namespace.as_deref(), &name).map_err(|error| error.to_string())?;
    let controller = controller.status().name;
    warn!(
        controller = &*controller,
        action = "reconcile",
        namespace,
        name,
        matched,
        "reconcile requested by hand"
    );
    Ok(Reconciled { matched })
}

pub(super) fn set_log_level(set: Option<&SetLogLevel>, body: &[u8]) -> Result<LogLevel, Refusal> {
    let LogLevel { level } = read(body)?;
    let filter: LogFilter =
        level.parse().map_err(|expected| format!("invalid level {level:?}; expected {expected}"))?;
    let fixed = || "this program does not let the manager change its log level".to_owned();
    let level = filter.to_string();
    // The old level may hide a line before the change, the new level a line after it.
    let logged = enabled!(Severity::WARN);
    warn!(level, "setting the log level by hand");
    let set = set.ok_or_else(fixed).and_then(|set| set(filter));
    set.map_err(|text| Refusal(StatusCode::CONFLICT, text))?;
    if !logged {
        warn!(level, "the log level was set by hand");
    }
    Ok(LogLevel { level })
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("the body: {error}"))
}
