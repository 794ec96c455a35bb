use std::time::Duration;

use super::*;
use crate::server::{Fault, FaultRule};

#[tokio::test]
async fn errors_are_answered_in_place_of_the_api() {
    let server = filled().await;
    let one = format!("{CONFIG_MAPS}/c1");
    let put = async || {
        let body = json!({"metadata": {"name": "c1"}}).to_string();
        send(&server, "PUT", &one, &[JSON], body).await
    };
    let rule = |fault| FaultRule::new(fault).resource("configmaps").times(1);
    server.faults().add(rule(Fault::Conflict).verb("update"));
    assert_eq!(
        put().await.message(),
        "Operation cannot be fulfilled on configmaps \"c1\": the object has been modified; please apply your \
         changes to the latest version and try again"
    );
    assert_eq!(put().await.code, 200);
    server.faults().add(rule(Fault::TooManyRequests { retry_after_seconds: 7 }));
    let reply = get(&server, &one).await;
    assert_eq!((reply.code, reply.header("retry-after")), (429, "7".to_owned()));
    assert_eq!(reply.text(), "Too many requests, please try again later.\n");
    for code in [500, 503, 504] {
        server.faults().add(rule(Fault::ServerError(code)));
        assert_eq!(get(&server, &one).await.code, code);
    }
    server.faults().add(rule(Fault::Expired));
    assert_eq!(get(&server, CONFIG_MAPS).await.json()["reason"], "Expired");
    server.faults().add(rule(Fault::Expired));
    let reply = get(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion=1")).await;
    let event = reply.json();
    assert_eq!((reply.code, &event["type"], &event["object"]["code"]), (200, &json!("ERROR"), &json!(410)));
}

#[tokio::test(start_paused = true)]
async fn answers_are_late_or_never_there() {
    let server = filled().await;
    server.faults().add(FaultRule::new(Fault::Delay(Duration::from_secs(5))).times(1));
    let start = tokio::time::Instant::now();
    assert_eq!(get(&server, CONFIG_MAPS).await.code, 200);
    assert_eq!(start.elapsed().as_secs(), 5);
    server.faults().add(FaultRule::new(Fault::Hang));
    let reply = tokio::time::timeout(Duration::from_hours(1), get(&server, CONFIG_MAPS)).await;
    assert!(reply.is_err(), "an answer came");
}

#[tokio::test(start_paused = true)]
async fn watches_are_cut_and_lose_bookmarks() {
    let server = filled().await;
    let path = format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=60");
    let lines = async || get(&server, &path).await.text().lines().count();
    assert_eq!(lines().await, 2, "the object and the bookmark after it");
    server.faults().add(FaultRule::new(Fault::DropBookmarks).times(1));
    assert_eq!(lines().await, 1);
    let start = tokio::time::Instant::now();
    server.faults().add(FaultRule::new(Fault::CutWatch { after_events: 1 }).times(1));
    assert_eq!((lines().await, start.elapsed().as_secs()), (1, 0));
    let (lines, ()) = tokio::join!(lines(), async { server.faults().cut_watches() });
    assert_eq!((lines, start.elapsed().as_secs()), (2, 0));
}
