//! Watches, and lists that are streamed as the beginning of one.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::request::Failure;
use super::{PATIENCE, Reflector, too_large};
use crate::cache::informer::frame::{Bookmark, Event, Line, Lines, read_status};
use crate::cache::object::meta::ResourceVersion;
use crate::cache::object::raw::Raw;
use crate::cache::object::scan::ScanError;
use crate::cache::store::object_store::{EventKind, ObjectStore};

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
    pub(super) async fn stream_list(&mut self) -> Result<(), Failure> {
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

    pub(super) async fn watch(&mut self, version: &ResourceVersion) -> Result<(), Failure> {
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
                tracing::debug!(kind = %self.store.kind, "the right to watch is denied, asking for another watch");
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
                let error = if whole { ScanError::Shape(error) } else { too_large(self.store.limits.frame) };
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
        let (raw, error) = (event.object.bytes, too_large(self.store.limits.frame));
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
}

/// Reads an ERROR event. It may come again at every version it is resumed from, such as for an object that was
/// deleted without being readable, so unlike a failing connection it counts as a refusal. A server that is busy has
/// nothing against the version.
fn in_stream(raw: &[u8]) -> Failure {
    let status = read_status(0, raw);
    match Failure::from_status(&status, None) {
        Failure::Broken(text) | Failure::Unanswered(text) if status.code != 429 => Failure::Refused(text),
        failure => failure,
    }
}

// === impl Stream ===

impl Stream {
    fn new(body: Body, store: &ObjectStore, phase: Phase, began: Instant, seconds: u64) -> Self {
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
