//! The API server of the model: one version for all objects, and a history that may be compacted.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::Response;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::objects::{Event, Filter, Object, ObjectKind, State};
use crate::cache::object::Meta;
use crate::key::NamespacedName;

pub(super) type Answer = Response<StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>>;

/// The response to a DELETE.
pub(super) enum Deletion {
    /// The object, marked as being deleted.
    Begun(Value),
    /// The uid of the removed object.
    Done(String),
}

pub(super) struct Server {
    kind: ObjectKind,
    pub(super) version: u64,
    uids: u64,
    objects: BTreeMap<NamespacedName, Object>,
    pub(super) history: Vec<Event>,
    /// Version up to which events are compacted.
    pub(super) compacted: u64,
    /// Version and items of each list that is read by pages.
    lists: Vec<(u64, Vec<Value>)>,
    pub(super) watches: Vec<Watch>,
    /// Response codes for the next requests, the last one first; 0 resets the connection.
    pub(super) refusals: Vec<u16>,
    /// Whether lists may be streamed.
    pub(super) streams: bool,
    /// Whether access reviews may deny a right that exists.
    pub(super) denies: bool,
    /// Draws denials, latencies, labels and the order of lists.
    pub(super) random: fastrand::Rng,
}

pub(super) struct Watch {
    lines: UnboundedSender<io::Result<Bytes>>,
    filter: Filter,
    /// Initial events that are not yet sent.
    initial: Vec<Value>,
    /// Whether the end mark of the initial events is not yet sent.
    opening: bool,
    /// Version of the last event sent.
    pub(super) sent: u64,
}

// === impl Server ===

impl Server {
    pub(super) fn new(kind: ObjectKind, seed: u64) -> Self {
        Self {
            kind,
            version: 1,
            uids: 0,
            objects: BTreeMap::new(),
            history: Vec::new(),
            compacted: 0,
            lists: Vec::new(),
            watches: Vec::new(),
            refusals: Vec::new(),
            streams: true,
            denies: true,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Creates or updates an object.
    pub(super) fn put(&mut self, name: u8) -> Value {
        self.version += 1;
        let request = self.kind.request(name);
        let (uid, deleting) = if let Some(object) = self.objects.get(&request) {
            (object.uid.clone(), object.deleting)
        } else {
            self.uids += 1;
            (format!("u{}", self.uids), false)
        };
        let labelled = self.random.bool();
        self.store(Object { request, uid, version: self.version, labelled, deleting })
    }

    /// Deletes an object for another process. A namespace is marked first and removed by a second call.
    pub(super) fn delete(&mut self, name: u8) {
        let request = self.kind.request(name);
        let held = self.kind == ObjectKind::Namespaces
            && self.objects.get(&request).is_some_and(|object| !object.deleting);
        if held {
            self.begin_delete(&request);
        } else {
            self.remove(&request);
        }
    }

    /// Deletes an object for this process; a namespace is only marked.
    pub(super) fn own_delete(&mut self, name: u8) -> Option<(NamespacedName, Deletion)> {
        let request = self.kind.request(name);
        let deletion = match self.kind {
            ObjectKind::ConfigMaps => Deletion::Done(self.remove(&request)?),
            ObjectKind::Namespaces => Deletion::Begun(self.begin_delete(&request)?),
        };
        Some((request, deletion))
    }

    fn begin_delete(&mut self, request: &NamespacedName) -> Option<Value> {
        let object = self.objects.get(request)?.clone();
        if object.deleting {
            return Some(self.kind.json(&object));
        }
        self.version += 1;
        Some(self.store(Object { version: self.version, deleting: true, ..object }))
    }

    fn store(&mut self, object: Object) -> Value {
        let written = self.kind.json(&object);
        self.history.push(Event { object: object.clone(), deleted: false });
        self.objects.insert(object.request.clone(), object);
        written
    }

    fn remove(&mut self, request: &NamespacedName) -> Option<String> {
        let object = self.objects.remove(request)?;
        self.version += 1;
        let uid = object.uid.clone();
        self.history.push(Event { object: Object { version: self.version, ..object }, deleted: true });
        Some(uid)
    }

    /// Returns the selected objects in random order, since lists need not be sorted alike.
    fn items(&mut self, filter: &Filter) -> Vec<Value> {
        let seen = self.objects.values().filter(|object| filter.admits(object));
        let mut items: Vec<Value> = seen.map(|object| self.kind.json(object)).collect();
        self.random.shuffle(&mut items);
        items
    }

    /// Responds to an access review.
    pub(super) fn review(&mut self) -> Answer {
        whole(201, &json!({"status": {"allowed": !(self.denies && self.random.bool())}}))
    }

    pub(super) fn answer(&mut self, uri: &str) -> io::Result<Answer> {
        match self.refusals.pop() {
            Some(0) => return Err(io::ErrorKind::ConnectionReset.into()),
            Some(code) => return Ok(whole(code, &status(code))),
            None => {}
        }
        let filter = Filter::of(uri);
        let query: BTreeMap<&str, &str> =
            uri.split(['?', '&']).filter_map(|pair| pair.split_once('=')).collect();
        if query.contains_key("sendInitialEvents") {
            if !self.streams {
                return Ok(whole(422, &status(422)));
            }
            let (initial, version) = (self.items(&filter), self.version);
            return Ok(self.open(filter, initial, true, version));
        }
        if query.contains_key("watch") {
            let version: u64 = query["resourceVersion"].parse().unwrap();
            let opened = self.open(filter, Vec::new(), false, version);
            if version < self.compacted {
                let watch = self.watches.pop().unwrap();
                watch.send("ERROR", &status(410));
            }
            return Ok(opened);
        }
        let (list, from) = if let Some(token) = query.get("continue") {
            token.split_once('-').map(|(list, from)| (list.parse().unwrap(), from)).unwrap()
        } else {
            let (items, version) = (self.items(&filter), self.version);
            self.lists.push((version, items));
            (self.lists.len() - 1, "0")
        };
        let from: usize = from.parse().unwrap();
        let (version, items) = &self.lists[list];
        if from > 0 && *version < self.compacted {
            return Ok(whole(410, &status(410)));
        }
        let size = if query["limit"] == "0" { usize::MAX } else { 2 };
        let rest = items.len().saturating_sub(from.saturating_add(size));
        let next = if rest > 0 { format!("{list}-{}", from + size) } else { String::new() };
        let items: Vec<&Value> = items.iter().skip(from).take(size).collect();
        let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
        Ok(whole(200, &json!({"kind": "List", "metadata": metadata, "items": items})))
    }

    fn open(&mut self, filter: Filter, initial: Vec<Value>, opening: bool, sent: u64) -> Answer {
        let (lines, receiver) = mpsc::unbounded_channel::<io::Result<Bytes>>();
        self.watches.push(Watch { lines, filter, initial, opening, sent });
        let frames = stream::unfold(receiver, |mut receiver| async move {
            let bytes = receiver.recv().await?;
            Some((bytes.map(Frame::data), receiver))
        });
        Response::new(StreamBody::new(frames.boxed()))
    }

    /// Sends every watch its next events; with `early`, changes come before the end mark.
    pub(super) fn deliver(&mut self, count: usize, early: bool, reversed: bool) {
        let (kind, history) = (self.kind, &self.history);
        for watch in &mut self.watches {
            for _ in 0..count.min(watch.initial.len()) {
                if let Some(object) = watch.initial.pop() {
                    watch.send("ADDED", &object);
                }
            }
            if !watch.initial.is_empty() {
                continue;
            }
            if watch.opening && !early {
                watch.opening = false;
                let annotations = json!({"k8s.io/initial-events-end": "true"});
                let version = watch.sent.to_string();
                let metadata = json!({"resourceVersion": version, "annotations": annotations});
                watch.send("BOOKMARK", &json!({"metadata": metadata}));
            }
            let sent = watch.sent;
            let due = history.iter().enumerate().filter(|(_, event)| event.object.version > sent).take(count);
            let mut due: Vec<usize> = due.map(|(at, _)| at).collect();
            watch.sent = due.last().map_or(sent, |at| history[*at].object.version);
            if reversed {
                due.reverse();
            }
            for at in due {
                watch.send_change(kind, history, at);
            }
        }
    }

    /// Sends every watch its last events again.
    pub(super) fn repeat(&self, count: usize) {
        for watch in self.live() {
            let had = self.history.iter().filter(|event| event.object.version <= watch.sent).count();
            for at in had.saturating_sub(count)..had {
                watch.send_change(self.kind, &self.history, at);
            }
        }
    }

    pub(super) fn bookmark(&self) {
        for watch in self.live() {
            watch.send("BOOKMARK", &json!({"metadata": {"resourceVersion": watch.sent.to_string()}}));
        }
    }

    fn live(&self) -> impl Iterator<Item = &Watch> {
        self.watches.iter().filter(|watch| watch.initial.is_empty() && !watch.opening)
    }

    /// Sends an invalid line about an object that may exist.
    pub(super) fn garbage(&self, which: u8) {
        let object = Object {
            request: self.kind.request(0),
            uid: "u1".into(),
            version: 1,
            labelled: true,
            deleting: false,
        };
        let known = self.kind.json(&object);
        let line = match which {
            0 => json!({"type": "DELETED", "object": known}).to_string()[..60].to_owned(),
            1 => "\0\0\0".to_owned(),
            2 => json!({"type": "EXPLODED", "object": known}).to_string(),
            3 => {
                let secret = json!({"kind": "Secret", "metadata": known["metadata"]});
                json!({"type": "MODIFIED", "object": secret}).to_string()
            }
            _ => format!("{{\"type\":\"ADDED\",\"object\":\"{}\"}}", "x".repeat(5000)),
        };
        for watch in &self.watches {
            watch.raw(&format!("{line}\n"));
        }
    }

    /// Returns the selected objects.
    pub(super) fn state(&self, filter: &Filter) -> State {
        let seen = self.objects.values().filter(|object| filter.admits(object));
        seen.map(|object| (object.request.clone(), (object.uid.clone(), object.version))).collect()
    }

    /// Returns the events of one name, in order.
    pub(super) fn of<'w>(&'w self, request: &'w NamespacedName) -> impl Iterator<Item = &'w Event> + Clone {
        self.history.iter().filter(move |event| event.object.request == *request)
    }

    /// Returns whether a read, or its absence, was the state at version `since` or later.
    pub(super) fn was_so(
        &self,
        filter: &Filter,
        request: &NamespacedName,
        read: Option<&Meta>,
        since: u64,
    ) -> bool {
        let later = || self.of(request).filter(|event| event.object.version > since);
        let then = self.of(request).take_while(|event| event.object.version <= since).last();
        match read {
            None => {
                then.is_none_or(|event| !filter.shows(event)) || later().any(|event| !filter.shows(event))
            }
            Some(meta) => {
                let same = |event: &Event| {
                    event.object.version.to_string() == meta.resource_version.to_string()
                        && filter.shows(event)
                };
                then.is_some_and(same) || later().any(same)
            }
        }
    }
}

// === impl Watch ===

impl Watch {
    fn raw(&self, text: &str) {
        // The client may have closed the connection.
        drop(self.lines.send(Ok(Bytes::copy_from_slice(text.as_bytes()))));
    }

    fn send(&self, kind: &str, object: &Value) {
        self.raw(&format!("{}\n", json!({"type": kind, "object": object})));
    }

    /// Sends one change as the event that it is within the watch's selection.
    fn send_change(&self, kind: ObjectKind, history: &[Event], at: usize) {
        let event = &history[at];
        let mut earlier = history[..at].iter().rev();
        let before = earlier.find(|earlier| earlier.object.uid == event.object.uid);
        let was_seen = before.is_some_and(|before| self.filter.shows(before));
        match (was_seen, self.filter.shows(event)) {
            (false, false) => {}
            (false, true) => self.send("ADDED", &kind.json(&event.object)),
            (true, true) => self.send("MODIFIED", &kind.json(&event.object)),
            (true, false) => self.send("DELETED", &kind.json(&event.object)),
        }
    }

    pub(super) fn reset(&self) {
        drop(self.lines.send(Err(io::ErrorKind::ConnectionReset.into())));
    }

    pub(super) fn fail(&self, code: u16) {
        self.send("ERROR", &status(code));
    }
}

fn status(code: u16) -> Value {
    let reason = if code == 410 { "Expired" } else { "Because" };
    json!({"kind": "Status", "code": code, "reason": reason})
}

fn whole(code: u16, body: &Value) -> Answer {
    let body = Bytes::from(body.to_string());
    let frames = stream::once(async move { Ok(Frame::data(body)) });
    Response::builder().status(code).body(StreamBody::new(frames.boxed())).unwrap()
}
