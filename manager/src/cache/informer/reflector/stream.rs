//! Watches, and lists that are streamed as the beginning of a watch.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::request::Failure;
use super::{ATTEMPTS, Reflector, too_large};
use crate::cache::informer::Limited;
use crate::cache::informer::frame::{Bookmark, Event, Lines, read_status};
use crate::cache::object::{ResourceVersion, ScanError};
use crate::cache::store::{ObjectStore, Received};
use crate::key::Chain;

/// The range of the `timeoutSeconds` of a watch, drawn at random so that watches do not end together.
const WATCH_SECONDS: std::ops::RangeInclusive<u64> = 240..=300;
/// Time after `timeoutSeconds` at which the reflector closes a watch that the server has not ended. A proxy
/// in between may have dropped the connection without a reset.
const GRACE: Duration = Duration::from_secs(5);
/// Longest time that a server may send no byte within the initial events of a streamed list. A server that
/// ignores `sendInitialEvents` stays silent.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(15);
/// Duration from which a read of initial events of a watch counts as one that had to wait for the server.
const WAITED: Duration = Duration::from_micros(100);
/// Pause after a read of initial events of a watch that had to wait, so that more objects arrive before the
/// next read. A wake-up for each object would take a third of the list's processor time.
const GATHER: Duration = Duration::from_millis(1);
/// Age from which a watch without events counts as working.
const WORKING_AFTER: Duration = Duration::from_secs(1);
/// Age from which a watch without events counts as progress, so that the delays after failures begin short
/// again.
const PROGRESS_AFTER: Duration = Duration::from_secs(10);

/// One watch connection of a reflector, and its state.
struct Stream {
    body: Body,
    lines: Lines,
    /// The number (epoch) of the list that the initial events of the watch make up; `None` once they have
    /// ended.
    listing: Option<u64>,
    began: Instant,
    /// The moment at which the reflector closes the watch: `timeoutSeconds` and [`GRACE`] after `began`; the
    /// server should have ended the watch before.
    end: Instant,
    /// Whether the watch has proved to work, by an event, the end mark or its age.
    works: bool,
}

// === impl Reflector ===

impl Reflector {
    /// Lists the objects by the initial events of a watch, and then watches on the same connection.
    pub(super) async fn stream_list(&mut self) -> Result<(), Failure> {
        let seconds = self.random.u64(WATCH_SECONDS);
        let began = Instant::now();
        // Before the request, so that an own delete during the request counts as later than the list.
        let listing = Some(self.store.begin_list());
        let body = self.endpoint.streamed_list(seconds).await?;
        let outcome = self.read(Stream::new(body, &self.store, listing, began, seconds)).await;
        if self.resume.is_some() {
            self.unfinished = 0;
            return outcome;
        }
        self.unfinished += 1;
        if self.unfinished < ATTEMPTS {
            return outcome;
        }
        let reason = format!("{} streamed lists ended before their end mark", self.unfinished);
        Err(Failure::Unstreamed(reason))
    }

    /// Watches the changes after `version` until the connection ends.
    pub(super) async fn watch(&mut self, version: &ResourceVersion) -> Result<(), Failure> {
        let seconds = self.random.u64(WATCH_SECONDS);
        let began = Instant::now();
        let body = self.endpoint.watch(&version.to_string(), seconds).await?;
        self.store.counts.count(self.part, |part| part.watches += 1);
        self.read(Stream::new(body, &self.store, None, began, seconds)).await
    }

    /// Applies the events of a watch until its stream ends, or an access review denies the watch.
    async fn read(&mut self, mut stream: Stream) -> Result<(), Failure> {
        let denied = Arc::clone(&self.access).denied(self.random.fork());
        // Events first: the server sent them while the watch was allowed.
        let outcome = tokio::select! {
            biased;
            outcome = self.read_events(&mut stream) => outcome,
            () = denied => {
                tracing::debug!(kind = %self.store.kind, "access review denied the watch, opening another");
                Ok(())
            }
        };
        if stream.began.elapsed() >= PROGRESS_AFTER && self.resume.is_some() {
            self.progressed();
        }
        outcome
    }

    async fn read_events(&mut self, stream: &mut Stream) -> Result<(), Failure> {
        loop {
            self.store.room().await;
            // A server that sends initial events without pause must also end them before the watch ends.
            if stream.listing.is_some() && Instant::now() >= stream.end {
                return self.timed_out(stream);
            }
            let (asked, until) = (Instant::now(), stream.timeout());
            let Ok(frame) = timeout_at(until, stream.body.frame()).await else {
                self.timed_out(stream)?;
                continue;
            };
            if stream.listing.is_some() && asked.elapsed() >= WAITED {
                sleep(GATHER).await;
            }
            match frame {
                // One watch per second at most, even if the server ends each of them after some events.
                None if stream.works || stream.began.elapsed() >= WORKING_AFTER => {
                    sleep_until(stream.began + WORKING_AFTER).await;
                    return Ok(());
                }
                None => return Err(Failure::Broken("the server ended the watch at once".to_owned())),
                Some(Err(error)) => return Err(Failure::Broken(Chain(&error).to_string())),
                Some(Ok(frame)) => {
                    let mut bytes = frame.into_data().unwrap_or_default();
                    while let Some(line) = stream.lines.next(&mut bytes) {
                        self.apply_line(&line, stream)?;
                    }
                }
            }
        }
    }

    /// Handles a watch that was silent until [`Stream::timeout`]: the watch fails, or counts as working.
    fn timed_out(&mut self, stream: &mut Stream) -> Result<(), Failure> {
        if stream.listing.is_some() {
            let reason = "the server does not send initial events, or does not end them".to_owned();
            return Err(Failure::Unstreamed(reason));
        }
        if Instant::now() >= stream.end {
            return Err(Failure::Broken("the server did not end the watch at its timeout".to_owned()));
        }
        stream.works = true;
        self.up();
        Ok(())
    }

    fn apply_line(&mut self, line: &Limited, stream: &mut Stream) -> Result<(), Failure> {
        let (line, whole) = match line {
            Limited::Whole(line) => (line, true),
            Limited::TooLong(head) => (head, false),
        };
        tracing::trace!(kind = %self.store.kind, bytes = line.len(), "line of a watch");
        let event = match Event::read(line) {
            Ok(event) => event,
            Err(error) => {
                let error = if whole { ScanError::Shape(error) } else { too_large(self.store.limits.frame) };
                self.store.refuse(line, &error);
                return Ok(());
            }
        };
        let raw = event.object;
        let received = match event.event_type.as_ref() {
            "DELETED" => Received::Deleted,
            _ => stream.listing.map_or(Received::Changed, Received::Listed),
        };
        if !whole {
            // The beginning of the event names the object.
            self.store.refuse_object(self.part, received, raw.bytes, &too_large(self.store.limits.frame));
            return Ok(());
        }
        match event.event_type.as_ref() {
            "ADDED" | "MODIFIED" | "DELETED" => {
                let version = self.store.receive(self.part, received, raw);
                if let (None, Some(version)) = (stream.listing, version) {
                    self.advance(version, stream);
                }
            }
            "BOOKMARK" => self.bookmark(raw.bytes, stream),
            "ERROR" => return Err(error_event(raw.bytes)),
            other => {
                let found = format!("{other} event");
                self.store.refuse(raw.bytes, &ScanError::Kind { found, expected: "watch event".to_owned() });
            }
        }
        Ok(())
    }

    fn bookmark(&mut self, raw: &[u8], stream: &mut Stream) {
        let bookmark: Bookmark = match serde_json::from_slice(raw) {
            Ok(bookmark) => bookmark,
            Err(error) => return self.store.refuse(raw, &ScanError::Shape(error)),
        };
        if bookmark.metadata.resource_version.is_empty() {
            return self.store.refuse(raw, &ScanError::Missing("resourceVersion"));
        }
        let version = ResourceVersion::new(&bookmark.metadata.resource_version);
        match stream.listing {
            Some(epoch) if bookmark.ends_initial_events() => {
                self.store.end_list(self.part, epoch, &version);
                self.store.counts.count(self.part, |part| part.watches += 1);
                self.resume = Some(version);
                stream.listing = None;
                stream.works = true;
                self.up();
            }
            Some(_) => {}
            None => {
                self.store.bookmark(self.part, &version);
                self.advance(version, stream);
            }
        }
    }

    fn advance(&mut self, version: ResourceVersion, stream: &mut Stream) {
        if !stream.works {
            stream.works = true;
            self.up();
        }
        // A version that is not newer proves that the connection works, but is no progress.
        let is_repeated = |resume: &ResourceVersion| *resume == version || resume.is_newer_than(&version);
        if !self.resume.as_ref().is_some_and(is_repeated) {
            self.resume = Some(version);
            self.progressed();
        }
    }

    /// Resets the delays after failures and the count of refusals, because the watch has advanced or lasted.
    fn progressed(&mut self) {
        self.backoff.reset();
        self.refusals = 0;
        self.relist_at_once = true;
    }
}

/// Classifies an ERROR event of a watch as a failure. The same error may follow each time the watch resumes
/// from this version, for example if an object was deleted that the server could not read, so unlike a broken
/// connection it counts as a refusal. Only a busy server (429) does not object to the version.
fn error_event(raw: &[u8]) -> Failure {
    let status = read_status(0, raw);
    match Failure::from_status(&status, None) {
        Failure::Broken(text) | Failure::Unanswered(text) if status.code != 429 => Failure::Refused(text),
        failure => failure,
    }
}

// === impl Stream ===

impl Stream {
    fn new(body: Body, store: &ObjectStore, listing: Option<u64>, began: Instant, seconds: u64) -> Self {
        let end = began + Duration::from_secs(seconds) + GRACE;
        // The event around the object has a few dozen bytes.
        let lines = Lines::new(store.limits.frame.saturating_add(64));
        Self { body, lines, listing, began, end, works: false }
    }

    /// Returns the moment until which the next read of the watch waits for bytes.
    fn timeout(&self) -> Instant {
        match self.listing {
            Some(_) => Instant::now() + INITIAL_TIMEOUT,
            None if !self.works => self.end.min(self.began + WORKING_AFTER),
            None => self.end,
        }
    }
}
