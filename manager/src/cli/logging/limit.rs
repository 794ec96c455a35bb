//! How often the same line is written: what fails in one object mostly fails in all of them, and five thousand of them
//! must not fill a disk.
//!
//! Lines are the same if they come from one place of the code and one controller; a controller that is in trouble takes
//! no lines from another. Each has a hundred at once and ten a second. What was left out is counted, and told by the
//! next that is written. Who asks for `debug` or `trace` gets all of it.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::callsite::Identifier;

/// Between two lines in the long run.
const PERIOD: Duration = Duration::from_millis(100);
/// Lines at once after a rest.
const BURST: u32 = 100;
/// Kinds of lines that are remembered: far more than there are, unless somebody names a controller after an object.
const KINDS: usize = 1024;

/// Which lines count as one.
pub(super) type Kind = (Identifier, u64);

/// The lines that were written lately.
#[derive(Debug, Default)]
pub(super) struct Limit {
    /// Never locked while something is written.
    kinds: Mutex<HashMap<Kind, Lately>>,
}

#[derive(Debug)]
struct Lately {
    /// When all that were written would have been, had they kept the period.
    due: Instant,
    left_out: u64,
}

// === impl Limit ===

impl Limit {
    /// Returns how many lines of the kind were left out before this one; `None` if this one is left out too.
    pub(super) fn admit(&self, kind: Kind, now: Instant) -> Option<u64> {
        let mut kinds = self.kinds.lock();
        if kinds.len() >= KINDS && !kinds.contains_key(&kind) {
            kinds.retain(|_, lately| lately.due > now);
            if kinds.len() >= KINDS {
                return Some(0);
            }
        }
        let lately = kinds.entry(kind).or_insert(Lately { due: now, left_out: 0 });
        if lately.due.saturating_duration_since(now) > PERIOD * (BURST - 1) {
            lately.left_out += 1;
            return None;
        }
        lately.due = lately.due.max(now) + PERIOD;
        Some(std::mem::take(&mut lately.left_out))
    }
}

#[cfg(test)]
mod tests {
    use tracing::callsite::Callsite as _;

    use super::*;

    fn kind(controller: u64) -> Kind {
        let event = tracing::callsite! { name: "line", kind: tracing::metadata::Kind::EVENT, fields: };
        (event.metadata().callsite(), controller)
    }

    #[test]
    fn a_flood_is_written_in_part_and_the_rest_is_counted_and_takes_nothing_from_others() {
        let (limit, start) = (Limit::default(), Instant::now());
        let written = |controller, lines: usize, at| {
            (0..lines).filter_map(|_| limit.admit(kind(controller), start + at)).collect::<Vec<_>>()
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
    fn kinds_without_number_do_not_fill_the_memory() {
        let (limit, start) = (Limit::default(), Instant::now());
        for controller in 0..10_000 {
            assert_eq!(limit.admit(kind(controller), start), Some(0));
        }
        assert_eq!(limit.kinds.lock().len(), KINDS);
        assert_eq!(limit.admit(kind(20_000), start + PERIOD), Some(0));
        assert_eq!(limit.kinds.lock().len(), 1, "those at rest have gone");
    }
}
