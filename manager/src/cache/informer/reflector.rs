//! Keeps one store equal to the server, by one list or watch after another.
//!
//! A round is one connection: a list, or a watch from the last known version. After a clean end, an error or
//! a reset the next round resumes from that version. The reflector lists again only if the server answers
//! that the version has expired or the kind is not served, or repeatedly refuses to resume from the version.
//!
//! # Invariants
//! 1. `resume` advances only to versions whose event, bookmark or list the store has applied.
//! 2. Delays grow until the watch itself advances; a list or a new connection alone does not reset them.
//! 3. The store is consistent at every await, so [`Reflector::run`] may be dropped at any of them.

mod access;
mod backoff;
mod request;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use kube::client::Body;
use tokio::time::sleep;

use self::access::AccessCheck;
use self::backoff::Backoff;
use self::request::{Endpoint, Failure, next_bytes};
use crate::cache::informer::Limited;
use crate::cache::informer::pages::{PageMeta, PageReader};
use crate::cache::object::{ResourceVersion, ScanError};
use crate::cache::store::{ObjectStore, Received};

/// Number of items requested per page of a list, as in client-go and kube.
const PAGE_SIZE: u32 = 500;
/// Delay before a kind that is not served or not readable is requested again. Jitter adds up to half of it.
const ABSENT_RETRY: Duration = Duration::from_secs(3);
/// Number of consecutive 404 or 403 responses after which a kind that has been watched counts as absent. They
/// take twelve to eighteen seconds, in which a server that has just started loads its authorization rules and
/// CRDs.
const DENIALS: u32 = 5;
/// Number of consecutive 404 or 403 responses after which a kind that was never listed counts as absent. With
/// [`FIRST_RETRY`] between the requests, an absent kind delays the start by two to three seconds.
const FIRST_DENIALS: u32 = 3;
/// Delay between the first requests for a kind that was never listed. Jitter adds up to half of it.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Number of consecutive streamed lists that end early before the reflector changes to pages, and of
/// consecutive refusals of one version before it lists again.
const ATTEMPTS: u32 = 3;

/// The reflector of one part of a store, that is, of all namespaces or of one: it lists and watches the
/// objects.
pub(crate) struct Reflector {
    endpoint: Endpoint,
    access: Arc<AccessCheck>,
    store: Arc<ObjectStore>,
    /// Index of the reflector's namespace in the store's `parts`.
    part: usize,
    /// Source of random numbers, for the jitter of delays and timeouts.
    random: fastrand::Rng,
    backoff: Backoff,
    /// Version from which the next watch of the reflector resumes; `None` if it lists next.
    resume: Option<ResourceVersion>,
    /// How the reflector lists, as learnt from the server's responses.
    listing: Listing,
    /// Number of consecutive streamed lists that ended before their end mark.
    unfinished: u32,
    /// Number of consecutive refused requests without progress of the watch.
    refusals: u32,
    /// Number of consecutive 404 or 403 responses to lists and watches of the kind.
    denials: u32,
    /// Whether a list or watch of this reflector has worked before.
    worked: bool,
    /// Whether the reflector may list without a delay after its version has expired. Set by progress, cleared
    /// by that list.
    relist_at_once: bool,
}

/// How a reflector lists the objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    /// The reflector lists by a watch that begins with all objects.
    Streamed,
    /// The reflector lists by pages of [`PAGE_SIZE`].
    Paged,
    /// The reflector lists by one response with all objects, because the server lets continue tokens expire
    /// while pages are read.
    Whole,
}

// === impl Reflector ===

impl Reflector {
    pub(crate) fn new(
        client: kube::Client,
        store: Arc<ObjectStore>,
        part: usize,
        random: fastrand::Rng,
    ) -> Self {
        let namespace = store.parts.get(part).and_then(|part| part.as_deref());
        let path = store.kind.collection_path(namespace);
        let access = AccessCheck::new(client.clone(), &store.kind, &store.scope, namespace).into();
        let endpoint = Endpoint::new(client, &path, &store.scope, store.projection());
        Self {
            endpoint,
            access,
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
            relist_at_once: true,
        }
    }

    /// Lists and watches for ever, round after round; drop the future to stop it.
    pub(crate) async fn run(mut self) {
        loop {
            let Err(failure) = self.round().await else { continue };
            let delay = self.delay_after(failure);
            if !delay.is_zero() {
                sleep(delay).await;
            }
        }
    }

    async fn round(&mut self) -> Result<(), Failure> {
        match (self.resume.clone(), self.listing) {
            (Some(version), _) => self.watch(&version).await,
            (None, Listing::Streamed) => self.stream_list().await,
            (None, Listing::Paged) => self.list(PAGE_SIZE).await,
            (None, Listing::Whole) => self.list(0).await,
        }
    }

    /// Reports a failed list or watch, decides from where the next one resumes, and returns the delay before
    /// it.
    fn delay_after(&mut self, failure: Failure) -> Duration {
        let absent = self.counts_as_absent(&failure);
        let (delay, text) = match failure {
            Failure::Expired => {
                self.resume = None;
                tracing::debug!(kind = %self.store.kind, "version expired, listing again");
                if std::mem::take(&mut self.relist_at_once) {
                    return Duration::ZERO;
                }
                let text = "resource versions expire before the watch can resume from them".to_owned();
                (self.backoff.after_error(self.random.f64()), text)
            }
            Failure::Unstreamed(reason) => {
                self.listing = Listing::Paged;
                tracing::debug!(kind = %self.store.kind, reason, "listing by pages");
                return Duration::ZERO;
            }
            Failure::RetryAfter(delay, text) => (delay.mul_f64(1.0 + self.random.f64() / 10.0), text),
            Failure::NotFound(text) => {
                // A kind that comes back is a new collection; only a list finds which objects are gone.
                self.resume = None;
                (self.denial_delay(), text)
            }
            Failure::Forbidden(text) => (self.denial_delay(), text),
            Failure::Refused(text) => {
                self.refusals += 1;
                if self.refusals >= ATTEMPTS {
                    self.refusals = 0;
                    self.resume = None;
                }
                (self.backoff.after_error(self.random.f64()), text)
            }
            Failure::Broken(text) => (self.backoff.after_error(self.random.f64()), text),
            Failure::Unanswered(text) => (self.backoff.after_no_response(self.random.f64()), text),
        };
        if self.store.counts.down(self.part, text.clone(), absent) {
            tracing::warn!(kind = %self.store.kind, error = text, retry_in = ?delay, "list or watch failed");
        }
        delay
    }

    /// Counts consecutive denials (404 or 403) and returns whether they are enough for the kind to count as
    /// absent. A server that has just started may deny every request until it has loaded its authorization
    /// rules and CRDs, and of two servers behind one address only one may have just started.
    fn counts_as_absent(&mut self, failure: &Failure) -> bool {
        let denied = matches!(failure, Failure::NotFound(_) | Failure::Forbidden(_));
        self.denials = if denied { self.denials.saturating_add(1) } else { 0 };
        if denied {
            self.access.confirm_denial();
        }
        denied && self.denials >= if self.worked { DENIALS } else { FIRST_DENIALS }
    }

    fn denial_delay(&mut self) -> Duration {
        let is_first = !self.worked && self.denials < FIRST_DENIALS;
        let delay = if is_first { FIRST_RETRY } else { ABSENT_RETRY };
        delay.mul_f64(1.0 + self.random.f64() / 2.0)
    }

    /// Lists the objects by pages of `limit` items; 0 = one page with all. Each item is stored as it arrives,
    /// and after the last page the objects that no page had are removed.
    async fn list(&mut self, limit: u32) -> Result<(), Failure> {
        // Before the request, as in a streamed list.
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
            // All pages have the version of the first.
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

    /// Stores the items of one page of a list as they arrive, and returns the metadata of the list.
    async fn page(&self, epoch: u64, mut body: Body) -> Result<PageMeta, Failure> {
        let limit = self.store.limits.frame;
        let mut page = PageReader::new(limit);
        while let Some(bytes) = next_bytes(&mut body).await? {
            let mut rest = &bytes[..];
            while let Some(item) = page.next(&mut rest) {
                let listed = Received::Listed(epoch);
                match item {
                    Limited::Whole(raw) => {
                        self.store.receive(self.part, listed, &raw[..]);
                    }
                    Limited::TooLong(raw) => {
                        self.store.refuse_object(self.part, listed, &raw, &too_large(limit));
                    }
                }
                // After each item, since one chunk of the response may hold thousands.
                self.store.room().await;
            }
        }
        page.end().map_err(|error| Failure::Refused(format!("the list cannot be read: {error}")))
    }

    /// Records that a list or a watch of this reflector works, and logs the end of an outage.
    fn up(&mut self) {
        self.worked = true;
        self.denials = 0;
        if let Some(down) = self.store.counts.up(self.part) {
            tracing::info!(kind = %self.store.kind, ?down, "list and watch work again");
        }
    }
}

/// Returns the error for an object that is longer than the limit. Its size is not known, since the rest was
/// not read.
fn too_large(limit: usize) -> ScanError {
    ScanError::TooLarge { size: limit.saturating_add(1), limit }
}
