//! How often the same complaint is written: what fails in one object mostly fails in all of them, and five thousand of
//! them must not fill a disk.
//!
//! Only warnings and errors count: what is told of at `info` has happened, each time to something else, and nobody else
//! tells of it. Lines are the same if they come from one place of the code and name the same controller and kind; a
//! controller that is in trouble takes no lines from another. Each has a hundred at once and ten a second. What was left
//! out is counted, and told by the next that is written, or once there has been none for a while.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::Metadata;
use tracing::callsite::Identifier;

use super::fields::Fields;

/// Between two lines in the long run.
pub(super) const PERIOD: Duration = Duration::from_millis(100);
/// Lines at once after a rest.
const BURST: u32 = 100;
/// Kinds of lines that are remembered: far more than there are, unless somebody names a controller after an object.
const KINDS: usize = 1024;

/// Which lines count as one.
pub(super) type Kind = (Identifier, u64);

/// The lines that were written lately.
#[derive(Debug)]
pub(super) struct Limit {
    period: Duration,
    /// Never locked while something is written.
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    kinds: HashMap<Kind, Lately>,
    /// Whether somebody waits for the end of a flood, to tell of it.
    awaited: bool,
}

#[derive(Debug)]
struct Lately {
    /// When all that were written would have been, had they kept the period.
    due: Instant,
    /// `None` if there is nothing to tell.
    left_out: Option<LeftOut>,
}

/// Lines that nobody has been told of.
#[derive(Debug)]
pub(super) struct LeftOut {
    pub(super) number: u64,
    pub(super) metadata: &'static Metadata<'static>,
    /// What they have in common.
    pub(super) fields: Fields,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// It is written, and says how many were not before it.
    Written { left_out: u64 },
    /// It is not; `unawaited` if somebody has to wait for the end of the flood, by [`Limit::ended`].
    LeftOut { unawaited: bool },
}

// === impl Limit ===

impl Limit {
    /// Returns one that admits a line per `period` in the long run.
    pub(super) fn new(period: Duration) -> Self {
        Self { period, inner: Mutex::default() }
    }

    /// Says what becomes of a line. `common` is asked for what the lines of this kind have in common.
    pub(super) fn admit(
        &self,
        kind: Kind,
        now: Instant,
        metadata: &'static Metadata<'static>,
        common: impl FnOnce() -> Fields,
    ) -> Admitted {
        let mut inner = self.inner.lock();
        if inner.kinds.len() >= KINDS && !inner.kinds.contains_key(&kind) {
            inner.kinds.retain(|_, lately| lately.due > now || lately.left_out.is_some());
            if inner.kinds.len() >= KINDS {
                return Admitted::Written { left_out: 0 };
            }
        }
        let lately = inner.kinds.entry(kind).or_insert(Lately { due: now, left_out: None });
        if lately.due.saturating_duration_since(now) <= self.period * (BURST - 1) {
            lately.due = lately.due.max(now) + self.period;
            return Admitted::Written { left_out: lately.left_out.take().map_or(0, |lines| lines.number) };
        }
        lately.left_out.get_or_insert_with(|| LeftOut { number: 0, metadata, fields: common() }).number += 1;
        Admitted::LeftOut { unawaited: !std::mem::replace(&mut inner.awaited, true) }
    }

    /// Returns what was left out of floods that are over, which is then told, and when to ask again; after `None`
    /// nobody waits any more.
    pub(super) fn ended(&self, now: Instant) -> (Vec<LeftOut>, Option<Instant>) {
        let mut inner = self.inner.lock();
        let at_rest = inner.kinds.values_mut().filter(|lately| lately.due <= now);
        let ended = at_rest.filter_map(|lately| lately.left_out.take()).collect();
        let others = inner.kinds.values().filter(|lately| lately.left_out.is_some());
        let next = others.map(|lately| lately.due).min();
        inner.awaited = next.is_some();
        (ended, next)
    }

    /// Returns all that was left out, which is then told.
    pub(super) fn all(&self) -> Vec<LeftOut> {
        self.inner.lock().kinds.values_mut().filter_map(|lately| lately.left_out.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use tracing::callsite::Callsite as _;

    use super::*;

    /// The lines of one controller.
    fn admit(limit: &Limit, controller: u64, now: Instant) -> Admitted {
        let event = tracing::callsite! { name: "line", kind: tracing::metadata::Kind::EVENT, fields: };
        limit.admit((event.metadata().callsite(), controller), now, event.metadata(), Fields::take)
    }

    #[test]
    fn a_flood_is_written_in_part_and_the_rest_is_counted_and_takes_nothing_from_others() {
        let (limit, start) = (Limit::new(PERIOD), Instant::now());
        let written = |controller, lines: usize, at| {
            let admitted = (0..lines).map(|_| admit(&limit, controller, start + at));
            let written = admitted.filter_map(|line| match line {
                Admitted::Written { left_out } => Some(left_out),
                Admitted::LeftOut { .. } => None,
            });
            written.collect::<Vec<_>>()
        };
        assert_eq!(written(1, 5_000, Duration::ZERO), [0; BURST as usize]);
        assert_eq!(written(2, 1, Duration::ZERO), [0], "another controller");
        assert!(written(1, 10, PERIOD / 2).is_empty());
        assert_eq!(written(1, 10, PERIOD), [4_910]);
        let later = PERIOD + Duration::from_secs(1);
        assert_eq!(written(1, 50, later), [9, 0, 0, 0, 0, 0, 0, 0, 0, 0], "ten a second");
        assert_eq!(written(1, 200, later + PERIOD * BURST * 2).len(), BURST as usize, "after a rest");
    }

    #[test]
    fn what_was_left_out_is_told_once_the_flood_is_over_and_one_waits_for_that() {
        let (limit, start) = (Limit::new(PERIOD), Instant::now());
        let flood = |controller| {
            let admitted: Vec<_> = (0..BURST + 3).map(|_| admit(&limit, controller, start)).collect();
            admitted.into_iter().filter(|line| *line == Admitted::LeftOut { unawaited: true }).count()
        };
        assert_eq!((flood(1), flood(2)), (1, 0), "who waits waits for all");
        let rest = start + PERIOD * BURST;
        let (ended, next) = limit.ended(rest - Duration::from_nanos(1));
        assert_eq!((ended.len(), next), (0, Some(rest)));
        assert_eq!(admit(&limit, 2, start + PERIOD), Admitted::Written { left_out: 3 }, "the next tells");
        let (ended, next) = limit.ended(rest);
        assert_eq!(ended.iter().map(|lines| lines.number).collect::<Vec<_>>(), [3]);
        assert_eq!(next, None);
        assert_eq!(flood(3), 1, "nobody waited any more");
        assert_eq!((limit.all().len(), limit.all().len()), (1, 0), "told once");
    }

    #[test]
    fn kinds_without_number_do_not_fill_the_memory_and_no_count_is_lost_to_them() {
        let (limit, start) = (Limit::new(PERIOD), Instant::now());
        for _ in 0..=BURST {
            admit(&limit, 0, start);
        }
        for controller in 1..10_000 {
            assert_eq!(admit(&limit, controller, start), Admitted::Written { left_out: 0 });
        }
        assert_eq!(limit.inner.lock().kinds.len(), KINDS);
        let rest = start + PERIOD * BURST;
        assert_eq!(admit(&limit, 20_000, rest), Admitted::Written { left_out: 0 });
        assert_eq!(limit.inner.lock().kinds.len(), 2, "those at rest have gone");
        assert_eq!(admit(&limit, 0, rest), Admitted::Written { left_out: 1 });
    }
}
