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
use crate::cache::store::select::Scope;
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

/// The one name that a field selector admits: the server asks the rules about it, so that a right to one object is a
/// right to watch it.
fn only_name(fields: &str) -> Option<&str> {
    fields.split(',').find_map(|field| {
        let value = field.trim().strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    })
}

#[cfg(test)]
mod tests;
