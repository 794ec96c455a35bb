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

#[cfg(test)]
mod backlog;
mod backoff;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod model;
#[cfg(test)]
mod refusals;
mod request;
mod rights;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use self::backoff::Backoff;
use self::request::{Endpoint, Failure, next_bytes};
use self::rights::Rights;
use super::frame::{Bookmark, Event, Line, Lines, Raw, Status};
use super::meta::{ResourceVersion, ScanError};
use super::pages::{Item, PageMeta, PageReader};
use super::store::{Core, EventKind};

/// Items asked for per page: client-go's and kube's number.
const PAGE: u32 = 500;
/// Seconds a watch is asked to last; the exact time is drawn, so that watches do not end together.
const WATCH_SECONDS: std::ops::RangeInclusive<u64> = 240..=300;
/// How long after its own end a watch is given up: something in between swallows the bytes.
const OVERTIME: Duration = Duration::from_secs(5);
/// Longest silence within the initial events. A server that ignores the question goes silent here.
const INITIAL_SILENCE: Duration = Duration::from_secs(15);
/// Within the initial events: what took longer to come had not been sent yet.
const AT_HAND: Duration = Duration::from_micros(100);
/// Within the initial events: how long a server that is slower than we are gets to send more. Being woken for each object
/// would cost a third of the list's processor time.
const GATHERING: Duration = Duration::from_millis(1);
/// A watch that has lived so long works, although nothing happened.
const SETTLED: Duration = Duration::from_secs(1);
/// A watch that has lived so long is progress, although nothing happened.
const LASTING: Duration = Duration::from_secs(10);
/// Between looks for a kind that is not served or not readable; half as much again at most.
const ABSENT: Duration = Duration::from_secs(3);
/// Denials in a row of a kind that has been watched, before it is taken for gone: twelve to eighteen seconds, in which a
/// server that has just started reads the rules and definitions it is asked about.
const DENIALS: u32 = 5;
/// Streamed lists in a row that may end early before paging takes over, and refusals at one version before a relist.
const PATIENCE: u32 = 3;

/// List and watch of one part of one store.
#[derive(Debug)]
pub(super) struct Reflector {
    endpoint: Endpoint,
    rights: Arc<Rights>,
    store: Arc<Core>,
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

/// What the events of a stream mean.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// They are the present state, marked with the list's epoch.
    Initial(u64),
    /// They are changes.
    Live,
}

/// One watch connection.
struct Stream {
    body: Body,
    lines: Lines,
    phase: Phase,
    began: Instant,
    /// When the server must have ended it.
    deadline: Instant,
    /// Whether it is known to work.
    settled: bool,
}

// === impl Reflector ===

impl Reflector {
    pub(super) fn new(client: kube::Client, store: Arc<Core>, part: usize, random: fastrand::Rng) -> Self {
        let namespace = store.parts().get(part).and_then(|part| part.as_deref());
        let path = store.kind().collection_path(namespace);
        let rights = Rights::new(client.clone(), store.kind(), store.scope(), namespace).into();
        let endpoint = Endpoint::new(client, &path, store.scope(), store.projection());
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
    pub(super) async fn run(mut self) {
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
                tracing::debug!(kind = %self.store.kind(), "version expired, listing again");
                if at_once {
                    return wait;
                }
                (wait, "the server forgets versions faster than they are read".to_owned())
            }
            Failure::Unstreamed(reason) => {
                self.listing = Listing::Paged;
                tracing::debug!(kind = %self.store.kind(), reason, "listing by pages");
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
            tracing::warn!(kind = %self.store.kind(), error = text, retry_in = ?wait, "list or watch failed");
        }
        wait
    }

    /// Whether the server denies the kind, and is to be believed: one that has just started may deny everything until it
    /// has read the rules and definitions, and of two behind one address only one may have just started.
    fn is_believed_absent(&mut self, failure: &Failure) -> bool {
        let denied = matches!(failure, Failure::Missing(_) | Failure::Forbidden(_));
        self.denials = if denied { self.denials.saturating_add(1) } else { 0 };
        denied && (!self.worked || self.denials >= DENIALS)
    }

    fn absent(&mut self) -> Duration {
        ABSENT.mul_f64(1.0 + self.random.f64() / 2.0)
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
        let limit = self.store.object_limit();
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

    async fn stream_list(&mut self) -> Result<(), Failure> {
        let seconds = self.random.u64(WATCH_SECONDS);
        let began = Instant::now();
        // Before the request: what is deleted while the answer is on its way was deleted after the list had begun.
        let phase = Phase::Initial(self.store.begin_list());
        let body = self.endpoint.streamed_list(seconds).await?;
        let outcome = self.follow(Stream::new(body, &self.store, phase, began, seconds)).await;
        if self.resume.is_some() {
            self.unfinished = 0;
            return outcome;
        }
        self.unfinished += 1;
        if self.unfinished < PATIENCE {
            return outcome;
        }
        let reason = format!("{} streamed lists ended before their end mark", self.unfinished);
        Err(Failure::Unstreamed(reason))
    }

    async fn watch(&mut self, version: &ResourceVersion) -> Result<(), Failure> {
        let seconds = self.random.u64(WATCH_SECONDS);
        let began = Instant::now();
        let body = self.endpoint.watch(&version.to_string(), seconds).await?;
        self.store.counts.watching(self.part);
        self.follow(Stream::new(body, &self.store, Phase::Live, began, seconds)).await
    }

    /// Takes events until the stream ends, or the right to it.
    async fn follow(&mut self, mut stream: Stream) -> Result<(), Failure> {
        let lost = Arc::clone(&self.rights).lost(self.random.fork());
        // What has come first: it was sent while it was allowed.
        let outcome = tokio::select! {
            biased;
            outcome = self.take_all(&mut stream) => outcome,
            () = lost => {
                tracing::debug!(kind = %self.store.kind(), "the right to watch is denied, asking for another watch");
                Ok(())
            }
        };
        if stream.began.elapsed() >= LASTING && self.resume.is_some() {
            self.progressed();
        }
        outcome
    }

    async fn take_all(&mut self, stream: &mut Stream) -> Result<(), Failure> {
        loop {
            while let Some(line) = stream.lines.next() {
                self.take(&line, stream)?;
            }
            self.store.room().await;
            // However much it sends: the end mark is due before the stream's own end.
            if matches!(stream.phase, Phase::Initial(_)) && Instant::now() >= stream.deadline {
                return self.silence(stream);
            }
            let (asked, until) = (Instant::now(), stream.patience());
            let Ok(frame) = timeout_at(until, stream.body.frame()).await else {
                self.silence(stream)?;
                continue;
            };
            if matches!(stream.phase, Phase::Initial(_)) && asked.elapsed() >= AT_HAND {
                sleep(GATHERING).await;
            }
            match frame {
                // Paced even after events: a server that cuts every watch short is not asked in a loop.
                None if stream.settled || stream.began.elapsed() >= SETTLED => {
                    sleep_until(stream.began + SETTLED).await;
                    return Ok(());
                }
                None => return Err(Failure::Broken("the server ended the watch at once".to_owned())),
                Some(Err(error)) => return Err(Failure::broken(&error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        stream.lines.push(data);
                    }
                }
            }
        }
    }

    /// Judges a stream that has been silent for as long as [`Stream::patience`] allows.
    fn silence(&mut self, stream: &mut Stream) -> Result<(), Failure> {
        if let Phase::Initial(_) = stream.phase {
            let reason = "the server does not send initial events, or does not end them".to_owned();
            return Err(Failure::Unstreamed(reason));
        }
        if Instant::now() >= stream.deadline {
            return Err(Failure::Broken("the watch went silent: it outlived its own end".to_owned()));
        }
        stream.settled = true;
        self.up();
        Ok(())
    }

    fn take(&mut self, line: &Line, stream: &mut Stream) -> Result<(), Failure> {
        let (line, whole) = match line {
            Line::Whole(line) => (line, true),
            Line::TooLong(head) => (head, false),
        };
        let event = match Event::read(line) {
            Ok(event) if whole => event,
            Ok(event) => {
                self.too_long(&event, stream);
                return Ok(());
            }
            Err(error) => {
                let error =
                    if whole { ScanError::Shape(error) } else { too_large(self.store.object_limit()) };
                self.store.refuse(line, &error);
                return Ok(());
            }
        };
        let raw = event.object;
        match (event.kind.as_ref(), stream.phase) {
            ("ADDED" | "MODIFIED", Phase::Initial(epoch)) => self.store.listed(self.part, epoch, raw),
            ("ADDED" | "MODIFIED", Phase::Live) => self.moved(EventKind::Changed, raw, stream),
            ("DELETED", _) => self.moved(EventKind::Deleted, raw, stream),
            ("BOOKMARK", phase) => self.bookmark(raw.bytes, phase, stream),
            ("ERROR", _) => return Err(in_stream(raw.bytes)),
            (other, _) => {
                let found = format!("{other} event");
                self.store.refuse(raw.bytes, &ScanError::Kind { found, expected: "watch event".to_owned() });
            }
        }
        Ok(())
    }

    /// Takes what the beginning of an event tells whose object is longer than allowed.
    fn too_long(&self, event: &Event<'_>, stream: &Stream) {
        let (raw, error) = (event.object.bytes, too_large(self.store.object_limit()));
        match (event.kind.as_ref(), stream.phase) {
            ("DELETED", _) => self.store.refuse_event(self.part, EventKind::Deleted, raw, &error),
            (_, Phase::Initial(epoch)) => self.store.refuse_listed(epoch, raw, &error),
            (_, Phase::Live) => self.store.refuse_event(self.part, EventKind::Changed, raw, &error),
        }
    }

    fn moved(&mut self, kind: EventKind, raw: Raw<'_>, stream: &mut Stream) {
        let version = self.store.event(self.part, kind, raw);
        if let (Phase::Live, Some(version)) = (stream.phase, version) {
            self.advance(version, stream);
        }
    }

    fn bookmark(&mut self, raw: &[u8], phase: Phase, stream: &mut Stream) {
        let bookmark: Bookmark = match serde_json::from_slice(raw) {
            Ok(bookmark) => bookmark,
            Err(error) => return self.store.refuse(raw, &ScanError::Shape(error)),
        };
        if bookmark.metadata.resource_version.is_empty() {
            return self.store.refuse(raw, &ScanError::Missing("resourceVersion"));
        }
        let version = ResourceVersion::new(&bookmark.metadata.resource_version);
        match phase {
            Phase::Initial(epoch) if bookmark.ends_initial_events() => {
                self.store.end_list(self.part, epoch, &version);
                self.store.counts.watching(self.part);
                self.resume = Some(version);
                stream.phase = Phase::Live;
                stream.settled = true;
                self.up();
            }
            Phase::Initial(_) => {}
            Phase::Live => {
                self.store.bookmark(self.part, &version);
                self.advance(version, stream);
            }
        }
    }

    fn advance(&mut self, version: ResourceVersion, stream: &mut Stream) {
        if !stream.settled {
            stream.settled = true;
            self.up();
        }
        // What was had before proves that the connection works and not that anything goes on.
        let again = |resume: &ResourceVersion| *resume == version || resume.is_newer_than(&version);
        if !self.resume.as_ref().is_some_and(again) {
            self.resume = Some(version);
            self.progressed();
        }
    }

    fn progressed(&mut self) {
        self.backoff.reset();
        self.refusals = 0;
        self.eager = true;
    }

    fn up(&mut self) {
        self.worked = true;
        self.denials = 0;
        if let Some(down) = self.store.counts.up(self.part) {
            tracing::info!(kind = %self.store.kind(), ?down, "list and watch work again");
        }
    }
}

/// Reads an ERROR event. It may come again at every version it is resumed from, such as for an object that was
/// deleted without being readable, so unlike a failing connection it counts as a refusal. A server that is busy has
/// nothing against the version.
fn in_stream(raw: &[u8]) -> Failure {
    let status = Status::read(0, raw);
    match Failure::from_status(&status, None) {
        Failure::Broken(text) | Failure::Unanswered(text) if status.code != 429 => Failure::Refused(text),
        failure => failure,
    }
}

/// The size of what was not read to its end is not known.
fn too_large(limit: usize) -> ScanError {
    ScanError::TooLarge { size: limit.saturating_add(1), limit }
}

// === impl Stream ===

impl Stream {
    fn new(body: Body, store: &Core, phase: Phase, began: Instant, seconds: u64) -> Self {
        let deadline = began + Duration::from_secs(seconds) + OVERTIME;
        Self { body, lines: Lines::new(store.line_limit()), phase, began, deadline, settled: false }
    }

    /// Until when silence says nothing.
    fn patience(&self) -> Instant {
        match self.phase {
            Phase::Initial(_) => Instant::now() + INITIAL_SILENCE,
            Phase::Live if !self.settled => self.deadline.min(self.began + SETTLED),
            Phase::Live => self.deadline,
        }
    }
}
