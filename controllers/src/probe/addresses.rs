//! How often one address is probed on behalf of a namespace, however many checks there are of it.
//!
//! Who finds no token left gets a place in a line and comes back when its turn has come; others of the namespace are not
//! held up meanwhile. Nothing here knows who waits, so that coming and going makes nobody probe more often.
//!
//! # Invariants
//! 1. In no second more than 1.1 times the rate, and one, is let through.
//! 2. Turns come in the order in which they were asked for, in a line of up to [`LONGEST`]. Nobody has one earlier by
//!    being asked for once more.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::bucket::Bucket;
use super::shaken::Host;

/// How many addresses are kept before those that have nothing to remember are looked for.
const FIRST_SWEEP: usize = 64;
/// The longest line; one that is longer consists of who has left it.
const LONGEST: Duration = Duration::from_mins(1);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Addresses {
    per_second: u32,
    lines: HashMap<Address, Line>,
    /// Number of lines at which the idle ones are dropped.
    sweep_at: usize,
}

/// Host, as the objects of a namespace name it, and port: other names of the same machine are other addresses.
pub(super) type Address = (Host, u16);

#[derive(Debug)]
struct Line {
    bucket: Bucket,
    /// When the turn of who comes next would be.
    end: Instant,
}

// === impl Addresses ===

impl Addresses {
    pub(super) fn new(per_second: u32) -> Self {
        Self { per_second, lines: HashMap::new(), sweep_at: FIRST_SWEEP }
    }

    /// Puts another rate in force; turns have to be asked for anew.
    pub(super) fn set_rate(&mut self, per_second: u32, now: Instant) {
        self.per_second = per_second;
        for line in self.lines.values_mut() {
            line.bucket.set_rate(per_second);
            line.end = now;
        }
    }

    /// Lets a probe through, or says when its turn will be. `has_waited`: it was told so, and that time has come.
    pub(super) fn take(&mut self, address: &Address, has_waited: bool, now: Instant) -> Result<(), Instant> {
        if !self.lines.contains_key(address) {
            self.sweep(now);
            let line = Line { bucket: Bucket::new(self.per_second), end: now };
            self.lines.insert(address.clone(), line);
        }
        let Some(line) = self.lines.get_mut(address) else { return Ok(()) };
        let ready_at = line.bucket.ready_at(now);
        // That the one before was called a moment late does not cost this one its turn.
        let slack = if has_waited { line.bucket.interval() / 2 } else { Duration::ZERO };
        if (has_waited || line.end <= now) && ready_at <= now + slack {
            line.bucket.spend(now);
            return Ok(());
        }
        let at = line.end.max(ready_at).min(now + LONGEST);
        line.end = at + line.bucket.interval();
        Err(at)
    }

    fn sweep(&mut self, now: Instant) {
        if self.lines.len() >= self.sweep_at {
            self.lines.retain(|_, line| line.end > now || !line.bucket.is_full(now));
            self.sweep_at = (self.lines.len() * 2).max(FIRST_SWEEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use mainstay_api::ProbeCheck;

    use super::*;
    use crate::probe::Target;

    fn address(text: &str) -> Address {
        let address = mainstay_api::Address::parse("address", text).unwrap();
        let port = address.port;
        (Host::of(&Target::new("shop", ProbeCheck::Tcp(address))), port)
    }

    #[test]
    fn turns_come_in_order_and_no_faster_than_the_rate() {
        let start = Instant::now();
        let mut addresses = Addresses::new(10);
        let db = address("db:80");
        assert_eq!(addresses.take(&db, false, start), Ok(()));
        let turns: Vec<_> = (1..=20).map(|_| addresses.take(&db, false, start).unwrap_err()).collect();
        let expected = (1..=20).map(|turn| start + Duration::from_millis(100) * turn);
        assert_eq!(turns, expected.collect::<Vec<_>>());
        assert_eq!(
            addresses.take(&address("db.shop:80"), false, start),
            Err(start + Duration::from_millis(2100))
        );
        assert_eq!(
            addresses.take(&address("db:81"), false, start),
            Ok(()),
            "another port has a line of its own"
        );

        // Whoever comes too late for a turn does not come beside the next one.
        let late = turns[4];
        assert_eq!(addresses.take(&db, true, late), Ok(()));
        assert!(addresses.take(&db, true, late).is_err());
        assert!(addresses.take(&db, false, late).is_err(), "nor before those who wait");
    }

    #[test]
    fn a_turn_is_had_though_the_one_before_was_late() {
        let start = Instant::now();
        let mut addresses = Addresses::new(10);
        let db = address("db:80");
        assert_eq!(addresses.take(&db, false, start), Ok(()));
        let turns: Vec<_> = (1..=100).map(|_| addresses.take(&db, false, start).unwrap_err()).collect();
        for (at, turn) in turns.into_iter().enumerate() {
            let late = Duration::from_millis(if at % 3 == 0 { 40 } else { 0 });
            assert_eq!(addresses.take(&db, true, turn + late), Ok(()), "turn {at}");
        }
    }

    #[test]
    fn who_has_left_is_not_waited_for_without_end_and_nothing_is_kept_that_says_nothing() {
        let start = Instant::now();
        let mut addresses = Addresses::new(1);
        for _ in 0..1000 {
            assert!(addresses.take(&address("db:80"), false, start) <= Err(start + LONGEST));
        }
        assert_eq!(addresses.take(&address("db:80"), false, start), Err(start + LONGEST));
        for port in 1..=1000 {
            addresses.take(&address(&format!("db:{port}")), false, start + 3 * LONGEST).unwrap();
        }
        let later = start + 6 * LONGEST;
        addresses.sweep_at = 0;
        addresses.take(&address("db:2000"), false, later).unwrap();
        assert_eq!(addresses.lines.len(), 1);
    }
}
