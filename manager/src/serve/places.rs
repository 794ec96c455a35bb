//! Who may stay when more come than there is room for.
//!
//! A hundred peers that say nothing, or do not take what they asked for, must not keep a prober out: what costs a
//! healthy process its life is a liveness probe that stands in the backlog. So whoever comes last gets a place, and the
//! connection that has waited for its peer for longest loses its own.
//!
//! # Invariants
//! 1. No more places are taken than there are.
//! 2. A connection whose answer is being made keeps its place, and so does one that has waited for less than [`TURN`]:
//!    a peer in earnest has sent its request by then.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long a connection may wait for its peer even though others wait for a place. With a hundred places a thousand
/// peers a second get their turn, and the kernel's backlog (128) is through within two turns.
const TURN: Duration = Duration::from_millis(100);

/// The places of one server.
pub(super) struct Places {
    slots: Arc<Semaphore>,
    waiting: Arc<Mutex<HashMap<u64, Waiting>>>,
    next: AtomicU64,
}

/// The place of one connection, which begins by waiting for its peer. Dropped, it is free.
pub(super) struct Place {
    id: u64,
    /// Those of all places that wait for their peers.
    waiting: Arc<Mutex<HashMap<u64, Waiting>>>,
    lost: CancellationToken,
    /// `None` never: the slots are not closed.
    _slot: Option<OwnedSemaphorePermit>,
}

/// As long as this exists, the peer waits for us.
pub(super) struct Answering<'a>(&'a Place);

/// A connection that waits for its peer: to send, or to take what was sent.
struct Waiting {
    since: Instant,
    /// Cancelled to take its place away.
    lost: CancellationToken,
}

// === impl Places ===

impl Places {
    pub(super) fn new(places: usize) -> Self {
        let slots = Arc::new(Semaphore::new(places.max(1)));
        Self { slots, waiting: Arc::default(), next: AtomicU64::new(0) }
    }

    /// Returns a place, at once if one is free, else once one has become free or was taken away from somebody.
    ///
    /// # Cancel safety
    /// Dropped, it takes no place; somebody may have lost theirs.
    pub(super) async fn take(&self) -> Place {
        let slot = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(slot) => Some(slot),
            Err(_full) => self.make_room().await,
        };
        let place = Place {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            waiting: Arc::clone(&self.waiting),
            lost: CancellationToken::new(),
            _slot: slot,
        };
        place.wait();
        place
    }

    async fn make_room(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            let look_again = self.take_away(Instant::now());
            if let Ok(slot) = timeout_at(look_again, Arc::clone(&self.slots).acquire_owned()).await {
                return slot.ok();
            }
        }
    }

    /// Takes the place of who has waited longest, if that was long enough; returns when to look again.
    fn take_away(&self, now: Instant) -> Instant {
        let mut waiting = self.waiting.lock();
        let longest = waiting.iter().min_by_key(|(id, waiting)| (waiting.since, **id));
        match longest.map(|(id, waiting)| (*id, waiting.since + TURN)) {
            Some((id, turn_ends)) if turn_ends <= now => {
                if let Some(Waiting { lost, .. }) = waiting.remove(&id) {
                    lost.cancel();
                }
                now + TURN
            }
            Some((_, turn_ends)) => turn_ends,
            // All are being answered. The first to have its answer gets the time to take it.
            None => now + TURN,
        }
    }
}

// === impl Place ===

impl Place {
    /// Completes when the place was taken away.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Says that an answer is being made.
    pub(super) fn answering(&self) -> Answering<'_> {
        self.waiting.lock().remove(&self.id);
        Answering(self)
    }

    fn wait(&self) {
        let waiting = Waiting { since: Instant::now(), lost: self.lost.clone() };
        self.waiting.lock().insert(self.id, waiting);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.id);
    }
}

// === impl Answering ===

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn lost(places: &[&Place]) -> Vec<bool> {
        places.iter().map(|place| place.lost().now_or_never().is_some()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_waited_longest_makes_room_but_not_before_its_turn_is_over() {
        let places = Places::new(2);
        let (first, second) = (places.take().await, places.take().await);
        let tick = Duration::from_millis(1);
        tokio::time::advance(TURN.saturating_sub(tick)).await;
        // An answer makes the first one the younger.
        drop(first.answering());
        let began = Instant::now();
        let coming = places.take();
        tokio::pin!(coming);
        assert!(coming.as_mut().now_or_never().is_none());
        assert_eq!(lost(&[&first, &second]), [false, false], "a turn is not over");
        tokio::select! {
            _place = coming.as_mut() => panic!("there was room"),
            () = second.lost() => {}
        }
        assert_eq!(began.elapsed(), tick);
        drop(second);
        let third = coming.await;
        assert_eq!(lost(&[&first, &third]), [false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_being_answered_keeps_its_place_however_long_that_takes() {
        let places = Places::new(1);
        let only = places.take().await;
        let answering = only.answering();
        let coming = places.take();
        tokio::pin!(coming);
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(hour, coming.as_mut()).await.is_err());
        assert_eq!(lost(&[&only]), [false]);
        drop(answering);
        let began = Instant::now();
        tokio::select! {
            _place = coming.as_mut() => panic!("there was room"),
            () = only.lost() => {}
        }
        assert!(began.elapsed() >= TURN, "it had no time to take its answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_comes_free_is_taken_from_nobody() {
        let places = Places::new(2);
        let (first, second) = (places.take().await, places.take().await);
        drop(first);
        tokio::time::advance(TURN * 2).await;
        let third = places.take().await;
        assert_eq!(lost(&[&second, &third]), [false, false]);
    }
}
