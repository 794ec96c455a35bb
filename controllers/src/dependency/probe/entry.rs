//! One target: its results, its next probe, and the objects that wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay::key::NamespacedName;
use tokio::sync::watch;
use tokio::time::Instant;

use super::address_limits::Address;
use super::judge::{Streak, judge};
use super::reachability::{Contact, Reachability};
use super::{ProbeResult, Target, Verdict, VerdictState, Want};

/// The largest fraction of a period by which a probe may start early, so that targets that were registered
/// together drift apart.
const JITTER: f64 = 0.1;
/// Number of early probes of a target, sent because its Service has changed, that may follow each other
/// without a pause. In the long run, early probes at most double the rate.
const EARLY_BURST: u32 = 3;
/// Time from a failed early probe to the next: the proxies of the nodes learn of a ready endpoint within
/// about a second (`iptables.minSyncPeriod` of kube-proxy).
const FOLLOW_UP: Duration = Duration::from_secs(1);

/// A probe that lasted this long counts as slow, even if it ended before its timeout.
const SLOW: Duration = Duration::from_secs(1);

/// A probe target with its results, its next probe, and the objects that wait for it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) target: Target,
    /// Longest duration of one probe of the target; objects with another timeout have another entry.
    pub(super) timeout: Duration,
    pub(super) host: Arc<str>,
    /// The waits for this target, by object and by position among the targets of the object. Boxed: a map
    /// node has room for several values.
    pub(super) waits: BTreeMap<(NamespacedName, usize), Box<Wait>>,
    /// Whether the target is within the limit of targets of its namespace; if not, it is never due.
    pub(super) admitted: bool,
    /// When the target is probed next; `None` while a probe is in flight. The task of the target follows this
    /// time, and ends when the entry is dropped.
    pub(super) due: watch::Sender<Option<Instant>>,
    /// Whether a probe of the target has started, and its result is not recorded yet.
    pub(super) is_probed: bool,
    /// When the last probe of the target began; `None` before the first probe.
    pub(super) started: Option<Instant>,
    /// How long the last probe of the target took; `None` before its end.
    pub(super) took: Option<Duration>,
    pub(super) result: Option<ProbeResult>,
    /// The time since which every probe of the target has had this result.
    pub(super) since: Option<Instant>,
    pub(super) streak: Streak,
    pub(super) contact: Contact,
    class: SlotClass,
    /// Limits early probes of the target: each probe moves this time half a period ahead.
    spent: Option<Instant>,
    /// If the next probe of the target fails, another probe follows after this time; `None`: at its regular
    /// time.
    follow_up: Option<Duration>,
}

/// The wait of one object for one probe target, with the verdict for this object.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) want: Want,
    /// The end of the object's initial delay: probes that begin earlier do not count for it; `None`: every
    /// probe counts.
    pub(super) from: Option<Instant>,
    pub(super) state: VerdictState,
}

/// The class of a target, by the time for which its next probe is expected to hold its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotClass {
    /// The last probe of the target ended quickly, with or without success.
    Quick,
    /// The target was never probed, or not since the server behind it has changed.
    Untried,
    /// The last probe of the target took a second or its whole timeout.
    Slow,
}

/// A probe that is due, with the data that decide when it gets a slot.
#[derive(Clone, Debug)]
pub(super) struct DueProbe {
    pub(super) namespace: Arc<str>,
    /// The address that the probe connects to; `None` for a check without a connection.
    pub(super) address: Option<Address>,
    pub(super) class: SlotClass,
    pub(super) due: Instant,
}

/// The outcome of one probe, as the driver reports it to the state of the targets.
#[derive(Debug)]
pub(super) struct FinishedProbe {
    pub(super) result: ProbeResult,
    /// Whether the network answered the probe; `None` if the target was not contacted.
    pub(super) reachability: Option<Reachability>,
    pub(super) took: Duration,
    pub(super) timeout: Duration,
}

// === impl Entry ===

impl Entry {
    /// Makes an entry for a target without results, for which no object waits yet.
    pub(super) fn new(target: Target, timeout: Duration) -> Self {
        Self {
            host: target.host(),
            target,
            timeout,
            waits: BTreeMap::new(),
            admitted: false,
            due: watch::Sender::new(None),
            is_probed: false,
            started: None,
            took: None,
            result: None,
            since: None,
            streak: Streak::default(),
            contact: Contact::default(),
            class: SlotClass::Untried,
            spent: None,
            follow_up: None,
        }
    }

    /// Copies the results from another entry, with another timeout, of the same target.
    pub(super) fn copy_results(&mut self, other: &Self) {
        self.result.clone_from(&other.result);
        (self.since, self.streak, self.contact) = (other.since, other.streak, other.contact);
    }

    /// Forgets the result of the last probe and the streak of results of the target.
    pub(super) fn reset(&mut self) {
        (self.result, self.since, self.streak) = (None, None, Streak::default());
    }

    pub(super) fn set_due(&self, at: Instant) {
        self.due.send_replace(Some(at));
    }

    pub(super) fn due(&self) -> Option<Instant> {
        *self.due.borrow()
    }

    /// Returns the probe of the target that became due at the time `due`.
    pub(super) fn due_probe(&self, due: Instant) -> DueProbe {
        let namespace = self.target.shared_namespace();
        let address = self.target.address();
        let address = address.map(|address| (Arc::clone(namespace), Arc::clone(&self.host), address.port));
        DueProbe { namespace: Arc::clone(namespace), address, class: self.class, due }
    }

    /// Makes the next probe of the target due earlier, for an object with a shorter period or without an
    /// initial delay.
    pub(super) fn pull_forward(&self, from: Instant, now: Instant, min_period: Duration) {
        let next = self.started.map_or(from, |started| started + self.period(min_period));
        let at = next.max(from).max(now);
        if self.due().is_some_and(|due| at < due) {
            self.set_due(at);
        }
    }

    /// Records the start of a probe of the target.
    pub(super) fn start(&mut self, now: Instant, min_period: Duration) {
        self.due.send_replace(None);
        self.is_probed = true;
        self.started = Some(now);
        self.took = None;
        let spent = self.spent.map_or(now, |spent| spent.max(now));
        self.spent = Some(spent + self.period(min_period) / 2);
    }

    /// Records the end of a probe of the target, and schedules the next probe with jitter by a random number
    /// in [0, 1). Returns whether the result has changed.
    pub(super) fn end(
        &mut self,
        ended: FinishedProbe,
        now: Instant,
        min_period: Duration,
        random: f64,
    ) -> bool {
        let FinishedProbe { result, took, timeout, .. } = ended;
        // The duration must reveal no more than the message.
        self.took = Some(if result.is_coarse() { timeout } else { took });
        self.class = if took >= timeout.min(SLOW) { SlotClass::Slow } else { SlotClass::Quick };
        let is_new = self.record(result, now);
        let period = self.period(min_period);
        let early = period.mul_f64(JITTER * random.clamp(0.0, 1.0));
        let mut due = self.started.unwrap_or(now) + period - early;
        if let Some(after) = self.follow_up.take().filter(|_| !self.streak.is_good()) {
            self.class = SlotClass::Untried;
            due = due.min(self.early_at(now, min_period).max(now + after));
        }
        self.set_due(due.max(now));
        is_new
    }

    /// Records a result of the target, of a probe or of a denial without one. Returns whether the result has
    /// changed.
    pub(super) fn record(&mut self, result: ProbeResult, now: Instant) -> bool {
        self.streak = self.streak.and(&result);
        let is_new = self.result.as_ref() != Some(&result);
        if is_new {
            self.result = Some(result);
            self.since = Some(now);
        }
        is_new
    }

    /// Updates the verdict on the target for every object that waits for it. Returns the objects with a
    /// changed verdict, each once.
    pub(super) fn judge(&mut self, is_new: bool) -> Vec<NamespacedName> {
        let mut changed: Vec<NamespacedName> = Vec::new();
        for ((request, _), wait) in &mut self.waits {
            let has_changed = if wait.from.is_some() && !self.admitted {
                // Over the limit of targets, the denial shows before the delay is over: it needs no probe.
                is_new
            } else {
                wait.judge(self.streak, self.started, is_new)
            };
            if has_changed && changed.last() != Some(request) {
                changed.push(request.clone());
            }
        }
        changed
    }

    /// Makes a probe due early if the target is not ready, because the server behind it has changed.
    ///
    /// A ready target keeps its schedule: an early probe that fails would bring its loss nearer.
    pub(super) fn probe_early(&mut self, now: Instant, min_period: Duration) {
        if self.streak.is_good() || !self.admitted {
            return;
        }
        let Some(due) = self.due() else {
            // The probe in flight may have started before the change took effect.
            self.follow_up = Some(Duration::ZERO);
            return;
        };
        self.follow_up = Some(FOLLOW_UP);
        let at = self.early_at(now, min_period);
        // Before the first probe an initial delay is kept.
        if self.started.is_some() && at < due {
            self.class = SlotClass::Untried;
            self.set_due(at);
        }
    }

    /// Returns the time between two probes of the target: the shortest period of the objects that wait for
    /// it, at least `min_period`.
    pub(super) fn period(&self, min_period: Duration) -> Duration {
        let shortest = self.waits.values().map(|wait| wait.want.period).min();
        shortest.unwrap_or_default().max(min_period)
    }

    /// Returns the verdict on the target for one waiting object.
    pub(super) fn verdict(&self, wait: &Wait) -> Verdict {
        match wait.from {
            Some(_) if self.admitted => Verdict { state: VerdictState::Pending, result: None },
            Some(_) => Verdict { state: VerdictState::Denied, result: self.result.clone() },
            None => Verdict { state: wait.state, result: self.result.clone() },
        }
    }

    /// Returns when an early probe of the target may start: now, or after a pause if early probes came before
    /// it.
    fn early_at(&self, now: Instant, min_period: Duration) -> Instant {
        let saved = self.period(min_period) / 2 * EARLY_BURST;
        self.spent.and_then(|spent| spent.checked_sub(saved)).map_or(now, |at| at.max(now))
    }
}

// === impl Wait ===

impl Wait {
    /// Updates the verdict for the waiting object by the latest results of the target. Returns whether the
    /// verdict or the result has changed.
    fn judge(&mut self, streak: Streak, started: Option<Instant>, is_new: bool) -> bool {
        if self.from.is_some_and(|from| started < Some(from)) {
            return false;
        }
        let first = self.from.take().is_some();
        let before = self.state;
        self.state = judge(before, streak, &self.want);
        first || is_new || before != self.state
    }
}
