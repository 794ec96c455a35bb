//! Compresses the bodies of a kind in the background, once that pays.
//!
//! A new body stays plain for a moment, because the reconcile that follows reads it; then it is packed as
//! part of a batch of bounded size, on a thread of the blocking pool, one batch at a time in the whole
//! process. The dictionary is trained on the store's own objects. It is trained again only when its
//! compression ratio for new bodies falls to half of the ratio right after training.
//!
//! # Invariants
//! 1. Packing changes the form of a version's body, never the stored version, and causes no deltas.
//! 2. No lock is held while bodies are packed or unpacked or a dictionary is trained; the table's lock is
//!    taken to swap in the results of a batch.
//! 3. The plain bytes in the queue are bounded: the reflector stops reading until there is room again. It
//!    waits for at most [`STALL_TIMEOUT`]: if other code has filled the blocking pool, that costs memory, but
//!    no watch.
//! 4. A dictionary exists as long as a body uses it.

mod batch;
mod pack_queue;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub(crate) use self::pack_queue::{PackQueue, QueuedBody};

use self::batch::{Batch, MAX_PACKED_PERCENT, Sizes, Trained, percent};
use self::pack_queue::Stage;
use crate::cache::object::{Compressor, Dictionary, Packed, Packing, Samples, View};
use crate::cache::store::{ObjectStore, Select};

/// Whether the bodies of a kind's objects are compressed in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Pack {
    /// Compresses bodies once the kind has a megabyte of them, if that saves at least a third.
    #[default]
    Auto,
    /// Never compresses bodies, for the fastest reads.
    Never,
    /// Compresses bodies in any number, regardless of the savings.
    Always,
}

/// The thresholds by which the packer compresses the bodies of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Bytes of a store at which [`Pack::Auto`] checks whether compressing its bodies pays.
    pub(crate) auto_threshold: usize,
    /// Least time that a new body stays plain before it is packed; it stays plain for at most twice as long.
    pub(crate) delay: Duration,
    /// Plain bytes in the queue of new bodies at which they are packed without delay.
    pub(crate) eager: usize,
    /// Plain bytes in the queue of new bodies at which the reflector waits for the packer.
    pub(crate) full: usize,
    /// Plain bytes of the bodies that are packed in one batch; a longer body has a batch of its own.
    pub(crate) batch: usize,
    /// Plain bytes over which the compression ratio is measured; at least so many are packed between two
    /// trainings.
    pub(crate) window: usize,
}

/// The zstd context and buffer with which all packers of one process compress, one at a time.
pub(crate) type SharedCompressor = Arc<tokio::sync::Mutex<Compressor>>;

/// Packs (compresses) the bodies of one store in the background.
pub(crate) struct Packer {
    store: Arc<ObjectStore>,
    pack: Pack,
    rules: Rules,
    compressor: SharedCompressor,
    /// Number of compression dictionaries trained so far for this store.
    dictionaries_trained: u32,
    /// The time at which the packer next takes the bodies that have waited long enough from the queue.
    rotation: Instant,
    /// New bodies that have waited long enough in the queue, to be packed next.
    due: VecDeque<QueuedBody>,
    /// Stored bodies to pack (compress) with a newer dictionary, at low priority.
    repack: VecDeque<QueuedBody>,
}

/// Weak references to the compression dictionaries of a store: bodies and the packer keep them alive.
#[derive(Default)]
pub(crate) struct Dictionaries(Mutex<Vec<Weak<Dictionary>>>);

/// Longest time that the reflector waits for a packer that makes no progress. A batch takes some
/// milliseconds.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause of the packer after a batch of bodies that were stored before, which it packs at low priority.
const PAUSE: Duration = Duration::from_millis(2);

// === impl Rules ===

impl Default for Rules {
    fn default() -> Self {
        Self {
            auto_threshold: 1024 * 1024,
            delay: Duration::from_millis(250),
            eager: 1024 * 1024,
            full: 4 * 1024 * 1024,
            batch: 512 * 1024,
            window: 16 * 1024 * 1024,
        }
    }
}

// === impl Dictionaries ===

impl Dictionaries {
    fn put(&self, dictionary: &Arc<Dictionary>) {
        let mut shelved = self.0.lock();
        shelved.retain(|dictionary| dictionary.strong_count() > 0);
        shelved.push(Arc::downgrade(dictionary));
    }

    /// Adds the number and the bytes of the dictionaries to the statistics of a store's packed bodies.
    pub(crate) fn packing(&self, bodies: Packing) -> Packing {
        let alive: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let dictionary_bytes = alive.iter().map(|dictionary| dictionary.bytes()).sum();
        Packing { dictionaries: alive.len(), dictionary_bytes, ..bodies }
    }
}

// === impl Packer ===

impl Packer {
    pub(crate) fn new(
        store: Arc<ObjectStore>,
        pack: Pack,
        rules: Rules,
        compressor: SharedCompressor,
    ) -> Self {
        Self {
            store,
            pack,
            rules,
            compressor,
            dictionaries_trained: 0,
            rotation: Instant::now(),
            due: VecDeque::new(),
            repack: VecDeque::new(),
        }
    }

    /// Packs the bodies of the store until it is cancelled. Returns at once if packing is off, and after a
    /// failure.
    ///
    /// # Cancel safety
    /// A batch in progress ends on its own thread without an effect. Packed bodies stay packed.
    pub(crate) async fn run(mut self) {
        if self.pack != Pack::Never
            && let Err(error) = self.pack().await
        {
            let kind = &self.store.kind;
            tracing::error!(%kind, %error, "packing failed; objects stay uncompressed from now on");
        }
    }

    async fn pack(&mut self) -> Result<(), JoinError> {
        let mut at = self.rules.auto_threshold;
        loop {
            self.wait_for_bodies(at).await;
            if let Some(trained) = self.train(None).await?.filter(|trained| self.pays(trained.new)) {
                return self.work(trained).await;
            }
            at = self.bytes().saturating_mul(2).max(self.rules.auto_threshold);
            let kind = &self.store.kind;
            tracing::debug!(%kind, "packing does not pay; will check again at twice the size");
        }
    }

    /// Waits until the store has enough bodies to train a dictionary: `at` bytes, or with [`Pack::Always`]
    /// any body.
    async fn wait_for_bodies(&self, at: usize) {
        loop {
            // Created before the check, so that a wake-up in between is not missed.
            let woken = self.store.packer_wake.notified();
            let first = if self.pack == Pack::Always { 1 } else { at };
            let bytes = self.store.with_pack_queue(|queue, bytes| {
                queue.begin(Stage::Above(if bytes == 0 { first } else { at }));
                bytes
            });
            if bytes >= at {
                return;
            }
            if bytes == 0 || self.pack != Pack::Always {
                woken.await;
            } else if timeout(self.rules.delay, woken).await.is_err() {
                return;
            }
        }
    }

    fn pays(&self, samples: Sizes) -> bool {
        self.pack == Pack::Always || samples.kept <= percent(samples.plain, MAX_PACKED_PERCENT)
    }

    /// Packs the stored bodies and then every new one, for ever. Trains another dictionary when the ratio for
    /// new bodies has become bad.
    async fn work(&mut self, first: Trained) -> Result<(), JoinError> {
        // With `Pack::Always` the first training may have had too few objects.
        let mut undertrained = self.bytes() < self.rules.auto_threshold;
        let mut baseline = first.new;
        let mut window = Sizes::default();
        let mut dictionary = self.adopt(first);
        loop {
            if self.store.with_pack_queue(|queue, _| queue.resume()) {
                tracing::info!(kind = %self.store.kind, "packing continues");
                self.pack_again();
            }
            let enough = undertrained && self.bytes() >= self.rules.auto_threshold;
            let measured = window.plain >= self.rules.window;
            if enough || (measured && window.has_half_the_ratio_of(baseline)) {
                undertrained = undertrained && !enough;
                let trained = self.train(Some(dictionary.clone())).await?;
                if let Some(trained) = trained.filter(Trained::is_better) {
                    baseline = trained.new;
                    dictionary = self.adopt(trained);
                } else if measured {
                    baseline = window;
                }
            }
            if measured {
                window = Sizes::default();
            }
            self.rotate();
            let fresh = !self.due.is_empty();
            let batch = take_batch(if fresh { &mut self.due } else { &mut self.repack }, self.rules.batch);
            if batch.is_empty() {
                self.idle().await;
                continue;
            }
            let sizes = self.pack_batch(dictionary.clone(), batch).await?;
            if fresh {
                window.add(sizes.plain, sizes.kept);
            } else {
                sleep(PAUSE).await;
            }
        }
    }

    /// Uses a new dictionary from now on: for new bodies, and in the background for the stored ones.
    fn adopt(&mut self, trained: Trained) -> Arc<Dictionary> {
        let Trained { dictionary, new: Sizes { plain, kept }, .. } = trained;
        tracing::debug!(kind = %self.store.kind, ?dictionary, plain, kept, "packing");
        self.store.dictionaries.put(&dictionary);
        self.pack_again();
        dictionary
    }

    /// Returns the bytes of the store's objects as they are kept.
    fn bytes(&self) -> usize {
        self.store.with_pack_queue(|_, bytes| bytes)
    }

    /// Queues all bodies of the store for packing at low priority.
    fn pack_again(&mut self) {
        let views = self.store.everything().into_iter();
        self.repack = views.map(|view| QueuedBody { view, bytes: 0 }).collect();
    }

    /// Takes the bodies that have waited long enough from the store's queue and adds them to those to pack
    /// next.
    fn rotate(&mut self) {
        let now = Instant::now();
        let late = self.rotation <= now;
        let due = self
            .store
            .with_pack_queue(|queue, _| if late || queue.is_eager() { queue.rotate() } else { Vec::new() });
        if late {
            self.rotation = now + self.rules.delay;
        }
        self.due.extend(due);
    }

    /// Waits until there may be a body to pack.
    async fn idle(&self) {
        let woken = self.store.packer_wake.notified();
        match self.store.with_pack_queue(|queue, _| (queue.is_eager(), queue.is_empty())) {
            (true, _) => {}
            (false, true) => woken.await,
            // Both ends of the wait only lead to another check.
            (false, false) => timeout_at(self.rotation, woken).await.unwrap_or_default(),
        }
    }

    /// Packs a batch of bodies on another thread and swaps the results into the store. Returns the sizes of
    /// the bodies.
    async fn pack_batch(
        &self,
        dictionary: Arc<Dictionary>,
        batch: Vec<QueuedBody>,
    ) -> Result<Sizes, JoinError> {
        let taken = batch.iter().map(|one| one.bytes).sum();
        let mut compressor = self.compressor.clone().lock_owned().await;
        let work = move || {
            let mut done = Batch::default();
            for QueuedBody { view, .. } in batch {
                done.pack(&dictionary, &mut compressor, view);
            }
            done
        };
        let Batch { packed, sizes } = spawn_blocking(work).await?;
        self.store.packed(packed, taken);
        Ok(sizes)
    }

    /// Trains a compression dictionary on stored bodies and measures it against `old`; `None` if memory runs
    /// out.
    async fn train(&mut self, old: Option<Arc<Dictionary>>) -> Result<Option<Trained>, JoinError> {
        if old.is_none() {
            self.store.with_pack_queue(|queue, _| queue.begin(Stage::Open(self.rules)));
        }
        let views = spread(&self.store.everything(), Samples::MOST);
        self.dictionaries_trained += 1;
        let (number, mut compressor) =
            (self.dictionaries_trained, self.compressor.clone().lock_owned().await);
        spawn_blocking(move || Trained::measure(number, &views, old.as_ref(), &mut compressor)).await
    }
}

impl Drop for Packer {
    fn drop(&mut self) {
        // Nothing takes bodies from the queue any more.
        self.store.with_pack_queue(|queue, _| queue.begin(Stage::Closed));
    }
}

// === impl ObjectStore ===

/// The bodies of a store, as the packer uses them.
impl ObjectStore {
    /// Calls `act` with the queue of bodies to be packed and the bytes of all stored objects as they are
    /// kept.
    pub(crate) fn with_pack_queue<T>(&self, act: impl FnOnce(&mut PackQueue, usize) -> T) -> T {
        let mut table = self.table.write();
        let bytes = table.bytes;
        let outcome = act(&mut table.pack_queue, bytes);
        drop(table);
        self.freed.notify_waiters();
        outcome
    }

    /// Swaps in the packed bodies of versions that are still stored, and subtracts the `taken` bytes from the
    /// queue of bodies to be packed.
    pub(crate) fn packed(&self, batch: Vec<(View, Packed)>, taken: usize) {
        let mut table = self.table.write();
        let replaced = table.pack(batch);
        table.pack_queue.done(taken);
        drop(table);
        self.freed.notify_waiters();
        // The memory of the bodies is freed outside the lock.
        drop(replaced);
    }

    /// Returns all objects of the store, even before the first sync.
    pub(crate) fn everything(&self) -> Vec<View> {
        let (mut walk, everything) = (self.table.read().walk(), Select::all());
        let mut views = Vec::new();
        while self.table.read().stride(&mut walk, &everything, &mut views) {}
        views
    }
}

/// Returns at most `most` of the views, evenly spaced: neighbours are similar, and would be poor samples.
fn spread(views: &[View], most: usize) -> Vec<View> {
    let count = views.len().min(most);
    (0..count).filter_map(|at| views.get(at * views.len() / count)).cloned().collect()
}

/// Takes the bodies of one batch, of at most `batch` plain bytes, from the front of the queue; at least one
/// body.
fn take_batch(queue: &mut VecDeque<QueuedBody>, batch: usize) -> Vec<QueuedBody> {
    let mut bytes = 0;
    let mut taken = Vec::new();
    while let Some(one) = queue.front() {
        bytes += one.view.body().plain_len();
        if bytes > batch && !taken.is_empty() {
            break;
        }
        taken.extend(queue.pop_front());
    }
    taken
}
