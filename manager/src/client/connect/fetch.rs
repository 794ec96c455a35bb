//! Fetches credentials: from the configuration, from files, or from a credential plug-in.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use jiff::Timestamp;
use kube::client::ConfigExt as _;
use kube::client::middleware::AuthLayer;
use kube::config::{AuthInfo, ExecConfig};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::BoxError;
use tracing::warn;

use crate::key::{BootInstant, Chain};
use crate::util::{LogEvery, read_regular};

use super::plugin;

/// Time before the expiry of credentials at which they are renewed; a quarter of their lifetime if that is
/// shorter.
const RENEW_AHEAD: Duration = Duration::from_mins(1);
/// Interval between reads of credential files, as in client-go.
const FILES_INTERVAL: Duration = Duration::from_mins(1);

/// The source of the credentials for an API server: configuration, files or a plug-in.
pub(super) struct Source {
    config: kube::Config,
    pub(super) kind: SourceKind,
    /// Counts failed fetches of credentials and limits their log lines.
    failures: Mutex<LogEvery>,
}

pub(super) enum SourceKind {
    /// The credentials are in the configuration itself and are fetched only once. kube's auth provider, if
    /// there is one, refreshes its own token.
    Fixed,
    /// The credentials are in files that may be replaced: the token of a ServiceAccount, a client
    /// certificate.
    Files,
    /// The credentials are the output of a credential plug-in.
    Plugin(Box<ExecConfig>),
}

/// The credentials that a fetch returned, with their times of renewal and expiry.
pub(super) struct Identity {
    /// The kube configuration with the credentials themselves in place of their files or plug-in.
    pub(super) config: kube::Config,
    /// The layer that adds the credentials to each request; `None` if they are only a certificate.
    pub(super) authorisation: Option<AuthLayer>,
    pub(super) fetched_at: BootInstant,
    /// From this time on new credentials are fetched.
    pub(super) renew_at: BootInstant,
    /// From this time on the API server refuses these credentials.
    pub(super) expires_at: BootInstant,
}

/// The awaited result of a fetch of credentials on its own thread, shared by the requests that wait for it.
pub(super) type FetchOutcome = Shared<oneshot::Receiver<Result<Arc<Identity>, Arc<CredentialError>>>>;

/// The error of a failed fetch of credentials.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(super) struct CredentialError {
    what: String,
    source: Option<BoxError>,
}

// === impl Source ===

impl Source {
    pub(super) fn new(config: kube::Config) -> Self {
        Self { kind: SourceKind::of(&config.auth_info), config, failures: Mutex::default() }
    }

    /// Fetches the credentials from their source. Blocks the thread while files are read or the plug-in runs.
    pub(super) fn fetch(&self) -> Result<Identity, CredentialError> {
        let mut config = self.config.clone();
        let auth = &mut config.auth_info;
        let expiry = match &self.kind {
            SourceKind::Fixed => None,
            SourceKind::Files => read_files(auth).map(|()| None)?,
            SourceKind::Plugin(exec) => {
                auth.exec = None;
                read_files(auth)?;
                plugin::run(exec, auth, plugin::LIMIT)?
            }
        };
        // While certificate and key are replaced one after the other, they may not fit together.
        config.rustls_client_config().map_err(unusable)?;
        let never = BootInstant::from_boot(Duration::MAX);
        let fetched_at = BootInstant::now();
        let (renew_at, expires_at) = match (&self.kind, expiry) {
            (SourceKind::Files, _) => (fetched_at + FILES_INTERVAL, never),
            // An expiry in the past counts as a lifetime of zero.
            (_, Some(expiry)) => {
                renewal(fetched_at, expiry.duration_since(Timestamp::now()).try_into().unwrap_or_default())
            }
            _ => (never, never),
        };
        let authorisation = config.auth_layer().map_err(unusable)?;
        Ok(Identity { config, authorisation, fetched_at, renew_at, expires_at })
    }

    /// Starts a fetch of the credentials on its own thread. A runtime's blocking thread would delay the
    /// shutdown of that runtime.
    pub(super) fn start_fetch(self: &Arc<Self>) -> FetchOutcome {
        let (fetched, outcome) = oneshot::channel();
        let source = Arc::clone(self);
        let thread = std::thread::Builder::new().name("credentials".to_owned()).spawn(move || {
            let identity = source.fetch().map(Arc::new).map_err(Arc::new);
            if let Err(error) = &identity
                && let Some(failures) = source.failures.lock().add(1, Instant::now())
            {
                let server = &source.config.cluster_url;
                warn!(%server, failures, error = %Chain(error), "credentials could not be fetched");
            }
            // The receiver is gone if no request waited.
            drop(fetched.send(identity));
        });
        if let Err(error) = thread {
            warn!(%error, "the thread that fetches credentials could not be started");
        }
        outcome.shared()
    }
}

// === impl SourceKind ===

impl SourceKind {
    /// Chooses the source of the credentials that the configuration names, with the precedence of kube.
    fn of(auth: &AuthInfo) -> Self {
        let inline = auth.token.is_some() || (auth.username.is_some() && auth.password.is_some());
        let in_files = auth.client_certificate.is_some() || auth.client_key.is_some();
        match &auth.exec {
            // A provider keeps its latest tokens in the identity, so the identity is made only once.
            _ if auth.auth_provider.is_some() => Self::Fixed,
            Some(exec) if !inline && auth.token_file.is_none() => Self::Plugin(Box::new(exec.clone())),
            _ if in_files || (!inline && auth.token_file.is_some()) => Self::Files,
            _ => Self::Fixed,
        }
    }
}

// === impl CredentialError ===

impl CredentialError {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    /// Returns this error with another error as its source.
    pub(super) fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }
}

pub(super) fn unusable(error: impl Into<BoxError>) -> CredentialError {
    CredentialError::new("credentials or certificates cannot be used").with_source(error)
}

/// Returns when credentials of this lifetime are to be renewed, and when they expire.
fn renewal(now: BootInstant, lifetime: Duration) -> (BootInstant, BootInstant) {
    (now + lifetime.saturating_sub(RENEW_AHEAD.min(lifetime / 4)), now + lifetime)
}

/// Reads the credential files that the configuration names, and puts their contents in place of their names.
fn read_files(auth: &mut AuthInfo) -> Result<(), CredentialError> {
    let read = |path: &str| {
        read_regular(Path::new(path))
            .map_err(|error| CredentialError::new(format!("{path} cannot be read")).with_source(error))
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

#[cfg(test)]
mod tests;
