//! The server of the model: one version, a history, and a memory of it that may be cut short.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::Response;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::cache::object::meta::Meta;
use crate::client::ResourcePath;
use crate::key::{Key, NamespacedName};

pub(super) type Answer = Response<StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>>;

/// Objects by what a request names: uid and version.
pub(super) type State = BTreeMap<NamespacedName, (String, u64)>;

/// What kind of objects the server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// In two namespaces; gone when they are deleted.
    ConfigMaps,
    /// A deletion takes two steps: only the second one ends them.
    Namespaces,
}

/// Which of the objects are looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    pub(super) namespace: Option<Arc<str>>,
    /// Only those with the label.
    pub(super) labelled: bool,
}

/// An object as it is or was.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) request: NamespacedName,
    pub(super) uid: String,
    pub(super) version: u64,
    labelled: bool,
    deleting: bool,
}

/// One change; a deletion has the object as it was last, at the version of the deletion.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) object: Object,
    pub(super) deleted: bool,
}

/// What a DELETE was answered with.
pub(super) enum Deletion {
    /// It still exists.
    Begun(Value),
    Gone(String),
}

pub(super) struct World {
    sort: Sort,
    pub(super) version: u64,
    uids: u64,
    objects: BTreeMap<NamespacedName, Object>,
    pub(super) history: Vec<Event>,
    /// Events up to this version are forgotten.
    pub(super) compacted: u64,
    /// Lists being read by pages: version and items.
    lists: Vec<(u64, Vec<Value>)>,
    pub(super) watches: Vec<Watch>,
    /// Codes with which coming requests are refused, the last one first; 0 resets the connection.
    pub(super) refusals: Vec<u16>,
    /// Whether lists may be streamed.
    pub(super) streams: bool,
    /// Whether it may deny a right that is there, when it is asked about it.
    pub(super) denies: bool,
    /// Draws denials, latencies, labels and the order of lists.
    pub(super) random: fastrand::Rng,
}

pub(super) struct Watch {
    lines: UnboundedSender<io::Result<Bytes>>,
    filter: Filter,
    /// Initial events to come.
    initial: Vec<Value>,
    /// Whether the end mark of the initial events is still to come.
    opening: bool,
    /// The last event sent.
    pub(super) sent: u64,
}

// === impl Sort ===

impl Sort {
    pub(super) fn request(self, name: u8) -> NamespacedName {
        match self {
            Self::ConfigMaps => {
                NamespacedName::namespaced(["shop", "bank"][usize::from(name % 2)], format!("n{name}"))
            }
            Self::Namespaces => NamespacedName::cluster(format!("n{name}")),
        }
    }

    pub(super) fn path(self, request: &NamespacedName) -> ResourcePath {
        ResourcePath {
            group: String::new(),
            version: "v1".into(),
            plural: if self == Self::ConfigMaps { "configmaps" } else { "namespaces" }.into(),
            namespace: request.namespace().map(Into::into),
            name: Some(request.name().to_owned()),
            subresource: None,
        }
    }

    fn json(self, object: &Object) -> Value {
        let mut metadata = json!({
            "name": object.request.name(), "uid": object.uid, "resourceVersion": object.version.to_string(),
            "labels": {"app": if object.labelled { "web" } else { "api" }},
        });
        if object.deleting {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        match self {
            Self::ConfigMaps => {
                metadata["namespace"] = json!(object.request.namespace());
                let data = json!({"at": object.version.to_string(), "left out": "x"});
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
            }
            Self::Namespaces => {
                let spec = json!({"finalizers": ["kubernetes"]});
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": spec})
            }
        }
    }
}

// === impl Filter ===

impl Filter {
    /// Reads it off a list or watch request.
    fn of(uri: &str) -> Self {
        let namespace = uri.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/'));
        Self {
            namespace: namespace.map(|(namespace, _)| namespace.into()),
            labelled: uri.contains("labelSelector=app%3Dweb"),
        }
    }

    pub(super) fn admits(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| object.request.namespace() == Some(namespace))
            && (!self.labelled || object.labelled)
    }

    /// Whether something is there to be seen after a change.
    pub(super) fn shows(&self, event: &Event) -> bool {
        !event.deleted && self.admits(&event.object)
    }
}

// === impl World ===

impl World {
    pub(super) fn new(sort: Sort, seed: u64) -> Self {
        Self {
            sort,
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

    /// Creates or changes.
    pub(super) fn put(&mut self, name: u8) -> Value {
        self.version += 1;
        let request = self.sort.request(name);
        let (uid, deleting) = if let Some(object) = self.objects.get(&request) {
            (object.uid.clone(), object.deleting)
        } else {
            self.uids += 1;
            (format!("u{}", self.uids), false)
        };
        let labelled = self.random.bool();
        self.store(Object { request, uid, version: self.version, labelled, deleting })
    }

    /// Somebody deletes, and does what is left to do before the object may go.
    pub(super) fn delete(&mut self, name: u8) {
        let request = self.sort.request(name);
        let held = self.sort == Sort::Namespaces
            && self.objects.get(&request).is_some_and(|object| !object.deleting);
        if held {
            self.begin_delete(&request);
        } else {
            self.remove(&request);
        }
    }

    /// Deletes; what takes longer is only begun.
    pub(super) fn own_delete(&mut self, name: u8) -> Option<(NamespacedName, Deletion)> {
        let request = self.sort.request(name);
        let deletion = match self.sort {
            Sort::ConfigMaps => Deletion::Gone(self.remove(&request)?),
            Sort::Namespaces => Deletion::Begun(self.begin_delete(&request)?),
        };
        Some((request, deletion))
    }

    fn begin_delete(&mut self, request: &NamespacedName) -> Option<Value> {
        let object = self.objects.get(request)?.clone();
        if object.deleting {
            return Some(self.sort.json(&object));
        }
        self.version += 1;
        Some(self.store(Object { version: self.version, deleting: true, ..object }))
    }

    fn store(&mut self, object: Object) -> Value {
        let written = self.sort.json(&object);
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

    /// Everything there is, in an order of its own: one list need not be sorted as the last one.
    fn items(&mut self, filter: &Filter) -> Vec<Value> {
        let seen = self.objects.values().filter(|object| filter.admits(object));
        let mut items: Vec<Value> = seen.map(|object| self.sort.json(object)).collect();
        self.random.shuffle(&mut items);
        items
    }

    /// Answers whether somebody may watch.
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

    /// Sends every watch the next lines it has not had; `early` puts changes before the end mark.
    pub(super) fn deliver(&mut self, count: usize, early: bool, reversed: bool) {
        let (sort, history) = (self.sort, &self.history);
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
                watch.tell(sort, history, at);
            }
        }
    }

    /// Sends every watch its last events again.
    pub(super) fn repeat(&self, count: usize) {
        for watch in self.live() {
            let had = self.history.iter().filter(|event| event.object.version <= watch.sent).count();
            for at in had.saturating_sub(count)..had {
                watch.tell(self.sort, &self.history, at);
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

    /// Sends lines that no server should send, about an object that may well exist.
    pub(super) fn garbage(&self, which: u8) {
        let object = Object {
            request: self.sort.request(0),
            uid: "u1".into(),
            version: 1,
            labelled: true,
            deleting: false,
        };
        let known = self.sort.json(&object);
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

    /// What is seen of it now.
    pub(super) fn state(&self, filter: &Filter) -> State {
        let seen = self.objects.values().filter(|object| filter.admits(object));
        seen.map(|object| (object.request.clone(), (object.uid.clone(), object.version))).collect()
    }

    /// What was done to the objects of one name, in order.
    pub(super) fn of<'w>(&'w self, request: &'w NamespacedName) -> impl Iterator<Item = &'w Event> + Clone {
        self.history.iter().filter(move |event| event.object.request == *request)
    }

    /// Whether what is read, or that nothing is, was so at this version or later.
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
        // Nobody may read any more.
        drop(self.lines.send(Ok(Bytes::copy_from_slice(text.as_bytes()))));
    }

    fn send(&self, kind: &str, object: &Value) {
        self.raw(&format!("{}\n", json!({"type": kind, "object": object})));
    }

    /// Tells one change as it is seen through the selection.
    fn tell(&self, sort: Sort, history: &[Event], at: usize) {
        let event = &history[at];
        let mut earlier = history[..at].iter().rev();
        let before = earlier.find(|earlier| earlier.object.uid == event.object.uid);
        let was_seen = before.is_some_and(|before| self.filter.shows(before));
        match (was_seen, self.filter.shows(event)) {
            (false, false) => {}
            (false, true) => self.send("ADDED", &sort.json(&event.object)),
            (true, true) => self.send("MODIFIED", &sort.json(&event.object)),
            (true, false) => self.send("DELETED", &sort.json(&event.object)),
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
