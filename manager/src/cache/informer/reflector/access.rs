//! Checks from time to time whether this process is still allowed to watch.
//!
//! An API server authorizes a watch when it begins and never again while it lasts, so a revoked right would
//! stay unnoticed for minutes. Each watch therefore sends a `SelfSubjectAccessReview` now and then, which
//! every account may create by default. A denial is only a hint: it ends the watch, and the response to the
//! next watch decides. If the server accepts that watch, later reviews are sent half as often. If the review
//! itself is refused, a revoked right is noticed when the watch ends, as without reviews.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::request::read_all;
use crate::cache::store::Scope;
use crate::client::observe::only_name;
use crate::key::KindId;

/// Milliseconds between two access reviews of a watch, drawn at random so that stores do not send them
/// together. A denied kind counts as absent after at most eighteen seconds more, so a revoked right is
/// reported within a minute.
const PERIOD: RangeInclusive<u64> = 30_000..=36_000;
/// Largest number of times that the period between access reviews is doubled; it is then longer than any
/// watch lasts.
const DOUBLINGS: u32 = 4;
/// Time limit of one access review; the next is sent after another period.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest number of bytes read of the response to an access review, many times the usual size.
const MAX_RESPONSE: usize = 64 * 1024;

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Checks the right of one reflector to watch.
pub(super) struct AccessCheck {
    client: kube::Client,
    /// The body of the `SelfSubjectAccessReview` that is sent.
    review: Bytes,
    /// Number of consecutive reviews that denied the watch although the server accepted the next watch.
    /// Relaxed: only the reflector's task uses it.
    false_denials: AtomicU32,
}

// === impl AccessCheck ===

impl AccessCheck {
    /// Makes a check of the right to watch a kind in `namespace`; without one, in all namespaces.
    pub(super) fn new(client: kube::Client, kind: &KindId, scope: &Scope, namespace: Option<&str>) -> Self {
        // An authorizer may allow only requests with a selector. Servers that do not know these fields ignore
        // them.
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
        Self { client, review: review.to_string().into(), false_denials: AtomicU32::new(0) }
    }

    /// Sends access reviews from time to time, and returns once the server denies the right to watch.
    pub(super) async fn denied(self: Arc<Self>, mut random: fastrand::Rng) {
        loop {
            let doublings = self.false_denials.load(Ordering::Relaxed).min(DOUBLINGS);
            sleep(Duration::from_millis(random.u64(PERIOD)) * (1 << doublings)).await;
            // Boxed: reviews are rare, and every reflector would reserve room for this future all the time.
            let allowed = Box::pin(timeout(TIMEOUT, self.send())).await;
            match allowed.ok().flatten() {
                Some(false) => {
                    self.false_denials.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Some(true) => self.false_denials.store(0, Ordering::Relaxed),
                None => tracing::debug!("no answer to the access review of a watch"),
            }
        }
    }

    /// Records that the server has denied a list or a watch too, so the denial by the review was true.
    pub(super) fn confirm_denial(&self) {
        self.false_denials.store(0, Ordering::Relaxed);
    }

    /// Sends one access review and returns whether the server allows the watch; `None` if the review fails.
    async fn send(&self) -> Option<bool> {
        let request = Request::post(PATH)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(self.review.to_vec()))
            .ok()?;
        let body = self.client.send(request).await.ok()?.into_body();
        let review: Value = serde_json::from_slice(&read_all(body, MAX_RESPONSE).await.ok()?).ok()?;
        review["status"]["allowed"].as_bool()
    }
}

#[cfg(test)]
mod tests;
