//! What was told of late: what goes on, or happens again and again, makes one line in the log and not one each time.

use std::time::Duration;

use tokio::time::Instant;

/// What has not happened for so long is told when it does: two outages of a night are two lines, a Lease that is deleted
/// every second or a server that refuses every other request is one.
pub(super) const CALM: Duration = Duration::from_mins(10);

/// What can be wrong around a Lease, as far as the log tells it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A request of ours got no answer in time.
    Late,
    /// It was answered with this status.
    Refused(u16),
    /// It was answered with something else than the Lease.
    Strange(&'static str),
    /// It could not be sent, or its answer not be read.
    Unreachable,
    /// The Lease we hold was deleted, or our name taken out of it.
    Missing,
    /// The Lease we hold says something else than we wrote.
    Edited,
    /// A holder states a duration that nobody can mean.
    Absurd,
}

/// When each trouble happened last.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// One entry for each kind of trouble there ever was: a dozen at most.
    last: Vec<(Trouble, Instant)>,
}

// === impl Told ===

impl Told {
    /// Notes that it happens, and returns whether that is to be told.
    pub(super) fn is_news(&mut self, trouble: Trouble) -> bool {
        let now = Instant::now();
        if let Some((_, last)) = self.last.iter_mut().find(|(known, _)| *known == trouble) {
            return now.duration_since(std::mem::replace(last, now)) >= CALM;
        }
        self.last.push((trouble, now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_is_told_once_and_again_after_a_calm() {
        let mut told = Told::default();
        assert!(told.is_news(Trouble::Late));
        assert!(
            told.is_news(Trouble::Refused(500)) && told.is_news(Trouble::Refused(429)),
            "each for itself"
        );
        for _ in 0..100 {
            advance(CALM / 2).await;
            assert!(!told.is_news(Trouble::Late));
        }
        advance(CALM).await;
        assert!(told.is_news(Trouble::Late));
    }
}
