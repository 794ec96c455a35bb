//! The counters and the health of one store, and the progress of its first list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::cache::store::{HandlerTrouble, KindStatus, LeftOut, ObjectStore, PartStatus, Table};
use crate::util::LogEvery;

/// Counters and health of one store.
pub(crate) struct Counts {
    pub(crate) left_out: LeftOut,
    health: Mutex<Health>,
    /// The progress of the store towards its first list. Never decreases. Written under the lock of `health`.
    progress: watch::Sender<Progress>,
    handlers: Mutex<BTreeMap<String, HandlerCounts>>,
    unindexed: Mutex<BTreeMap<String, LogEvery>>,
}

/// The counters of the panics and slow calls of one handler, and the rate limits of their log lines.
#[derive(Clone, Copy, Default)]
struct HandlerCounts {
    panics: LogEvery,
    slow: LogEvery,
}

/// The progress of a store towards its first list: that of the slowest of its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// The store has not started.
    Declared,
    /// The store has started; at least one of its lists has no answer yet.
    Started,
    /// Every list of the store has got an answer; at least one attempt has failed, and the attempts continue.
    Tried,
    /// Every namespace of the store has been listed, or its kind was found not to be served or readable.
    Settled,
}

/// The health of the lists and watches of a store, and its counters.
#[derive(Default)]
struct Health {
    parts: Vec<Part>,
    last_event: Option<Instant>,
    events: u64,
    decode_errors: u64,
    pack_stalls: u64,
}

/// The health of the list and watch of one namespace, or of all.
struct Part {
    status: PartStatus,
    /// The last error of this list and watch that was logged in the present outage.
    logged: Option<String>,
    log_rate: LogEvery,
}

// === impl Counts ===

impl Counts {
    pub(crate) fn new(parts: &[Option<Arc<str>>]) -> Self {
        let absent = parts.is_empty();
        let outside = "the scope's namespace is not among cache.namespaces; add it there or narrow the scope";
        let part = |namespace| {
            let last_error = absent.then(|| outside.to_owned());
            let (working, since, lists, watches) = (false, Instant::now(), 0, 0);
            let status = PartStatus { namespace, working, since, last_error, absent, lists, watches };
            Part { status, logged: None, log_rate: LogEvery::default() }
        };
        let progress = if absent { Progress::Settled } else { Progress::Declared };
        // Without a namespace to watch, one part reports the error.
        let parts = if absent { vec![part(None)] } else { parts.iter().cloned().map(part).collect() };
        Self {
            left_out: LeftOut::default(),
            health: Mutex::new(Health { parts, ..Health::default() }),
            progress: watch::Sender::new(progress),
            handlers: Mutex::default(),
            unindexed: Mutex::default(),
        }
    }

    /// Records the start of the store, from which the outage of each list and watch counts.
    pub(crate) fn start(&self) {
        let mut health = self.health.lock();
        for part in health.parts.iter_mut().filter(|part| !part.status.working) {
            part.status.since = Instant::now();
        }
        self.advance(&health);
    }

    /// Counts a list or a watch of the store's part with this index, by `add`.
    pub(crate) fn count(&self, part: usize, add: fn(&mut PartStatus)) {
        if let Some(part) = self.health.lock().parts.get_mut(part) {
            add(&mut part.status);
        }
    }

    pub(crate) fn count_event(&self) {
        let mut health = self.health.lock();
        health.events += 1;
        health.last_event = Some(Instant::now());
    }

    pub(crate) fn count_decode_error(&self) {
        self.health.lock().decode_errors += 1;
    }

    pub(crate) fn count_pack_stall(&self) {
        self.health.lock().pack_stalls += 1;
    }

    /// Counts a panic of a handler. Returns the number of panics to log now; `None` if it is too early for
    /// another line.
    pub(crate) fn count_panic(&self, handler: &str) -> Option<u64> {
        self.handlers.lock().entry(handler.to_owned()).or_default().panics.add(1, Instant::now())
    }

    /// Counts a slow call of a handler. Returns the number of slow calls since the last log line, with this
    /// one; `None` if it is too early for another line.
    pub(crate) fn count_slow_call(&self, handler: &str) -> Option<u64> {
        self.handlers.lock().entry(handler.to_owned()).or_default().slow.add(1, Instant::now())
    }

    /// Counts a version of an object missing in an index. Returns the number of such versions to log now;
    /// `None` if it is too early for another line.
    pub(crate) fn count_unindexed(&self, index: &str) -> Option<u64> {
        self.unindexed.lock().entry(index.to_owned()).or_default().add(1, Instant::now())
    }

    pub(crate) fn forget_index(&self, index: &str) {
        self.unindexed.lock().remove(index);
    }

    pub(crate) fn forget_handler(&self, handler: &str) {
        self.handlers.lock().remove(handler);
    }

    /// Marks the list and watch of a part of the store as working; returns the length of the outage, if there
    /// was an error.
    pub(crate) fn up(&self, part: usize) -> Option<Duration> {
        let mut health = self.health.lock();
        let part = health.parts.get_mut(part).filter(|part| !part.status.working)?;
        (part.logged, part.log_rate) = (None, LogEvery::default());
        let status = &mut part.status;
        (status.working, status.absent) = (true, false);
        let since = std::mem::replace(&mut status.since, Instant::now());
        let error = status.last_error.take();
        self.advance(&health);
        error.map(|_| since.elapsed())
    }

    /// Marks the list and watch of a part of the store as not working; returns whether to log the error. An
    /// error equal to the last logged one is not logged. A different one is logged at most once a minute,
    /// because servers behind one address may fail differently in turn; but at once if it shows that the kind
    /// is not served or not readable.
    pub(crate) fn down(&self, part: usize, error: String, absent: bool) -> bool {
        let mut health = self.health.lock();
        let Some(part) = health.parts.get_mut(part) else { return false };
        let status = &mut part.status;
        if std::mem::take(&mut status.working) {
            status.since = Instant::now();
        }
        let newly_absent = absent && !status.absent;
        let news = part.logged.as_ref() != Some(&error)
            && (part.log_rate.add(1, Instant::now()).is_some() || newly_absent);
        if news {
            part.logged = Some(error.clone());
        }
        status.last_error = Some(error);
        status.absent |= absent;
        self.advance(&health);
        news
    }

    fn advance(&self, health: &Health) {
        let Some(now) = health.parts.iter().map(Part::progress).min() else { return };
        self.progress.send_if_modified(|progress| {
            let news = now > *progress;
            *progress = now.max(*progress);
            news
        });
    }

    /// Waits until the store has been listed in every namespace, or its kind was found not to be served or
    /// readable.
    pub(crate) async fn settled(&self) {
        self.reached(Progress::Settled).await;
    }

    /// Waits until the store has been listed or has failed to list in every namespace, or until `patience`
    /// has passed since the start of the store.
    pub(crate) async fn tried(&self, patience: Duration) {
        self.reached(Progress::Started).await;
        if let Some(since) = self.unanswered_since() {
            // The caller can check the outcome afterwards.
            drop(timeout_at(since + patience, self.reached(Progress::Tried)).await);
        }
    }

    /// Returns the time at which the store started, while one of its lists has no answer yet; otherwise
    /// `None`.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        let health = self.health.lock();
        // Locked before `progress` is read, because `progress` is written under this lock.
        let waiting = *self.progress.borrow() == Progress::Started;
        let unanswered = health.down().filter(|down| down.last_error.is_none());
        unanswered.map(|down| down.since).min().filter(|_| waiting)
    }

    async fn reached(&self, progress: Progress) {
        // The sender is in `self`, so the wait cannot fail.
        drop(self.progress.subscribe().wait_for(|now| *now >= progress).await);
    }

    pub(crate) fn status(&self, store: &ObjectStore, table: &Table) -> KindStatus {
        let health = self.health.lock();
        KindStatus {
            cluster: store.cluster.clone(),
            kind: store.kind.clone(),
            scope: store.describe_scope(),
            projection: store.projection(),
            required: store.required.of(&store.kind),
            synced: table.synced,
            settled: *self.progress.borrow() == Progress::Settled,
            down_since: health.down().map(|down| down.since).min(),
            last_error: health.down().find_map(|down| down.last_error.clone()),
            absent: health.down().any(|down| down.absent),
            objects: table.count(),
            bytes: table.bytes,
            too_large: table.too_large,
            packing: store.dictionaries.packing(table.packing),
            restarts: health.after_first(|part| part.watches),
            relists: health.after_first(|part| part.lists),
            events: health.events,
            last_event_age: health.last_event.map(|at| at.elapsed()),
            decode_errors: health.decode_errors,
            pack_stalls: health.pack_stalls,
            left_out: self.left_out.named(),
            handlers: by_name(&self.handlers.lock(), |counts| HandlerTrouble {
                panics: counts.panics.count(),
                slow: counts.slow.count(),
            }),
            unindexed: by_name(&self.unindexed.lock(), LogEvery::count),
            parts: health.parts.iter().take(store.parts.len()).map(|part| part.status.clone()).collect(),
        }
    }
}

fn by_name<T: Copy, C>(counts: &BTreeMap<String, T>, read: fn(T) -> C) -> BTreeMap<String, C> {
    counts.iter().map(|(name, count)| (name.clone(), read(*count))).collect()
}

// === impl Health ===

impl Health {
    /// Returns the status of each list and watch of the store that does not work.
    fn down(&self) -> impl Iterator<Item = &PartStatus> {
        self.parts.iter().map(|part| &part.status).filter(|status| !status.working)
    }

    /// Returns the sum of a counter of lists or watches over all parts of the store, not counting the first
    /// of each.
    fn after_first(&self, read: fn(&PartStatus) -> u64) -> u64 {
        self.parts.iter().map(|part| read(&part.status).saturating_sub(1)).sum()
    }
}

// === impl Part ===

impl Part {
    fn progress(&self) -> Progress {
        match &self.status {
            PartStatus { working: false, absent: false, last_error: None, .. } => Progress::Started,
            PartStatus { working: false, absent: false, .. } => Progress::Tried,
            _ => Progress::Settled,
        }
    }
}

#[cfg(test)]
mod tests;
