//! The result with which a manager ends.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::outcome::{End, Problems};
use super::part::{Diary, Part, Way};
use super::*;
use crate::cache::Scope;
use crate::cache::tests::Explodes;
use crate::cache::tests::fixtures::object;
use crate::election::Ending;
use crate::manager::RunnableGroup::{self, LeaderElection, Others, Servers};
use crate::manager::{RegisterError, RunContext, Runnable};

/// Long enough for parts that obey the stop; the test waits this long for a part that does not.
const GRACE: Duration = Duration::from_secs(1);

/// Runs a manager with these parts until all have started, cancels their cues, stops the manager if `asked`,
/// and returns its error.
async fn end_of(parts: &[(&'static str, RunnableGroup, Way)], asked: bool) -> ManagerError {
    let mut configuration = configuration("");
    configuration.shutdown.grace_period = GRACE.into();
    let manager = manager_with("127.0.0.1:1", configuration);
    let diary = Diary::default();
    let cues: Vec<_> = parts
        .iter()
        .map(|(name, group, way)| {
            let part = Part::new(name, *group, *way, &diary);
            let cue = part.cue.clone();
            manager.add(part).unwrap();
            cue
        })
        .collect();
    let running = run(&manager);
    for (name, ..) in parts {
        diary.until(&format!("{name} starts")).await;
    }
    cues.iter().for_each(CancellationToken::cancel);
    if asked {
        manager.stop();
    }
    running.join_all().await.pop().unwrap().unwrap_err()
}

#[tokio::test]
async fn a_failure_is_returned_with_who_failed_or_was_late_besides() {
    let parts = [
        ("feed", Others, Way::FailsAtCue),
        ("deaf", Others, Way::Deaf),
        ("sweep", LeaderElection, Way::FailsWhenTold),
    ];
    let error = end_of(&parts, false).await;
    let text = "feed failed (while stopping: sweep failed: no time to tidy up; deaf was late)";
    assert_eq!(error.to_string(), text);
    let ManagerError::Failed { name, source, others } = error else { panic!("{error:?}") };
    assert_eq!(&*name, "feed");
    assert_eq!(source.to_string(), "out of paper");
    let [StopError::Failed { name, .. }, StopError::Late { name: late }] = &others[..] else {
        panic!("{others:?}")
    };
    assert_eq!(&**name, "sweep");
    assert_eq!(late, "deaf");
}

#[tokio::test]
async fn an_error_of_who_was_told_to_stop_is_returned() {
    let error = end_of(&[("sweep", LeaderElection, Way::FailsWhenTold)], true).await;
    assert_eq!(error.to_string(), "sweep failed");
    let ManagerError::Failed { name, source, .. } = error else { panic!("{error:?}") };
    assert_eq!(&*name, "sweep");
    assert_eq!(source.to_string(), "no time to tidy up");
}

#[tokio::test]
async fn who_was_late_is_named_with_who_failed_besides() {
    let parts = [
        ("deaf-leader", LeaderElection, Way::Deaf),
        ("deaf", Others, Way::Deaf),
        ("feed", Others, Way::FailsWhenTold),
    ];
    let error = end_of(&parts, true).await;
    let text = "still running after shutdown.gracePeriod 1s: deaf-leader, deaf \
                (while stopping: feed failed: no time to tidy up)";
    assert_eq!(error.to_string(), text);
    let ManagerError::Late { names, grace: GRACE, .. } = error else { panic!("{error:?}") };
    assert_eq!(names, ["deaf-leader", "deaf"]);
}

#[tokio::test]
async fn a_panic_before_there_is_a_future_is_a_failure_like_any_other() {
    let manager = manager("");
    manager.add(Part::new("feed", Others, Way::PanicsAtOnce, &Diary::default())).unwrap();
    let ManagerError::Failed { name, source, .. } = manager.run().await.unwrap_err() else {
        panic!("the panic is named")
    };
    assert_eq!(&*name, "feed");
    assert!(source.to_string().starts_with("panicked: "), "{source}");
}

#[tokio::test]
async fn a_panic_in_a_task_of_a_cache_ends_the_manager() {
    let added = json!({"type": "ADDED", "object": object("web", "u1", 5)});
    for elsewhere in [false, true] {
        let server = TestServer::start([Answer::ok(&format!("{added}\n"))]).await;
        let config = server.connections().config().clone();
        let nowhere = "127.0.0.1:1".to_owned();
        let own = if elsewhere { nowhere } else { server.address.to_string() };
        let manager = manager_of(&own, "");
        let maps = if elsewhere {
            manager.cluster("edge", config).unwrap().store::<ConfigMap>(Scope::all())
        } else {
            manager.store(Scope::all())
        };
        let _subscription = maps.untyped().subscribe(Box::new(Explodes));
        let ManagerError::Failed { name, source, .. } = manager.run().await.unwrap_err() else {
            panic!("the cache is named")
        };
        assert_eq!(&*name, "caches");
        assert_eq!(source.to_string(), "panicked: on purpose");
    }
}

#[test]
fn a_lost_lease_is_told_with_who_failed_or_was_late_besides() {
    let problems = || {
        let mut problems = Problems::default();
        problems.fail(("feed".into(), "no time to tidy up".into()));
        problems.late = vec!["sweep".to_owned(), "deaf".to_owned(), "sweep".to_owned()];
        problems
    };
    let error = problems().conclude(End::LeaseLost, GRACE).unwrap_err();
    let text = "the Lease was lost, so this replica has to end \
                (while stopping: feed failed: no time to tidy up; sweep was late; deaf was late)";
    assert_eq!(error.to_string(), text);
    let error = Problems::default().conclude(End::LeaseLost, GRACE).unwrap_err();
    assert_eq!(error.to_string(), "the Lease was lost, so this replica has to end");
}

#[tokio::test]
async fn a_manager_whose_run_is_dropped_drops_what_runs_and_leads_no_more() {
    let (manager, diary) = (manager(""), Diary::default());
    for (name, group) in [("feed", Others), ("sweep", LeaderElection)] {
        manager.add(Part::new(name, group, Way::Deaf, &diary)).unwrap();
    }
    let mut running = run(&manager);
    diary.until("sweep starts").await;
    running.shutdown().await;
    assert!(!*manager.leading().borrow());
    diary.until("feed ends").await;
    diary.until("sweep ends").await;
    let error = manager.add(Part::new("late", Others, Way::Well, &diary)).unwrap_err();
    assert!(matches!(&error, RegisterError::Stopped { name } if **name == *"late"), "{error:?}");
}

/// A runnable that sends its context to the test, and ignores the stop.
struct HandsOut(RunnableGroup, mpsc::UnboundedSender<RunContext>);

impl Runnable for HandsOut {
    fn name(&self) -> &'static str {
        "hands-out"
    }

    fn group(&self) -> RunnableGroup {
        self.0
    }

    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        self.1.send(cx).expect("the test listens");
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_run_that_is_dropped_tells_those_who_listen_for_its_stop_elsewhere() {
    let manager = manager("");
    let (hand_out, mut handed) = mpsc::unbounded_channel();
    for group in [Servers, Others, LeaderElection] {
        manager.add(HandsOut(group, hand_out.clone())).unwrap();
    }
    let mut running = run(&manager);
    let mut contexts = Vec::new();
    while contexts.len() < 3 {
        contexts.push(handed.recv().await.unwrap());
    }
    assert!(!contexts.iter().any(|cx| cx.stop.is_cancelled()), "it runs");
    running.shutdown().await;
    for cx in contexts {
        assert!(cx.stop.is_cancelled() && cx.context().stopping().is_cancelled());
    }
}

#[tokio::test]
async fn word_of_a_term_that_is_over_begins_nothing_and_word_of_its_end_ends_no_later_one() {
    let mut configuration = configuration("");
    configuration.leader_election.on_lost = OnLost::Campaign;
    let manager = manager_with("127.0.0.1:1", configuration);
    let (term, leading) = (&manager.shared.term, manager.leading());
    let mut running = Running::new(&manager.shared);
    let elected = Leadership::Leading { transitions: 0 };
    // The elector wins, and loses before this runtime has had a thread to hear of it.
    term.grant();
    term.lose();
    assert!(running.follow(&elected).is_none());
    assert!(!*leading.borrow(), "the Lease is another's");
    // It wins again before this runtime has heard of the loss.
    term.grant();
    assert!(running.follow(&Leadership::Lost(Ending::Expired)).is_none());
    assert!(running.follow(&elected).is_none());
    assert!(*leading.borrow());
}

#[tokio::test]
async fn a_manager_runs_once() {
    let manager = manager("");
    manager.stop();
    manager.run().await.unwrap();
    let error = manager.run().await.unwrap_err();
    assert!(matches!(error, ManagerError::AlreadyRun), "{error:?}");
    assert_eq!(error.to_string(), "this manager has run already; make a new one");
}

#[test]
fn a_grace_period_of_nothing_or_without_end_is_refused() {
    for period in ["0s", "999ms", "1h1ms", "-1s"] {
        let text = format!(
            "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
             shutdown: {{gracePeriod: {period}}}\n"
        );
        let refused = ConfigSchema::new().parse(&text, "m.yaml", &Overrides::default()).unwrap_err();
        let lines = refused.lines();
        assert!(lines.len() == 1 && lines[0].contains("shutdown.gracePeriod: "), "{lines:?}");
    }
}
