//! Fault injection: errors, delays, dropped bookmarks and cut watches, selected by rules and a seed.
//!
//! Each request for a resource calls [`Faults::effects`] once, after authentication and before any object is
//! read or written, so a request that fails by a rule has no effect on the store.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use super::accept::Accepted;
use super::answer::Answer;
use super::path::ResourcePath;
use crate::api::{Details, Status};

/// The fault rules of one server.
#[derive(Debug)]
pub struct Faults {
    state: Mutex<State>,
    /// The number of calls of [`Faults::cut_watches`]; open watches subscribe to it.
    cuts: watch::Sender<u64>,
}

/// A fault and a filter for the requests that it affects. A new rule affects all requests for resources.
#[derive(Clone, Debug)]
pub struct FaultRule {
    fault: Fault,
    verb: Option<String>,
    resource: Option<String>,
    name: Option<String>,
    percent: u8,
    /// How many more requests the rule affects; `None` for no limit.
    times: Option<u32>,
}

/// A fault that a rule injects into a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The response is 409, as after a concurrent write by another client.
    Conflict,
    /// The response is 410, as for a compacted resourceVersion. A watch gets it as its only event.
    Expired,
    /// The response is 429 in plain text with `Retry-After`, as from priority and fairness.
    TooManyRequests {
        /// The value of `Retry-After` in seconds.
        retry_after_seconds: u32,
    },
    /// The response is an error with this HTTP status code: 500, 502, 503 or 504.
    ServerError(u16),
    /// The request never gets a response.
    Hang,
    /// The request is handled after this delay; other rules still apply.
    Delay(Duration),
    /// The stream of a watch ends after `after_events` events; other rules still apply.
    CutWatch {
        /// The number of events that the stream delivers.
        after_events: usize,
    },
    /// A watch delivers no bookmarks; other rules still apply.
    DropBookmarks,
}

/// The combined effects of all matching rules on one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    pub(super) delay: Duration,
    /// The fault that replaces the response; `None` if the request is handled.
    pub(super) failure: Option<Fault>,
    pub(super) cut_after: Option<usize>,
    pub(super) drop_bookmarks: bool,
}

#[derive(Debug)]
struct State {
    rules: Vec<FaultRule>,
    random: fastrand::Rng,
}

// === impl Fault ===

impl Fault {
    /// Returns the response of a fault; for `Hang` it never completes.
    pub(super) async fn answer(&self, verb: &str, path: &ResourcePath, accepted: &Accepted) -> Answer {
        let details = Details {
            name: path.name.clone(),
            group: path.group.clone(),
            kind: path.resource.clone(),
            ..Details::default()
        };
        let status = match self {
            Self::TooManyRequests { retry_after_seconds } => {
                let answer = Answer::text(429, "Too many requests, please try again later.\n");
                return answer.with("retry-after", &retry_after_seconds.to_string());
            }
            Self::Expired if verb == "watch" => {
                let status = Status::expired("too old resource version: 1 (2)").to_value();
                let line = json!({"type": "ERROR", "object": status});
                return Answer::json(200, format!("{line}\n").into());
            }
            Self::Expired => Status::expired("The resourceVersion for the provided list is too old."),
            Self::Conflict => {
                let qualified = if path.group.is_empty() {
                    path.resource.clone()
                } else {
                    format!("{}.{}", path.resource, path.group)
                };
                let why = "the object has been modified; please apply your changes to the latest version and \
                           try again";
                let message =
                    format!("Operation cannot be fulfilled on {qualified} \"{}\": {why}", path.name);
                Status::new(409, "Conflict", message).with_details(details)
            }
            Self::ServerError(503) => {
                let message = "the server is currently unable to handle the request";
                Status::new(503, "ServiceUnavailable", message).with_details(details)
            }
            Self::ServerError(504) => {
                Status::new(504, "Timeout", "request did not complete within the allotted timeout")
            }
            Self::ServerError(code) => Status::new(*code, "InternalError", "Internal error occurred: fault"),
            // Only `Hang` occurs here: `Faults::effects` handles the other three itself.
            Self::Hang | Self::Delay(_) | Self::CutWatch { .. } | Self::DropBookmarks => {
                std::future::pending::<Status>().await
            }
        };
        Answer::status(&status, accepted)
    }
}

// === impl FaultRule ===

impl FaultRule {
    /// Returns a rule that affects every request for a resource.
    pub fn new(fault: Fault) -> Self {
        Self { fault, verb: None, resource: None, name: None, percent: 100, times: None }
    }

    /// Limits the rule to a verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or
    /// `deletecollection`.
    #[must_use]
    pub fn verb(mut self, verb: impl Into<String>) -> Self {
        self.verb = Some(verb.into());
        self
    }

    /// Limits the rule to resources by plural name, such as `pods` or `deployments.apps`; `*` matches any
    /// text.
    #[must_use]
    pub fn resource(mut self, pattern: impl Into<String>) -> Self {
        self.resource = Some(pattern.into());
        self
    }

    /// Limits the rule to objects by name; `*` matches any text. The name of a create is empty.
    #[must_use]
    pub fn name(mut self, pattern: impl Into<String>) -> Self {
        self.name = Some(pattern.into());
        self
    }

    /// Limits the rule to a percentage of the matching requests, selected by the seed of the server.
    #[must_use]
    pub fn percent(mut self, percent: u8) -> Self {
        self.percent = percent;
        self
    }

    /// Limits the rule to this number of requests.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    fn matches(&self, verb: &str, path: &ResourcePath) -> bool {
        let like = |pattern: &Option<String>, text: &str| pattern.as_ref().is_none_or(|it| glob(it, text));
        let qualified = format!("{}.{}", path.resource, path.group);
        self.times != Some(0)
            && self.verb.as_ref().is_none_or(|only| only == verb)
            && (like(&self.resource, &path.resource) || like(&self.resource, &qualified))
            && like(&self.name, &path.name)
    }
}

// === impl Faults ===

impl Faults {
    pub(super) fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { state: Mutex::new(State { rules: Vec::new(), random }), cuts: watch::Sender::new(0) }
    }

    /// Adds a rule. If several rules with errors match a request, the oldest one applies.
    pub fn add(&self, rule: FaultRule) {
        self.state.lock().rules.push(rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.state.lock().rules.clear();
    }

    /// Ends the streams of all watches that are open now.
    pub fn cut_watches(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Returns a receiver that changes at the next call of [`Faults::cut_watches`].
    pub(super) fn cuts(&self) -> watch::Receiver<u64> {
        self.cuts.subscribe()
    }

    /// Returns the effects of all matching rules on one request, and counts their uses.
    pub(super) fn effects(&self, verb: &str, path: &ResourcePath) -> Effects {
        let State { rules, random } = &mut *self.state.lock();
        let mut effects = Effects::default();
        for rule in rules.iter_mut().filter(|rule| rule.matches(verb, path)) {
            if rule.percent < 100 && random.u8(..100) >= rule.percent {
                continue;
            }
            rule.times = rule.times.map(|times| times - 1);
            match &rule.fault {
                Fault::Delay(delay) => effects.delay += *delay,
                Fault::CutWatch { after_events } => effects.cut_after = Some(*after_events),
                Fault::DropBookmarks => effects.drop_bookmarks = true,
                failure => {
                    effects.failure = Some(failure.clone());
                    break;
                }
            }
        }
        effects
    }
}

/// Whether a text matches a pattern in which `*` matches any text.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    rest.is_empty() || text.char_indices().map(|(i, _)| i).chain([text.len()]).any(|i| glob(rest, &text[i..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(resource: &str, name: &str) -> ResourcePath {
        ResourcePath {
            resource: resource.into(),
            name: name.into(),
            group: "apps".into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_rule_is_narrowed_by_verb_resource_and_name() {
        let faults = Faults::new(1);
        faults.add(
            FaultRule::new(Fault::Conflict).verb("update").resource("deployments").name("web-*").times(1),
        );
        let failure = |verb, path: &ResourcePath| faults.effects(verb, path).failure;
        assert_eq!(failure("get", &path("deployments", "web-1")), None);
        assert_eq!(failure("update", &path("pods", "web-1")), None);
        assert_eq!(failure("update", &path("deployments", "db")), None);
        assert_eq!(failure("update", &path("deployments", "web-1")), Some(Fault::Conflict));
        assert_eq!(failure("update", &path("deployments", "web-1")), None, "applied once");
    }

    #[test]
    fn delays_add_up_and_the_oldest_error_wins() {
        let faults = Faults::new(1);
        for fault in
            [Fault::Delay(Duration::from_secs(1)), Fault::DropBookmarks, Fault::Hang, Fault::Conflict]
        {
            faults.add(FaultRule::new(fault).resource("*.apps"));
        }
        let expected = Effects {
            delay: Duration::from_secs(1),
            failure: Some(Fault::Hang),
            drop_bookmarks: true,
            ..Effects::default()
        };
        assert_eq!(faults.effects("get", &path("deployments", "")), expected);
        faults.clear();
        assert_eq!(faults.effects("get", &path("deployments", "")), Effects::default());
    }

    #[test]
    fn a_seed_decides_which_requests_fail() {
        let failures = |seed| {
            let faults = Faults::new(seed);
            faults.add(FaultRule::new(Fault::Hang).percent(30));
            (0..1000).map(|_| faults.effects("get", &path("pods", "a")).failure.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(failures(7), failures(7));
        let count = failures(7).into_iter().filter(|failed| *failed).count();
        assert!((200..400).contains(&count), "{count} of 1000");
    }

    #[test]
    fn patterns_match_any_text() {
        assert!(glob("a*b*", "a-b") && glob("*", "") && glob("*a", "äa") && glob("x", "x"));
        assert!(!glob("a*b", "a") && !glob("a*b", "ba") && !glob("", "x"));
    }
}
