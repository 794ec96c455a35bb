//! The body of a watch: events as lines of JSON, several of them in one write when they are ready together.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use serde_json::json;
use tokio::sync::watch;

use super::accept::Convert;
use super::represent::metadata_only;
use crate::api::{Watch, WatchEvent};

/// Events are joined up to this size; a larger event is a write of its own.
const CHUNK_BYTES: usize = 64 << 10;

/// What ends a stream early or changes it on purpose.
#[derive(Debug)]
pub(super) struct Limits {
    /// Notified when open watches are to be cut.
    pub(super) cuts: watch::Receiver<u64>,
    pub(super) after_events: Option<usize>,
    pub(super) drop_bookmarks: bool,
}

struct State {
    watch: Watch,
    convert: Option<Convert>,
    limits: Limits,
    /// Encoded events that did not fit the last chunk.
    ready: VecDeque<Bytes>,
}

/// Returns the chunks of a watch. Dropping the stream drops the watch.
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

    /// Joins events, as many as fit a chunk and at least one.
    fn chunk(&mut self) -> Bytes {
        let first = self.ready.pop_front().unwrap_or_default();
        let fits =
            |joined: usize, next: Option<&Bytes>| next.is_some_and(|next| joined + next.len() <= CHUNK_BYTES);
        if !fits(first.len(), self.ready.front()) {
            return first;
        }
        let mut chunk = BytesMut::from(first);
        while fits(chunk.len(), self.ready.front()) {
            chunk.extend_from_slice(&self.ready.pop_front().unwrap_or_default());
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
