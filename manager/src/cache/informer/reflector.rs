//! Keeps one store equal to what the server has, by one list and one watch after another.
//!
//! A round is one connection: a list, or a watch from the last known version. After a clean end, an error or a
//! reset the next round resumes from that version; only the server's own word that the version is gone, or its
//! repeated refusal to go on from there, makes it list again.
//!
//! # Invariants
//! 1. `resume` moves only to versions whose event, bookmark or list the store has taken.
//! 2. Waits grow until the watch itself moves; lists and connections alone do not reset them.
//! 3. Everything between two awaits is complete: dropping [`Reflector::run`] at any of them leaves the store sound.

mod backoff;
mod request;
mod rights;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use kube::client::Body;
use tokio::time::sleep;

use self::backoff::Backoff;
use self::request::{Endpoint, Failure, next_bytes};
use self::rights::Rights;
use crate::cache::informer::pages::{Item, PageMeta, PageReader};
use crate::cache::object::meta::ResourceVersion;
use crate::cache::object::scan::ScanError;
use crate::cache::store::object_store::ObjectStore;

/// Items asked for per page: client-go's and kube's number.
const PAGE: u32 = 500;
/// Between looks for a kind that is not served or not readable; half as much again at most.
const ABSENT: Duration = Duration::from_secs(3);
/// Denials in a row of a kind that has been watched, before it is taken for gone: twelve to eighteen seconds, in which a
/// server that has just started reads the rules and definitions it is asked about.
const DENIALS: u32 = 5;
/// Denials in a row of a kind that was never listed, before it is taken for not there; until then it is looked for every
/// [`SOON`]. Two to three seconds, which everybody waits at the start who waits for all kinds to be tried.
const FIRST_DENIALS: u32 = 3;
/// Between the first looks for a kind; half as much again at most.
const SOON: Duration = Duration::from_secs(1);
/// Streamed lists in a row that may end early before paging takes over, and refusals at one version before a relist.
const PATIENCE: u32 = 3;

/// List and watch of one part of one store.
pub(in crate::cache) struct Reflector {
    endpoint: Endpoint,
    rights: Arc<Rights>,
    store: Arc<ObjectStore>,
    part: usize,
    /// Draws jitter only.
    random: fastrand::Rng,
    backoff: Backoff,
    /// Where the watch goes on; `None` asks for a list.
    resume: Option<ResourceVersion>,
    /// Learnt from the server's answers, kept for the reflector's life.
    listing: Listing,
    /// Streamed lists in a row that ended before their end mark.
    unfinished: u32,
    /// Refusals in a row without progress.
    refusals: u32,
    /// Answers in a row that the kind is not served or not readable.
    denials: u32,
    /// Whether it has worked before.
    worked: bool,
    /// Whether a list may follow an expiry at once: granted by progress, used up by the list.
    eager: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    /// A watch that begins with everything.
    Streamed,
    /// Pages of [`PAGE`].
    Paged,
    /// One answer with everything: a server that forgets its pages while they are read.
    Whole,
}

// === impl Reflector ===

impl Reflector {
    pub(in crate::cache) fn new(
        client: kube::Client,
        store: Arc<ObjectStore>,
        part: usize,
        random: fastrand::Rng,
    ) -> Self {
        let namespace = store.parts.get(part).and_then(|part| part.as_deref());
        let path = store.kind.collection_path(namespace);
        let rights = Rights::new(client.clone(), &store.kind, &store.scope, namespace).into();
        let endpoint = Endpoint::new(client, &path, &store.scope, store.projection());
        Self {
            endpoint,
            rights,
            store,
            part,
            random,
            backoff: Backoff::default(),
            resume: None,
            listing: Listing::Streamed,
            unfinished: 0,
            refusals: 0,
            denials: 0,
            worked: false,
            eager: true,
        }
    }

    /// Runs for ever; drop it to stop.
    pub(in crate::cache) async fn run(mut self) {
        loop {
            let outcome = self.round().await;
            let wait = match outcome {
                Ok(()) => Duration::ZERO,
                Err(failure) => self.after(failure),
            };
            if !wait.is_zero() {
                sleep(wait).await;
            }
        }
    }

    async fn round(&mut self) -> Result<(), Failure> {
        match (self.resume.clone(), self.listing) {
            (Some(version), _) => self.watch(&version).await,
            (None, Listing::Streamed) => self.stream_list().await,
            (None, Listing::Paged) => self.list(PAGE).await,
            (None, Listing::Whole) => self.list(0).await,
        }
    }

    /// Says how long to wait, and from where the next round goes on.
    fn after(&mut self, failure: Failure) -> Duration {
        let absent = self.is_believed_absent(&failure);
        let (wait, text) = match failure {
            Failure::Expired => {
                self.resume = None;
                let at_once = std::mem::take(&mut self.eager);
                let wait =
                    if at_once { Duration::ZERO } else { self.backoff.after_answer(self.random.f64()) };
                tracing::debug!(kind = %self.store.kind, "version expired, listing again");
                if at_once {
                    return wait;
                }
                (wait, "the server forgets versions faster than they are read".to_owned())
            }
            Failure::Unstreamed(reason) => {
                self.listing = Listing::Paged;
                tracing::debug!(kind = %self.store.kind, reason, "listing by pages");
                return Duration::ZERO;
            }
            Failure::Later(wait, text) => (wait.mul_f64(1.0 + self.random.f64() / 10.0), text),
            Failure::Missing(text) => {
                // What comes back under this name may be another collection.
                self.resume = None;
                (self.absent(), text)
            }
            Failure::Forbidden(text) => (self.absent(), text),
            Failure::Refused(text) => {
                self.refusals += 1;
                if self.refusals >= PATIENCE {
                    self.refusals = 0;
                    self.resume = None;
                }
                (self.backoff.after_answer(self.random.f64()), text)
            }
            Failure::Broken(text) => (self.backoff.after_answer(self.random.f64()), text),
            Failure::Unanswered(text) => (self.backoff.after_silence(self.random.f64()), text),
        };
        if self.store.counts.down(self.part, text.clone(), absent) {
            tracing::warn!(kind = %self.store.kind, error = text, retry_in = ?wait, "list or watch failed");
        }
        wait
    }

    /// Whether the server denies the kind, and is to be believed: one that has just started may deny everything until it
    /// has read the rules and definitions, and of two behind one address only one may have just started.
    fn is_believed_absent(&mut self, failure: &Failure) -> bool {
        let denied = matches!(failure, Failure::Missing(_) | Failure::Forbidden(_));
        self.denials = if denied { self.denials.saturating_add(1) } else { 0 };
        if denied {
            self.rights.borne_out();
        }
        denied && self.denials >= if self.worked { DENIALS } else { FIRST_DENIALS }
    }

    fn absent(&mut self) -> Duration {
        let undecided = !self.worked && self.denials < FIRST_DENIALS;
        let wait = if undecided { SOON } else { ABSENT };
        wait.mul_f64(1.0 + self.random.f64() / 2.0)
    }

    /// Reads all pages. Each is stored as it comes; what no page had is removed after the last.
    async fn list(&mut self, limit: u32) -> Result<(), Failure> {
        // Before the request, as for a streamed list.
        let epoch = self.store.begin_list();
        let mut version: Option<ResourceVersion> = None;
        let mut next: Option<String> = None;
        loop {
            self.store.room().await;
            let body = match self.endpoint.page(limit, next.as_deref()).await {
                Err(Failure::Expired) if next.is_some() => {
                    self.listing = Listing::Whole;
                    return Err(Failure::Expired);
                }
                page => page?,
            };
            let page = self.page(epoch, body).await?;
            // All pages show the state of the first.
            let version = version.get_or_insert_with(|| ResourceVersion::new(&page.resource_version));
            if let Some(token) = page.next() {
                next = Some(token.to_owned());
                continue;
            }
            self.store.end_list(self.part, epoch, version);
            self.resume = Some(version.clone());
            if self.listing == Listing::Whole {
                self.listing = Listing::Paged;
            }
            self.up();
            return Ok(());
        }
    }

    /// Takes the items of one page as they come.
    async fn page(&self, epoch: u64, mut body: Body) -> Result<PageMeta, Failure> {
        let limit = self.store.limits.frame;
        let mut page = PageReader::new(limit);
        while let Some(bytes) = next_bytes(&mut body).await? {
            let mut rest = &bytes[..];
            while let Some(item) = page.next(&mut rest) {
                match item {
                    Item::Whole(raw) => self.store.listed(self.part, epoch, &raw[..]),
                    Item::TooLong(raw) => self.store.refuse_listed(epoch, &raw, &too_large(limit)),
                }
                // After each: one piece of the answer, or all of it, may hold thousands.
                self.store.room().await;
            }
        }
        page.end().map_err(|error| Failure::Refused(format!("the list cannot be read: {error}")))
    }

    fn up(&mut self) {
        self.worked = true;
        self.denials = 0;
        if let Some(down) = self.store.counts.up(self.part) {
            tracing::info!(kind = %self.store.kind, ?down, "list and watch work again");
        }
    }
}

/// The size of what was not read to its end is not known.
fn too_large(limit: usize) -> ScanError {
    ScanError::TooLarge { size: limit.saturating_add(1), limit }
}
