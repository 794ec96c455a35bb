//! Packs the bodies of a kind in the background, once that pays.
//!
//! New bodies stay plain for a moment, because the reconcile that follows reads them; then they are packed in turns
//! of bounded size on a thread of the blocking pool, one turn at a time in the whole process. The dictionary is
//! trained on the store's own objects, and again only when its ratio on incoming bodies has fallen to half of its
//! ratio right after training.
//!
//! # Invariants
//! 1. Packing changes how a version is kept, never which version is stored, and tells nobody.
//! 2. No lock is held while bodies are packed or unpacked or a dictionary is trained; the table's lock is taken to swap
//!    in a turn's results.
//! 3. Plain bytes on their way to being packed are bounded: the reflector reads on when there is room again. It waits
//!    for [`PATIENCE`] at most: a blocking pool that others have filled costs memory, never a watch.
//! 4. A dictionary lives as long as a body needs it.

mod intake;
mod shelf;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub(in crate::cache) use self::intake::{Intake, Waiting};
pub(in crate::cache) use self::shelf::Shelf;

use crate::cache::object::body::Form;
use crate::cache::object::dictionary::{Dictionary, Packed, Samples, Workbench};
use crate::cache::object::view::View;
use crate::cache::store::object_store::ObjectStore;

/// Whether the bodies of a kind are kept packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Pack {
    /// Once the kind has a megabyte of them, if that saves at least a third.
    #[default]
    Auto,
    /// Never: reads are the fastest.
    Never,
    /// However few there are and however little it saves.
    Always,
}

/// The numbers packing goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) struct Rules {
    /// Bytes of a store at which [`Pack::Auto`] looks whether packing pays.
    pub(in crate::cache) worth_a_look: usize,
    /// A new body stays plain for this long, at most twice as long.
    pub(in crate::cache) delay: Duration,
    /// Plain bytes at which the delay is cut short.
    pub(in crate::cache) eager: usize,
    /// Plain bytes at which the reflector waits.
    pub(in crate::cache) full: usize,
    /// Plain bytes packed in one turn; a body longer than that has a turn of its own.
    pub(in crate::cache) turn: usize,
    /// Plain bytes over which the ratio is measured; at least so many are packed between two trainings.
    pub(in crate::cache) window: usize,
}

/// All packing of one process happens at one bench.
pub(in crate::cache) type Workshop = Arc<tokio::sync::Mutex<Workbench>>;

/// Packs the bodies of one store.
pub(in crate::cache) struct Packer {
    store: Arc<ObjectStore>,
    pack: Pack,
    rules: Rules,
    workshop: Workshop,
    /// Dictionaries made so far.
    made: u32,
    /// When the intake rotates next.
    rotation: Instant,
    /// Bodies that came in and whose time has come.
    due: VecDeque<Waiting>,
    /// Stored bodies to pack with a newer dictionary; they are in no hurry.
    again: VecDeque<Waiting>,
}

/// A new dictionary, measured on samples that it was not trained on.
struct Trained {
    dictionary: Arc<Dictionary>,
    /// These samples, packed with it.
    new: Sum,
    /// The same samples, packed with the previous dictionary.
    old: Sum,
}

/// Bytes of some bodies, plain and as they are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    plain: usize,
    kept: usize,
}

/// What came of one turn.
#[derive(Default)]
struct Turn {
    /// What has a new form now.
    packed: Vec<(View, Packed)>,
    /// All that was looked at.
    sum: Sum,
}

/// Per cent of the plain bytes that [`Pack::Auto`], and any one body, may still have when packed.
const WORTH: usize = 66;
/// Per cent of what the old dictionary packs to that a new one may still need: everything is packed again for it.
const BETTER: usize = 95;
/// How long the reflector waits for a packer that does not move. A turn takes some milliseconds.
pub(in crate::cache) const PATIENCE: Duration = Duration::from_secs(5);
/// Between two turns that nobody waits for.
const PAUSE: Duration = Duration::from_millis(2);

// === impl Rules ===

impl Default for Rules {
    fn default() -> Self {
        Self {
            worth_a_look: 1024 * 1024,
            delay: Duration::from_millis(250),
            eager: 1024 * 1024,
            full: 4 * 1024 * 1024,
            turn: 512 * 1024,
            window: 16 * 1024 * 1024,
        }
    }
}

// === impl Packer ===

impl Packer {
    pub(in crate::cache) fn new(
        store: Arc<ObjectStore>,
        pack: Pack,
        rules: Rules,
        workshop: Workshop,
    ) -> Self {
        Self {
            store,
            pack,
            rules,
            workshop,
            made: 0,
            rotation: Instant::now(),
            due: VecDeque::new(),
            again: VecDeque::new(),
        }
    }

    /// Packs for ever; ends at once where nothing is to be packed.
    ///
    /// # Cancel safety
    /// A turn under way ends on its own thread and changes nothing. What was packed stays packed.
    pub(in crate::cache) async fn run(mut self) {
        if self.pack == Pack::Never {
            return;
        }
        let mut at = self.rules.worth_a_look;
        loop {
            self.enough(at).await;
            let outcome = match self.train(None).await {
                Ok(Some(trained)) if self.pays(trained.new) => self.work(trained).await,
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                let kind = &self.store.kind;
                tracing::error!(%kind, %error, "packing failed; objects are kept as they come from now on");
                return;
            }
            at = self.bytes().saturating_mul(2).max(self.rules.worth_a_look);
            tracing::debug!(kind = %self.store.kind, "packing does not pay; looking again at twice the size");
        }
    }

    /// Waits until there is enough to learn from.
    async fn enough(&self, at: usize) {
        loop {
            // Made before the look: a call in between is not missed.
            let called = self.store.called();
            let first = if self.pack == Pack::Always { 1 } else { at };
            let bytes = self.store.intake(|intake, bytes| {
                intake.close_until(if bytes == 0 { first } else { at });
                bytes
            });
            if bytes >= at {
                return;
            }
            if bytes == 0 || self.pack != Pack::Always {
                called.await;
            } else if timeout(self.rules.delay, called).await.is_err() {
                return;
            }
        }
    }

    fn pays(&self, samples: Sum) -> bool {
        self.pack == Pack::Always || samples.kept <= percent(samples.plain, WORTH)
    }

    /// Packs stored and incoming bodies.
    async fn work(&mut self, first: Trained) -> Result<(), JoinError> {
        // With `Pack::Always` the first training may have had too few objects.
        let mut immature = self.bytes() < self.rules.worth_a_look;
        let mut baseline = first.new;
        let mut window = Sum::default();
        let mut dictionary = self.adopt(first);
        loop {
            if self.store.intake(|intake, _| intake.resume()) {
                tracing::info!(kind = %self.store.kind, "packing goes on");
                self.pack_again();
            }
            let mature = immature && self.bytes() >= self.rules.worth_a_look;
            let measured = window.plain >= self.rules.window;
            if mature || (measured && window.has_half_the_ratio_of(baseline)) {
                immature = immature && !mature;
                let trained = self.train(Some(dictionary.clone())).await?;
                if let Some(trained) = trained.filter(Trained::is_better) {
                    baseline = trained.new;
                    dictionary = self.adopt(trained);
                } else if measured {
                    baseline = window;
                }
            }
            if measured {
                window = Sum::default();
            }
            self.rotate();
            let fresh = !self.due.is_empty();
            let turn = cut(if fresh { &mut self.due } else { &mut self.again }, self.rules.turn);
            if turn.is_empty() {
                self.idle().await;
                continue;
            }
            let sum = self.turn(dictionary.clone(), turn).await?;
            if fresh {
                window.add(sum.plain, sum.kept);
            } else {
                sleep(PAUSE).await;
            }
        }
    }

    /// Starts packing with a dictionary: incoming bodies, and in the background the stored ones.
    fn adopt(&mut self, trained: Trained) -> Arc<Dictionary> {
        let Trained { dictionary, new: Sum { plain, kept }, .. } = trained;
        tracing::debug!(kind = %self.store.kind, ?dictionary, plain, kept, "packing");
        self.store.shelf.put(&dictionary);
        self.pack_again();
        dictionary
    }

    /// Returns the bytes of the stored bodies.
    fn bytes(&self) -> usize {
        self.store.intake(|_, bytes| bytes)
    }

    /// Looks at all that is stored, little by little.
    fn pack_again(&mut self) {
        let views = self.store.everything().into_iter();
        self.again = views.map(|view| Waiting { view, bytes: 0 }).collect();
    }

    /// Takes what has waited long enough.
    fn rotate(&mut self) {
        let now = Instant::now();
        let late = self.rotation <= now;
        let due = self.store.intake(
            |intake, _| {
                if late || intake.is_eager() { intake.rotate() } else { Vec::new() }
            },
        );
        if late {
            self.rotation = now + self.rules.delay;
        }
        self.due.extend(due);
    }

    /// Waits until something is due.
    async fn idle(&self) {
        let called = self.store.called();
        let (empty, eager) = self.store.intake(|intake, _| (intake.is_empty(), intake.is_eager()));
        if eager {
            return;
        }
        if empty {
            called.await;
            return;
        }
        // Either has to be looked at, in no particular order.
        tokio::select! {
            () = called => {}
            () = sleep_until(self.rotation) => {}
        }
    }

    /// Packs some bodies on another thread and swaps them in.
    async fn turn(&self, dictionary: Arc<Dictionary>, turn: Vec<Waiting>) -> Result<Sum, JoinError> {
        let taken = turn.iter().map(|one| one.bytes).sum();
        let mut bench = self.workshop.clone().lock_owned().await;
        let work = move || {
            let mut done = Turn::default();
            for Waiting { view, .. } in turn {
                done.pack(&dictionary, &mut bench, view);
            }
            done
        };
        let Turn { packed, sum } = spawn_blocking(work).await?;
        self.store.packed(packed, taken);
        Ok(sum)
    }

    /// Trains a dictionary on stored bodies; `None` without memory.
    async fn train(&mut self, old: Option<Arc<Dictionary>>) -> Result<Option<Trained>, JoinError> {
        if old.is_none() {
            self.store.intake(|intake, _| intake.open(self.rules));
        }
        let views = spread(&self.store.everything(), Samples::MOST);
        self.made += 1;
        let (number, mut bench) = (self.made, self.workshop.clone().lock_owned().await);
        spawn_blocking(move || Trained::measure(number, &views, old.as_ref(), &mut bench)).await
    }
}

impl Drop for Packer {
    fn drop(&mut self) {
        // Nobody takes from it any more.
        self.store.intake(|intake, _| intake.close());
    }
}

// === impl Turn ===

impl Turn {
    /// Packs one body, unless it is packed like that already, is not stored any more, or is better left as it is.
    fn pack(&mut self, dictionary: &Arc<Dictionary>, bench: &mut Workbench, view: View) {
        if !view.is_held_elsewhere() {
            return;
        }
        let (plain, packed) = match view.body().form() {
            Form::Plain(plain) => (plain.len(), dictionary.pack(bench, &plain)),
            Form::Packed(packed) if packed.is_of(dictionary) => return,
            // One that cannot be read stays as it is: whoever reads it is told.
            Form::Packed(packed) => {
                (packed.plain_len(), packed.read(|plain| dictionary.pack(bench, plain)).ok().flatten())
            }
        };
        let packed = packed.filter(|packed| packed.len() <= percent(plain, WORTH));
        self.sum.add(plain, packed.as_ref().map_or(plain, Packed::len));
        self.packed.extend(packed.map(|packed| (view, packed)));
    }
}

// === impl Trained ===

impl Trained {
    /// Trains on some bodies and measures the result; `None` without memory.
    fn measure(
        number: u32,
        views: &[View],
        old: Option<&Arc<Dictionary>>,
        bench: &mut Workbench,
    ) -> Option<Self> {
        let mut samples = Samples::default();
        for view in views {
            // A body that cannot be read is left out.
            view.body().read(|plain| samples.add(plain)).unwrap_or_default();
        }
        let dictionary = Arc::new(Dictionary::train(number, &samples)?);
        let (mut new, mut before) = (Sum::default(), Sum::default());
        for plain in samples.held_out() {
            new.add(plain.len(), dictionary.pack(bench, plain)?.len());
            if let Some(old) = old {
                before.add(plain.len(), old.pack(bench, plain)?.len());
            }
        }
        Some(Self { dictionary, new, old: before })
    }

    /// Returns whether it is worth packing everything again.
    fn is_better(&self) -> bool {
        self.new.kept <= percent(self.old.kept, BETTER)
    }
}

// === impl Sum ===

impl Sum {
    fn add(&mut self, plain: usize, kept: usize) {
        self.plain += plain;
        self.kept += kept;
    }

    fn has_half_the_ratio_of(self, other: Self) -> bool {
        // plain / kept <= other.plain / other.kept / 2, without dividing.
        let ours = self.plain.saturating_mul(other.kept).saturating_mul(2);
        ours <= other.plain.saturating_mul(self.kept)
    }
}

/// Picks at most so many of them, evenly: neighbours are alike.
fn spread(views: &[View], most: usize) -> Vec<View> {
    let count = views.len().min(most);
    (0..count).filter_map(|at| views.get(at * views.len() / count)).cloned().collect()
}

/// Takes from the front what fits in a turn, one body at least.
fn cut(queue: &mut VecDeque<Waiting>, turn: usize) -> Vec<Waiting> {
    let mut bytes = 0;
    let mut taken = Vec::new();
    while let Some(one) = queue.front() {
        bytes += one.view.body().plain_len();
        if bytes > turn && !taken.is_empty() {
            break;
        }
        taken.extend(queue.pop_front());
    }
    taken
}

fn percent(of: usize, percent: usize) -> usize {
    (of / 100).saturating_mul(percent)
}
