//! Reads: get, list with pages, and the start of watches.

use std::sync::Arc;
use std::time::Duration;

use base64::engine::general_purpose::{GeneralPurpose, URL_SAFE_NO_PAD};
use base64::{DecodeError, Engine as _};
use serde_json::{Value, json};

use super::call::Call;
use super::options::{ListOptions, revision};
use super::response::{Content, List};
use super::selector::Selector;
use super::watch::{Start, Watch};
use super::{Api, Response, Status};
use crate::kinds::{go, json};
use crate::store::{At, ReadError};

/// Minimum duration of a watch without `timeoutSeconds`, in seconds; the maximum is twice
/// as long (exclusive).
const WATCH_SECONDS: u64 = 1800;

const EXPIRED: &str = "The resourceVersion for the provided list is too old.";
const EXPIRED_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list \
     result. You can start a new list without the continue parameter, or use the continue token in this \
     response to retrieve the remainder of the results. Continuing with the provided token results in an \
     inconsistent list - objects that were created, modified, or deleted between the time the first chunk \
     was returned and now may show up in the list.";

// === impl Api ===

impl Api {
    pub(super) async fn get(&self, call: &Call) -> Result<Response, Status> {
        let wanted =
            revision(call.query.get("resourceVersion").unwrap_or_default()).map_err(Status::unclassified)?;
        let current = self.shared.store.revision();
        if wanted > current {
            return Err(Status::future(wanted, current));
        }
        let served = &call.served;
        match self.shared.store.get(&served.resource, &call.key()) {
            Some(version) => Ok(Response::new(200, Content::Object(self.view(served, &version).await?))),
            None => Err(Status::not_found(&served.kind, &call.target.name)),
        }
    }

    pub(super) async fn list(&self, call: &Call) -> Result<Response, Status> {
        let mut options = ListOptions::parse(&call.query, false)?;
        let selector = Selector::parse(&call.served.kind, &call.query)?;
        let bad = |error| Status::bad_request(format!("invalid resource version: {error}"));
        let at = if options.continue_token.is_empty() {
            match (options.resource_version.as_str(), revision(&options.resource_version).map_err(bad)?) {
                ("", _) => At::Newest,
                ("0", _) => {
                    // kube-apiserver serves this list from its watch cache, which ignores the limit.
                    options.limit = 0;
                    At::Newest
                }
                (_, wanted) if options.exact == Some(true) => At::Exact(wanted),
                (_, wanted) if options.exact.is_none() && options.limit > 0 => At::Exact(wanted),
                (_, wanted) => At::NotOlderThan(wanted),
            }
        } else {
            if !matches!(options.resource_version.as_str(), "" | "0") {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let (start, at) = decode_token(&options.continue_token)
                .map_err(|error| Status::bad_request(format!("invalid continue token: {error}")))?;
            options.continue_token = start;
            at
        };
        self.list_with(call, &options, &selector, at).await
    }

    /// Lists the objects of a state. Only `limit` and `continue_token` of the options are used; the
    /// latter is decoded: the key after which the page starts, relative to the namespace of the call, or
    /// empty for the first page.
    pub(super) async fn list_with(
        &self,
        call: &Call,
        options: &ListOptions,
        selector: &Selector,
        at: At,
    ) -> Result<Response, Status> {
        let served = &call.served;
        let namespace = Some(call.target.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let prefix = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
        let start = &options.continue_token;
        let after = (!start.is_empty()).then(|| format!("{prefix}{start}"));
        let page = self.shared.store.list(&served.resource, namespace, after.as_deref(), at);
        let page = page.map_err(|error| match error {
            ReadError::Expired { .. } if !start.is_empty() => {
                Status::expired(EXPIRED_CONTINUE).with_continue(encode_token(-1, start))
            }
            ReadError::Expired { .. } => Status::expired(EXPIRED),
            ReadError::Future { requested, current } => Status::future(requested, current),
        })?;
        self.prepare(served, page.items.iter()).await?;
        let total = page.items.len();
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let mut chosen = Vec::with_capacity(total.min(limit));
        let (mut end, mut more) = (None, false);
        for version in &page.items {
            let object = served.view(version);
            if !selector.is_empty() && !selector.matches(object.value()) {
                continue;
            }
            if chosen.len() == limit {
                more = true;
                break;
            }
            chosen.push(object);
            end = Some(version.key().as_str());
        }
        let mut list = List {
            kind: Arc::clone(&served.kind),
            revision: page.revision,
            continue_token: String::new(),
            remaining: None,
            items: chosen,
        };
        if let (true, Some(end)) = (more, end) {
            let start = format!("{}\0", end.strip_prefix(&prefix).unwrap_or(end));
            list.continue_token = encode_token(i64::try_from(page.revision).unwrap_or(i64::MAX), &start);
            list.remaining = selector.is_empty().then(|| total - list.items.len());
        }
        Ok(Response::new(200, Content::List(list)))
    }

    pub(super) async fn watch(&self, call: &Call) -> Result<Response, Status> {
        let options = ListOptions::parse(&call.query, true)?;
        let served = Arc::clone(&call.served);
        let selector = Selector::parse(&served.kind, &call.query)?;
        let wanted = revision(&options.resource_version).map_err(Status::unclassified)?;
        let namespace = call.target.namespace.clone();
        let store = &self.shared.store;
        let default = || self.random(|random| random.u64(WATCH_SECONDS..2 * WATCH_SECONDS));
        let seconds = options.timeout_seconds.filter(|seconds| *seconds > 0).unwrap_or_else(default);
        let (initial, mark, watcher) = if options.send_initial_events == Some(true) {
            let listed = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
            let (listing, watcher) = store.list_and_watch(&served.resource, listed);
            if wanted > listing.revision {
                return Err(Status::future(wanted, listing.revision));
            }
            (listing.items, options.bookmarks.then_some(listing.revision), watcher)
        } else {
            let from = if wanted == 0 { store.revision() } else { wanted };
            match store.watch(&served.resource, from) {
                Ok(watcher) => (Vec::new(), None, watcher),
                Err(
                    ReadError::Expired { requested, floor } | ReadError::Future { requested, current: floor },
                ) => {
                    let status = Status::expired(format!("too old resource version: {requested} ({floor})"));
                    let watch = Watch::failed(Arc::clone(&served.kind), status);
                    return Ok(Response::new(200, Content::Watch(watch)));
                }
            }
        };
        self.prepare(&served, initial.iter()).await?;
        let kind = Arc::clone(&served.kind);
        let watch = Watch::new(Start {
            kind,
            converter: self.converter(&served),
            view: Arc::new(move |version| served.view(version)),
            selector,
            namespace,
            watcher,
            initial,
            mark,
            bookmarks: options.bookmarks,
            timeout: Duration::from_secs(seconds),
        });
        Ok(Response::new(200, Content::Watch(watch)))
    }
}

/// Encodes a token that continues a list after a key; a negative revision selects the newest state.
fn encode_token(revision: i64, start: &str) -> String {
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string())
}

/// Go ignores bits after the last whole byte.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    base64::engine::general_purpose::NO_PAD.with_decode_allow_trailing_bits(true),
);

fn decode_token(token: &str) -> Result<(String, At), String> {
    const INVALID: &str = "continue key is not valid";
    let bytes = LENIENT.decode(token).map_err(|error| {
        let at = match error {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => at,
            _ => token.len().saturating_sub(1),
        };
        format!("{INVALID}: illegal base64 data at input byte {at}")
    })?;
    let token = json::decode(&bytes).map_err(|error| format!("{INVALID}: {error}"))?.value;
    if !token.is_object() && !token.is_null() {
        let found = go::json_type(&token);
        return Err(format!(
            "{INVALID}: json: cannot unmarshal {found} into Go value of type storage.continueToken"
        ));
    }
    for (field, wanted) in [("v", "string"), ("rv", "int64"), ("start", "string")] {
        let value = token.get(field).unwrap_or(&Value::Null);
        let fits = if wanted == "int64" { value.is_i64() } else { value.is_string() };
        if !fits && !value.is_null() {
            let found = go::json_type(value);
            return Err(format!(
                "{INVALID}: json: cannot unmarshal {found} into Go struct field continueToken.{field} of \
                 type {wanted}"
            ));
        }
    }
    let text = |field: &str| token.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("v") != "meta.k8s.io/v1" {
        return Err(format!("{INVALID}: server does not recognize this encoded version {}", text("v")));
    }
    let start = text("start");
    let revision = token.get("rv").and_then(Value::as_i64).unwrap_or(0);
    match revision {
        0 => Err(format!("{INVALID}: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
        _ if start.is_empty() => Err(format!("{INVALID}: encoded start key empty (version meta.k8s.io/v1)")),
        _ if start.split('/').any(|part| matches!(part, "" | "." | "..")) => {
            Err(format!("{INVALID}: {start}"))
        }
        ..0 => Ok((start.to_owned(), At::Newest)),
        revision => Ok((start.to_owned(), At::Exact(revision.unsigned_abs()))),
    }
}
