//! What the cache says about itself: one row per store for probes and people, and [`Families`] of rows for scrapers.
//!
//! The numbers live in the stores and are read when asked for, so a status page and a scrape cannot disagree.
//! Labels are kind and group, never names of objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::cache::object::Projection;
use crate::cache::object::packing::Packing;
use crate::cache::store::left_out::LeftOut;
use crate::cache::store::object_store::ObjectStore;
use crate::cache::store::required::Required;
use crate::cache::store::table::Table;
use crate::key::KindId;
use crate::util::LogEvery;

/// How one store is doing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KindStatus {
    /// The cluster it is of; `None` for the manager's own.
    pub cluster: Option<Arc<str>>,
    /// The kind.
    pub kind: KindId,
    /// What the store holds of it, as a phrase.
    pub scope: String,
    /// Whole objects or metadata only.
    pub projection: Projection,
    /// Whether a replica is ready without it.
    pub required: Required,
    /// Whether the first list of every part is complete. Never false again.
    pub synced: bool,
    /// Whether every part has been listed once, or found not to be there to be listed. Never false again; a store that
    /// is settled and not synced is one whose kind was not there at its start.
    pub settled: bool,
    /// Since when at least one part has had no working list or watch; `None` while all work. A store that waits
    /// for its first answer is down from its start.
    pub down_since: Option<Instant>,
    /// Why it is down; `None` while it is not, and before the first answer.
    pub last_error: Option<String>,
    /// Whether it waits for the kind to be served, or for the right to read it: an outage would pass by itself,
    /// this needs somebody to act. It takes such answers in a row: three, two to three seconds, of a kind that was
    /// never listed, and five, some fifteen seconds, of one that has been watched. Stays until a list or watch works;
    /// an outage meanwhile says nothing about it.
    pub absent: bool,
    /// Objects held.
    pub objects: usize,
    /// Bytes of bodies and of the fixed part of their metadata.
    pub bytes: usize,
    /// Of them those of which only metadata is kept, because they are longer than `cache.maxObjectBytes`.
    pub too_large: usize,
    /// What packing makes of the bodies.
    pub packing: Packing,
    /// Watches opened after the first.
    pub restarts: u64,
    /// Lists completed after the first of each part.
    pub relists: u64,
    /// Watch events taken, bookmarks included.
    pub events: u64,
    /// Since the last watch event or bookmark; `None` before the first.
    pub last_event_age: Option<Duration>,
    /// Objects and events that could not be taken, and typed reads that failed.
    pub decode_errors: u64,
    /// Times that packing was held up for so long that objects were kept as they came.
    pub pack_stalls: u64,
    /// Objects that could not be taken as they are now, and why: what is served of them is an older version, or nothing.
    /// The first hundred; each until it is taken or gone.
    pub left_out: BTreeMap<String, String>,
    /// Panics and slow calls by handler, for those that had any and have not left.
    pub handlers: BTreeMap<String, HandlerTrouble>,
    /// Versions left out of an index whose function failed, by index, for those that had any and have not gone.
    pub unindexed: BTreeMap<String, u64>,
    /// The lists and watches it is made of: one, or one for each namespace. None if there is nothing to watch.
    pub parts: Vec<PartStatus>,
}

/// How one list and watch of a store is doing.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartStatus {
    /// The namespace it is of; `None` for all, and for kinds without.
    pub namespace: Option<Arc<str>>,
    /// Whether its list or watch works.
    pub working: bool,
    /// Since when it does, or does not.
    pub since: Instant,
    /// Why it does not; `None` while it works, and before the first answer.
    pub last_error: Option<String>,
    /// See [`KindStatus::absent`].
    pub absent: bool,
    /// Lists completed.
    pub lists: u64,
    /// Watches opened.
    pub watches: u64,
}

/// What went wrong with one handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerTrouble {
    /// Deltas lost to a panic.
    pub panics: u64,
    /// Calls over [`crate::cache::SLOW_HANDLER`].
    pub slow: u64,
}

/// The moving numbers of one store.
pub(in crate::cache) struct Counts {
    pub(in crate::cache) left_out: LeftOut,
    health: Mutex<Health>,
    /// Never goes back. Written under `health`.
    progress: watch::Sender<Progress>,
    handlers: Mutex<BTreeMap<String, Trouble>>,
    unindexed: Mutex<BTreeMap<String, LogEvery>>,
}

/// A [`HandlerTrouble`] and what of it was told.
#[derive(Clone, Copy, Default)]
struct Trouble {
    panics: LogEvery,
    slow: LogEvery,
}

/// How far the slowest part of a store has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// Nobody has asked yet.
    Declared,
    /// It waits for its first answer.
    Asking,
    /// It has failed at least once, and goes on.
    Tried,
    /// It has been listed, or was found not to be there to be listed.
    Settled,
}

struct Health {
    parts: Vec<Part>,
    last_event: Option<Instant>,
    events: u64,
    decode_errors: u64,
    pack_stalls: u64,
}

#[derive(Clone)]
struct Part {
    /// `None` while its list or watch works.
    down: Option<Down>,
    /// Since when it works, if it does.
    up: Instant,
    lists: u64,
    watches: u64,
}

#[derive(Clone)]
struct Down {
    /// Of a store that waits for its first answer: since it asks.
    since: Instant,
    /// `None` before the first answer.
    error: Option<String>,
    /// See [`KindStatus::absent`].
    absent: bool,
    /// The last error that was told.
    told: Option<String>,
    pace: LogEvery,
}

// === impl Counts ===

impl Counts {
    pub(in crate::cache) fn new(parts: &[Option<Arc<str>>]) -> Self {
        let nothing = "the scope's namespace is not among cache.namespaces; add it there or narrow the scope";
        let error = parts.is_empty().then(|| nothing.to_owned());
        let down = Down { error, absent: parts.is_empty(), ..Down::now() };
        let part = Part { up: down.since, down: Some(down), lists: 0, watches: 0 };
        let progress = if parts.is_empty() { Progress::Settled } else { Progress::Declared };
        Self {
            left_out: LeftOut::default(),
            health: Mutex::new(Health {
                parts: vec![part; parts.len().max(1)],
                last_event: None,
                events: 0,
                decode_errors: 0,
                pack_stalls: 0,
            }),
            progress: watch::Sender::new(progress),
            handlers: Mutex::default(),
            unindexed: Mutex::default(),
        }
    }

    /// Notes that the store asks from now on.
    pub(in crate::cache) fn begin(&self) {
        let mut health = self.health.lock();
        for down in health.parts.iter_mut().filter_map(|part| part.down.as_mut()) {
            down.since = Instant::now();
        }
        self.advance(&health);
    }

    pub(in crate::cache) fn watching(&self, part: usize) {
        if let Some(part) = self.health.lock().parts.get_mut(part) {
            part.watches += 1;
        }
    }

    pub(in crate::cache) fn listed(&self, part: usize) {
        if let Some(part) = self.health.lock().parts.get_mut(part) {
            part.lists += 1;
        }
    }

    pub(in crate::cache) fn event(&self) {
        let mut health = self.health.lock();
        health.events += 1;
        health.last_event = Some(Instant::now());
    }

    pub(in crate::cache) fn undecodable(&self) {
        self.health.lock().decode_errors += 1;
    }

    pub(in crate::cache) fn unpacked(&self) {
        self.health.lock().pack_stalls += 1;
    }

    /// Counts a panic; returns how many are to be told.
    pub(in crate::cache) fn panicked(&self, handler: &str) -> Option<u64> {
        self.handlers.lock().entry(handler.to_owned()).or_default().panics.add(1, Instant::now())
    }

    /// Counts a slow call; returns how many are to be told.
    pub(in crate::cache) fn slow(&self, handler: &str) -> Option<u64> {
        self.handlers.lock().entry(handler.to_owned()).or_default().slow.add(1, Instant::now())
    }

    /// Counts a version that an index goes without; returns how many are to be told.
    pub(in crate::cache) fn unindexed(&self, index: &str) -> Option<u64> {
        self.unindexed.lock().entry(index.to_owned()).or_default().add(1, Instant::now())
    }

    pub(in crate::cache) fn forget_index(&self, index: &str) {
        self.unindexed.lock().remove(index);
    }

    pub(in crate::cache) fn forget(&self, handler: &str) {
        self.handlers.lock().remove(handler);
    }

    /// Notes that a part works; returns how long it had not, if an error had been noted.
    pub(in crate::cache) fn up(&self, part: usize) -> Option<Duration> {
        let mut health = self.health.lock();
        let part = health.parts.get_mut(part)?;
        let was = part.down.take()?;
        part.up = Instant::now();
        self.advance(&health);
        drop(health);
        was.error.map(|_| was.since.elapsed())
    }

    /// Notes why a part does not work; returns whether that is to be told. What was told last is not; another reason is
    /// once a minute, because servers behind one address take turns, or at once where it says that the kind is not there.
    pub(in crate::cache) fn down(&self, part: usize, error: String, absent: bool) -> bool {
        let mut health = self.health.lock();
        let Some(part) = health.parts.get_mut(part) else { return false };
        let down = part.down.get_or_insert_with(Down::now);
        let gone = absent && !down.absent;
        let news = down.told.as_ref() != Some(&error) && (down.pace.add(1, Instant::now()).is_some() || gone);
        if news {
            down.told = Some(error.clone());
        }
        down.error = Some(error);
        down.absent |= absent;
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

    /// Waits until every part has been listed, or found not to be there to be listed.
    pub(in crate::cache) async fn settled(&self) {
        self.come_to(Progress::Settled).await;
    }

    /// Waits until every part has been listed, or has failed to be for whatever reason, or was asked for in vain for so
    /// long.
    pub(in crate::cache) async fn tried(&self, patience: Duration) {
        self.come_to(Progress::Asking).await;
        if let Some(since) = self.asking_since() {
            // Which of both it was can be asked afterwards.
            drop(timeout_at(since + patience, self.come_to(Progress::Tried)).await);
        }
    }

    /// Returns since when it waits for its first answer, if it does.
    pub(in crate::cache) fn asking_since(&self) -> Option<Instant> {
        let health = self.health.lock();
        // Before `progress`, which is written under it.
        let asking = *self.progress.borrow() == Progress::Asking;
        let unanswered = health.down().filter(|down| down.error.is_none());
        unanswered.map(|down| down.since).min().filter(|_| asking)
    }

    async fn come_to(&self, progress: Progress) {
        // The sender lives in `self`, so this cannot end with an error while we wait.
        drop(self.progress.subscribe().wait_for(|now| *now >= progress).await);
    }

    pub(in crate::cache) fn status(&self, store: &ObjectStore, table: &Table) -> KindStatus {
        let health = self.health.lock();
        KindStatus {
            cluster: store.cluster.clone(),
            kind: store.kind.clone(),
            scope: store.describe_scope(),
            projection: store.projection(),
            required: store.required(),
            synced: table.is_synced(),
            settled: *self.progress.borrow() == Progress::Settled,
            down_since: health.down().map(|down| down.since).min(),
            last_error: health.down().find_map(|down| down.error.clone()),
            absent: health.down().any(|down| down.absent),
            objects: table.count(),
            bytes: table.bytes(),
            too_large: table.too_large(),
            packing: store.shelf.packing(table.packing()),
            restarts: health.after_first(|part| part.watches),
            relists: health.after_first(|part| part.lists),
            events: health.events,
            last_event_age: health.last_event.map(|at| at.elapsed()),
            decode_errors: health.decode_errors,
            pack_stalls: health.pack_stalls,
            left_out: self.left_out.named(),
            handlers: by_name(&self.handlers.lock(), Trouble::counts),
            unindexed: by_name(&self.unindexed.lock(), LogEvery::count),
            parts: store.parts.iter().zip(&health.parts).map(|(of, part)| part.status(of.as_ref())).collect(),
        }
    }
}

fn by_name<T: Copy, C>(counts: &BTreeMap<String, T>, read: fn(T) -> C) -> BTreeMap<String, C> {
    counts.iter().map(|(name, count)| (name.clone(), read(*count))).collect()
}

// === impl Health ===

impl Health {
    fn down(&self) -> impl Iterator<Item = &Down> {
        self.parts.iter().filter_map(|part| part.down.as_ref())
    }

    /// Returns the sum of what came after the first of each part. A part that never began takes nothing from the others.
    fn after_first(&self, read: fn(&Part) -> u64) -> u64 {
        self.parts.iter().map(|part| read(part).saturating_sub(1)).sum()
    }
}

// === impl Part ===

impl Part {
    fn progress(&self) -> Progress {
        match self.down {
            Some(Down { absent: false, error: None, .. }) => Progress::Asking,
            Some(Down { absent: false, error: Some(_), .. }) => Progress::Tried,
            Some(Down { absent: true, .. }) | None => Progress::Settled,
        }
    }

    fn status(&self, namespace: Option<&Arc<str>>) -> PartStatus {
        let down = self.down.as_ref();
        PartStatus {
            namespace: namespace.cloned(),
            working: down.is_none(),
            since: down.map_or(self.up, |down| down.since),
            last_error: down.and_then(|down| down.error.clone()),
            absent: down.is_some_and(|down| down.absent),
            lists: self.lists,
            watches: self.watches,
        }
    }
}

// === impl Down ===

impl Down {
    fn now() -> Self {
        Self { since: Instant::now(), error: None, absent: false, told: None, pace: LogEvery::default() }
    }
}

// === impl Trouble ===

impl Trouble {
    fn counts(self) -> HandlerTrouble {
        HandlerTrouble { panics: self.panics.count(), slow: self.slow.count() }
    }
}

#[cfg(test)]
mod tests;
