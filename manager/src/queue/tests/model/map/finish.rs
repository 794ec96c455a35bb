//! The end of a run in the model.

use super::*;

impl Model {
    pub(in crate::queue::tests) fn finish(&mut self, id: u32, outcome: Outcome<'_>) {
        let entry = self.keys.get_mut(&id).expect("a running key");
        let At::Running { lane, .. } = entry.at else { panic!("{id} does not run") };
        let (dirt, again) = (entry.dirt.take(), entry.again.take());
        let outcome = match outcome {
            Outcome::Dropped if self.leading && self.phase == Phase::Open => {
                Outcome::Failed("dropped", Retry::Backoff)
            }
            Outcome::Dropped => Outcome::PutBack,
            other => other,
        };
        match outcome {
            Outcome::Done => {
                self.keys.remove(&id);
            }
            Outcome::RequeueAfter(wait) => {
                entry.failures = 0;
                self.delay(id, self.now + millis(wait), false, Lane::Live);
            }
            Outcome::Failed(_, next) => {
                let policy = &self.settings.retry;
                let wait = policy.delay(entry.failures, 0.0);
                entry.failures += 1;
                let asked = match next {
                    Retry::NotBefore(asked) => policy.asked(asked, 0.0),
                    _ => Duration::ZERO,
                };
                entry.named = matches!(next, Retry::After(_)) || asked > wait;
                let spent = policy.max_attempts > 0 && entry.failures >= policy.max_attempts;
                entry.spent = spent && next != Retry::Never;
                match next {
                    _ if spent => entry.at = At::Parked,
                    Retry::Never => entry.at = At::Parked,
                    Retry::Backoff | Retry::NotBefore(_) => {
                        self.delay(id, self.now + millis(wait.max(asked)), true, Lane::Retry);
                    }
                    Retry::After(wait) => self.delay(id, self.now + millis(wait), true, Lane::Retry),
                }
            }
            Outcome::PutBack if self.phase == Phase::Draining => {
                entry.named = false;
                self.delay(id, self.now, lane == Lane::Retry, lane);
            }
            Outcome::PutBack => self.make_ready(id, lane, self.now),
            Outcome::Park(_) => (entry.at, entry.spent) = (At::Parked, false),
            Outcome::Dropped => unreachable!("replaced above"),
        }
        // The rule: an add during the run is the same add right after it. The depth limit does not apply to
        // it again.
        let depth = std::mem::take(&mut self.settings.max_depth);
        if let Some((until, strength, band, new)) = again {
            self.apply(id, strength, band, Some(until.max(self.now)), new);
        }
        if let Some((strength, band, new)) = dirt {
            self.apply(id, strength, band, None, new);
        }
        self.settings.max_depth = depth;
        self.advance(self.now);
    }
}
