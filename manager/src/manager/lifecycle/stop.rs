//! How a running manager stops: in the opposite order of its start.

use tokio::time::Instant;

use super::outcome::{End, Problems};
use super::{Candidate, ELECTION, EVENTS_TIME, OWN_TURN, Running, Timers, own_turn};

// === impl Running ===

impl Running<'_> {
    /// Stops all members of the manager: leader-only ones first, then the Lease, then the others in the
    /// opposite order of their start.
    pub(super) async fn stop_members(
        &mut self,
        end: &End,
        candidate: Option<Candidate>,
        timers: &Timers,
        deadline: Instant,
        problems: &mut Problems,
    ) {
        self.shared.stops.begun.cancel();
        // Without an elector the Lease is not renewed, so the term counts as lost.
        if matches!(end, End::LeaseLost) || matches!(end, End::Failed((name, _)) if **name == *ELECTION) {
            self.shared.term.lose();
        } else {
            self.shared.term.end();
        }
        self.leader_only.stop.cancel();
        // The next leader must not repeat what a late worker still does, so the Lease expires by itself then.
        let in_time = match candidate {
            Some(candidate) => candidate.finish(&self.shared.term, timers, deadline).await,
            None => timers.until(deadline, self.shared.term.ended()).await.is_some(),
        };
        if !in_time {
            problems.late.extend(self.shared.term.late().iter().map(ToString::to_string));
        }
        self.leader_only.end(timers, deadline, problems).await;
        self.shared.always.end();
        for group in [&mut self.others, &mut self.caches, &mut self.servers] {
            group.stop.cancel();
            group.end(timers, own_turn(deadline), problems).await;
        }
    }

    pub(super) async fn stop_events(&mut self, timers: &Timers, deadline: Instant, problems: &mut Problems) {
        self.events.stop.cancel();
        // The writer limits itself, if it gets a thread to run on.
        let turn = own_turn(deadline).max(Instant::now() + EVENTS_TIME + OWN_TURN);
        self.events.end(timers, turn, problems).await;
    }
}
