//! Adds credentials to the requests for an API server, and renews them before they expire.
//!
//! They are fetched on a separate thread: a plug-in is a child process, and a file may be on a volume that
//! hangs. Meanwhile requests use the old credentials, and wait only if there are no usable ones. After a 401
//! the credentials are fetched at once, and requests wait for that at most [`FetchLimits::max_wait`]; if the
//! fetch fails, requests use the old credentials again, as in client-go. The refused request is not repeated.
//!
//! # Invariants
//! 1. All roles of one [`Connections`](super::Connections) share one identity, so that a plug-in runs once
//!    for all of them, and a refresh token that is valid for a single use is used once.
//! 2. At most one fetch runs at a time, and fetches start at least [`FetchLimits::interval`] apart.
//! 3. No new request uses a connection that was opened with an earlier certificate.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Request, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::timeout;
use tower::{BoxError, Layer as _, Service as _, service_fn};

use crate::key::BootInstant;

use super::Stack;
use super::fetch::{CredentialError, FetchOutcome, Identity, Source, SourceKind, unusable};

/// Time limits for fetches of credentials; tests set other ones.
#[derive(Clone, Copy)]
pub(super) struct FetchLimits {
    /// Minimum time between the starts of two fetches of credentials.
    pub(super) interval: Duration,
    /// Longest time that requests wait for new credentials after a 401, if the old ones have not expired.
    /// Shorter than the limit of a Lease renewal, so that the renewal can still use the old ones.
    pub(super) max_wait: Duration,
}

/// The credentials of one [`Connections`](super::Connections) for its API server, kept up to date. Clones
/// share them.
#[derive(Clone)]
pub(super) struct Credentials {
    source: Arc<Source>,
    state: Arc<Mutex<State>>,
}

/// The credentials in use, and the latest fetch of credentials. The caller passes the current time in.
#[derive(Default)]
struct State {
    limits: FetchLimits,
    current: Option<CurrentIdentity>,
    latest: Option<Fetch>,
}

struct CurrentIdentity {
    identity: Arc<Identity>,
    /// From this time on new credentials are fetched: the renewal time of the identity, or the time of an
    /// earlier 401.
    renew_at: BootInstant,
    /// Whether the API server refused this credential with 401, and no attempt to fetch another one has
    /// failed since.
    refused: bool,
}

struct Fetch {
    started_at: BootInstant,
    outcome: FetchOutcome,
    /// Whether the outcome of the fetch has been processed.
    done: bool,
}

/// The fetch of credentials that a request waits for.
struct PendingFetch {
    outcome: FetchOutcome,
    /// The old credentials, for use if the fetch fails or takes longer than this; `None` without unexpired
    /// ones.
    fallback: Option<(Arc<Identity>, Duration)>,
}

/// The connection stack of one client for the latest credentials that the client has used.
struct RoleStack {
    identity: Arc<Identity>,
    /// The part of the stack with the connections. New credentials with the same certificate keep it.
    transport: Stack,
    stack: Stack,
}

/// Makes a stack that adds the current credentials to each request of a client. `open` makes the connections
/// for a configuration that contains the credentials.
///
/// # Errors
/// Fails if credentials other than those of a plug-in cannot be fetched, or certificates cannot be used.
pub(super) fn identified(
    credentials: &Credentials,
    open: impl Fn(&kube::Config) -> Result<Stack, BoxError> + Send + Sync + 'static,
) -> Result<Stack, BoxError> {
    let credentials = credentials.clone();
    let first = credentials.first()?.map(|identity| RoleStack::new(identity, None, &open)).transpose()?;
    let shared = Arc::new((Mutex::new(first), open));
    Ok(Stack::new(service_fn(move |request: Request<Body>| {
        let (credentials, shared) = (credentials.clone(), Arc::clone(&shared));
        async move {
            let identity = credentials.current().await?;
            let (identity, mut stack) = {
                let (latest, open) = &*shared;
                let mut latest = latest.lock();
                // A slow request may hold an older identity than the stack, and then uses that of the stack.
                let last = latest.take_if(|latest| latest.identity.fetched_at < identity.fetched_at);
                let latest = match &mut *latest {
                    Some(latest) => latest,
                    none => none.insert(RoleStack::new(identity, last, open)?),
                };
                (Arc::clone(&latest.identity), latest.stack.clone())
            };
            let response = stack.call(request).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                credentials.mark_refused(&identity);
            }
            Ok(response)
        }
    })))
}

// === impl FetchLimits ===

impl Default for FetchLimits {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5), max_wait: Duration::from_secs(2) }
    }
}

// === impl Credentials ===

impl Credentials {
    pub(super) fn new(config: kube::Config, limits: FetchLimits) -> Self {
        let state = State { limits, ..State::default() };
        Self { source: Arc::new(Source::new(config)), state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the current credentials, fetched here if there are none yet, so that errors come before the
    /// first request. Does not run a plug-in: without its credentials the result is `None`.
    fn first(&self) -> Result<Option<Arc<Identity>>, CredentialError> {
        let mut state = self.state.lock();
        if state.current.is_none() && !matches!(self.source.kind, SourceKind::Plugin(_)) {
            state.current = Some(CurrentIdentity::new(Arc::new(self.source.fetch()?)));
        }
        Ok(state.current.as_ref().map(|current| Arc::clone(&current.identity)))
    }

    /// Returns the current credentials. Waits for a fetch if there are no usable ones, or after a 401.
    async fn current(&self) -> Result<Arc<Identity>, Arc<CredentialError>> {
        let known = self.state.lock().identity_at(BootInstant::now(), || self.source.start_fetch());
        let PendingFetch { outcome, fallback } = match known {
            Ok(identity) => return Ok(identity),
            Err(pending) => pending,
        };
        let lost = |_| Err(Arc::new(CredentialError::new("credentials were not fetched")));
        let fetched = outcome.map(|sent| sent.unwrap_or_else(lost));
        match fallback {
            None => fetched.await,
            Some((identity, wait)) => {
                Ok(timeout(wait, fetched).await.ok().and_then(Result::ok).unwrap_or(identity))
            }
        }
    }

    /// Marks credentials that the API server refused with 401 as due for renewal; fixed credentials cannot be
    /// renewed.
    fn mark_refused(&self, identity: &Arc<Identity>) {
        if !matches!(self.source.kind, SourceKind::Fixed) {
            self.state.lock().mark_refused(identity, BootInstant::now());
        }
    }
}

// === impl State ===

impl State {
    /// Returns the credentials to use now, or as an error the fetch to wait for. Starts a fetch if the
    /// credentials are due for renewal.
    fn identity_at(
        &mut self,
        now: BootInstant,
        start: impl FnOnce() -> FetchOutcome,
    ) -> Result<Arc<Identity>, PendingFetch> {
        self.process_outcome();
        if let Some(current) = self.current.as_ref().filter(|current| now < current.renew_at) {
            return Ok(Arc::clone(&current.identity));
        }
        let latest = match self.latest.take() {
            Some(latest) if !latest.done || now < latest.started_at + self.limits.interval => latest,
            _ => Fetch { started_at: now, outcome: start(), done: false },
        };
        let latest = self.latest.insert(latest);
        let left = (latest.started_at + self.limits.max_wait).saturating_since(now);
        match self.current.as_ref().filter(|current| now < current.identity.expires_at) {
            Some(current) if !current.refused || latest.done || left.is_zero() => {
                Ok(Arc::clone(&current.identity))
            }
            usable => {
                let fallback = usable.map(|current| (Arc::clone(&current.identity), left));
                Err(PendingFetch { outcome: latest.outcome.clone(), fallback })
            }
        }
    }

    /// Marks refused credentials as due for renewal, so that requests wait for new ones. Has no effect if
    /// later credentials are current.
    fn mark_refused(&mut self, identity: &Arc<Identity>, now: BootInstant) {
        self.process_outcome();
        if let Some(current) =
            self.current.as_mut().filter(|current| Arc::ptr_eq(&current.identity, identity))
        {
            (current.renew_at, current.refused) = (now, true);
        }
    }

    /// Takes over the credentials of a fetch that has finished. After a failed fetch the old ones stay.
    fn process_outcome(&mut self) {
        let Some(latest) = self.latest.as_mut().filter(|latest| !latest.done) else { return };
        let Some(outcome) = latest.outcome.clone().now_or_never() else { return };
        latest.done = true;
        if let Ok(Ok(identity)) = outcome {
            self.current = Some(CurrentIdentity::new(identity));
        } else if let Some(current) = &mut self.current {
            current.refused = false;
        }
    }
}

// === impl CurrentIdentity ===

impl CurrentIdentity {
    fn new(identity: Arc<Identity>) -> Self {
        Self { renew_at: identity.renew_at, identity, refused: false }
    }
}

// === impl RoleStack ===

impl RoleStack {
    /// Makes the stack for new credentials. Keeps the connections of the last stack if the certificate is the
    /// same.
    fn new(
        identity: Arc<Identity>,
        last: Option<Self>,
        open: impl Fn(&kube::Config) -> Result<Stack, BoxError>,
    ) -> Result<Self, CredentialError> {
        let certificate = |identity: &Identity| identity.config.auth_info.client_certificate_data.clone();
        let transport = match last {
            Some(last) if certificate(&last.identity) == certificate(&identity) => last.transport,
            _ => open(&identity.config).map_err(unusable)?,
        };
        let stack = match &identity.authorisation {
            Some(layer) => Stack::new(layer.layer(transport.clone())),
            None => transport.clone(),
        };
        Ok(Self { identity, transport, stack })
    }
}

#[cfg(test)]
mod tests;
