//! Reviews by the API server: the owner of a token, and whether the owner may read a path.
//!
//! As controller-runtime's `WithAuthenticationAndAuthorization` does: a `TokenReview`, then a
//! `SubjectAccessReview` of the path and the method as a verb, with its texts and its times to live. A
//! `ClusterRole` with `nonResourceURLs: [/metrics]` and `verbs: [get]` admits a scraper. The debug pages
//! require tokens of an audience of their own, so that a stolen token is of no use at the API server.
//!
//! # Invariants
//! 1. A request is admitted only if the API server has accepted its token within the last minute
//!    ([`TOKEN_TTL`]) and allowed its access within the last five. While the server does not answer, requests
//!    for which both are still valid stay admitted, and all others get a 500.
//! 2. Unknown tokens cost the server at most [`PER_SECOND`] reviews a second, [`BURST`] at once, and as many
//!    again if they come from the address of an admitted peer. They cost the manager a bounded memory, from
//!    which they push no answer that has not expired. Tokens that were admitted before neither count nor
//!    wait.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::{Digest, bearer, digest};
use crate::inspect::Authorized;
use crate::key::Chain;
use crate::serve::PeerAddress;
use crate::util::{BoundedMap, Limit, LogEvery, TokenBucket};

/// How long the result of a token review is cached, accepted or not.
const TOKEN_TTL: Duration = Duration::from_mins(1);
/// How long an access review that allowed the access is cached.
const ALLOWED_TTL: Duration = Duration::from_mins(5);
/// How long an access review that denied the access is cached: short, because a new right takes effect after
/// it.
const DENIED_TTL: Duration = Duration::from_secs(30);

/// How long one review by the API server may take, its wait for a slot included.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most reviews of unknown tokens in flight, and as many again from preferred peers, which a flood from
/// other addresses must not delay. Reviews of admitted tokens are as few as scrapers, and are not limited.
const AT_ONCE: usize = 6;

/// How long a token or peer is preferred after a request of it was admitted. Longer than scrapes are apart.
const PREFERRED_TTL: Duration = Duration::from_hours(1);

/// The most reviews of unknown tokens per second. A scraper with a new token needs two.
const PER_SECOND: u32 = 20;

/// The most reviews of unknown tokens at once after a pause: enough for all scrapers after a start.
const BURST: u32 = 40;

/// The most entries of each map of cached reviews. More than the reviews of unknown tokens within
/// [`TOKEN_TTL`].
const REMEMBERED: usize = 4096;

/// Reviews of tokens and accesses by one API server, with a cache of the results.
pub(in crate::manager) struct Reviews {
    client: Client,
    /// The audience that tokens need; `None` for that of the API server.
    audience: Option<&'static str>,
    unknown_peers: ReviewLimit,
    /// Limits reviews of unknown tokens from peers from which another token was admitted: the new token of a
    /// known scraper must not wait for a flood of made-up ones from elsewhere.
    preferred_peers: ReviewLimit,
    memory: Mutex<Memory>,
}

/// Limits the reviews of tokens that were not admitted before, in flight and per second.
struct ReviewLimit {
    slots: Semaphore,
    rate: Mutex<TokenBucket>,
}

struct Memory {
    /// The cached user of each token, by the token's digest; `None` for a token that the API server does not
    /// know.
    users: BoundedMap<Digest, Option<UserInfo>>,
    /// Whether an access is allowed, by the digest of user, path and method.
    accesses: BoundedMap<Digest, bool>,
    /// Digests of tokens that were admitted, and of the addresses from which they came.
    preferred: BoundedMap<Digest, ()>,
    failures: LogEvery,
}

/// The reason that the API server gave no result of a review.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error("the API server cannot be asked")]
    Request(#[source] Box<kube::Error>),
    #[error("the API server did not answer within {PATIENCE:?}")]
    Late,
    #[error("too many unknown tokens; retry later")]
    Flood,
}

/// Returns the router behind a check that admits only requests which the API server allows, and marks them as
/// [`Authorized`].
pub(in crate::manager) fn reviewed(router: Router, reviews: Reviews) -> Router {
    router.layer(from_fn_with_state(Arc::new(reviews), admit))
}

async fn admit(State(reviews): State<Arc<Reviews>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    match reviews.admit(&head).await {
        Ok(()) => {
            head.extensions.insert(Authorized);
            next.run(Request::from_parts(head, body)).await
        }
        Err(refusal) => refusal,
    }
}

// === impl Reviews ===

impl Reviews {
    /// Makes reviews that use this client, which has to belong to the runtime that serves. `audience` is the
    /// audience that tokens need; `None` for that of the API server.
    pub(in crate::manager) fn new(client: Client, audience: Option<&'static str>) -> Self {
        let limit = || {
            let rate = TokenBucket::new(Limit::per_second(PER_SECOND.into(), BURST));
            ReviewLimit { slots: Semaphore::new(AT_ONCE), rate: Mutex::new(rate) }
        };
        let memory = Memory {
            users: BoundedMap::new(REMEMBERED).expire_after(TOKEN_TTL),
            accesses: BoundedMap::new(REMEMBERED),
            preferred: BoundedMap::new(REMEMBERED).expire_after(PREFERRED_TTL),
            failures: LogEvery::default(),
        };
        let (unknown_peers, preferred_peers) = (limit(), limit());
        Self { client, audience, unknown_peers, preferred_peers, memory: Mutex::new(memory) }
    }

    async fn admit(&self, request: &Parts) -> Result<(), Response> {
        let unauthorized = || {
            let expected = self.audience.map(|audience| {
                format!(
                    "; expected a token of the audience {audience}: \
                     kubectl create token ACCOUNT --audience={audience}"
                )
            });
            let text = format!("Unauthorized{}\n", expected.unwrap_or_default());
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], text).into_response()
        };
        let token = bearer(&request.headers).ok_or_else(unauthorized)?;
        let peer = request.extensions.get::<PeerAddress>();
        let peer = peer.map(|PeerAddress(address)| digest(address.to_string().as_bytes()));
        let token_key = digest(token.as_bytes());
        let limit = self.limit(&token_key, peer.as_ref());
        let user = self.user(token, limit).await;
        let user = user.map_err(|error| self.failure(&error, "Authentication failed\n".to_owned()))?;
        let user = user.ok_or_else(unauthorized)?;
        let name = user.username.clone().unwrap_or_default();
        let allowed = self.may(user, request, limit).await;
        if !allowed
            .map_err(|error| self.failure(&error, format!("Authorization for user {name} failed\n")))?
        {
            let text = format!("Authorization denied for user {name}\n");
            return Err((StatusCode::FORBIDDEN, text).into_response());
        }
        let mut memory = self.memory.lock();
        for key in [token_key].into_iter().chain(peer) {
            memory.preferred.insert(key, (), Instant::now());
        }
        Ok(())
    }

    /// Returns the limit that applies to the reviews of a token; `None` for a token that was admitted before,
    /// which is not limited.
    fn limit(&self, token: &Digest, peer: Option<&Digest>) -> Option<&ReviewLimit> {
        let (mut memory, now) = (self.memory.lock(), Instant::now());
        if memory.preferred.get(token, now).is_some() {
            None
        } else if peer.is_some_and(|peer| memory.preferred.get(peer, now).is_some()) {
            Some(&self.preferred_peers)
        } else {
            Some(&self.unknown_peers)
        }
    }

    /// Returns the user that a token belongs to, from the cache or by a review; `None` if the token is
    /// unknown.
    async fn user(&self, token: &str, limit: Option<&ReviewLimit>) -> Result<Option<UserInfo>, ReviewError> {
        let key = digest(token.as_bytes());
        if let Some(user) = self.memory.lock().users.get(&key, Instant::now()) {
            return Ok(user.clone());
        }
        #[allow(clippy::useless_conversion, reason = "an Option in the types of Kubernetes before 1.36")]
        let spec = TokenReviewSpec {
            token: token.to_owned().into(),
            audiences: self.audience.map(|audience| vec![audience.to_owned()]),
        };
        let answer = self.review(TokenReview { spec, ..TokenReview::default() }, limit).await?;
        let status = answer.status.unwrap_or_default();
        // A server that knows of no audiences names none, and has looked at the rest only.
        let named = |audience: &str| status.audiences.iter().flatten().any(|named| named == audience);
        let meant = self.audience.is_none_or(named);
        let user = status.user.filter(|_| status.authenticated == Some(true) && meant);
        self.memory.lock().users.insert(key, user.clone(), Instant::now());
        Ok(user)
    }

    async fn may(
        &self,
        user: UserInfo,
        request: &Parts,
        limit: Option<&ReviewLimit>,
    ) -> Result<bool, ReviewError> {
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(request.uri.path().to_owned()),
                verb: Some(request.method.as_str().to_lowercase()),
            }),
            resource_attributes: None,
        };
        let key = digest(format!("{spec:?}").as_bytes());
        if let Some(allowed) = self.memory.lock().accesses.get(&key, Instant::now()) {
            return Ok(*allowed);
        }
        let question = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let status = self.review(question, limit).await?.status;
        let allowed = status.is_some_and(|status| status.allowed && status.denied != Some(true));
        let ttl = if allowed { ALLOWED_TTL } else { DENIED_TTL };
        self.memory.lock().accesses.insert_for(key, allowed, ttl, Instant::now());
        Ok(allowed)
    }

    async fn review<K>(&self, question: K, limit: Option<&ReviewLimit>) -> Result<K, ReviewError>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>,
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        if limit.is_some_and(|limit| limit.rate.lock().take(Instant::now()).is_err()) {
            return Err(ReviewError::Flood);
        }
        let reviewed = timeout(PATIENCE, async {
            let _slot = match limit {
                Some(limit) => Some(limit.slots.acquire().await),
                None => None,
            };
            Api::all(self.client.clone()).create(&PostParams::default(), &question).await
        });
        let answer = reviewed.await.map_err(|_elapsed| ReviewError::Late)?;
        answer.map_err(|error| ReviewError::Request(Box::new(error)))
    }

    /// Logs the failure of a review, and returns the response to the request that needed the review.
    fn failure(&self, error: &ReviewError, text: String) -> Response {
        let failures = self.memory.lock().failures.add(1, Instant::now());
        if let Some(failures) = failures {
            warn!(error = %Chain(error), failures, "cannot review access");
        }
        match error {
            ReviewError::Flood => {
                let text = "Too many unknown tokens\n";
                (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")], text).into_response()
            }
            ReviewError::Request(_) | ReviewError::Late => {
                (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests;
