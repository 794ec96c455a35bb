use super::*;
use crate::cache::{PartStatus, Projection};
use crate::key::KindId;
use std::collections::BTreeMap;
use tokio::time::advance;

const OUTAGE: &str = "connection refused";
const WATCH_DOWN_LIMIT: Duration = Duration::from_mins(1);

fn status(synced: bool, settled: bool, down_since: Option<Instant>) -> KindStatus {
    KindStatus {
        cluster: None,
        kind: KindId::new("apps", "v1", "Deployment", "deployments", true),
        scope: "all namespaces".to_owned(),
        projection: Projection::Full,
        required: Required::default(),
        synced,
        settled,
        down_since,
        last_error: down_since.map(|_| OUTAGE.to_owned()),
        absent: false,
        objects: 0,
        too_large: 0,
        bytes: 0,
        packing: crate::cache::Packing::default(),
        restarts: 0,
        relists: 0,
        events: 0,
        last_event_age: None,
        decode_errors: 0,
        pack_stalls: 0,
        left_out: BTreeMap::new(),
        handlers: BTreeMap::new(),
        unindexed: BTreeMap::new(),
        parts: vec![part(None, down_since, synced)],
    }
}

fn part(namespace: Option<&str>, down_since: Option<Instant>, listed: bool) -> PartStatus {
    PartStatus {
        namespace: namespace.map(Arc::from),
        working: down_since.is_none(),
        since: down_since.unwrap_or_else(Instant::now),
        last_error: down_since.map(|_| OUTAGE.to_owned()),
        absent: false,
        lists: listed.into(),
        watches: listed.into(),
    }
}

fn finding(status: &KindStatus) -> Finding {
    super::finding(status, WATCH_DOWN_LIMIT)
}

fn failing(reason: &str) -> Result<(), String> {
    Err(reason.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_be_down_for_a_minute_and_not_longer() {
    let down = status(true, true, Some(Instant::now()));
    advance(WATCH_DOWN_LIMIT).await;
    assert_eq!(finding(&down).outcome, Ok(()), "at the limit");
    advance(Duration::from_millis(1)).await;
    let late = finding(&down);
    let reason = "the watch of Deployment.apps has been down for 60 s: connection refused";
    assert_eq!((late.counts, late.outcome), (true, failing(reason)));
    assert_eq!(finding(&status(true, true, None)).outcome, Ok(()), "it works again");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_there_at_the_start_answers_to_its_own_name_only() {
    let missing = finding(&status(false, true, Some(Instant::now())));
    assert_eq!((missing.name.as_str(), missing.counts), ("cache-Deployment.apps", false));
    assert_eq!(missing.outcome, failing("Deployment.apps has not been listed: connection refused"));
    assert!(finding(&status(true, true, None)).counts, "once it was listed it counts");
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_away_says_so_at_once_and_takes_no_replica_out_of_service() {
    let mut taken = status(true, true, Some(Instant::now()));
    taken.absent = true;
    taken.parts[0].absent = true;
    let reason = "Deployment.apps cannot be watched any more, its cached objects stay: connection refused";
    for _ in 0..2 {
        let found = finding(&taken);
        assert_eq!((found.counts, found.outcome), (false, failing(reason)));
        advance(WATCH_DOWN_LIMIT * 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_one_namespace_is_denied_an_outage_of_another_counts_as_soon_as_any() {
    let mut denied = status(false, true, Some(Instant::now()));
    denied.absent = true;
    denied.parts = vec![part(Some("a"), None, true), part(Some("b"), Some(Instant::now()), false)];
    denied.parts[1].absent = true;
    advance(WATCH_DOWN_LIMIT * 2).await;
    assert!(!finding(&denied).counts && finding(&denied).outcome.is_err(), "b concerns its readers");
    denied.parts[0] = part(Some("a"), Some(Instant::now()), true);
    advance(WATCH_DOWN_LIMIT).await;
    assert!(!finding(&denied).counts, "at the limit");
    advance(Duration::from_millis(1)).await;
    let reason = "the watch of Deployment.apps in a has been down for 60 s: connection refused";
    let found = finding(&denied);
    assert_eq!((found.counts, found.outcome), (true, failing(reason)));
}

#[tokio::test(start_paused = true)]
async fn what_is_always_required_counts_also_when_it_is_gone_and_what_never_is_counts_at_no_time() {
    let (works, missing, mut gone) =
        (status(true, true, None), status(false, true, None), status(true, true, None));
    gone.absent = true;
    let late = status(true, true, Some(Instant::now()));
    let unknown = status(false, false, None);
    advance(WATCH_DOWN_LIMIT * 2).await;
    for (before, ready) in
        [(&works, true), (&missing, false), (&gone, false), (&late, false), (&unknown, false)]
    {
        for (required, counts) in [(Required::Always, true), (Required::Never, false)] {
            let status = KindStatus { required, ..before.clone() };
            for found in [finding(&status), finding_elsewhere(&status, true, WATCH_DOWN_LIMIT)] {
                assert_eq!((found.counts, found.outcome.is_ok()), (counts, ready), "{status:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_cluster_counts_while_it_works_and_until_it_was_tried() {
    let elsewhere = |synced: bool, error: Option<&str>| {
        let down_since = (!synced || error.is_some()).then(Instant::now);
        let status = status(synced, synced, down_since);
        KindStatus { cluster: Some("edge".into()), last_error: error.map(str::to_owned), ..status }
    };
    let (unknown, refused) = (elsewhere(false, None), elsewhere(false, Some(OUTAGE)));
    let (works, lost) = (elsewhere(true, None), elsewhere(true, Some(OUTAGE)));
    advance(WATCH_DOWN_LIMIT * 2).await;
    for (status, awaited, counts, ready) in [
        (&unknown, true, true, false),
        (&unknown, false, false, false),
        (&refused, true, false, false),
        (&works, true, true, true),
        (&works, false, true, true),
        (&lost, false, false, false),
    ] {
        let found = finding_elsewhere(status, awaited, WATCH_DOWN_LIMIT);
        let told = (found.name.as_str(), found.counts, found.outcome.is_ok());
        assert_eq!(told, ("cache-edge-Deployment.apps", counts, ready), "{status:?}, awaited: {awaited}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_ready_before_the_first_answer() {
    let unknown = finding(&status(false, false, None));
    let reason = "Deployment.apps has not been listed: no answer yet";
    assert_eq!((unknown.counts, unknown.outcome), (true, failing(reason)));
}

#[tokio::test(start_paused = true)]
async fn a_silent_work_runtime_is_not_alive_and_recovers() {
    let heartbeat = Heartbeat::new();
    advance(HEARTBEAT_LIMIT).await;
    assert_eq!(heartbeat.check(), Ok(()), "at the limit");
    advance(Duration::from_millis(1)).await;
    let silent = heartbeat.check().expect_err("no beat for longer than the limit");
    assert!(silent.starts_with("no task was polled for 30.001s"), "{silent}");
    // Polled once: the first tick is immediate.
    let beating = tokio::time::timeout(HEARTBEAT_PERIOD / 2, heartbeat.clone().beat()).await;
    beating.expect_err("it beats for as long as it is polled");
    assert_eq!(heartbeat.check(), Ok(()), "it beats again");
}
