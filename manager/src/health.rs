//! Named checks behind `/livez`, `/readyz` and `/healthz`, answered as controller-runtime answers them.
//!
//! A leaf: whoever knows a fact about the process's health adds a check, and the manager serves the answers. The
//! bodies are those of controller-runtime's `healthz.Handler`, byte for byte, because people's scripts read them.
//!
//! # Invariants
//! 1. No check runs under the lock: a slow one delays its own answer and nobody's registration.
//! 2. A reason is shown only to who asks for that one check; an aggregate withholds it and the log has it.
//! 3. A check that panics is a check that fails.
//! 4. What does not count is neither a line nor a failure of an aggregate; it still answers to its own name.

mod answer;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

pub use answer::Answer;

/// The reason given for a check that panicked.
const PANICKED: &str = "the check panicked";

/// One of the three endpoints, each with checks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// `/livez`: false means that only a restart helps.
    Live,
    /// `/readyz`: false means that this replica should get no traffic now.
    Ready,
    /// `/healthz`: the endpoint older manifests name.
    Health,
}

/// The checks of one process, by group and name. Cheap to clone; all clones are one set.
#[derive(Clone, Default)]
pub struct Checks {
    /// A group is in the map from its first check on, also after its last one went: an endpoint never disappears.
    groups: Arc<Mutex<BTreeMap<Group, Members>>>,
}

/// What one check found, told by a survey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Names the check in paths and lines. Several findings of one name are one check, which passes if all do.
    pub name: String,
    /// Whether it counts for the group as a whole; if not, only who asks for it by name hears of it.
    pub counts: bool,
    /// Why it is not healthy, if it is not.
    pub outcome: Result<(), String>,
}

/// The checks of one group.
#[derive(Clone, Default)]
struct Members {
    checks: BTreeMap<String, Check>,
    /// By the name that stands for the whole survey should it panic.
    surveys: BTreeMap<String, Survey>,
}

/// One check as it is asked: still to be run, or run already with the survey it is part of.
enum Entry {
    Check(Check),
    Findings(Vec<Finding>),
}

/// Says why something is not healthy. Called for every probe, so it reads a value and never waits.
type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Runs checks whose names are known only when they are asked. As quick as a check.
type Survey = Arc<dyn Fn() -> Vec<Finding> + Send + Sync>;

// === impl Group ===

impl Group {
    /// All groups, in the order of their paths' use.
    pub const ALL: [Self; 3] = [Self::Live, Self::Ready, Self::Health];

    /// Returns the path of the aggregate, without a trailing slash.
    pub fn path(self) -> &'static str {
        match self {
            Self::Live => "/livez",
            Self::Ready => "/readyz",
            Self::Health => "/healthz",
        }
    }

    /// Returns the group that a path asks for, as a whole or by the name of a check.
    pub(crate) fn at(path: &str) -> Option<Self> {
        let first = path.split('/').find(|segment| !segment.is_empty())?;
        Self::ALL.into_iter().find(|group| group.path().trim_start_matches('/') == first)
    }
}

// === impl Checks ===

impl Checks {
    /// Makes a set in which no endpoint exists yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check, replacing one of the same name. The name stands in paths as it is: letters, digits, `-`, `.`.
    pub fn add(
        &self,
        group: Group,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.groups.lock().entry(group).or_default().checks.insert(name.into(), Arc::new(check));
    }

    /// Adds checks that come and go by themselves, replacing the survey of this name: it is asked anew for each answer,
    /// and each of its findings is a check of its own. Where a check was added by the same name, that one is asked.
    pub fn survey(
        &self,
        group: Group,
        name: impl Into<String>,
        survey: impl Fn() -> Vec<Finding> + Send + Sync + 'static,
    ) {
        self.groups.lock().entry(group).or_default().surveys.insert(name.into(), Arc::new(survey));
    }

    /// Takes a check or a survey away; returns whether it was there. The endpoint stays, with the implicit `ping` if
    /// need be.
    pub fn remove(&self, group: Group, name: &str) -> bool {
        self.groups.lock().get_mut(&group).is_some_and(|members| {
            let check = members.checks.remove(name).is_some();
            members.surveys.remove(name).is_some() || check
        })
    }

    /// Runs all checks of a group and returns what failed, sorted by name, with reasons.
    pub fn failures(&self, group: Group) -> Vec<(String, String)> {
        self.of(group)
            .unwrap_or_default()
            .iter()
            .filter(|(_, entry)| entry.counts())
            .filter_map(|(name, entry)| entry.run(false).err().map(|reason| (name.clone(), reason)))
            .collect()
    }

    /// Answers one path and query, such as `/readyz`, `/readyz/cache-Pod` and `Some("verbose&exclude=a")`.
    pub fn answer(&self, path: &str, query: Option<&str>) -> Answer {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let first = segments.next().unwrap_or_default();
        let name = segments.collect::<Vec<_>>().join("/");
        match Group::at(path).and_then(|group| self.of(group)) {
            None => Answer::not_found(),
            Some(mut checks) if name.is_empty() => {
                checks.retain(|_, entry| entry.counts());
                answer::aggregate(&answer::Asked::from_query(query), &checks, |name, entry| {
                    entry.run(false).inspect_err(
                        |reason| tracing::debug!(endpoint = first, check = name, %reason, "check failed"),
                    )
                })
            }
            Some(checks) => match checks.get(&name) {
                Some(entry) => Answer::single(entry.run(true)),
                None if checks.is_empty() && name == "ping" => Answer::single(Ok(())),
                None => Answer::not_found(),
            },
        }
    }

    /// Answers one HTTP request; methods other than GET and HEAD are refused.
    pub fn respond<B>(&self, request: &http::Request<B>) -> http::Response<Bytes> {
        if matches!(*request.method(), http::Method::GET | http::Method::HEAD) {
            self.answer(request.uri().path(), request.uri().query()).into()
        } else {
            Answer::method_not_allowed().into()
        }
    }

    /// Copies the checks of a group out of the lock and asks its surveys; `None` if the endpoint does not exist.
    fn of(&self, group: Group) -> Option<BTreeMap<String, Entry>> {
        let members = self.groups.lock().get(&group).cloned()?;
        let mut findings: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
        for (name, survey) in &members.surveys {
            for finding in ask(name, survey) {
                findings.entry(finding.name.clone()).or_default().push(finding);
            }
        }
        let mut entries: BTreeMap<_, _> =
            findings.into_iter().map(|(name, findings)| (name, Entry::Findings(findings))).collect();
        entries.extend(members.checks.into_iter().map(|(name, check)| (name, Entry::Check(check))));
        Some(entries)
    }
}

// === impl Entry ===

impl Entry {
    fn counts(&self) -> bool {
        match self {
            Self::Check(_) => true,
            Self::Findings(findings) => findings.iter().any(|finding| finding.counts),
        }
    }

    /// Returns the first failure. `alone` says that this check was asked for by name: then findings that do not count
    /// for the group are included.
    fn run(&self, alone: bool) -> Result<(), String> {
        match self {
            Self::Check(check) => run(check),
            Self::Findings(findings) => {
                let mut included = findings.iter().filter(|finding| alone || finding.counts);
                included.try_for_each(|finding| finding.outcome.clone())
            }
        }
    }
}

fn run(check: &Check) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| check())).unwrap_or_else(|_| Err(PANICKED.to_owned()))
}

fn ask(name: &str, survey: &Survey) -> Vec<Finding> {
    catch_unwind(AssertUnwindSafe(|| survey())).unwrap_or_else(|_| {
        vec![Finding { name: name.to_owned(), counts: true, outcome: Err(PANICKED.to_owned()) }]
    })
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups.lock();
        f.debug_map()
            .entries(groups.iter().map(|(group, members)| {
                let names: Vec<_> = members.checks.keys().chain(members.surveys.keys()).collect();
                (group, names)
            }))
            .finish()
    }
}

#[cfg(test)]
mod tests;
