//! Asking the API server who a token belongs to and whether its owner may read a path.
//!
//! As controller-runtime's `WithAuthenticationAndAuthorization` does: a `TokenReview`, then a `SubjectAccessReview` of the
//! path and the method as a verb, with its answers' texts and the times it remembers them for. A `ClusterRole` with
//! `nonResourceURLs: [/metrics]` and `verbs: [get]` lets a scraper in.
//!
//! # Invariants
//! 1. Nobody is let in whose token the API server has not known within the last minute ([`TOKEN_COUNTS`]) and whose access
//!    it has not allowed within the last five; while it does not answer, those for whom neither time is over stay let
//!    in, and everybody else gets a 500.
//! 2. What strangers send costs the server at most [`PER_SECOND`] requests a second, [`BURST`] at once, and us a bounded memory, from
//!    which they push nobody who was let in. For those who were, [`KEPT`] turns stay free.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
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

use super::{Digest, Presented, digest, presented};
use crate::key::Chain;
use crate::metrics::Paced;
use crate::serve::Handler;

/// How long an answer about a token counts, whichever it was.
const TOKEN_COUNTS: Duration = Duration::from_mins(1);
/// How long a yes to an access counts.
const YES_COUNTS: Duration = Duration::from_mins(5);
/// How long a no to an access counts: short, for who was just given the right waits for it.
const NO_COUNTS: Duration = Duration::from_secs(30);

/// How long one question may take, its wait for a turn included.
const PATIENCE: Duration = Duration::from_secs(10);

/// Questions that are open at the same time.
const AT_ONCE: usize = 8;

/// Of which so many are for those who were let in before: a server that hangs over what strangers ask must not keep a
/// scraper waiting.
const KEPT: usize = 2;

/// How long who was let in goes before strangers. Longer than scrapes are apart, so a scraper that scrapes stays.
const LET_IN_COUNTS: Duration = Duration::from_hours(1);

/// Questions a second about strangers. A scraper whose token is new is one once.
const PER_SECOND: u32 = 20;

/// Questions about strangers that may be asked at once after a pause: all scrapers after a start.
const BURST: u32 = 40;

/// Answers that are remembered, of each sort. Scrapers are few.
const REMEMBERED: usize = 256;

/// Asks one API server, and remembers what it said.
pub(in crate::manager) struct Reviews {
    client: Client,
    turns: Semaphore,
    /// Taken before a turn for a question about a stranger.
    for_strangers: Semaphore,
    remembered: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    /// By their tokens.
    users: Memory<UserInfo>,
    /// Tokens that are none. Apart, for these can be made up without end.
    strangers: Memory<()>,
    /// By the whole question.
    rights: Memory<bool>,
    /// Tokens whose owner was let in, whether that still counts or not.
    let_in: Memory<()>,
    allowance: Allowance,
    failed: Paced,
}

/// What may still be asked about strangers.
#[derive(Default)]
struct Allowance {
    /// When all of it is back; in the past, or `None`, when it is.
    whole_at: Option<Instant>,
}

/// Whether a token was let in before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    LetIn,
    Stranger,
}

/// A bounded number of answers, each until it counts no longer.
struct Memory<V>(HashMap<Digest, (Instant, V)>);

/// A question that got no answer.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error("the API server cannot be asked")]
    Ask(#[source] Box<kube::Error>),
    #[error("the API server did not answer within {PATIENCE:?}")]
    Late,
    #[error("more tokens come that nobody knows than the API server is asked about, {PER_SECOND} a second")]
    Flood,
}

/// Lets pass whom the API server lets read.
pub(in crate::manager) fn reviewed(handler: Handler, reviews: Reviews) -> Handler {
    let reviews = Arc::new(reviews);
    Arc::new(move |request| {
        let (handler, reviews) = (Arc::clone(&handler), Arc::clone(&reviews));
        Box::pin(async move {
            match reviews.admit(&request).await {
                Ok(()) => handler(request).await,
                Err(refusal) => refusal,
            }
        })
    })
}

// === impl Reviews ===

impl Reviews {
    /// Asks through this client, which has to be one of the runtime that serves.
    pub(in crate::manager) fn new(client: Client) -> Self {
        Self {
            client,
            turns: Semaphore::new(AT_ONCE),
            for_strangers: Semaphore::new(AT_ONCE - KEPT),
            remembered: Mutex::default(),
        }
    }

    async fn admit(&self, request: &Request<Bytes>) -> Result<(), Response<Bytes>> {
        let unauthorized = || refuse(StatusCode::UNAUTHORIZED, "Unauthorized");
        let Presented::Token(token) = presented(request.headers()) else { return Err(unauthorized()) };
        let key = digest(token.as_bytes());
        let standing = match self.remembered.lock().let_in.get(&key, Instant::now()) {
            Some(()) => Standing::LetIn,
            None => Standing::Stranger,
        };
        let user = self.user(token, standing).await;
        let user = user.map_err(|error| self.failure(&error, "Authentication failed"))?;
        let Some(user) = user else { return Err(unauthorized()) };
        let name = user.username.clone().unwrap_or_default();
        match self.may(user, request, standing).await {
            Ok(true) => {
                self.remembered.lock().let_in.put(key, (), LET_IN_COUNTS, Instant::now());
                Ok(())
            }
            Ok(false) => Err(refuse(StatusCode::FORBIDDEN, &format!("Authorization denied for user {name}"))),
            Err(error) => Err(self.failure(&error, &format!("Authorization for user {name} failed"))),
        }
    }

    /// Returns whose token this is, if it is anybody's.
    async fn user(&self, token: &str, standing: Standing) -> Result<Option<UserInfo>, ReviewError> {
        let (key, now) = (digest(token.as_bytes()), Instant::now());
        {
            let remembered = self.remembered.lock();
            if let Some(user) = remembered.users.get(&key, now) {
                return Ok(Some(user.clone()));
            }
            if remembered.strangers.get(&key, now).is_some() {
                return Ok(None);
            }
        }
        #[allow(clippy::useless_conversion, reason = "an Option in the types of Kubernetes before 1.36")]
        let spec = TokenReviewSpec { token: token.to_owned().into(), ..TokenReviewSpec::default() };
        let answer = self.ask(TokenReview { spec, ..TokenReview::default() }, standing).await?;
        let status = answer.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let (mut remembered, now) = (self.remembered.lock(), Instant::now());
        match &user {
            Some(user) => remembered.users.put(key, user.clone(), TOKEN_COUNTS, now),
            None => remembered.strangers.put(key, (), TOKEN_COUNTS, now),
        }
        Ok(user)
    }

    async fn may(
        &self,
        user: UserInfo,
        request: &Request<Bytes>,
        standing: Standing,
    ) -> Result<bool, ReviewError> {
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(request.uri().path().to_owned()),
                verb: Some(request.method().as_str().to_lowercase()),
            }),
            resource_attributes: None,
        };
        // A question that cannot be written is remembered as none.
        let key = serde_json::to_vec(&spec).ok().map(|text| digest(&text));
        if let Some(may) =
            key.and_then(|key| self.remembered.lock().rights.get(&key, Instant::now()).copied())
        {
            return Ok(may);
        }
        let question = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = self.ask(question, standing).await?;
        let may = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        if let Some(key) = key {
            let counts = if may { YES_COUNTS } else { NO_COUNTS };
            self.remembered.lock().rights.put(key, may, counts, Instant::now());
        }
        Ok(may)
    }

    async fn ask<K>(&self, question: K, standing: Standing) -> Result<K, ReviewError>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>,
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        if standing == Standing::Stranger && !self.remembered.lock().allowance.take(Instant::now()) {
            return Err(ReviewError::Flood);
        }
        let asked = timeout(PATIENCE, async {
            let _strangers_turn = match standing {
                Standing::LetIn => None,
                Standing::Stranger => Some(self.for_strangers.acquire().await),
            };
            let _turn = self.turns.acquire().await;
            Api::all(self.client.clone()).create(&PostParams::default(), &question).await
        });
        match asked.await {
            Ok(answer) => answer.map_err(|error| ReviewError::Ask(Box::new(error))),
            Err(_elapsed) => Err(ReviewError::Late),
        }
    }

    /// Tells of it in the log, and who asked.
    fn failure(&self, error: &ReviewError, text: &str) -> Response<Bytes> {
        self.tell(error);
        if let ReviewError::Flood = error {
            let mut refusal = refuse(StatusCode::TOO_MANY_REQUESTS, "Too many tokens that nobody knows");
            refusal.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return refusal;
        }
        refuse(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    fn tell(&self, error: &ReviewError) {
        let failures = self.remembered.lock().failed.add(1, Instant::now());
        if let Some(failures) = failures {
            warn!(error = %Chain(error), failures, "cannot find out who may read metrics");
        }
    }
}

// === impl Allowance ===

impl Allowance {
    /// Takes one question, if one is left.
    fn take(&mut self, now: Instant) -> bool {
        let one = Duration::from_secs(1) / PER_SECOND;
        let whole_at = self.whole_at.map_or(now, |at| at.max(now)) + one;
        let left = whole_at <= now + one * BURST;
        if left {
            self.whole_at = Some(whole_at);
        }
        left
    }
}

// === impl Memory ===

impl<V> Default for Memory<V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<V> Memory<V> {
    fn get(&self, key: &Digest, now: Instant) -> Option<&V> {
        self.0.get(key).and_then(|(until, value)| (now < *until).then_some(value))
    }

    /// Remembers one more, in place of what counts no longer or else of what does for the shortest.
    fn put(&mut self, key: Digest, value: V, counts: Duration, now: Instant) {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, (until, _)| now < *until);
        }
        if self.0.len() >= REMEMBERED
            && let Some(shortest) = self.0.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| *key)
        {
            self.0.remove(&shortest);
        }
        self.0.insert(key, (now + counts, value));
    }
}

fn refuse(status: StatusCode, text: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests;
