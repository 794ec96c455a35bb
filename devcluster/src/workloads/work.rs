//! The work queue of the controllers: each item is queued at most once, immediately or for a later time.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::Controller;
use super::view::Name;

/// Delay after the first failure of an item, as in client-go; doubled by each further failure.
const FIRST_RETRY: Duration = Duration::from_millis(5);

/// Longest delay of a failing item. It is short, because failures of a local server do not last.
const LAST_RETRY: Duration = Duration::from_secs(10);

/// The key of one reconciliation: a controller and its object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Item {
    /// The deletion of the namespace with this name.
    Namespace(String),
    /// The default objects of the namespace with this name.
    NamespaceDefaults(String),
    /// The object with this uid, for the garbage collector.
    Garbage(String),
    /// A Deployment.
    Deployment(Name),
    /// A ReplicaSet.
    ReplicaSet(Name),
    /// The Node that all Pods run on.
    Node,
    /// A Pod.
    Pod(Name),
    /// The expiry of an Event.
    Event(Name),
    /// A Job.
    Job(Name),
    /// A `CronJob`.
    CronJob(Name),
    /// The EndpointSlices of a Service.
    EndpointSlices(Name),
    /// The Endpoints of a Service.
    Endpoints(Name),
    /// The aggregated `ClusterRoles`.
    ClusterRoles,
}

/// A queue of items, in the order in which they were added or become due.
#[derive(Debug, Default)]
pub(super) struct Work {
    ready: VecDeque<Item>,
    /// The items in `ready`.
    queued: HashSet<Item>,
    later: BTreeSet<(Instant, Item)>,
    /// The time of each item in `later`.
    due: HashMap<Item, Instant>,
    /// The number of failures of an item since its last success.
    failures: HashMap<Item, u32>,
}

// === impl Item ===

impl Item {
    pub(super) fn controller(&self) -> Controller {
        match self {
            Self::Namespace(_) => Controller::Namespaces,
            Self::NamespaceDefaults(_) => Controller::NamespaceDefaults,
            Self::Garbage(_) => Controller::GarbageCollector,
            Self::Deployment(_) => Controller::Deployments,
            Self::ReplicaSet(_) => Controller::ReplicaSets,
            Self::Node | Self::Pod(_) => Controller::Pods,
            Self::Event(_) => Controller::EventExpiry,
            Self::Job(_) => Controller::Jobs,
            Self::CronJob(_) => Controller::CronJobs,
            Self::EndpointSlices(_) => Controller::EndpointSlices,
            Self::Endpoints(_) => Controller::Endpoints,
            Self::ClusterRoles => Controller::ClusterRoles,
        }
    }
}

// === impl Work ===

impl Work {
    /// Enqueues an item for immediate work.
    pub(super) fn add(&mut self, item: Item) {
        if self.queued.insert(item.clone()) {
            self.ready.push_back(item);
        }
    }

    /// Enqueues an item for a time. If it is enqueued for a later time already, the earlier one applies.
    pub(super) fn add_at(&mut self, item: Item, at: Instant) {
        match self.due.get(&item) {
            Some(earlier) if *earlier <= at => return,
            Some(former) => {
                self.later.remove(&(*former, item.clone()));
            }
            None => {}
        }
        self.due.insert(item.clone(), at);
        self.later.insert((at, item));
    }

    /// Makes all delayed items due earlier, because the clock was moved forward.
    pub(super) fn advance(&mut self, by: Duration) {
        let earlier = |at: Instant| at.checked_sub(by).unwrap_or(at);
        self.later =
            std::mem::take(&mut self.later).into_iter().map(|(at, item)| (earlier(at), item)).collect();
        for at in self.due.values_mut() {
            *at = earlier(*at);
        }
    }

    /// Removes and returns the next item that is ready or due; `None` if there is none.
    pub(super) fn take(&mut self, now: Instant) -> Option<Item> {
        while self.next_due().is_some_and(|at| at <= now) {
            let Some((_, item)) = self.later.pop_first() else { break };
            self.due.remove(&item);
            self.add(item);
        }
        let item = self.ready.pop_front()?;
        self.queued.remove(&item);
        Some(item)
    }

    /// Returns the time of the next delayed item, if any.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Enqueues a failed item again after a delay that doubles with each failure.
    pub(super) fn retry(&mut self, item: Item, now: Instant) {
        let failures = self.failures.entry(item.clone()).or_default();
        let delay =
            FIRST_RETRY.saturating_mul(1u32.checked_shl(*failures).unwrap_or(u32::MAX)).min(LAST_RETRY);
        *failures = failures.saturating_add(1);
        self.add_at(item, now + delay);
    }

    /// Resets the failures of an item.
    pub(super) fn succeeded(&mut self, item: &Item) {
        self.failures.remove(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: fn() -> Item = || Item::Namespace("a".to_owned());

    #[tokio::test(start_paused = true)]
    async fn an_item_is_taken_once_however_often_it_was_added() {
        let (mut work, now) = (Work::default(), Instant::now());
        work.add(A());
        work.add(Item::Node);
        work.add(A());
        assert_eq!([work.take(now), work.take(now), work.take(now)], [Some(A()), Some(Item::Node), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_of_an_item_counts() {
        let (mut work, now) = (Work::default(), Instant::now());
        let second = Duration::from_secs(1);
        work.add_at(A(), now + 3 * second);
        work.add_at(A(), now + 2 * second);
        work.add_at(A(), now + 4 * second);
        assert_eq!(work.next_due(), Some(now + 2 * second));
        assert_eq!(work.take(now + second), None);
        assert_eq!(work.take(now + 2 * second), Some(A()));
        assert_eq!(work.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_double_the_delay_up_to_a_limit() {
        let (mut work, now) = (Work::default(), Instant::now());
        let mut delays = Vec::new();
        for _ in 0..40 {
            work.retry(A(), now);
            delays.push(work.next_due().expect("a retry") - now);
            assert_eq!(work.take(now + LAST_RETRY), Some(A()));
        }
        assert_eq!(delays[..3], [FIRST_RETRY, 2 * FIRST_RETRY, 4 * FIRST_RETRY]);
        assert_eq!(delays[39], LAST_RETRY);
        work.succeeded(&A());
        work.retry(A(), now);
        assert_eq!(work.next_due(), Some(now + FIRST_RETRY));
    }
}
