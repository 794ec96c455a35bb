//! The body of a watch: events as lines of JSON. Events that are ready together share a chunk.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use serde_json::json;
use tokio::sync::watch;

use super::accept::Convert;
use super::represent::metadata_only;
use crate::api::{Watch, WatchEvent};

/// Largest chunk that several events share; a larger event is a chunk of its own.
const CHUNK_BYTES: usize = 64 << 10;

/// The faults that end a watch early or filter its events.
#[derive(Debug)]
pub(super) struct Limits {
    /// Ends the watch when the value changes.
    pub(super) cuts: watch::Receiver<u64>,
    /// The number of events after which the watch ends; `None` for no limit.
    pub(super) after_events: Option<usize>,
    pub(super) drop_bookmarks: bool,
}

struct State {
    watch: Watch,
    convert: Option<Convert>,
    limits: Limits,
    /// Encoded events that did not fit into the last chunk.
    ready: VecDeque<Bytes>,
}

/// Returns the chunks of a watch, with the objects converted to `convert` if given. Dropping the stream ends
/// the watch.
pub(super) fn frames(
    watch: Watch,
    convert: Option<Convert>,
    limits: Limits,
) -> impl Stream<Item = Bytes> + Send {
    let state = State { watch, convert, limits, ready: VecDeque::new() };
    stream::unfold(state, |mut state| async {
        while state.ready.is_empty() {
            if state.limits.after_events == Some(0) {
                return None;
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
        self.ready.push_back(match (&self.convert, event) {
            (None, event) | (Some(_), event @ WatchEvent::Error(_)) => event.frame(),
            (Some(convert), event) => metadata_frame(event, convert),
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

fn metadata_frame(event: &WatchEvent, convert: &Convert) -> Bytes {
    let value = match event {
        WatchEvent::Object(_, object) => object.value(),
        WatchEvent::Bookmark(value) => value,
        WatchEvent::Error(_) => return event.frame(),
    };
    let line = json!({"type": event.event_type(), "object": metadata_only(value, convert)});
    format!("{line}\n").into()
}
