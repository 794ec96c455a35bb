//! The body of a watch: events as lines of JSON. Events that are ready together share a chunk.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use http::Extensions;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::represent::Conversion;
use crate::api::{Watch, WatchEvent};

/// Largest chunk that several events share; a larger event is a chunk of its own.
const CHUNK_BYTES: usize = 64 << 10;

/// The shortest time between two chunks over a socket, where a chunk costs far more than an event: the first
/// event of a burst is sent at once, and the next ones share chunks.
const SOCKET_PAUSE: Duration = Duration::from_millis(2);

/// The extension of a request that arrived over a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverSocket;

/// The faults that end a watch early or filter its events, and its pace.
#[derive(Debug)]
pub(super) struct Limits {
    /// Ends the watch when the value changes.
    pub(super) cuts: watch::Receiver<u64>,
    /// The number of events after which the watch ends; `None` for no limit.
    pub(super) after_events: Option<usize>,
    pub(super) drop_bookmarks: bool,
    /// The shortest time between two chunks.
    pub(super) pause: Duration,
}

struct State {
    watch: Watch,
    convert: Option<Conversion>,
    limits: Limits,
    /// Encoded events that did not fit into the last chunk.
    ready: VecDeque<Bytes>,
    /// The time before which no further events are read.
    next: Instant,
}

// === impl Limits ===

impl Limits {
    /// Returns the pause between the chunks of a request.
    pub(super) fn pause(request: &Extensions) -> Duration {
        match request.get() {
            Some(OverSocket) => SOCKET_PAUSE,
            None => Duration::ZERO,
        }
    }
}

/// Returns the chunks of a watch, with what `convert` sends in place of the objects. Dropping the stream ends
/// the watch.
pub(super) fn frames(
    watch: Watch,
    convert: Option<Conversion>,
    limits: Limits,
) -> impl Stream<Item = Bytes> + Send {
    let state = State { watch, convert, limits, ready: VecDeque::new(), next: Instant::now() };
    stream::unfold(state, |mut state| async {
        while state.ready.is_empty() {
            if state.limits.after_events == Some(0) {
                return None;
            }
            if Instant::now() < state.next {
                sleep_until(state.next).await;
            }
            let events = tokio::select! {
                biased;
                _ = state.limits.cuts.changed() => return None,
                events = state.watch.next() => events?,
            };
            for event in events {
                state.push(&event);
            }
        }
        let chunk = state.chunk();
        state.next = Instant::now() + state.limits.pause;
        Some((chunk, state))
    })
}

// === impl State ===

impl State {
    fn push(&mut self, event: &WatchEvent) {
        if matches!(event, WatchEvent::Bookmark(_)) && self.limits.drop_bookmarks {
            return;
        }
        match &mut self.limits.after_events {
            Some(0) => return,
            Some(left) => *left -= 1,
            None => {}
        }
        self.ready.push_back(match &mut self.convert {
            Some(convert) => converted(event, convert),
            None => event.frame(),
        });
    }

    /// Returns the next chunk: as many events as fit, and at least one.
    fn chunk(&mut self) -> Bytes {
        let (mut count, mut length) = (0, 0);
        for frame in &self.ready {
            if count > 0 && length + frame.len() > CHUNK_BYTES {
                break;
            }
            count += 1;
            length += frame.len();
        }
        if count == 1 {
            return self.ready.pop_front().unwrap_or_default();
        }
        let mut chunk = BytesMut::with_capacity(length);
        for frame in self.ready.drain(..count) {
            chunk.extend_from_slice(&frame);
        }
        chunk.freeze()
    }
}

fn converted(event: &WatchEvent, convert: &mut Conversion) -> Bytes {
    let value = match event {
        WatchEvent::Object(_, object) => object.value(),
        WatchEvent::Bookmark(value) => value,
        WatchEvent::Error(_) => return event.frame(),
    };
    let line = json!({"type": event.event_type(), "object": convert.of_event(value)});
    format!("{line}\n").into()
}
