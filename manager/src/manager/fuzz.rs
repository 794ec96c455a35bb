//! A fuzz target: every request to the servers of a manager is answered with a legal status, within bounds.

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
use crate::metrics::{Answers, Registry};
use crate::serve::{Limits, fuzz};

/// Most bytes of one answer; the pages here are about empty lists.
const LONGEST_ANSWER: usize = 64 * 1024;
/// Statuses that a request may be answered with.
const LEGAL: [u16; 12] = [200, 400, 401, 403, 404, 405, 408, 411, 413, 415, 431, 503];
/// What a probe is answered with whose checks fail; elsewhere it is a defect of ours.
const UNHEALTHY: u16 = 500;

struct Servers {
    runtime: Runtime,
    /// Probes, metrics, debug pages, and those behind a token.
    routers: [Router; 4],
}

thread_local! {
    static SERVERS: Servers = Servers::new();
}

/// Sends the bytes behind the first one over one connection. The first byte chooses the server, and where the bytes
/// are cut into pieces.
pub fn requests(data: &[u8]) {
    let [first, bytes @ ..] = data else { return };
    let answers = SERVERS.with(|servers| {
        let router = servers.routers[usize::from(first & 3)].clone();
        servers.runtime.block_on(fuzz::converse(limits(), router, bytes, usize::from(first >> 2).max(1)))
    });
    // Between two answers stand at least a line and a blank one.
    let most = bytes.len() / 4 + 1;
    let statuses = statuses(&answers);
    assert!(memchr::memmem::find(&answers, b"panicked").is_none(), "a handler panicked");
    assert!(statuses.len() <= most, "{} answers", statuses.len());
    for status in statuses {
        let is_legal = LEGAL.contains(&status) || (status == UNHEALTHY && first.is_multiple_of(4));
        assert!(is_legal, "status {status}");
    }
}

fn limits() -> Limits {
    Limits { header_bytes: 8 * 1024, body_bytes: 4 * 1024, ..Limits::default() }
}

/// Reads the status of each answer; panics where an answer is none, or longer than it says.
fn statuses(mut answers: &[u8]) -> Vec<u16> {
    let mut found = Vec::new();
    while !answers.is_empty() {
        let end = memchr::memmem::find(answers, b"\r\n\r\n").expect("a head has an end") + 4;
        let (head, rest) = answers.split_at(end);
        let head = std::str::from_utf8(head).expect("a head is text");
        let status = head.strip_prefix("HTTP/1.").and_then(|line| line.get(2..5)?.parse().ok());
        found.push(status.expect("a head begins with a status"));
        let field = |name: &str| {
            let line = head
                .lines()
                .find(|line| line.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name)));
            line.and_then(|line| line.get(name.len()..)).map(str::trim)
        };
        assert_eq!(field("transfer-encoding:"), None, "answers have a length");
        let length: usize = field("content-length:").map_or(0, |length| length.parse().expect("a number"));
        assert!(length <= LONGEST_ANSWER, "{length} bytes");
        // An answer to HEAD says the length and has none.
        let is_head = rest.is_empty() || rest.starts_with(b"HTTP/1.");
        answers = if is_head { rest } else { rest.get(length..).expect("as long as it says") };
    }
    found
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
        [probes(&checks), scrapes(Answers::new(registry.clone())), inspect(), guarded]
    }
}

#[cfg(test)]
mod tests;
