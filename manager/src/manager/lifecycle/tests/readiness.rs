//! Runnables that declare when they are ready.

use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::Notify;

use super::part::{Diary, Part, Way};
use super::*;
use crate::cache::Scope;
use crate::client::tests::server::logged_by_all;
use crate::health;
use crate::manager::RunnableGroup::{self, LeaderElection, Others, Servers};

/// The clock is paused: every part that can start has started after this time.
const LONG: Duration = Duration::from_mins(10);

/// Returns status and body of `/readyz/NAME`.
fn answer(manager: &Manager, name: &str) -> (StatusCode, String) {
    let answer = manager.checks().answer(&format!("/readyz/{name}"), None);
    (answer.status, answer.body)
}

/// Returns the names of the failing checks that count for `/readyz`.
fn failing(manager: &Manager) -> Vec<String> {
    manager.checks().failures(health::Group::Ready).into_iter().map(|(name, _)| name).collect()
}

fn add(
    manager: &Manager,
    diary: &Diary,
    name: &'static str,
    group: RunnableGroup,
    way: Way,
) -> CancellationToken {
    let part = Part::new(name, group, way, diary);
    let cue = part.cue.clone();
    manager.add(part).unwrap();
    cue
}

#[tokio::test(start_paused = true)]
async fn each_runnable_that_declares_readiness_has_a_check_of_its_name() {
    let (manager, diary) = (manager(""), Diary::default());
    let webhooks = add(&manager, &diary, "webhooks", Servers, Way::ReadyAtCue);
    let feed = add(&manager, &diary, "feed", Others, Way::ReadyAtCue);
    let sweep = add(&manager, &diary, "sweep", LeaderElection, Way::ReadyAtCue);
    add(&manager, &diary, "plain", Others, Way::Well);
    let running = run(&manager);
    diary.until("webhooks starts").await;

    let failure =
        |reason: &str| (StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"));
    let unready = |name: &str| failure(&format!("{name} runs and is not ready yet"));
    let held = |name: &str| failure(&format!("{name} has not started: an earlier start group is not ready"));
    let ok = (StatusCode::OK, "ok".to_owned());
    assert_eq!(answer(&manager, "webhooks"), unready("webhooks"));
    assert_eq!(answer(&manager, "feed"), held("feed"));
    let standby = "sweep has not started: it runs on the leader only, after the first lists of the caches";
    assert_eq!(answer(&manager, "sweep"), failure(standby));
    assert_eq!(answer(&manager, "plain").0, StatusCode::NOT_FOUND, "ready as it starts");
    assert_eq!(failing(&manager), ["feed", "webhooks"], "a standby is as ready as the leader");

    webhooks.cancel();
    diary.until("feed starts").await;
    assert_eq!((answer(&manager, "webhooks"), answer(&manager, "feed")), (ok.clone(), unready("feed")));
    feed.cancel();
    diary.until("sweep starts").await;
    assert_eq!((answer(&manager, "sweep"), failing(&manager)), (unready("sweep"), vec![]));
    sweep.cancel();
    tokio::time::sleep(LONG).await;
    assert_eq!(answer(&manager, "sweep"), ok);
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_runnable_added_later_tells_its_readiness_and_holds_up_nobody() {
    let (manager, diary) = (manager(""), Diary::default());
    let running = run(&manager);
    manager.leading().wait_for(|leading| *leading).await.unwrap();
    let feed = add(&manager, &diary, "feed", Others, Way::ReadyAtCue);
    diary.until("feed starts").await;
    assert_eq!(failing(&manager), ["feed"]);
    add(&manager, &diary, "sweep", LeaderElection, Way::Well);
    add(&manager, &diary, "other", Others, Way::Well);
    diary.until("sweep starts").await;
    diary.until("other starts").await;
    feed.cancel();
    tokio::time::sleep(LONG).await;
    assert_eq!(failing(&manager), [""; 0]);
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_listed_holds_up_nobody_who_came_before_it() {
    let (manager, diary) = (manager(""), Diary::default());
    let entry = add(&manager, &diary, "entry", Others, Way::ReadyAtCue);
    add(&manager, &diary, "sweep", LeaderElection, Way::Well);
    let running = run(&manager);
    diary.until("entry starts").await;
    let _store = manager.store::<ConfigMap>(Scope::all());
    add(&manager, &diary, "other", Others, Way::Well);
    add(&manager, &diary, "later", LeaderElection, Way::Well);
    entry.cancel();
    tokio::time::sleep(LONG).await;
    diary.reads(&[&["entry starts"], &["sweep starts"]]);
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
}

#[tokio::test]
async fn who_comes_with_a_store_starts_once_it_has_been_listed_whoever_leads_meanwhile() {
    let mark = concat!(
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5","#,
        r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#
    );
    let answered = Arc::new(Notify::new());
    let listed = Answer::Hold(answered.clone(), 200, format!("{mark}\n"));
    let watch = Answer::Hold(Arc::new(Notify::new()), 200, String::new());
    let mut server = TestServer::start([listed, watch]).await;
    let (manager, diary) = (manager_of(&server.address.to_string(), ""), Diary::default());
    let entry = add(&manager, &diary, "entry", Others, Way::ReadyAtCue);
    add(&manager, &diary, "sweep", LeaderElection, Way::Well);
    let running = run(&manager);
    diary.until("entry starts").await;
    let _store = manager.store::<ConfigMap>(Scope::all());
    add(&manager, &diary, "other", Others, Way::Well);
    add(&manager, &diary, "later", LeaderElection, Way::Well);
    entry.cancel();
    diary.until("sweep starts").await;
    server.arrival().await;
    answered.notify_one();
    diary.until("other starts").await;
    diary.until("later starts").await;
    diary.reads(&[&["entry starts"], &["sweep starts"], &["other starts", "later starts"]]);
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_waits_long_for_a_store_is_logged_once_with_its_check() {
    let (manager, diary) = (manager(""), Diary::default());
    let log = logged_by_all(tracing::Level::WARN, async {
        let running = run(&manager);
        manager.leading().wait_for(|leading| *leading).await.unwrap();
        let _store = manager.store::<ConfigMap>(Scope::all());
        add(&manager, &diary, "other", Others, Way::Well);
        tokio::time::sleep(PATIENCE / 2).await;
        add(&manager, &diary, "later", LeaderElection, Way::Well);
        tokio::time::sleep(LONG).await;
        manager.stop();
        running.join_all().await.pop().unwrap().unwrap();
    });
    let line = |name: &str| {
        format!(
            "WARN not started yet: stores declared before have not been listed runnables=\"{name}\" \
             checks=\"cache-ConfigMap\" after=10s"
        )
    };
    let mut lines = log.await;
    lines.retain(|line| line.contains("not started yet"));
    assert_eq!(lines, [line("other"), line("later")]);
}

#[tokio::test]
async fn a_job_that_ends_well_is_ready_by_that_and_asked_about_no_more() {
    let (manager, diary) = (manager(""), Diary::default());
    let migration = add(&manager, &diary, "migration", Others, Way::OverAtCue);
    add(&manager, &diary, "sweep", LeaderElection, Way::Well);
    let running = run(&manager);
    diary.until("migration starts").await;
    assert_eq!(failing(&manager), ["migration"]);
    migration.cancel();
    diary.until("sweep starts").await;
    diary.reads(&[&["migration starts"], &["migration ends"], &["sweep starts"]]);
    assert_eq!(answer(&manager, "migration").0, StatusCode::NOT_FOUND);
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_is_waited_for_is_logged_once_per_group_after_a_while() {
    let (manager, diary) = (manager(""), Diary::default());
    let webhooks = add(&manager, &diary, "webhooks", Servers, Way::ReadyAtCue);
    let admission = add(&manager, &diary, "admission", Servers, Way::ReadyAtCue);
    add(&manager, &diary, "feed", Others, Way::NeverReady);
    let log = logged_by_all(tracing::Level::WARN, async {
        let running = run(&manager);
        diary.until("admission starts").await;
        tokio::time::sleep(PATIENCE / 2).await;
        webhooks.cancel();
        tokio::time::sleep(LONG).await;
        admission.cancel();
        tokio::time::sleep(LONG).await;
        manager.stop();
        running.join_all().await.pop().unwrap().unwrap();
    });
    let expected = [
        r#"WARN not ready yet: the caches and later groups wait runnables="admission" after=10s"#,
        r#"WARN not ready yet: the election waits runnables="feed" after=10s"#,
    ];
    assert_eq!(log.await, expected);
}

#[tokio::test]
async fn what_came_too_late_leaves_no_check() {
    let (manager, diary) = (manager(""), Diary::default());
    manager.stop();
    manager.run().await.unwrap();
    let error = manager.add(Part::new("feed", Others, Way::NeverReady, &diary)).unwrap_err();
    assert_eq!(error.to_string(), r#""feed" was not added: the manager has begun to stop"#);
    assert_eq!(answer(&manager, "feed").0, StatusCode::NOT_FOUND);
}
