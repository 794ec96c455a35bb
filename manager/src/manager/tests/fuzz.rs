//! A fuzz target: every request to the servers of a manager is answered, within bounds.

#![expect(clippy::missing_panics_doc, clippy::expect_used, reason = "a finding is a panic")]

use std::convert::Infallible;

use axum::Router;
use tokio::runtime::Runtime;

use super::guard::{TokenFile, token_required};
use super::serving::{probes, scrapes};
use crate::cache::{Cache, CacheSettings};
use crate::controller::{Directory, Term};
use crate::health::{Checks, Group};
use crate::inspect::{Inspect, Leader, PageError};
use crate::key::Fence;
use crate::metrics::{Registry, ScrapeCache};
use crate::serve::{Limits, fuzz};
#[cfg(test)]
use crate::{cache, config};

#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;

/// Most bytes of one answer; the pages here are about empty lists.
const LONGEST_ANSWER: usize = 64 * 1024;

struct Servers {
    runtime: Runtime,
    /// Probes, metrics, debug pages, and those behind a token.
    routers: [Router; 4],
}

thread_local! {
    static SERVERS: Servers = Servers::new();
}

/// Sends the bytes behind the first one over one connection. The first byte chooses the server, and where the
/// bytes are cut into pieces.
pub fn requests(data: &[u8]) {
    let [first, bytes @ ..] = data else { return };
    let answers = SERVERS.with(|servers| {
        let router = servers.routers[usize::from(first & 3)].clone();
        let limits = Limits { header_bytes: 8 * 1024, body_bytes: 4 * 1024, ..Limits::default() };
        servers.runtime.block_on(fuzz::converse(limits, router, bytes, usize::from(first >> 2).max(1)))
    });
    assert!(answers.is_empty() || answers.starts_with(b"HTTP/1."), "no answer");
    assert!(memchr::memmem::find(&answers, b"panicked").is_none(), "a handler panicked");
    // Between two answers stand at least a line and a blank one.
    let most = bytes.len() / 4 + 1;
    assert!(answers.len() <= most * LONGEST_ANSWER, "{} bytes", answers.len());
}

// === impl Servers ===

impl Servers {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let routers = runtime.block_on(async { Self::routers() });
        Self { runtime, routers }
    }

    fn routers() -> [Router; 4] {
        let checks = Checks::new();
        checks.add(Group::Ready, "cache-Pod", || Err("not listed".to_owned()));
        checks.add(Group::Ready, "a b%/?", || Ok(()));
        let registry = Registry::new();
        let unanswered = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let cache = Cache::new(CacheSettings::default(), kube::Client::new(unanswered, "default"), &registry);
        let leader = || Leader {
            identity: "me".to_owned(),
            namespace: None,
            election: None,
            term: Term::begun(),
            fence: Fence::open(),
        };
        let inspect = || {
            let mut inspect = Inspect::new(Directory::default(), cache.clone(), leader());
            inspect.set_log_level = Some(Box::new(|_| Ok(())));
            let page = |rest: &[&str]| match rest {
                [] => Err(PageError::BadRequest("name one".to_owned())),
                [name] => Ok(serde_json::json!({"name": name})),
                _ => Err(PageError::NotFound(rest.join("/"))),
            };
            assert!(inspect.own.add("prices", page));
            inspect.router()
        };
        let guarded = token_required(inspect(), TokenFile::holding("secret"));
        [probes(&checks), scrapes(ScrapeCache::new(registry.clone())), inspect(), guarded]
    }
}

#[test]
fn no_input_of_the_corpora_is_a_finding() {
    replay::replay("watch", cache::fuzz::watch);
    replay::replay("packed", cache::fuzz::packed);
    replay::replay("config", config::fuzz::configuration);
    replay::replay("requests", requests);
}
