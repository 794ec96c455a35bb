//! Named checks behind `/livez`, `/readyz` and `/healthz`, answered as controller-runtime answers them.
//!
//! A leaf: whoever knows a fact about the process's health adds a check, and the manager serves the answers. The
//! bodies are those of controller-runtime's `healthz.Handler`, byte for byte, because people's scripts read them.
//!
//! # Invariants
//! 1. No check runs under the lock: a slow one delays its own answer and nobody's registration.
//! 2. A reason is shown only to who asks for that one check; an aggregate withholds it and the log has it.
//! 3. A check that panics is a check that fails.

mod answer;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

pub use answer::Answer;

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
    groups: Arc<Mutex<BTreeMap<Group, BTreeMap<String, Check>>>>,
}

/// Says why something is not healthy. Called for every probe, so it reads a value and never waits.
type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

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
        self.groups.lock().entry(group).or_default().insert(name.into(), Arc::new(check));
    }

    /// Takes a check away; returns whether it was there. The endpoint stays, with the implicit `ping` if need be.
    pub fn remove(&self, group: Group, name: &str) -> bool {
        self.groups.lock().get_mut(&group).is_some_and(|checks| checks.remove(name).is_some())
    }

    /// Runs all checks of a group and returns what failed, sorted by name, with reasons.
    pub fn failures(&self, group: Group) -> Vec<(String, String)> {
        self.of(group)
            .unwrap_or_default()
            .iter()
            .filter_map(|(name, check)| run(check).err().map(|reason| (name.clone(), reason)))
            .collect()
    }

    /// Answers one path and query, such as `/readyz`, `/readyz/cache-Pod` and `Some("verbose&exclude=a")`.
    pub fn answer(&self, path: &str, query: Option<&str>) -> Answer {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let first = segments.next().unwrap_or_default();
        let name = segments.collect::<Vec<_>>().join("/");
        let group = Group::ALL.into_iter().find(|group| group.path().trim_start_matches('/') == first);
        match group.and_then(|group| self.of(group)) {
            None => Answer::not_found(),
            Some(checks) if name.is_empty() => {
                answer::aggregate(&answer::Asked::from_query(query), &checks, |name, check| {
                    run(check).inspect_err(
                        |reason| tracing::debug!(endpoint = first, check = name, %reason, "check failed"),
                    )
                })
            }
            Some(checks) => match checks.get(&name) {
                Some(check) => Answer::single(run(check)),
                None if checks.is_empty() && name == "ping" => Answer::single(Ok(())),
                None => Answer::not_found(),
            },
        }
    }

    /// Answers one HTTP request; methods other than GET and HEAD are refused.
    pub fn respond(&self, request: &http::Request<()>) -> http::Response<Bytes> {
        if matches!(*request.method(), http::Method::GET | http::Method::HEAD) {
            self.answer(request.uri().path(), request.uri().query()).into()
        } else {
            Answer::method_not_allowed().into()
        }
    }

    /// Copies the checks of a group out of the lock; `None` if the endpoint does not exist.
    fn of(&self, group: Group) -> Option<BTreeMap<String, Check>> {
        self.groups.lock().get(&group).cloned()
    }
}

fn run(check: &Check) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| check())).unwrap_or_else(|_| Err("the check panicked".to_owned()))
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups.lock();
        f.debug_map()
            .entries(groups.iter().map(|(group, checks)| (group, checks.keys().collect::<Vec<_>>())))
            .finish()
    }
}

#[cfg(test)]
mod tests;
