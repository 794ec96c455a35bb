//! What is known of one target, and what those who wait for it ask for together.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use mainstay::key::Request;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::addresses::Address;
use super::heard::Heard;
use super::judge::Row;
use super::schedule::Ended;
use super::shaken::Host;
use super::turns::Lane;
use super::{ProbeResult, Target};

/// The largest part of a period by which a probe may come early, so that targets first asked for together drift apart.
const JITTER: f64 = 0.1;
/// Probes out of turn that can follow each other at once; in the long run there are at most as many of them as others.
const EARLY_BURST: u32 = 3;
/// From a probe out of turn that failed to the next: an endpoint that is ready is known to the nodes' proxies within
/// about a second (`iptables.minSyncPeriod` of kube-proxy).
const FOLLOW_UP: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) target: Target,
    /// Whose waits are for it, one of them or several.
    pub(super) waiting: HashSet<Request>,
    pub(super) periods: Asked,
    /// What each of those who wait asks for, so that nobody's patience is another's.
    pub(super) timeout: Duration,
    pub(super) lane: Lane,
    /// Whether the namespace has a place for it. If not, it is not due.
    pub(super) admitted: bool,
    /// When its turn comes; `None` while it is probed.
    pub(super) due: Option<Instant>,
    /// Whether a probe has begun whose result is not noted yet. It may have no slot any more.
    pub(super) is_probed: bool,
    /// When the last probe began.
    pub(super) started: Option<Instant>,
    /// How long the last probe took; `None` before its end.
    pub(super) took: Option<Duration>,
    pub(super) result: Option<ProbeResult>,
    /// Since when the result is this one.
    pub(super) since: Option<Instant>,
    pub(super) row: Row,
    /// Whom it asks.
    pub(super) host: Host,
    /// Where it connects to.
    pub(super) address: Option<Address>,
    /// When it was due before it was told to wait for its address, while it does; [`due`](Self::due) is its turn then, and
    /// nothing makes that an earlier one.
    pub(super) postponed: Option<Instant>,
    /// Whether anybody answered last time, or has to have answered an earlier manager; `None` before the first time.
    answered: Option<bool>,
    /// How far the probes so far would reach if two of them came in a period.
    spent: Option<Instant>,
    /// How long after the end of the probe in flight another one is to come if it fails.
    again: Option<Duration>,
    pub(super) cancel: CancellationToken,
}

/// What the waiting ask for: each value, and how many asked for it.
#[derive(Debug, Default)]
pub(super) struct Asked(BTreeMap<Duration, usize>);

// === impl Entry ===

impl Entry {
    /// Makes one for which nobody waits yet.
    pub(super) fn new(target: Target, timeout: Duration) -> Self {
        let host = Host::of(&target);
        Self {
            address: target.address().map(|address| (host.clone(), address.port)),
            host,
            postponed: None,
            answered: None,
            target,
            waiting: HashSet::new(),
            periods: Asked::default(),
            timeout,
            lane: Lane::New,
            admitted: true,
            due: None,
            is_probed: false,
            started: None,
            took: None,
            result: None,
            since: None,
            row: Row::default(),
            spent: None,
            again: None,
            cancel: CancellationToken::new(),
        }
    }

    /// Notes that a probe has begun.
    pub(super) fn start(&mut self, now: Instant, min_period: Duration) {
        (self.due, self.postponed) = (None, None);
        self.is_probed = true;
        self.started = Some(now);
        self.took = None;
        let spent = self.spent.map_or(now, |spent| spent.max(now));
        self.spent = Some(spent + self.period(min_period) / 2);
    }

    /// Notes how a probe ended. Returns whether the result is another one than before.
    pub(super) fn end(&mut self, Ended { result, took, timeout, .. }: Ended, now: Instant) -> bool {
        // The clock tells no more than the words do.
        self.took = Some(if result.is_coarse() { timeout } else { took });
        self.lane = Lane::after(took, timeout);
        self.note(result, now)
    }

    /// Notes what was heard of the network meanwhile. Returns whether there was an answer the time before: where the
    /// target is watched for its loss, it had held before this engine looked, so its silence is one too.
    pub(super) fn hear(&mut self, heard: Heard, held: bool) -> bool {
        self.answered.replace(heard == Heard::Answer).unwrap_or(held)
    }

    /// Returns whether the last who was asked was silent.
    pub(super) fn is_silent(&self) -> bool {
        self.answered == Some(false)
    }

    /// Takes it that nobody was asked. Returns whether the last who was asked was silent.
    pub(super) fn forget_silence(&mut self) -> bool {
        self.answered.take_if(|answered| !*answered).is_some()
    }

    /// Takes a result, from a probe or for want of one. Returns whether it is another one than before.
    pub(super) fn note(&mut self, result: ProbeResult, now: Instant) -> bool {
        self.row = self.row.and(&result);
        let is_new = self.result.as_ref() != Some(&result);
        if is_new {
            self.result = Some(result);
            self.since = Some(now);
        }
        is_new
    }

    /// Takes over what is known of the same target from one that looks at it for as long as another asked.
    pub(super) fn learn(&mut self, other: &Self) {
        self.result.clone_from(&other.result);
        (self.since, self.row, self.answered) = (other.since, other.row, other.answered);
    }

    /// Forgets what is known, as if nobody had looked.
    pub(super) fn reset(&mut self) {
        (self.result, self.since, self.row) = (None, None, Row::default());
    }

    /// Returns how often it is probed.
    pub(super) fn period(&self, min_period: Duration) -> Duration {
        self.periods.shortest().max(min_period)
    }

    /// Returns how long a probe may take.
    pub(super) fn timeout(&self, min_period: Duration) -> Duration {
        self.timeout.min(self.period(min_period))
    }

    /// Returns when the next probe is due after one has ended, with a random number in [0, 1).
    pub(super) fn next_due(&mut self, now: Instant, min_period: Duration, random: f64) -> Instant {
        let period = self.period(min_period);
        let early = period.mul_f64(JITTER * random.clamp(0.0, 1.0));
        let due = self.started.unwrap_or(now) + period - early;
        let again = self.again.take().filter(|_| !self.row.is_good());
        if again.is_some() {
            self.lane = Lane::New;
        }
        let again = again.map(|after| self.early_at(now, min_period).max(now + after));
        again.map_or(due, |again| due.min(again)).max(now)
    }

    /// Notes that it may have come up just now. Returns when it is to be probed for that; `None` if not before its turn.
    /// It is to be in the lane [`New`](Lane::New) then: that it was silent until now says nothing any more.
    ///
    /// What is ready is left alone: a probe out of turn that fails would bring its loss nearer.
    pub(super) fn hurry(&mut self, now: Instant, min_period: Duration) -> Option<Instant> {
        if self.row.is_good() || !self.admitted {
            return None;
        }
        let Some(due) = self.due else {
            // In flight, and what it dials may have been there too late.
            self.again = Some(Duration::ZERO);
            return None;
        };
        self.again = Some(FOLLOW_UP);
        // Not before the end of a delay that nobody has seen the end of.
        let at = self.started.map(|_| self.early_at(now, min_period));
        at.filter(|at| *at < due && self.postponed.is_none())
    }

    /// Returns when a probe out of turn may come: now, or once what was spent on earlier ones has come in again.
    fn early_at(&self, now: Instant, min_period: Duration) -> Instant {
        let saved = self.period(min_period) / 2 * EARLY_BURST;
        self.spent.and_then(|spent| spent.checked_sub(saved)).map_or(now, |at| at.max(now))
    }
}

// === impl Asked ===

impl Asked {
    pub(super) fn add(&mut self, value: Duration) {
        *self.0.entry(value).or_default() += 1;
    }

    pub(super) fn remove(&mut self, value: Duration) {
        if let Some(count) = self.0.get_mut(&value) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&value);
            }
        }
    }

    pub(super) fn shortest(&self) -> Duration {
        self.0.keys().next().copied().unwrap_or_default()
    }

    /// Returns how many ask.
    pub(super) fn count(&self) -> usize {
        self.0.values().sum()
    }
}
