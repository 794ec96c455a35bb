//! Named checks behind `/livez`, `/readyz` and `/healthz`.
//!
//! A leaf: other rooms add checks, and the manager serves the answers. The bodies equal those of
//! controller-runtime's `healthz.Handler` byte for byte, because scripts parse them.
//!
//! # Invariants
//! 1. No check runs under the lock: a slow check delays its own answer and no registration.
//! 2. The reason of a failure is only in the answer of that single check; an aggregate withholds it, and the
//!    log has it.
//! 3. A check that panics counts as failed.
//! 4. A finding that does not count is not part of an aggregate; its own path still answers.

mod answer;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

pub use answer::Answer;

/// Failure reason of a health check that panicked.
const PANICKED: &str = "the check panicked";

/// One of the three health endpoints. Each has its own checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// `/livez`: a failure means that only a restart helps.
    Live,
    /// `/readyz`: a failure means that this replica should get no traffic now.
    Ready,
    /// `/healthz`: the health endpoint that older manifests use.
    Health,
}

/// The health checks of one process, by group (endpoint) and name. Clones share one set.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("Checks {{ .. }}")]
pub struct Checks {
    /// The health checks by group. A group stays in the map from its first check on, even after its last one
    /// is removed: an endpoint never disappears.
    groups: Arc<Mutex<BTreeMap<Group, Members>>>,
}

/// The result of one health check of a survey (see [`Checks::survey`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check in paths and lines. Findings of equal name are one check, which passes if all of
    /// them do.
    pub name: String,
    /// Whether the finding counts for the group's endpoint, such as `/readyz`; if not, only the path with its
    /// name reports it.
    pub counts: bool,
    /// The outcome of the check: the reason if it failed.
    pub outcome: Result<(), String>,
}

/// The health checks and surveys of one group.
#[derive(Clone, Default)]
struct Members {
    checks: BTreeMap<String, Check>,
    /// The surveys of the group, by the name of the check that fails if the survey panics.
    surveys: BTreeMap<String, Survey>,
}

/// One part of a named health check, which passes if all its parts do: a function to run, or a finding of a
/// survey, which has its outcome already.
struct Part {
    counts: bool,
    check: Check,
}

/// A function that runs a health check and returns the reason if it failed. Called for every probe, so it
/// must read a value and never wait.
type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A function that returns the results of health checks; their names may change between calls. It must never
/// wait.
type Survey = Arc<dyn Fn() -> Vec<Finding> + Send + Sync>;

// === impl Group ===

impl Group {
    /// All groups of health checks, one for each endpoint.
    pub const ALL: [Self; 3] = [Self::Live, Self::Ready, Self::Health];

    /// Returns the path of the group's health endpoint, such as `/readyz`, without a trailing slash.
    pub fn path(self) -> &'static str {
        match self {
            Self::Live => "/livez",
            Self::Ready => "/readyz",
            Self::Health => "/healthz",
        }
    }

    /// Returns the health check group of a URL path, with or without the name of a check; `None` for another
    /// path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        let first = path.split('/').find(|segment| !segment.is_empty())?;
        Self::ALL.into_iter().find(|group| group.path().trim_start_matches('/') == first)
    }
}

// === impl Checks ===

impl Checks {
    /// Makes a set without health checks, in which no endpoint exists yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a health check to a group, or replaces the one of this name. The name is part of a path: use
    /// letters, digits, `-` and `.`.
    pub fn add(
        &self,
        group: Group,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.groups.lock().entry(group).or_default().checks.insert(name.into(), Arc::new(check));
    }

    /// Adds a survey of health checks to a group, or replaces the one of this name. A survey is called for
    /// each answer, and each of its findings is a check of that answer; use it for checks that come and go. A
    /// check added by [`Checks::add`] takes precedence over findings of the same name.
    pub fn survey(
        &self,
        group: Group,
        name: impl Into<String>,
        survey: impl Fn() -> Vec<Finding> + Send + Sync + 'static,
    ) {
        self.groups.lock().entry(group).or_default().surveys.insert(name.into(), Arc::new(survey));
    }

    /// Removes a health check or a survey from a group and returns whether it existed. The endpoint stays;
    /// without checks that count it has the implicit check `ping`.
    pub fn remove(&self, group: Group, name: &str) -> bool {
        self.groups.lock().get_mut(&group).is_some_and(|members| {
            let check = members.checks.remove(name).is_some();
            members.surveys.remove(name).is_some() || check
        })
    }

    /// Runs all health checks of a group and returns the names of failed ones, sorted, with reasons.
    pub fn failures(&self, group: Group) -> Vec<(String, String)> {
        self.of(group)
            .unwrap_or_default()
            .iter()
            .filter_map(|(name, entry)| run(entry, false).err().map(|reason| (name.clone(), reason)))
            .collect()
    }

    /// Runs the health checks and returns the answer for a path such as `/readyz` or `/readyz/cache-Pod`, and
    /// a query such as `verbose&exclude=a`.
    pub fn answer(&self, path: &str, query: Option<&str>) -> Answer {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let first = segments.next().unwrap_or_default();
        let name = segments.collect::<Vec<_>>().join("/");
        match Group::at(path).and_then(|group| self.of(group)) {
            None => Answer::not_found(),
            Some(mut checks) if name.is_empty() => {
                checks.retain(|_, entry| entry.iter().any(|part| part.counts));
                answer::aggregate(&answer::Options::from_query(query), &checks, |name, entry| {
                    run(entry, false).inspect_err(
                        |reason| tracing::debug!(endpoint = first, check = name, %reason, "check failed"),
                    )
                })
            }
            Some(checks) => match checks.get(&name) {
                Some(entry) => Answer::single(run(entry, true)),
                None if name == "ping" && !checks.values().flatten().any(|part| part.counts) => {
                    Answer::single(Ok(()))
                }
                None => Answer::not_found(),
            },
        }
    }

    /// Returns the response of the health endpoints to an HTTP request; refuses methods other than GET and
    /// HEAD.
    pub fn respond<B>(&self, request: &http::Request<B>) -> http::Response<Bytes> {
        if matches!(*request.method(), http::Method::GET | http::Method::HEAD) {
            self.answer(request.uri().path(), request.uri().query()).into()
        } else {
            Answer::method_not_allowed().into()
        }
    }

    /// Copies the health checks of a group out of the lock and runs its surveys; `None` if the endpoint does
    /// not exist.
    fn of(&self, group: Group) -> Option<BTreeMap<String, Vec<Part>>> {
        let members = self.groups.lock().get(&group).cloned()?;
        let mut entries: BTreeMap<String, Vec<Part>> = BTreeMap::new();
        for (name, survey) in &members.surveys {
            for Finding { name, counts, outcome } in run_survey(name, survey) {
                let check: Check = Arc::new(move || outcome.clone());
                entries.entry(name).or_default().push(Part { counts, check });
            }
        }
        entries.extend(
            members.checks.into_iter().map(|(name, check)| (name, vec![Part { counts: true, check }])),
        );
        Some(entries)
    }
}

/// Runs the parts of a health check up to the first failure. `alone` is true if the path names this check,
/// and includes findings that do not count for the group.
fn run(entry: &[Part], alone: bool) -> Result<(), String> {
    let mut included = entry.iter().filter(|part| alone || part.counts);
    included.try_for_each(|part| {
        catch_unwind(AssertUnwindSafe(|| (part.check)())).unwrap_or_else(|_| Err(PANICKED.to_owned()))
    })
}

fn run_survey(name: &str, survey: &Survey) -> Vec<Finding> {
    catch_unwind(AssertUnwindSafe(|| survey())).unwrap_or_else(|_| {
        vec![Finding { name: name.to_owned(), counts: true, outcome: Err(PANICKED.to_owned()) }]
    })
}

#[cfg(test)]
mod tests;
