//! A watch: a stream of events about the objects that match a selector.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::Status;
use super::object;
use super::response::Object;
use super::selector::Selector;
use crate::kinds::Kind;
use crate::store::{Change, EventType, Version, Watcher};

/// The time between two bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// Time between the last bookmark and the end of a watch.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// The events of a watch.
pub struct Watch {
    kind: Arc<Kind>,
    /// Converts stored objects to the version of the request.
    view: View,
    converter: Option<Converter>,
    /// Changes whose objects are still to be converted.
    unconverted: Vec<Arc<Change>>,
    selector: Selector,
    /// The watched namespace; empty for all.
    namespace: String,
    /// Events to return before the watcher is read again.
    ready: VecDeque<WatchEvent>,
    /// The source of changes; `None` once the watch has ended.
    watcher: Option<Watcher>,
    /// `None` if the client did not request bookmarks.
    bookmarks: Option<Bookmarks>,
    end: Instant,
}

/// Converts a stored object to the version of a request.
pub(super) type View = Arc<dyn Fn(&Arc<Version>) -> Object + Send + Sync>;

/// Converts stored objects to the version of a request, for later reads by [`View`].
pub(super) type Converter =
    Arc<dyn Fn(Vec<Arc<Version>>) -> BoxFuture<'static, Result<(), Status>> + Send + Sync>;

/// One event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// An object was added, modified or deleted.
    Object(EventType, Object),
    /// The watch has reported every change up to a resourceVersion; carries the bookmark object.
    Bookmark(Arc<Value>),
    /// The watch has failed; the last event.
    Error(Status),
}

/// The state of a watch with bookmarks.
struct Bookmarks {
    /// The time of the next bookmark.
    next: Instant,
    /// The revision of the newest event or bookmark that was sent.
    sent: u64,
}

// === impl WatchEvent ===

impl WatchEvent {
    /// Returns the field `type` of the event, such as `ADDED`.
    pub fn event_type(&self) -> &'static str {
        match self {
            Self::Object(event, _) => event.as_str(),
            Self::Bookmark(_) => "BOOKMARK",
            Self::Error(_) => "ERROR",
        }
    }

    /// Returns the event as one line of JSON. All watches share the encodings of stored objects.
    pub fn frame(&self) -> Bytes {
        let line = |event: &str, object: &Value| {
            Bytes::from(format!("{{\"type\":\"{event}\",\"object\":{object}}}\n"))
        };
        match self {
            Self::Object(event, Object::Stored(version)) => version.frame(*event),
            Self::Object(event, Object::Made(value)) => line(event.as_str(), value),
            Self::Bookmark(value) => line("BOOKMARK", value),
            Self::Error(status) => line("ERROR", &status.to_value()),
        }
    }
}

/// The parameters of a new watch.
pub(super) struct Start {
    pub(super) kind: Arc<Kind>,
    pub(super) view: View,
    /// `None` if no webhook converts the objects.
    pub(super) converter: Option<Converter>,
    pub(super) selector: Selector,
    /// The namespace to watch; empty for all.
    pub(super) namespace: String,
    pub(super) watcher: Watcher,
    /// Objects to report as `ADDED` before the first change.
    pub(super) initial: Vec<Arc<Version>>,
    /// The revision of `initial`, to send a bookmark that marks the end of the initial events;
    /// `None` for no bookmark.
    pub(super) mark: Option<u64>,
    /// Whether to send bookmarks.
    pub(super) bookmarks: bool,
    /// The duration of the watch.
    pub(super) timeout: Duration,
}

// === impl Watch ===

impl Watch {
    pub(super) fn new(start: Start) -> Self {
        let now = Instant::now();
        let end = now + start.timeout;
        let selected = |version: &&Arc<Version>| start.selector.matches((start.view)(version).value());
        let mut ready: VecDeque<_> = start
            .initial
            .iter()
            .filter(selected)
            .map(|version| WatchEvent::Object(EventType::Added, (start.view)(version)))
            .collect();
        if let Some(revision) = start.mark {
            let end = json!({"k8s.io/initial-events-end": "true"});
            ready.push_back(bookmark(&start.kind, revision, Some(end)));
        }
        let sent = start.mark.unwrap_or(start.watcher.seen());
        let bookmarks = start.bookmarks.then(|| Bookmarks { next: next_bookmark(now, end), sent });
        Self {
            kind: start.kind,
            view: start.view,
            converter: start.converter,
            unconverted: Vec::new(),
            selector: start.selector,
            namespace: start.namespace,
            ready,
            watcher: Some(start.watcher),
            bookmarks,
            end,
        }
    }

    /// Returns a watch that reports an error and ends.
    pub(super) fn failed(kind: Arc<Kind>, status: Status) -> Self {
        Self {
            kind,
            view: Arc::new(|version| Object::Stored(Arc::clone(version))),
            converter: None,
            unconverted: Vec::new(),
            selector: Selector::default(),
            namespace: String::new(),
            ready: VecDeque::from([WatchEvent::Error(status)]),
            watcher: None,
            bookmarks: None,
            end: Instant::now(),
        }
    }

    /// Returns the kind of the objects.
    pub fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// Waits for events and returns at least one; `None` at the end of the stream.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event: the next call returns it.
    pub async fn next(&mut self) -> Option<Vec<WatchEvent>> {
        loop {
            if !self.ready.is_empty() {
                return Some(self.ready.drain(..).collect());
            }
            if !self.unconverted.is_empty() {
                self.convert().await;
                continue;
            }
            let watcher = self.watcher.as_mut()?;
            let bookmark_at =
                self.bookmarks.as_ref().map_or(self.end, |bookmarks| bookmarks.next.min(self.end));
            // Biased: steady changes must not delay a bookmark or the end of the watch.
            tokio::select! {
                biased;
                () = sleep_until(bookmark_at) => {
                    // A batch of pending changes comes first, and the bookmark covers it.
                    match watcher.ready() {
                        Ok(changes) => self.take(changes),
                        Err(_) => self.watcher = None,
                    }
                    self.tick();
                }
                changes = watcher.next() => match changes {
                    Some(changes) => self.take(changes),
                    None => self.watcher = None,
                },
            }
        }
    }

    /// Returns the events of all changes so far without waiting, possibly none. The changes of resources with
    /// a conversion webhook are left to [`next`](Self::next).
    pub fn ready(&mut self) -> Vec<WatchEvent> {
        while let Some(Ok(changes)) = self.watcher.as_mut().map(Watcher::ready)
            && !changes.is_empty()
        {
            self.take(changes);
        }
        self.ready.drain(..).collect()
    }

    /// Queues the events of changes, at once or after their conversion.
    fn take(&mut self, changes: Vec<Arc<Change>>) {
        if self.converter.is_some() { self.unconverted.extend(changes) } else { self.report(&changes) }
    }

    /// Converts the objects of changes and queues their events. A failure ends the watch.
    async fn convert(&mut self) {
        let Some(converter) = &self.converter else { return };
        let of = |change: &Arc<Change>| {
            let all = [change.previous(), change.current(), change.departed()];
            all.into_iter().flatten().map(Arc::clone).collect::<Vec<_>>()
        };
        let versions = self.unconverted.iter().flat_map(of);
        match converter(versions.collect()).await {
            Ok(()) => {
                let changes = std::mem::take(&mut self.unconverted);
                self.report(&changes);
            }
            Err(status) => {
                self.unconverted.clear();
                self.ready.push_back(WatchEvent::Error(status));
                self.watcher = None;
            }
        }
    }

    /// Queues the events of changes in the watched namespace.
    fn report(&mut self, changes: &[Arc<Change>]) {
        for change in changes {
            if !self.namespace.is_empty() && change.key().namespace() != self.namespace {
                continue;
            }
            if let Some(event) = self.event(change) {
                self.ready.push_back(event);
                if let Some(bookmarks) = &mut self.bookmarks {
                    bookmarks.sent = bookmarks.sent.max(change.revision());
                }
            }
        }
    }

    /// Returns the event of a change under the selector: `ADDED` for an object that starts to
    /// match, `DELETED` for an object that no longer matches, `None` for an object that matched
    /// neither before nor after.
    fn event(&self, change: &Change) -> Option<WatchEvent> {
        let view = |version| (self.view)(version);
        let everything = self.selector.is_empty();
        let matches = |object: &Object| everything || self.selector.matches(object.value());
        let before = change.previous().is_some_and(|version| everything || matches(&view(version)));
        let current = change.current().map(view).filter(matches);
        let event = |event, object| Some(WatchEvent::Object(event, object));
        match (before, current) {
            (true, Some(object)) => event(EventType::Modified, object),
            (false, Some(object)) => event(EventType::Added, object),
            (true, None) => event(EventType::Deleted, view(change.departed()?)),
            (false, None) => None,
        }
    }

    /// Ends the watch at its end time; otherwise queues a bookmark if its revision is newer
    /// than the last one sent.
    fn tick(&mut self) {
        let now = Instant::now();
        if now >= self.end {
            self.watcher = None;
            return;
        }
        let (Some(bookmarks), Some(watcher)) = (&mut self.bookmarks, &self.watcher) else { return };
        bookmarks.next = next_bookmark(now, self.end);
        if watcher.seen() > bookmarks.sent {
            bookmarks.sent = watcher.seen();
            let event = bookmark(&self.kind, bookmarks.sent, None);
            self.ready.push_back(event);
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("kind", &self.kind.kind)
            .field("watcher", &self.watcher)
            .finish_non_exhaustive()
    }
}

/// Returns the time of the next bookmark: one minute from now, or shortly before the end.
fn next_bookmark(now: Instant, end: Instant) -> Instant {
    let last = end.checked_sub(LAST_BOOKMARK).filter(|last| *last > now).unwrap_or(end);
    (now + BOOKMARK_INTERVAL).min(last)
}

/// Returns a bookmark event for a revision.
fn bookmark(kind: &Kind, revision: u64, annotations: Option<Value>) -> WatchEvent {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if let (Some(annotations), Some(metadata)) = (annotations, metadata.as_object_mut()) {
        metadata.insert("annotations".to_owned(), annotations);
    }
    // Of a built-in kind it is an object of the type, with the zero values that Go writes.
    let mut object = super::builtin::empty(kind);
    object::set_text(&mut object, "apiVersion", &kind.api_version());
    object::set_text(&mut object, "kind", &kind.kind);
    if let Some(object) = object.as_object_mut() {
        object.insert("metadata".to_owned(), metadata);
    }
    super::builtin::complete_bookmark(kind, &mut object);
    WatchEvent::Bookmark(Arc::new(object))
}
