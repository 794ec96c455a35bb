//! Polls every health check of a manager as a kubelet would, and records which check changed, to which
//! result, when.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::process::get;

/// Pause between two rounds of polls of all health checks: short against any time limit of a test.
const POLL_PERIOD: Duration = Duration::from_millis(50);
/// Longest wait for the change of a health check: twice the slowest limit, on a machine that also compiles.
const PATIENCE: Duration = Duration::from_mins(2);

const GROUPS: [&str; 3] = ["livez", "healthz", "readyz"];

/// Polls the health checks of a manager until it is dropped.
///
/// A check is named by its path, such as `/readyz/cache-Pod`. Whether an aggregate lists a check is a check
/// of its own, named `/readyz lists cache-Pod`.
#[derive(Debug)]
pub struct Checks {
    book: watch::Receiver<Book>,
    /// Number of changes of checks already returned by `take`.
    seen: usize,
    /// The polling task: owns the sender of `book` and ends only by a panic.
    polling: JoinSet<()>,
}

/// The times after which health checks changed, counted from the cause of the change.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// Time until the first check changed; zero if it changed before `since`.
    pub first: Duration,
    /// Time until the last check changed.
    pub last: Duration,
}

#[derive(Clone, Debug, Default)]
struct Book {
    now: BTreeMap<String, bool>,
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Change {
    at: Instant,
    check: String,
    passes: bool,
}

// === impl Checks ===

impl Checks {
    /// Starts to poll the health checks of the server at `address`, and returns once every check passes. The
    /// checks are those that the aggregates list at any time, and `others` of `/readyz` that no aggregate
    /// lists.
    pub async fn of(address: SocketAddr, others: &[&str]) -> Self {
        let (writer, book) = watch::channel(Book::default());
        let others = others.iter().map(|name| ("readyz", (*name).to_owned())).collect();
        let mut polling = JoinSet::new();
        polling.spawn(poll(address, others, writer));
        let mut checks = Self { book, seen: 0, polling };
        let well = |book: &Book| {
            let mut paths = book.now.iter().filter(|(check, _)| !check.contains(' '));
            let listed = book.now.keys().any(|check| check.starts_with("/readyz lists "));
            listed && paths.all(|(_, passes)| *passes)
        };
        checks.until("everything passes", well).await;
        checks.seen = checks.book.borrow().changes.len();
        checks
    }

    /// Returns the names of the health checks that begin with this prefix.
    pub fn beginning_with(&self, prefix: &str) -> Vec<String> {
        self.book.borrow().now.keys().filter(|check| check.starts_with(prefix)).cloned().collect()
    }

    /// Waits until these health checks pass (or fail, if `passes` is false), and asserts that since the last
    /// call each of them changed once and no other check changed.
    pub async fn turned(&mut self, passes: bool, checks: &[impl AsRef<str>], since: Instant) -> Took {
        let expected: BTreeSet<&str> = checks.iter().map(AsRef::as_ref).collect();
        let state = format!("{expected:?} to be {passes}");
        self.until(&state, |book| expected.iter().all(|check| book.now.get(*check) == Some(&passes))).await;
        let changes = self.take();
        let found: Vec<(&str, bool)> =
            changes.iter().map(|change| (change.check.as_str(), change.passes)).collect();
        let sorted: BTreeSet<_> = found.iter().copied().collect();
        let expected: BTreeSet<_> = expected.into_iter().map(|check| (check, passes)).collect();
        assert_eq!(sorted, expected, "changed checks, and expected changes");
        assert_eq!(found.len(), sorted.len(), "each changed once: {changes:#?}");
        let after = |change: &Change| change.at.saturating_duration_since(since);
        let times = changes.iter().map(after);
        Took { first: times.clone().min().unwrap_or_default(), last: times.max().unwrap_or_default() }
    }

    /// Asserts that no health check changed since the last call, and that the polling task still runs.
    pub fn are_unchanged(&mut self) {
        let changes = self.take();
        assert!(changes.is_empty(), "no check should have changed: {changes:#?}");
        if self.book.has_changed().is_err() {
            fail_as(self.polling.try_join_next());
        }
    }

    fn take(&mut self) -> Vec<Change> {
        let changes = self.book.borrow().changes.get(self.seen..).unwrap_or_default().to_vec();
        self.seen += changes.len();
        changes
    }

    async fn until(&mut self, state: &str, accepts: impl FnMut(&Book) -> bool) {
        let found = tokio::time::timeout(PATIENCE, self.book.wait_for(accepts)).await;
        match found.map(|found| found.is_ok()) {
            Ok(true) => {}
            Ok(false) => fail_as(self.polling.join_next().await),
            Err(elapsed) => panic!("{elapsed}: waited {PATIENCE:?} for {state}: {:#?}", self.book.borrow()),
        }
    }
}

/// Fails the test with the panic of the polling task.
fn fail_as(ended: Option<Result<(), JoinError>>) -> ! {
    match ended {
        Some(Err(failure)) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
        other => panic!("the polling task has ended: {other:?}"),
    }
}

async fn poll(address: SocketAddr, mut known: BTreeSet<(&'static str, String)>, book: watch::Sender<Book>) {
    loop {
        for group in GROUPS {
            let found = round(address, group, &mut known).await;
            let at = Instant::now();
            book.send_modify(|book| {
                for (check, passes) in found {
                    if book.now.insert(check.clone(), passes) != Some(passes) {
                        book.changes.push(Change { at, check, passes });
                    }
                }
            });
        }
        tokio::time::sleep(POLL_PERIOD).await;
    }
}

/// Polls one health endpoint, and each of its checks by name. Returns each check with true if it passes.
async fn round(
    address: SocketAddr,
    group: &'static str,
    known: &mut BTreeSet<(&'static str, String)>,
) -> Vec<(String, bool)> {
    let (status, body) = get(address, &format!("/{group}?verbose")).await;
    let lines = body.lines().filter_map(|line| line.strip_prefix("[+]").or_else(|| line.strip_prefix("[-]")));
    let listed: BTreeSet<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
    known.extend(listed.iter().map(|name| (group, (*name).to_owned())));
    let mut found = vec![(format!("/{group}"), status == 200)];
    for (_, name) in known.iter().filter(|(of, _)| *of == group) {
        let path = format!("/{group}/{name}");
        let passes = get(address, &path).await.0 == 200;
        found.push((format!("/{group} lists {name}"), listed.contains(name.as_str())));
        found.push((path, passes));
    }
    found
}
