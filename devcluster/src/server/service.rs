//! The HTTP service of the API: handles a request from its head to its response.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, HOST, IF_NONE_MATCH, USER_AGENT};
use http::request::Parts;
use http::{HeaderName, Method, Response};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::accept::{self, Accepted, Convert};
use super::answer::{Answer, AnswerBody};
use super::audit::{self, Audit};
use super::auth::{self, Peer, Tokens};
use super::faults::{Effects, Faults};
use super::impersonation::{self, LastModes};
use super::path::{self, Path, ResourcePath};
use super::represent::Conversion;
use super::route::{self, Refusal};
use super::stream::Limits;
use super::{content, discovery, health, openapi, represent};
use crate::api::{Access, Action, Api, Body, Query, Request, Status, Target, User, Verb};
use crate::kinds::{Kind, builtin};

/// Longest time for a client to send a body; kube-apiserver's limit for a complete request.
const BODY_TIMEOUT: Duration = Duration::from_secs(34);

/// The future of a response.
type Answering = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, Infallible>> + Send>>;

/// The API as an HTTP service. Clones share the API, the tokens and the faults.
#[derive(Clone, Debug)]
pub struct ApiService {
    shared: Arc<Shared>,
    /// The user of all requests; `None` if each request is authenticated.
    user: Option<User>,
    audit: Option<Arc<Audit>>,
}

#[derive(Debug)]
struct Shared {
    api: Api,
    tokens: Tokens,
    last_modes: LastModes,
    faults: Faults,
    /// The source of audit ids.
    random: Mutex<fastrand::Rng>,
}

// === impl ApiService ===

impl ApiService {
    /// Returns a service that authenticates requests by bearer token. `seed` determines the requests that
    /// faults affect, and the audit ids.
    pub fn new(api: Api, tokens: impl IntoIterator<Item = (String, User)>, seed: u64) -> Self {
        let tokens =
            tokens.into_iter().map(|(token, user)| (token, impersonation::completed(user))).collect();
        let (faults, random) = (Faults::new(seed), Mutex::new(fastrand::Rng::with_seed(seed)));
        let last_modes = LastModes::default();
        Self { shared: Arc::new(Shared { api, tokens, last_modes, faults, random }), user: None, audit: None }
    }

    /// Returns the same service with an audit log.
    #[must_use]
    pub fn audited(self, audit: Audit) -> Self {
        Self { audit: Some(Arc::new(audit)), ..self }
    }

    /// Returns the same service with a fixed user, for requests without credentials.
    #[must_use]
    pub fn as_user(&self, user: User) -> Self {
        Self { user: Some(impersonation::completed(user)), ..self.clone() }
    }

    /// Returns the same service without the fixed user, so that requests need a token.
    #[cfg(test)]
    pub(super) fn without_user(&self) -> Self {
        Self { user: None, ..self.clone() }
    }

    /// Returns the fault rules of this server.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    async fn respond<B: http_body::Body>(self, request: http::Request<B>) -> Response<AnswerBody> {
        let (parts, body) = request.into_parts();
        let incoming = Incoming::new(&parts);
        let answer = match self.answer(&incoming, body).await {
            Ok(answer) => answer,
            Err(Refusal::NoPage) => Answer::no_page(),
            Err(Refusal::Status(status)) => Answer::status(&status, &incoming.for_errors()),
        };
        let audit_id = match incoming.header(&HeaderName::from_static("audit-id")) {
            "" => {
                let mut random = self.shared.random.lock();
                format!("{:016x}{:016x}", random.u64(..), random.u64(..))
            }
            id => id.to_owned(),
        };
        answer.finish(&audit_id)
    }

    async fn answer<B: http_body::Body>(&self, incoming: &Incoming<'_>, body: B) -> Result<Answer, Refusal> {
        let sender = match (&self.user, incoming.parts.extensions.get::<Peer>()) {
            (Some(user), _) | (None, Some(Peer(user))) => user.clone(),
            (None, None) => {
                let issued = |token: &str| self.shared.api.authenticate(token);
                auth::by_token(&incoming.parts.headers, &self.shared.tokens, issued)?
            }
        };
        let method = &incoming.parts.method;
        let path = path::parse(incoming.parts.uri.path());
        if let Path::Resource(resource) = &path {
            let access = route::access(method, resource, &incoming.query);
            let user = self.impersonated(incoming, sender, &Action::Resource(access))?;
            return self.audited_resource(incoming, resource, &access, user, body).await;
        }
        let verb = method.as_str().to_ascii_lowercase();
        let decoded = percent_decode_str(incoming.parts.uri.path()).decode_utf8_lossy();
        let action = Action::Path { verb: &verb, path: &decoded };
        let user = self.impersonated(incoming, sender, &action)?;
        self.shared.api.authorize(&user, &action)?;
        match &path {
            Path::Health { endpoint, check } => {
                Ok(health::answer(endpoint, check.as_deref(), &incoming.query))
            }
            Path::Version if *method != Method::GET => Err(route::wrong_method().into()),
            Path::Version => Ok(version()),
            Path::Malformed => {
                let url = incoming.parts.uri.path();
                let why = "failed to create RequestInfo: unable to determine kind and namespace from url";
                Ok(Answer::text(500, format!("Internal Server Error: {url:?}: {why}, {url}\n")))
            }
            Path::UnknownApi { group } if discovery::is_built_in(group) => {
                Err(route::unknown_resource().into())
            }
            Path::OpenApiV2 => Ok(openapi::version_2(&incoming.for_discovery())),
            Path::OpenApiIndex => Ok(openapi::index(&self.shared.api)),
            Path::OpenApi(path) => {
                Ok(openapi::document(&self.shared.api, path, &incoming.query, &incoming.for_discovery()))
            }
            path => Ok(discovery::answer(path, self.shared.api.kinds(), &incoming.for_discovery())),
        }
    }

    fn impersonated(
        &self,
        incoming: &Incoming<'_>,
        sender: User,
        action: &Action<'_>,
    ) -> Result<User, Status> {
        let Shared { api, last_modes, .. } = &*self.shared;
        impersonation::impersonated(api, last_modes, sender, &incoming.parts.headers, action)
    }

    /// Handles a request to a resource if its user may do that, and appends it to the audit log if that
    /// contains such requests.
    async fn audited_resource<B: http_body::Body>(
        &self,
        incoming: &Incoming<'_>,
        path: &ResourcePath,
        access: &Access<'_>,
        user: User,
        body: B,
    ) -> Result<Answer, Refusal> {
        let verb = access.verb;
        let log = self.audit.as_ref();
        let entry = log.and_then(|log| {
            let uri = &incoming.parts.uri;
            Some((log, audit::Entry::of(verb, path, &user, uri, self.shared.api.now())?))
        });
        let mut sent = None;
        let answer = match self.shared.api.authorize(&user, &Action::Resource(*access)) {
            Ok(()) => {
                let sent = entry.is_some().then_some(&mut sent);
                self.resource(incoming, path, verb, user, body, sent).await
            }
            Err(status) => Err(status.into()),
        };
        if let Some((log, entry)) = entry {
            let code = match &answer {
                Ok(answer) => answer.code(),
                Err(Refusal::Status(status)) => status.code(),
                Err(Refusal::NoPage) => 404,
            };
            log.append(entry, sent, code);
        }
        answer
    }

    /// Handles a request to a resource; `sent` receives a copy of its decoded body.
    async fn resource<B: http_body::Body>(
        &self,
        incoming: &Incoming<'_>,
        path: &ResourcePath,
        verb_name: &str,
        user: User,
        body: B,
        sent: Option<&mut Option<Value>>,
    ) -> Result<Answer, Refusal> {
        let effects = self.shared.faults.effects(verb_name, path);
        if !effects.delay.is_zero() {
            tokio::time::sleep(effects.delay).await;
        }
        if let Some(failure) = &effects.failure {
            return Ok(failure.answer(verb_name, path, &incoming.for_errors()).await);
        }
        let Some(kind) = self.shared.api.kind(&path.group, &path.version, &path.resource) else {
            let built_in = discovery::is_built_in(&path.group);
            return Err(if built_in { route::unknown_resource().into() } else { Refusal::NoPage });
        };
        let content_type = incoming.header(&CONTENT_TYPE);
        let verb = route::verb(&incoming.parts.method, path, &kind, &incoming.query, content_type)?;
        if kind.type_name.is_some() {
            let watchable = matches!(verb, Verb::List | Verb::Watch);
            accept::refuse_unknown(incoming.header(&ACCEPT), watchable)?;
        }
        let mut accepted = accept::negotiate(incoming.header(&ACCEPT), Convert::is_of_resources)?;
        accepted.pretty |= incoming.wants_pretty();
        let body = decode(body, verb, path, &kind, content_type).await?;
        if let Some(sent) = sent {
            *sent = body.as_ref().map(|body| body.value.clone());
        }
        let request = request(incoming, path, verb, user, body)?;
        let response = self.shared.api.call(request).await?;
        let convert = Conversion::of_request(&accepted, &self.shared.api, &kind, path, &incoming.query)?;
        let limits = self.limits(incoming, &effects);
        Ok(represent::answer(response, &kind, &accepted, convert, limits)?)
    }

    fn limits(&self, incoming: &Incoming<'_>, effects: &Effects) -> Limits {
        Limits {
            cuts: self.shared.faults.cuts(),
            after_events: effects.cut_after,
            drop_bookmarks: effects.drop_bookmarks,
            pause: Limits::pause(&incoming.parts.extensions),
        }
    }
}

impl<B> tower::Service<http::Request<B>> for ApiService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Answering {
        let service = self.clone();
        Box::pin(async move { Ok(service.respond(request).await) })
    }
}

/// The head of a request, with its parsed query.
struct Incoming<'a> {
    parts: &'a Parts,
    query: Query,
}

// === impl Incoming ===

impl<'a> Incoming<'a> {
    fn new(parts: &'a Parts) -> Self {
        Self { parts, query: Query::parse(parts.uri.query().unwrap_or_default()) }
    }

    fn header(&self, name: &HeaderName) -> &str {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn wants_pretty(&self) -> bool {
        let human = ["curl", "Wget", "Mozilla/5.0"];
        match self.query.get("pretty") {
            None | Some("") => human.iter().any(|agent| self.header(&USER_AGENT).starts_with(agent)),
            Some(value) => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        }
    }

    /// Returns the accepted representation for an error; a `Status` is never converted.
    fn for_errors(&self) -> Accepted {
        let accepted = accept::negotiate(self.header(&ACCEPT), |_| true).unwrap_or_default();
        Accepted { convert: None, pretty: accepted.pretty || self.wants_pretty(), ..accepted }
    }

    fn for_discovery(&self) -> discovery::Request<'_> {
        let authority = self.parts.uri.authority().map_or("", http::uri::Authority::as_str);
        let host = self.header(&HOST);
        discovery::Request {
            accept: self.header(&ACCEPT),
            pretty: self.wants_pretty(),
            host: if host.is_empty() { authority } else { host },
            if_none_match: self.parts.headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()),
            is_get: self.parts.method == Method::GET,
        }
    }
}

async fn decode<B: http_body::Body>(
    body: B,
    verb: Verb,
    path: &ResourcePath,
    kind: &Kind,
    content_type: &str,
) -> Result<Option<Body>, Status> {
    let media_type = match verb {
        Verb::Get | Verb::List | Verb::Watch => return Ok(None),
        Verb::Create | Verb::Update => Some(content::media_type(content_type)?),
        _ => None,
    };
    let late = |_| Err(Status::new(504, "Timeout", "request did not complete within the allotted timeout"));
    let text = timeout(BODY_TIMEOUT, content::read(body)).await.unwrap_or_else(late)?;
    match (verb, media_type) {
        (Verb::Patch(patch_type), _) => content::patch(&text, patch_type).map(Some),
        (_, Some(media_type)) => {
            content::object(&text, media_type, &content::Expected::new(kind, path)).map(Some)
        }
        _ => content::delete_options(&text, content_type),
    }
}

fn request(
    incoming: &Incoming<'_>,
    path: &ResourcePath,
    verb: Verb,
    user: User,
    body: Option<Body>,
) -> Result<Request, Status> {
    let mut target = Target {
        group: path.group.clone(),
        version: path.version.clone(),
        resource: path.resource.clone(),
        namespace: path.namespace.clone(),
        name: path.name.clone(),
        subresource: path.subresource.clone(),
    };
    let mut request = Request {
        verb,
        target: Target::default(),
        query: incoming.query.clone(),
        body,
        user,
        user_agent: incoming.header(&USER_AGENT).to_owned(),
    };
    // The deprecated path prefix `watch/` with a name watches one object.
    if verb == Verb::Watch && !target.name.is_empty() {
        let name = std::mem::take(&mut target.name);
        match request.query.get("fieldSelector") {
            None | Some("") => request = request.with("fieldSelector", format!("metadata.name={name}")),
            Some(selector) if selector == format!("metadata.name={name}") => {}
            Some(_) => {
                let message = "fieldSelector metadata.name doesn't match requested name";
                return Err(Status::bad_request(message));
            }
        }
    }
    request.target = target;
    Ok(request)
}

/// Returns the response of `/version`: the Kubernetes release of the built-in kinds.
fn version() -> Answer {
    let release = builtin::release();
    let mut numbers = release.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let previous = minor.parse::<u32>().map(|minor| minor.saturating_sub(1).to_string()).unwrap_or_default();
    let value = json!({
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": previous,
        "gitVersion": release,
        "gitCommit": "unknown",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "unknown",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, platform()),
    });
    Answer::value(200, &value, &Accepted { pretty: true, ..Accepted::default() })
}

/// Returns the name that Go has for the architecture of this program.
fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
