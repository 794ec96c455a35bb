//! Asks now and then whether this process may still watch what it watches.
//!
//! An API server looks at the rights of a watch when it begins and never again while it lasts: for minutes nobody here
//! would hear that they were taken away. So each watch asks on the side, by a `SelfSubjectAccessReview`, which every
//! account may send by default. A denial is a hint and no more: it ends the watch, and what the server says to the next
//! one decides; where that lets the watch in, the question is put half as often from then on. Where the question itself is
//! refused, the end of the watch tells, as it would without it.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::client::Body;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::request::read_all;
use crate::cache::select::Scope;
use crate::key::KindId;

/// Milliseconds between two questions; the exact time is drawn, so that stores do not ask together. With the eighteen
/// seconds at most until denials are believed, what was taken away is told within a minute.
const PERIOD: RangeInclusive<u64> = 30_000..=36_000;
/// Times the period is doubled at most. No watch lasts as long as it is then.
const DOUBLINGS: u32 = 4;
/// For one answer. What is late is asked again with the next period.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes read of an answer: many times what one has.
const ANSWER: usize = 64 * 1024;

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The question of one reflector.
pub(super) struct Rights {
    client: kube::Client,
    question: Bytes,
    /// Denials in a row that the next watch did not bear out. Relaxed: only the reflector's own task uses it.
    unfounded: AtomicU32,
}

#[derive(Deserialize)]
struct Review {
    status: Verdict,
}

#[derive(Deserialize)]
struct Verdict {
    allowed: bool,
}

// === impl Rights ===

impl Rights {
    /// Asks for the right to watch a kind, in all namespaces if none is named.
    pub(super) fn new(client: kube::Client, kind: &KindId, scope: &Scope, namespace: Option<&str>) -> Self {
        // An authorizer may let in only who selects. Servers that do not know the fields leave them out.
        let raw = |selector: Option<String>| selector.map(|selector| json!({"rawSelector": selector}));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": "watch",
                "group": kind.group(),
                "version": kind.version(),
                "resource": kind.plural(),
                "namespace": namespace.unwrap_or_default(),
                "name": scope.fields.as_deref().and_then(only_name).unwrap_or_default(),
                "fieldSelector": raw(scope.fields.as_deref().map(str::to_owned)),
                "labelSelector": raw(scope.labels.as_ref().map(ToString::to_string)),
            }},
        });
        Self { client, question: review.to_string().into(), unfounded: AtomicU32::new(0) }
    }

    /// Ends once the server says that this watch would not be let in again.
    pub(super) async fn lost(self: Arc<Self>, mut random: fastrand::Rng) {
        loop {
            let doublings = self.unfounded.load(Ordering::Relaxed).min(DOUBLINGS);
            sleep(Duration::from_millis(random.u64(PERIOD)) * (1 << doublings)).await;
            // Boxed: it is asked rarely, and room for it would be kept in every reflector all the time.
            let asked = Box::pin(timeout(PATIENCE, self.ask())).await;
            match asked.ok().flatten() {
                Some(false) => {
                    self.unfounded.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Some(true) => self.unfounded.store(0, Ordering::Relaxed),
                None => tracing::debug!("the server does not say whether this may still be watched"),
            }
        }
    }

    /// Notes that a list or a watch was denied too.
    pub(super) fn borne_out(&self) {
        self.unfounded.store(0, Ordering::Relaxed);
    }

    async fn ask(&self) -> Option<bool> {
        let request = Request::post(PATH)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(self.question.to_vec()))
            .ok()?;
        let answer = read_all(self.client.send(request).await.ok()?.into_body(), ANSWER).await.ok()?;
        Some(serde_json::from_slice::<Review>(&answer).ok()?.status.allowed)
    }
}

impl std::fmt::Debug for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rights").field("question", &self.question).finish_non_exhaustive()
    }
}

/// The one name that a field selector admits: the server asks the rules about it, so that a right to one object is a
/// right to watch it.
fn only_name(fields: &str) -> Option<&str> {
    fields.split(',').find_map(|field| {
        let value = field.trim().strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::time::Instant;

    use super::super::tests::{between, never_resync};
    use super::*;
    use crate::cache::testing::{Rig, config_map, object};
    use crate::cache::{CacheSettings, LabelSelector, Projection};

    #[tokio::test(start_paused = true)]
    async fn rights_that_are_taken_away_while_the_watch_lasts_are_told_within_a_minute() {
        let (mut rig, store, _stream) = Rig::synced(&[object("a", "u1", 5)]).await;
        rig.server.allow(false);
        let began = Instant::now();
        for _ in 0..5 {
            assert!(!store.status().absent);
            let call = rig.server.next().await;
            assert!(call.is_watch_at(10), "{}", call.uri);
            call.refuse(403, "Forbidden");
        }
        tokio::task::yield_now().await;
        assert!(store.status().absent);
        between(42.0..54.1, began.elapsed());
        rig.server.allow(true);
        let began = Instant::now();
        let _stream = rig.server.next().await.stream();
        tokio::time::sleep(Duration::from_millis(1001)).await;
        assert_eq!((store.status().down_since, store.status().absent), (None, false));
        between(4.0..6.0, began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_that_the_next_watch_does_not_bear_out_is_nobodys_business() {
        let (mut rig, store, stream) = Rig::synced(&[]).await;
        rig.server.allow(false);
        let mut began = Instant::now();
        let mut open = vec![stream];
        for times in [1.0, 2.0, 4.0] {
            let call = rig.server.next().await;
            between(30.0 * times..36.1 * times, began.elapsed());
            began = Instant::now();
            assert!(call.is_watch_at(10), "{}", call.uri);
            assert_eq!(store.status().down_since, None);
            let stream = call.stream();
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert!(!stream.is_closed() && store.status().down_since.is_none());
            open.push(stream);
        }
        // Borne out: what is denied then is asked about as often as ever.
        drop(open);
        rig.server.next().await.refuse(403, "Forbidden");
        let _stream = rig.server.next().await.stream();
        let began = Instant::now();
        let call = rig.server.next().await;
        assert!(call.is_watch_at(10), "{}", call.uri);
        between(30.0..36.1, began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_ask_or_is_allowed_is_left_alone() {
        for answer in [Some(true), None] {
            let (mut rig, store, stream) = Rig::synced(&[]).await;
            match answer {
                Some(allowed) => rig.server.allow(allowed),
                None => rig.server.refuse_reviews(),
            }
            let asked = tokio::time::timeout(Duration::from_mins(4), rig.server.next()).await;
            assert!(asked.is_err() && !stream.is_closed(), "one watch all the time");
            assert!((6..=8).contains(&rig.server.take_reviews().len()));
            assert_eq!(store.status().down_since, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_question_is_about_what_is_watched() {
        let mut rig = Rig::start(CacheSettings { namespaces: vec!["shop".into()], ..never_resync() });
        let scope = Scope::all()
            .fields("metadata.name=x,spec.a=b")
            .labels(LabelSelector::parse("app in (a,b)").unwrap());
        let store = rig.cache.kind(config_map(), scope, Projection::Full);
        let stream = rig.server.next().await.stream();
        stream.end_of_initial_events(10);
        store.settled().await;
        tokio::time::sleep(Duration::from_secs(50)).await;
        let reviews = rig.server.take_reviews();
        let asked: Value = serde_json::from_str(&reviews[0]).unwrap();
        let expected = json!({
            "verb": "watch", "group": "", "version": "v1", "resource": "configmaps", "namespace": "shop", "name": "x",
            "fieldSelector": {"rawSelector": "metadata.name=x,spec.a=b"},
            "labelSelector": {"rawSelector": "app in (a,b)"},
        });
        assert_eq!(asked["spec"]["resourceAttributes"], expected);
        assert_eq!(only_name("spec.metadata.name=x"), None);
        assert_eq!(only_name("spec.a=b, metadata.name==y"), Some("y"));
    }
}
