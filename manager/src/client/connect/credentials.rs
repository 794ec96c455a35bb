//! The credentials that requests to an API server carry, renewed before they end.
//!
//! They are fetched on a thread of their own: a plug-in is a child process, and a file may be on a volume that hangs.
//! Requests go on with the old ones meanwhile, and wait only while there are none that can be used. After a 401 the
//! credentials are fetched at once, and requests wait for that for [`Pace::patience`]; if it fails they go on with the old
//! ones, as in client-go. The request that was refused is not repeated.
//!
//! # Invariants
//! 1. All roles of one [`Connections`](super::Connections) share one identity: a plug-in runs once for all, and a
//!    refresh token that is good for one use is used by one.
//! 2. At most one fetch is under way, and fetches begin at least [`Pace::pause`] apart.
//! 3. No new request travels on a connection of an earlier certificate.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use http::{Request, StatusCode};
use jiff::Timestamp;
use kube::client::{Body, ConfigExt as _};
use kube::config::{AuthInfo, ExecConfig};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tower::{BoxError, Layer as _, Service as _, service_fn};
use tracing::warn;

use crate::key::{BootInstant, Chain};
use crate::util::{LogEvery, read_regular};

use super::{Stack, plugin};

/// How long before their end credentials are fetched anew; a quarter of their life if that is shorter.
const AHEAD: Duration = Duration::from_mins(1);
/// How often files are read anew, as in client-go.
const FILES_PERIOD: Duration = Duration::from_mins(1);

/// Limits that a test sets otherwise.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Between the beginnings of two fetches, whatever the server or the plug-in says.
    pub(super) pause: Duration,
    /// How long a fetch may take before requests no longer wait for it, if the server refused credentials that have not
    /// ended. Shorter than a renewal of the Lease may take, so that it can still use them.
    pub(super) patience: Duration,
}

/// The credentials of one [`Connections`](super::Connections). All clones are the same.
#[derive(Clone)]
pub(super) struct Credentials {
    source: Arc<Source>,
    state: Arc<Mutex<State>>,
}

/// Where the credentials come from.
struct Source {
    given: kube::Config,
    kind: Kind,
    /// Fetches that failed, for the log.
    failures: Mutex<LogEvery>,
}

enum Kind {
    /// From the configuration itself: nothing is fetched twice. A provider that refreshes tokens does that in kube.
    Fixed,
    /// From files that somebody may replace: the token of a ServiceAccount, a client certificate.
    Files,
    /// From a credential plug-in.
    Plugin(Box<ExecConfig>),
}

/// Credentials that were fetched.
pub(super) struct Identity {
    /// With the credentials in it, instead of where they come from.
    pub(super) config: kube::Config,
    /// Adds them to requests.
    authorise: Box<dyn Fn(Stack) -> Stack + Send + Sync>,
    fetched: BootInstant,
    /// From when they are fetched anew.
    due: BootInstant,
    /// From when they are of no use.
    end: BootInstant,
}

/// The credentials in use, and the latest fetch. Time is passed in.
#[derive(Default)]
struct State {
    pace: Pace,
    current: Option<Current>,
    latest: Option<Fetch>,
}

struct Current {
    identity: Arc<Identity>,
    /// As in the identity, unless a 401 brought it forward.
    due: BootInstant,
    /// Whether the server refused it and no fetch has failed since.
    refused: bool,
}

struct Fetch {
    began: BootInstant,
    outcome: Outcome,
    /// Whether the outcome has been taken in.
    over: bool,
}

/// What a request waits for.
struct Awaited {
    outcome: Outcome,
    /// What it uses instead if the fetch fails or takes longer than this.
    instead: Option<(Arc<Identity>, Duration)>,
}

type Outcome = Shared<oneshot::Receiver<Result<Arc<Identity>, Arc<CredentialError>>>>;

/// The stack of one role, for the latest identity it has used.
struct Slot {
    identity: Arc<Identity>,
    /// The connections, which outlive a change of the token alone.
    transport: Stack,
    stack: Stack,
}

/// The credentials cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(super) struct CredentialError {
    what: String,
    source: Option<BoxError>,
}

/// Adds the present credentials to each request of a role. `open` makes connections for an identity.
///
/// # Errors
/// Fails if credentials that need no plug-in, or certificates beside them, are of no use.
pub(super) fn identified(
    credentials: &Credentials,
    open: impl Fn(&kube::Config) -> Result<Stack, BoxError> + Send + Sync + 'static,
) -> Result<Stack, BoxError> {
    let credentials = credentials.clone();
    let first = credentials.first()?.map(|identity| Slot::new(identity, None, &open)).transpose()?;
    let shared = Arc::new((Mutex::new(first), open));
    Ok(Stack::new(service_fn(move |request: Request<Body>| {
        let (credentials, shared) = (credentials.clone(), Arc::clone(&shared));
        async move {
            let identity = credentials.now().await?;
            let (identity, mut stack) = {
                let (slot, open) = &*shared;
                let mut slot = slot.lock();
                // A request that was slow to come here uses what others have moved on to.
                let last = slot.take_if(|slot| slot.identity.fetched < identity.fetched);
                let slot = match &mut *slot {
                    Some(slot) => slot,
                    none => none.insert(Slot::new(identity, last, open)?),
                };
                (Arc::clone(&slot.identity), slot.stack.clone())
            };
            let response = stack.call(request).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                credentials.refused(&identity);
            }
            Ok(response)
        }
    })))
}

// === impl Pace ===

impl Default for Pace {
    fn default() -> Self {
        Self { pause: Duration::from_secs(5), patience: Duration::from_secs(2) }
    }
}

// === impl Credentials ===

impl Credentials {
    pub(super) fn new(given: kube::Config, pace: Pace) -> Self {
        let kind = Kind::of(&given.auth_info);
        let source = Arc::new(Source { given, kind, failures: Mutex::default() });
        Self { source, state: Arc::new(Mutex::new(State { pace, ..State::default() })) }
    }

    /// Fetches what needs no plug-in, unless it is there already, so that an error comes before the first request.
    fn first(&self) -> Result<Option<Arc<Identity>>, CredentialError> {
        let mut state = self.state.lock();
        if state.current.is_none() && !matches!(self.source.kind, Kind::Plugin(_)) {
            state.current = Some(Current::new(Arc::new(self.source.fetch()?)));
        }
        Ok(state.current.as_ref().map(|current| Arc::clone(&current.identity)))
    }

    /// Returns the present credentials. Waits while there are none that can be used, and for the fetch after a 401.
    async fn now(&self) -> Result<Arc<Identity>, Arc<CredentialError>> {
        let known = self.state.lock().at(BootInstant::now(), || fetch_beside(&self.source));
        let Awaited { outcome, instead } = match known {
            Ok(identity) => return Ok(identity),
            Err(awaited) => awaited,
        };
        let lost = |_| Err(Arc::new(CredentialError::new("credentials were not fetched")));
        let fetched = outcome.map(|sent| sent.unwrap_or_else(lost));
        match instead {
            None => fetched.await,
            Some((identity, wait)) => {
                Ok(timeout(wait, fetched).await.ok().and_then(Result::ok).unwrap_or(identity))
            }
        }
    }

    /// Makes credentials that the server refused due for another fetch.
    fn refused(&self, identity: &Arc<Identity>) {
        if !matches!(self.source.kind, Kind::Fixed) {
            self.state.lock().refused(identity, BootInstant::now());
        }
    }
}

// === impl Kind ===

impl Kind {
    /// The order is kube's.
    fn of(auth: &AuthInfo) -> Self {
        let inline = auth.token.is_some() || (auth.username.is_some() && auth.password.is_some());
        let in_files = auth.client_certificate.is_some() || auth.client_key.is_some();
        match &auth.exec {
            // A provider keeps its latest tokens in the identity, which therefore is made once.
            _ if auth.auth_provider.is_some() => Self::Fixed,
            Some(exec) if !inline && auth.token_file.is_none() => Self::Plugin(Box::new(exec.clone())),
            _ if in_files || (!inline && auth.token_file.is_some()) => Self::Files,
            _ => Self::Fixed,
        }
    }
}

// === impl Source ===

impl Source {
    fn fetch(&self) -> Result<Identity, CredentialError> {
        let mut config = self.given.clone();
        let auth = &mut config.auth_info;
        let until = match &self.kind {
            Kind::Fixed => None,
            Kind::Files => read_files(auth).map(|()| None)?,
            Kind::Plugin(exec) => {
                auth.exec = None;
                read_files(auth)?;
                plugin::run(exec, auth, plugin::LIMIT)?
            }
        };
        // Of two files that are replaced one after the other, the second may be missing.
        config.rustls_client_config().map_err(useless)?;
        let never = BootInstant::from_boot(Duration::MAX);
        let fetched = BootInstant::now();
        let (due, end) = match (&self.kind, until) {
            (Kind::Files, _) => (fetched + FILES_PERIOD, never),
            // An expiry in the past counts as a lifetime of zero.
            (_, Some(until)) => {
                renewal(fetched, until.duration_since(Timestamp::now()).try_into().unwrap_or_default())
            }
            _ => (never, never),
        };
        let authorise: Box<dyn Fn(Stack) -> Stack + Send + Sync> =
            match config.auth_layer().map_err(useless)? {
                Some(layer) => Box::new(move |inner| Stack::new(layer.layer(inner))),
                None => Box::new(|inner| inner),
            };
        Ok(Identity { config, authorise, fetched, due, end })
    }
}

/// Returns when credentials that live this long are fetched anew, and when they end.
fn renewal(now: BootInstant, life: Duration) -> (BootInstant, BootInstant) {
    (now + life.saturating_sub(AHEAD.min(life / 4)), now + life)
}

/// Fetches on a thread of its own, not on one of a runtime, which would wait for it when it is shut down.
fn fetch_beside(source: &Arc<Source>) -> Outcome {
    let (fetched, outcome) = oneshot::channel();
    let source = Arc::clone(source);
    let thread = std::thread::Builder::new().name("credentials".to_owned()).spawn(move || {
        let identity = source.fetch().map(Arc::new).map_err(Arc::new);
        if let Err(error) = &identity
            && let Some(failures) = source.failures.lock().add(1, Instant::now())
        {
            warn!(server = %source.given.cluster_url, failures, error = %Chain(error), "no new credentials");
        }
        // The receiver is gone if no request waited.
        drop(fetched.send(identity));
    });
    if let Err(error) = thread {
        warn!(%error, "no thread to fetch credentials on");
    }
    outcome.shared()
}

/// Puts what files hold in the places of their names.
fn read_files(auth: &mut AuthInfo) -> Result<(), CredentialError> {
    let read = |path: &str| {
        read_regular(Path::new(path))
            .map_err(|error| CredentialError::new(format!("{path} cannot be read")).on(error))
    };
    if let (None, Some(path)) = (&auth.token, auth.token_file.take()) {
        let token = String::from_utf8_lossy(&read(&path)?).trim().to_owned();
        if token.is_empty() {
            return Err(CredentialError::new(format!("{path} holds no token")));
        }
        auth.token = Some(token.into());
    }
    if let (None, Some(path)) = (&auth.client_certificate_data, auth.client_certificate.take()) {
        auth.client_certificate_data = Some(STANDARD.encode(read(&path)?));
    }
    if let (None, Some(path)) = (&auth.client_key_data, auth.client_key.take()) {
        auth.client_key_data = Some(STANDARD.encode(read(&path)?).into());
    }
    Ok(())
}

// === impl State ===

impl State {
    /// Returns the identity to use now, or else what to wait for. Starts a fetch if the identity is due.
    fn at(&mut self, now: BootInstant, start: impl FnOnce() -> Outcome) -> Result<Arc<Identity>, Awaited> {
        self.settle();
        if let Some(current) = self.current.as_ref().filter(|current| now < current.due) {
            return Ok(Arc::clone(&current.identity));
        }
        let latest = match self.latest.take() {
            Some(latest) if !latest.over || now < latest.began + self.pace.pause => latest,
            _ => Fetch { began: now, outcome: start(), over: false },
        };
        let latest = self.latest.insert(latest);
        let left = (latest.began + self.pace.patience).saturating_since(now);
        match self.current.as_ref().filter(|current| now < current.identity.end) {
            Some(current) if !current.refused || latest.over || left.is_zero() => {
                Ok(Arc::clone(&current.identity))
            }
            usable => {
                let instead = usable.map(|current| (Arc::clone(&current.identity), left));
                Err(Awaited { outcome: latest.outcome.clone(), instead })
            }
        }
    }

    /// Makes an identity due and has requests wait for the next, unless there is a later one.
    fn refused(&mut self, identity: &Arc<Identity>, now: BootInstant) {
        self.settle();
        if let Some(current) =
            self.current.as_mut().filter(|current| Arc::ptr_eq(&current.identity, identity))
        {
            (current.due, current.refused) = (now, true);
        }
    }

    /// Takes in the outcome of a fetch that has ended. One that failed leaves what is there.
    fn settle(&mut self) {
        let Some(latest) = self.latest.as_mut().filter(|latest| !latest.over) else { return };
        let Some(outcome) = latest.outcome.clone().now_or_never() else { return };
        latest.over = true;
        if let Ok(Ok(identity)) = outcome {
            self.current = Some(Current::new(identity));
        } else if let Some(current) = &mut self.current {
            current.refused = false;
        }
    }
}

// === impl Current ===

impl Current {
    fn new(identity: Arc<Identity>) -> Self {
        Self { due: identity.due, identity, refused: false }
    }
}

// === impl Slot ===

impl Slot {
    /// Keeps the connections of the last identity if they show the same certificate.
    fn new(
        identity: Arc<Identity>,
        last: Option<Self>,
        open: impl Fn(&kube::Config) -> Result<Stack, BoxError>,
    ) -> Result<Self, CredentialError> {
        let certificate = |identity: &Identity| identity.config.auth_info.client_certificate_data.clone();
        let transport = match last {
            Some(last) if certificate(&last.identity) == certificate(&identity) => last.transport,
            _ => open(&identity.config).map_err(useless)?,
        };
        Ok(Self { stack: (identity.authorise)(transport.clone()), identity, transport })
    }
}

// === impl CredentialError ===

impl CredentialError {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    /// Adds what it stands on.
    pub(super) fn on(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }
}

fn useless(error: impl Into<BoxError>) -> CredentialError {
    CredentialError::new("credentials or certificates are of no use").on(error)
}

#[cfg(test)]
mod tests;
