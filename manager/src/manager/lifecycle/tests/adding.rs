//! Runnables that come before a manager runs, while it does, and after.

use std::sync::{Arc, Barrier};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::part::{Diary, Part, Way};
use super::*;
use crate::manager::RunnableGroup::{self, LeaderElection, Others, Servers};
use crate::manager::{BuildError, RegisterError, RunContext, Runnable};
use crate::reconcile::BoxError;

/// Far longer than any step of these tests, because the machine may compile meanwhile.
const LIMIT: Duration = Duration::from_mins(1);

/// Counts how many runnables of a test have started, how many have ended, and how many still exist.
#[derive(Clone, Default)]
struct Census {
    started: watch::Sender<usize>,
    ended: watch::Sender<usize>,
    alive: Arc<()>,
}

/// A runnable that counts itself, and ends this many turns of the runtime after the stop.
struct Counted(RunnableGroup, usize, Census);

impl Census {
    fn counts(&self) -> (usize, usize) {
        (*self.started.borrow(), *self.ended.borrow())
    }

    async fn until_started(&self, count: usize) {
        let mut started = self.started.subscribe();
        let all = tokio::time::timeout(LIMIT, started.wait_for(|started| *started == count)).await.is_ok();
        assert!(all, "{count} to start, and not {:?}", self.counts());
    }

    /// How many runnables there are, running or not.
    fn alive(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }
}

impl Runnable for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn group(&self) -> RunnableGroup {
        self.0
    }

    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(async move {
            self.2.started.send_modify(|started| *started += 1);
            cx.stop.cancelled().await;
            for _ in 0..self.1 {
                tokio::task::yield_now().await;
            }
            self.2.ended.send_modify(|ended| *ended += 1);
            Ok(())
        })
    }
}

/// Adds one runnable from each of this many threads at the same moment as `meanwhile` runs, and returns the
/// results.
async fn add_at_once(
    manager: &Manager,
    census: &Census,
    threads: usize,
    meanwhile: impl FnOnce() + Send + 'static,
) -> Vec<Result<(), RegisterError>> {
    let start = Arc::new(Barrier::new(threads + 1));
    let mut adders = JoinSet::new();
    for number in 0..threads {
        let (manager, census, start) = (manager.clone(), census.clone(), Arc::clone(&start));
        let group = [Servers, Others, LeaderElection][number % 3];
        adders.spawn_blocking(move || {
            start.wait();
            manager.add(Counted(group, number % 7, census))
        });
    }
    let mut other = JoinSet::new();
    other.spawn_blocking(move || {
        start.wait();
        meanwhile();
    });
    other.join_all().await;
    adders.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_at_once_are_taken_before_the_start_and_after_it_and_refused_after_the_stop() {
    let (manager, census) = (manager(""), Census::default());
    for taken in add_at_once(&manager, &census, 20, || {}).await {
        taken.unwrap();
    }
    let begun = manager.clone();
    let (start, started) = std::sync::mpsc::channel();
    let mut running = JoinSet::new();
    running.spawn(async move {
        tokio::task::block_in_place(|| started.recv().unwrap());
        begun.run().await
    });
    for taken in add_at_once(&manager, &census, 20, move || start.send(()).unwrap()).await {
        taken.unwrap();
    }
    census.until_started(40).await;
    for taken in add_at_once(&manager, &census, 20, || {}).await {
        taken.unwrap();
    }
    census.until_started(60).await;

    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
    assert_eq!((census.counts(), census.alive()), ((60, 60), 0));
    for refused in add_at_once(&manager, &census, 20, || {}).await {
        let error = refused.unwrap_err();
        assert!(matches!(&error, RegisterError::Stopped { name } if **name == *"counted"), "{error:?}");
    }
    assert_eq!((census.counts(), census.alive()), ((60, 60), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_hundred_that_race_the_stop_each_is_taken_or_refused_and_none_is_left() {
    let (manager, census) = (manager(""), Census::default());
    let running = run(&manager);
    manager.leading().wait_for(|leading| *leading).await.unwrap();
    let stopping = manager.clone();
    let taken = add_at_once(&manager, &census, 200, move || stopping.stop()).await;
    running.join_all().await.pop().unwrap().unwrap();
    for refused in taken.iter().filter_map(|taken| taken.as_ref().err()) {
        assert!(matches!(&refused, RegisterError::Stopped { name } if **name == *"counted"), "{refused:?}");
    }
    let (started, ended) = census.counts();
    assert!(started <= taken.iter().filter(|taken| taken.is_ok()).count(), "{started}");
    assert_eq!((started, census.alive()), (ended, 0));
}

#[tokio::test]
async fn the_stop_waits_for_ten_of_different_duration() {
    let (manager, census) = (manager(""), Census::default());
    for number in 0..10 {
        manager.add(Counted(Others, number * 50, census.clone())).unwrap();
    }
    let running = run(&manager);
    census.until_started(10).await;
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
    assert_eq!(census.counts(), (10, 10));
}

#[tokio::test]
async fn one_that_ends_well_is_over_and_the_manager_goes_on() {
    let (manager, diary) = (manager(""), Diary::default());
    for (name, group) in [("webhooks", Servers), ("feed", Others), ("sweep", LeaderElection)] {
        let part = Part::new(name, group, Way::OverAtCue, &diary);
        part.cue.cancel();
        manager.add(part).unwrap();
    }
    let running = run(&manager);
    for name in ["webhooks", "feed", "sweep"] {
        diary.until(&format!("{name} ends")).await;
    }
    for (name, group) in [("admission", Servers), ("poll", Others), ("report", LeaderElection)] {
        manager.add(Part::new(name, group, Way::Well, &diary)).unwrap();
        diary.until(&format!("{name} starts")).await;
    }
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
}

#[tokio::test]
async fn only_a_dns_label_is_the_name_of_a_runnable() {
    let (manager, diary) = (manager(""), Diary::default());
    for name in ["", "*", "Feed", "price_feed", "-feed", "feed-", "a/b", "a.b"] {
        let error = manager.add(Part::new(name, Others, Way::NeverReady, &diary)).unwrap_err();
        assert!(matches!(error, RegisterError::Name { .. }), "{name:?}: {error}");
        let all = if name == "*" { ", it means all controllers" } else { "" };
        let text = format!(
            "{name:?} is no name of a runnable{all}; expected 1 to 63 lower-case letters, digits and \
             hyphens, no hyphen at either end, such as web-frontend: it appears in metrics, paths and the \
             configuration"
        );
        assert_eq!(error.to_string(), text);
    }
    manager.add(Part::new("price-feed", Others, Way::Well, &diary)).unwrap();
    manager.add(Part::new("price-feed", Others, Way::Well, &diary)).unwrap();
}

#[tokio::test]
async fn what_needs_a_lease_that_may_be_won_again_is_refused() {
    let mut configuration = configuration("");
    configuration.leader_election.enabled = true;
    configuration.leader_election.namespace = "default".to_owned();
    configuration.leader_election.on_lost = OnLost::Campaign;
    let (manager, diary) = (manager_with("127.0.0.1:1", configuration), Diary::default());
    let error = manager.add(Part::new("sweep", LeaderElection, Way::Well, &diary)).unwrap_err();
    let text = "runnable \"sweep\" needs the Lease and cannot be started twice; use leaderElection.onLost: \
                Exit, or a controller";
    assert_eq!(error.to_string(), text);
    manager.add(Part::new("feed", Others, Way::Well, &diary)).unwrap();
}

#[tokio::test]
async fn an_election_without_a_namespace_is_refused_outside_a_cluster() {
    if super::super::super::own_namespace().is_some() {
        return;
    }
    let mut configuration = configuration("");
    configuration.leader_election.enabled = true;
    let connection = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let options = ManagerOptions { signals: false, preflight: false, ..ManagerOptions::replica("test") };
    let error = Manager::new(options, configuration, connection).unwrap_err();
    assert!(matches!(error, BuildError::NoLeaseNamespace), "{error:?}");
    let text = "leaderElection.namespace is empty and this process runs outside a cluster; set it or \
                --leader-election-namespace, or turn the election off with --leader-elect=false";
    assert_eq!(error.to_string(), text);
}
