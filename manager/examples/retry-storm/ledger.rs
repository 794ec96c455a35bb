//! The times of each patch of a healthy object, and of each run of a failing one.
//!
//! Written by several threads during the storm, each entry by itself; read after its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mainstay::queue::RetryPolicy;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// The times of one storm.
pub(crate) struct Ledger {
    began: Instant,
    /// Objects that are patched in turn: patch `n` goes to object `n % healthy`.
    healthy: usize,
    patches: Box<[Patch]>,
    failing: Box<[Mutex<Runs>]>,
    /// The policy that decides when a failing object is due.
    retry: RetryPolicy,
    /// Patches seen, counted once per side.
    sightings: watch::Sender<usize>,
    /// Healthy objects that were reconciled before any patch.
    greeted: watch::Sender<usize>,
    /// Failing objects that were reconciled at least once.
    tried: watch::Sender<usize>,
}

/// The side that saw a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The raw watcher, which has decoded an object with the patch.
    Watcher,
    /// The controller: its reconcile has read an object with the patch.
    Controller,
}

/// The moments of one patch, in nanoseconds since the start; 0 for not yet. Relaxed: each is independent of
/// the others, and the reader has joined the threads that wrote them.
#[derive(Default)]
struct Patch {
    sent: AtomicU64,
    decoded: AtomicU64,
    started: AtomicU64,
}

/// The runs of one failing object.
#[derive(Clone, Copy, Default)]
struct Runs {
    count: u64,
    /// The latest end of the backoff after the last run; `None` during a run and before the first.
    due: Option<Instant>,
    /// The longest time for which it was due before it ran.
    late: Duration,
}

/// A patch that both sides have seen, in milliseconds.
pub(crate) struct Seen {
    /// From sending it to its decoding by the watcher.
    pub(crate) watcher: f64,
    /// From sending it to the start of the reconcile that saw it.
    pub(crate) controller: f64,
}

// === impl Ledger ===

impl Ledger {
    pub(crate) fn new(patches: usize, healthy: usize, failing: usize, retry: RetryPolicy) -> Self {
        Self {
            began: Instant::now(),
            healthy,
            patches: (0..patches).map(|_| Patch::default()).collect(),
            failing: (0..failing).map(|_| Mutex::default()).collect(),
            retry,
            sightings: watch::Sender::new(0),
            greeted: watch::Sender::new(0),
            tried: watch::Sender::new(0),
        }
    }

    /// Records that a patch is being sent.
    pub(crate) fn sent(&self, patch: usize) {
        if let Some(patch) = self.patches.get(patch) {
            patch.sent.store(self.at(Instant::now()), Ordering::Relaxed);
        }
    }

    /// Records that a side saw an object with this patch, and so with all earlier patches of the object.
    pub(crate) fn saw(&self, side: Side, patch: usize, now: Instant) {
        let mut news = 0;
        let mut number = Some(patch);
        while let Some(patch) = number.and_then(|number| self.patches.get(number)) {
            let moment = match side {
                Side::Watcher => &patch.decoded,
                Side::Controller => &patch.started,
            };
            if moment.compare_exchange(0, self.at(now), Ordering::Relaxed, Ordering::Relaxed).is_err() {
                break;
            }
            news += 1;
            number = number.and_then(|number| number.checked_sub(self.healthy));
        }
        if news > 0 {
            self.sightings.send_modify(|sightings| *sightings += news);
        }
    }

    /// Records the first reconcile of a healthy object, before its first patch.
    pub(crate) fn greet(&self) {
        self.greeted.send_modify(|greeted| *greeted += 1);
    }

    /// Records that a run of a failing object begins.
    pub(crate) fn begins(&self, object: usize, now: Instant) {
        let Some(runs) = self.failing.get(object) else { return };
        let mut runs = runs.lock();
        runs.count += 1;
        if runs.count == 1 {
            self.tried.send_modify(|tried| *tried += 1);
        }
        if let Some(due) = runs.due.take() {
            runs.late = runs.late.max(now.saturating_duration_since(due));
        }
    }

    /// Records that this attempt of a failing object has ended.
    pub(crate) fn failed(&self, object: usize, attempt: u32) {
        let Some(runs) = self.failing.get(object) else { return };
        runs.lock().due = Some(Instant::now() + self.retry.delay(attempt.saturating_sub(1), 0.0));
    }

    /// Waits until every healthy object was reconciled once.
    pub(crate) async fn warm(&self) {
        // The sender lives in `self`, so this cannot end with an error.
        drop(self.greeted.subscribe().wait_for(|greeted| *greeted >= self.healthy).await);
    }

    /// Waits until both sides have seen every patch, and every failing object has run.
    pub(crate) async fn complete(&self) {
        let all = 2 * self.patches.len();
        drop(self.sightings.subscribe().wait_for(|sightings| *sightings >= all).await);
        drop(self.tried.subscribe().wait_for(|tried| *tried >= self.failing.len()).await);
    }

    /// Returns the patches that both sides have seen.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let patches = self.patches.iter().filter_map(|patch| {
            let moments = [&patch.sent, &patch.decoded, &patch.started];
            let [sent, decoded, started] = moments.map(|moment| moment.load(Ordering::Relaxed));
            let since_sent =
                |moment: u64| Duration::from_nanos(moment.saturating_sub(sent)).as_secs_f64() * 1000.0;
            (sent != 0 && decoded != 0 && started != 0)
                .then(|| Seen { watcher: since_sent(decoded), controller: since_sent(started) })
        });
        patches.collect()
    }

    /// Returns the number of runs of failing objects.
    pub(crate) fn failing_runs(&self) -> u64 {
        self.failing.iter().map(|runs| runs.lock().count).sum()
    }

    /// Returns how many failing objects never ran.
    pub(crate) fn never_ran(&self) -> usize {
        self.failing.iter().filter(|runs| runs.lock().count == 0).count()
    }

    /// Returns the longest time for which a failing object was due before it ran, or is due now.
    pub(crate) fn latest(&self) -> Duration {
        let now = Instant::now();
        let late = self.failing.iter().map(|runs| {
            let runs = *runs.lock();
            runs.late.max(runs.due.map_or(Duration::ZERO, |due| now.saturating_duration_since(due)))
        });
        late.max().unwrap_or_default()
    }

    fn at(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.began).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX).max(1)
    }
}
