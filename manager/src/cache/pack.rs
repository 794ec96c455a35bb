//! Packs the bodies of a kind, once that pays, behind the back of everybody else.
//!
//! New bodies stay plain for a moment, because the reconcile that follows reads them; then they are packed in turns
//! of bounded size on a thread of the blocking pool, one turn at a time in the whole process. The dictionary is
//! learnt from the store's own objects, and again when what comes in no longer looks like them.
//!
//! # Invariants
//! 1. Packing changes how a version is kept, never which version is stored, and tells nobody.
//! 2. No lock is held while anything is packed, unpacked or learnt; the table's is taken to swap a turn's results.
//! 3. Plain bytes on their way to being packed are bounded: the reflector reads on when there is room again. It waits
//!    for [`PATIENCE`] at most: a blocking pool that others have filled costs memory, never a watch.
//! 4. A dictionary lives as long as a body needs it.

mod codec;
mod fit;
mod intake;
mod shelf;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub use self::codec::Damage;
pub(super) use self::codec::{Dictionary, Packed, Press, Workbench};
pub(super) use self::intake::{Intake, Waiting};
pub use self::shelf::Packing;
pub(super) use self::shelf::Shelf;

use self::codec::Samples;
use self::fit::{Fit, Sum};
use super::body::Form;
use super::store::Core;
use super::view::View;

/// Whether the bodies of a kind are kept packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
pub(super) struct Rules {
    /// Bytes of a store at which [`Pack::Auto`] looks whether packing pays.
    pub(super) worth_a_look: usize,
    /// A new body stays plain for this long, at most twice as long.
    pub(super) delay: Duration,
    /// Plain bytes at which the delay is cut short.
    pub(super) eager: usize,
    /// Plain bytes at which the reflector waits.
    pub(super) full: usize,
    /// Plain bytes packed in one turn; a body longer than that has a turn of its own.
    pub(super) turn: usize,
    /// Plain bytes over which the ratio is looked at.
    pub(super) window: usize,
    /// Plain bytes packed between two dictionaries, however badly the first does.
    pub(super) retrain: usize,
}

/// All packing of one process happens at one bench.
pub(super) type Workshop = Arc<tokio::sync::Mutex<Workbench>>;

/// Packs the bodies of one store.
#[derive(Debug)]
pub(super) struct Packer {
    store: Arc<Core>,
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

/// A press with what was found out about it.
struct Trained {
    press: Press,
    /// Objects it was learnt from.
    samples: usize,
    /// Whether more objects would teach little more.
    enough: bool,
    /// Samples it was not learnt from, packed with it.
    new: Sum,
    /// The same, packed with the press before it.
    old: Sum,
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
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
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
            window: 4 * 1024 * 1024,
            retrain: 16 * 1024 * 1024,
        }
    }
}

// === impl Packer ===

impl Packer {
    pub(super) fn new(store: Arc<Core>, pack: Pack, rules: Rules, workshop: Workshop) -> Self {
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
    pub(super) async fn run(mut self) {
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
                let kind = self.store.kind();
                tracing::error!(%kind, %error, "packing failed; objects are kept as they come from now on");
                return;
            }
            at = self.store.intake(|_, bytes| bytes).saturating_mul(2).max(self.rules.worth_a_look);
            tracing::debug!(kind = %self.store.kind(), "packing does not pay; looking again at twice the size");
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

    /// Packs what is there and what comes in.
    async fn work(&mut self, first: Trained) -> Result<(), JoinError> {
        let mut fit = Fit::new(self.rules, &first, self.store.count());
        let mut press = self.adopt(first);
        loop {
            if self.store.intake(|intake, _| intake.resume()) {
                tracing::info!(kind = %self.store.kind(), "packing goes on");
                self.pack_again();
            }
            if fit.is_poor(self.store.count()) {
                let trained = self.train(Some(press.clone())).await?;
                fit.judge(self.store.count());
                if let Some(trained) = trained.filter(Trained::is_better) {
                    fit = Fit::new(self.rules, &trained, self.store.count());
                    press = self.adopt(trained);
                }
            }
            self.rotate();
            let fresh = !self.due.is_empty();
            let turn = cut(if fresh { &mut self.due } else { &mut self.again }, self.rules.turn);
            if turn.is_empty() {
                self.idle().await;
                continue;
            }
            let sum = self.turn(press.clone(), turn).await?;
            if fresh {
                fit.note(sum);
            } else {
                sleep(PAUSE).await;
            }
        }
    }

    /// Starts packing with a press: what is there, little by little, and what comes in.
    fn adopt(&mut self, trained: Trained) -> Arc<Press> {
        let Trained { press, samples, new: Sum { plain, kept }, .. } = trained;
        tracing::debug!(kind = %self.store.kind(), dictionary = ?press.dictionary(), samples, plain, kept, "packing");
        let press = Arc::new(press);
        self.store.shelf.put(&press);
        self.pack_again();
        press
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
    async fn turn(&self, press: Arc<Press>, turn: Vec<Waiting>) -> Result<Sum, JoinError> {
        let taken = turn.iter().map(|one| one.bytes).sum();
        let mut bench = self.workshop.clone().lock_owned().await;
        let work = move || {
            let mut done = Turn::default();
            for Waiting { view, .. } in turn {
                done.pack(&press, &mut bench, view);
            }
            done
        };
        let Turn { packed, sum } = spawn_blocking(work).await?;
        self.store.packed(packed, taken);
        Ok(sum)
    }

    /// Makes a press from what is stored; nothing comes of it without memory.
    async fn train(&mut self, old: Option<Arc<Press>>) -> Result<Option<Trained>, JoinError> {
        if old.is_none() {
            self.store.intake(|intake, _| intake.open(self.rules));
        }
        let views = spread(&self.store.everything(), Samples::MOST);
        self.made += 1;
        let (number, mut bench) = (self.made, self.workshop.clone().lock_owned().await);
        spawn_blocking(move || Trained::learn(number, &views, old.as_deref(), &mut bench)).await
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
    fn pack(&mut self, press: &Press, bench: &mut Workbench, view: View) {
        if !view.is_held_elsewhere() {
            return;
        }
        let (plain, packed) = match view.body().form() {
            Form::Plain(plain) => (plain.len(), press.pack(bench, &plain)),
            Form::Packed(packed) if packed.is_of(press.dictionary()) => return,
            // One that cannot be read stays as it is: whoever reads it is told.
            Form::Packed(packed) => {
                (packed.plain_len(), packed.read(|plain| press.pack(bench, plain)).ok().flatten())
            }
        };
        let packed = packed.filter(|packed| packed.len() <= percent(plain, WORTH));
        self.sum.add(plain, packed.as_ref().map_or(plain, Packed::len));
        self.packed.extend(packed.map(|packed| (view, packed)));
    }
}

// === impl Trained ===

impl Trained {
    /// Learns from some bodies; `None` without memory.
    fn learn(number: u32, views: &[View], old: Option<&Press>, bench: &mut Workbench) -> Option<Self> {
        let mut samples = Samples::default();
        for view in views {
            // One that cannot be read teaches nothing.
            view.body().read(|plain| samples.add(plain)).unwrap_or_default();
        }
        let press = Press::train(number, &samples)?;
        let mut sums = (Sum::default(), Sum::default());
        for plain in samples.held_out() {
            sums.0.add(plain.len(), press.pack(bench, plain)?.len());
            if let Some(old) = old {
                sums.1.add(plain.len(), old.pack(bench, plain)?.len());
            }
        }
        let (samples, enough) = (samples.count(), samples.are_enough());
        Some(Self { press, samples, enough, new: sums.0, old: sums.1 })
    }

    /// Returns whether it is worth packing everything again.
    fn is_better(&self) -> bool {
        self.new.kept <= percent(self.old.kept, BETTER)
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
