//! Requests that the server refuses, for a while or until its objects or rights change.

use std::time::Duration;

use tokio::time::Instant;

use super::{between, never_resync};
use crate::cache::object::ResourceVersion;
use crate::cache::tests::fixtures::{Rig, object, recorder, request};
use crate::cache::{CacheSettings, Projection, Scope};

#[tokio::test(start_paused = true)]
async fn a_missing_or_forbidden_kind_counts_as_absent_and_is_retried() {
    let mut rig = Rig::start(never_resync());
    let other = rig.cache.kind(
        crate::key::KindId::new("x.io", "v1", "Thing", "things", true),
        Scope::all(),
        Projection::Full,
    );
    for _ in 0..3 {
        rig.server.next().await.refuse(404, "NotFound");
    }
    other.settled().await;
    let store = rig.config_maps();
    for (code, reason) in [(403, "Forbidden"), (404, "NotFound"), (404, "NotFound"), (403, "Forbidden")] {
        let mut call = rig.server.next().await;
        while call.has("/things") {
            call.refuse(404, "NotFound");
            call = rig.server.next().await;
        }
        call.refuse(code, reason);
        tokio::task::yield_now().await;
    }
    rig.cache.settled().await;
    let status = store.status();
    assert!(status.absent && !status.synced && status.down_since.is_some());
    assert_eq!(status.last_error.as_deref(), Some("the server answered 403: said Forbidden"));
    let began = Instant::now();
    let mut call = rig.server.next().await;
    while call.has("/things") {
        call.refuse(404, "NotFound");
        call = rig.server.next().await;
    }
    between(0.0..4.5, began.elapsed());
    call.stream().end_of_initial_events(3);
    store.settled().await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_kind_that_is_no_longer_served_stay_until_the_next_list() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5), object("b", "u2", 6)]).await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    assert_eq!(deltas.take(2).await, ["+ a@5 initial", "+ b@6 initial"]);
    // Ended within its first second, so a delay follows as after a failure.
    drop(stream);
    let began = Instant::now();
    let call = rig.server.next().await;
    assert!(call.has("resourceVersion=10"));
    call.refuse(404, "NotFound");
    for _ in 0..4 {
        let call = rig.server.next().await;
        assert!(!store.status().absent, "a starting server may respond 404 wrongly");
        call.refuse(404, "NotFound");
    }
    let call = rig.server.next().await;
    between(15.0..24.0, began.elapsed());
    let status = store.status();
    assert!(status.absent && status.synced && status.objects == 2, "{status:?}");
    assert!(deltas.is_empty(), "a 404 deletes no objects");

    call.refuse(503, "ServiceUnavailable");
    let call = rig.server.next().await;
    assert!(store.status().absent, "an outage does not change that");
    assert!(call.has("sendInitialEvents=true"), "listed, since the kind may be another collection now");
    let stream = call.stream();
    stream.event("ADDED", &object("a", "u3", 21));
    stream.end_of_initial_events(30);
    assert_eq!(deltas.take(3).await, ["- a@5", "+ a@21", "- b@6"]);
    assert!(!store.status().absent);
}

#[tokio::test(start_paused = true)]
async fn a_right_granted_again_resumes_the_watch_at_its_version() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    drop(stream);
    for _ in 0..5 {
        let call = rig.server.next().await;
        assert!(call.has("resourceVersion=10"));
        call.refuse(403, "Forbidden");
    }
    let call = rig.server.next().await;
    assert!(store.status().absent && store.get(&request("a")).unwrap().is_some());
    assert!(call.has("resourceVersion=10"), "no list");
    let stream = call.stream();
    stream.event("DELETED", &object("a", "u1", 12));
    stream.bookmark(20);
    store.caught_up(&request("a"), &ResourceVersion::new("20")).await.unwrap();
    assert!(!store.status().absent && store.get(&request("a")).unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn denials_by_a_starting_server_do_not_make_a_watched_kind_absent() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    drop(stream);
    for code in [403, 403, 404, 403, 503, 404, 404] {
        rig.server.next().await.refuse(code, "Said");
        tokio::task::yield_now().await;
        let status = store.status();
        assert!(!status.absent && status.down_since.is_some(), "{code}: {status:?}");
    }
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &object("a", "u1", 5));
    stream.end_of_initial_events(30);
    store.caught_up(&request("a"), &ResourceVersion::new("30")).await.unwrap();
    assert_eq!(store.status().down_since, None);
    // Denials from before the list are not counted.
    stream.reset();
    for _ in 0..4 {
        rig.server.next().await.refuse(403, "Forbidden");
        tokio::task::yield_now().await;
        assert!(!store.status().absent);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unlisted_kind_settles_only_after_three_consecutive_denials() {
    let mut rig = Rig::start(never_resync());
    let store = rig.config_maps();
    let began = Instant::now();
    for code in [403, 404, 503, 403, 403] {
        rig.server.next().await.refuse(code, "Said");
        tokio::task::yield_now().await;
        let status = store.status();
        assert!(!status.absent && !status.settled, "{code}: {status:?}");
    }
    // The third consecutive denial.
    let asked = Instant::now();
    rig.server.next().await.refuse(403, "Forbidden");
    between(1.0..1.5, asked.elapsed());
    store.settled().await;
    assert!(store.status().absent && !store.status().synced);
    between(4.8..7.2, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_missing_at_the_start_settles_within_three_seconds() {
    let mut rig = Rig::start(never_resync());
    let store = rig.config_maps();
    let began = Instant::now();
    for _ in 0..3 {
        rig.server.next().await.refuse(404, "NotFound");
    }
    store.settled().await;
    between(2.0..3.0, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_from_header_status_and_event() {
    let (mut rig, store, stream) = Rig::synced(&[]).await;
    let too_many = r#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":5}}"#;
    stream.send(&format!("{{\"type\":\"ERROR\",\"object\":{too_many}}}\n"));
    let began = Instant::now();
    let call = rig.server.next().await;
    between(5.0..5.6, began.elapsed());
    assert!(call.is_watch_at(10), "{}", call.uri);
    call.answer(429, &[("retry-after", "7")], "Too many requests");
    let began = Instant::now();
    let call = rig.server.next().await;
    between(7.0..7.8, began.elapsed());
    assert!(call.is_watch_at(10));
    call.answer(503, &[], too_many);
    let began = Instant::now();
    assert!(rig.server.next().await.is_watch_at(10));
    between(5.0..5.6, began.elapsed());
    assert_eq!(store.status().relists, 0);
}

#[tokio::test(start_paused = true)]
async fn error_events_repeated_at_one_version_lead_to_a_list() {
    let (mut rig, _store, stream) = Rig::synced(&[]).await;
    stream.error(500, "InternalError");
    for _ in 0..2 {
        let call = rig.server.next().await;
        assert!(call.is_watch_at(10), "{}", call.uri);
        call.stream().error(500, "InternalError");
    }
    assert!(rig.server.next().await.is_streamed_list());
}

#[tokio::test(start_paused = true)]
async fn watch_restarts_are_counted_despite_a_namespace_that_was_never_watched() {
    let namespaces = ["shop", "bank", "site"].map(str::to_owned).to_vec();
    let mut rig = Rig::start(CacheSettings { namespaces, ..never_resync() });
    let store = rig.config_maps();
    let mut watched = None;
    for _ in 0..7 {
        let call = rig.server.next().await;
        if call.has("/namespaces/shop/") {
            watched = Some(call.stream());
        } else {
            call.refuse(403, "Forbidden");
        }
    }
    let mut stream = watched.unwrap();
    stream.end_of_initial_events(10);
    store.settled().await;
    for restarts in 1..4 {
        stream.reset();
        loop {
            let call = rig.server.next().await;
            if call.has("/namespaces/shop/") {
                stream = call.stream();
                break;
            }
            call.refuse(403, "Forbidden");
        }
        stream.bookmark(10 + restarts);
        store.caught_up(&request("a"), &ResourceVersion::new(&(10 + restarts).to_string())).await.unwrap();
        assert_eq!((store.status().restarts, store.status().relists), (restarts, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_busy_server_is_retried_without_a_list() {
    let (mut rig, store, stream) = Rig::synced(&[]).await;
    stream.error(429, "TooManyRequests");
    for round in 0..6 {
        let call = rig.server.next().await;
        assert!(call.is_watch_at(10), "{}", call.uri);
        match round % 3 {
            0 => call.stream().error(429, "TooManyRequests"),
            1 => call.refuse(429, "TooManyRequests"),
            _ => call.refuse(503, "ServiceUnavailable"),
        }
    }
    assert!(rig.server.next().await.is_watch_at(10));
    assert_eq!(store.status().relists, 0);
}

#[tokio::test(start_paused = true)]
async fn internal_errors_repeated_at_one_version_lead_to_a_list() {
    let (mut rig, _store, stream) = Rig::synced(&[]).await;
    stream.reset();
    for _ in 0..3 {
        let call = rig.server.next().await;
        assert!(call.is_watch_at(10), "{}", call.uri);
        call.refuse(500, "InternalError");
    }
    assert!(rig.server.next().await.is_streamed_list());
}

#[tokio::test(start_paused = true)]
async fn a_stop_interrupts_a_retry_after_delay() {
    let (mut rig, _store, stream) = Rig::synced(&[]).await;
    stream.reset();
    rig.server.next().await.answer(429, &[("retry-after", "300")], "later");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let began = Instant::now();
    rig.stop.cancel();
    rig.tasks.join_next().await.unwrap().unwrap();
    assert!(began.elapsed().is_zero());
}
