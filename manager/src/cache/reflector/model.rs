//! Any history of a server, seen through a network that fails: the store ends as the server is, and the changes told
//! on the way replay to the same state.
//!
//! A server with one version, a history and a memory of it that may be cut short answers the reflector's own requests.
//! Under a paused clock a case of some minutes passes in milliseconds. A failing case prints its seed and steps.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::client::Body;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cache::testing::{config_map, object};
use crate::cache::{Cache, CacheSettings, Delta, DeltaHandler, Projection, Scope, Select, View};
use crate::client::{ResourcePath, WriteObserver, Writer};
use crate::metrics::Registry;

/// Objects by name: uid and version.
type State = BTreeMap<String, (String, u64)>;
type Answer = Response<StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>>;

/// What happens next. Numbers say how many, names are `n0` to `n3`.
#[derive(Clone, Debug)]
enum Step {
    /// Somebody else creates or updates, or deletes.
    Put(u8),
    Delete(u8),
    /// This process does; its answer comes with a later [`Step::Answer`], in any order.
    OwnPut(u8),
    OwnDelete(u8),
    Answer(usize),
    /// Every open watch gets so many of the lines it has not had, the end mark of its initial events in their place.
    Deliver(usize),
    /// The same, with changes before the end mark.
    Early(usize),
    /// Every open watch gets its last events again.
    Repeat(usize),
    /// Every open watch gets its next events newest first.
    Reversed(usize),
    Bookmark,
    /// A line that is no event.
    Garbage(u8),
    /// Every open stream ends, fails, or carries an error.
    End,
    Reset,
    Error(u16),
    /// The server forgets its history and its half-read lists.
    Compact,
    /// A coming request is refused with this code; 0 resets its connection.
    Refuse(u16),
    /// Whether lists may be streamed.
    Streams(bool),
    Wait(u64),
}

#[derive(Clone, Debug)]
struct Event {
    name: String,
    uid: String,
    version: u64,
    deleted: bool,
}

struct World {
    version: u64,
    uids: u64,
    objects: State,
    history: Vec<Event>,
    /// Events up to this version are forgotten.
    compacted: u64,
    /// Lists being read by pages: version and items.
    lists: Vec<(u64, Vec<Value>)>,
    watches: Vec<Watch>,
    refusals: Vec<u16>,
    streams: bool,
    /// Draws latencies and the order of lists.
    random: fastrand::Rng,
}

struct Watch {
    lines: UnboundedSender<io::Result<Bytes>>,
    /// Initial events to come.
    initial: Vec<Value>,
    /// Whether the end mark of the initial events is still to come.
    opening: bool,
    /// The last event sent.
    sent: u64,
}

/// An answer on its way back to the process that wrote.
enum Written {
    Object(String, Value),
    Deleted(String, String),
}

/// Replays what it is told and notes what contradicts.
struct Ledger {
    world: Arc<Mutex<World>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    replica: State,
    /// Told as deleted.
    gone: BTreeSet<String>,
    wrong: Vec<String>,
}

// === impl World ===

impl World {
    fn put(&mut self, name: u8) -> Value {
        self.version += 1;
        let name = format!("n{name}");
        let uid = self.objects.get(&name).map(|(uid, _)| uid.clone());
        let uid = uid.unwrap_or_else(|| {
            self.uids += 1;
            format!("u{}", self.uids)
        });
        self.objects.insert(name.clone(), (uid.clone(), self.version));
        let written = object(&name, &uid, self.version);
        self.history.push(Event { name, uid, version: self.version, deleted: false });
        written
    }

    fn delete(&mut self, name: u8) -> Option<(String, String)> {
        let name = format!("n{name}");
        let (uid, _) = self.objects.remove(&name)?;
        self.version += 1;
        self.history.push(Event {
            name: name.clone(),
            uid: uid.clone(),
            version: self.version,
            deleted: true,
        });
        Some((name, uid))
    }

    /// Everything there is, in an order of its own: one list need not be sorted as the last one.
    fn items(&mut self) -> Vec<Value> {
        let mut items: Vec<Value> =
            self.objects.iter().map(|(name, (uid, version))| object(name, uid, *version)).collect();
        self.random.shuffle(&mut items);
        items
    }

    fn answer(&mut self, uri: &str) -> io::Result<Answer> {
        match self.refusals.pop() {
            Some(0) => return Err(io::ErrorKind::ConnectionReset.into()),
            Some(code) => return Ok(whole(code, &status(code))),
            None => {}
        }
        let query: BTreeMap<&str, &str> =
            uri.split(['?', '&']).filter_map(|pair| pair.split_once('=')).collect();
        if query.contains_key("sendInitialEvents") {
            if !self.streams {
                return Ok(whole(422, &status(422)));
            }
            let (initial, version) = (self.items(), self.version);
            return Ok(self.open(initial, true, version));
        }
        if query.contains_key("watch") {
            let version: u64 = query["resourceVersion"].parse().unwrap();
            let opened = self.open(Vec::new(), false, version);
            if version < self.compacted {
                let watch = self.watches.pop().unwrap();
                watch.send("ERROR", &status(410));
            }
            return Ok(opened);
        }
        let (list, from) = if let Some(token) = query.get("continue") {
            token.split_once('-').map(|(list, from)| (list.parse().unwrap(), from)).unwrap()
        } else {
            let (items, version) = (self.items(), self.version);
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
        Ok(whole(200, &json!({"kind": "ConfigMapList", "metadata": metadata, "items": items})))
    }

    fn open(&mut self, initial: Vec<Value>, opening: bool, sent: u64) -> Answer {
        let (lines, receiver) = mpsc::unbounded_channel::<io::Result<Bytes>>();
        self.watches.push(Watch { lines, initial, opening, sent });
        let frames = stream::unfold(receiver, |mut receiver| async move {
            let bytes = receiver.recv().await?;
            Some((bytes.map(Frame::data), receiver))
        });
        Response::new(StreamBody::new(frames.boxed()))
    }

    fn deliver(&mut self, count: usize, early: bool, reversed: bool) {
        let history = &self.history;
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
            let due = history.iter().filter(|event| event.version > sent).take(count);
            let mut due: Vec<&Event> = due.collect();
            watch.sent = due.last().map_or(sent, |event| event.version);
            if reversed {
                due.reverse();
            }
            for event in due {
                watch.tell(event);
            }
        }
    }

    fn repeat(&self, count: usize) {
        for watch in self.watches.iter().filter(|watch| watch.initial.is_empty() && !watch.opening) {
            let had: Vec<&Event> = self.history.iter().filter(|event| event.version <= watch.sent).collect();
            for event in had.iter().skip(had.len().saturating_sub(count)) {
                watch.tell(event);
            }
        }
    }

    fn to_all(&self, text: &str) {
        for watch in &self.watches {
            watch.raw(text);
        }
    }

    fn state(&self) -> State {
        self.objects.clone()
    }
}

impl Watch {
    fn raw(&self, text: &str) {
        // Nobody may read any more.
        drop(self.lines.send(Ok(Bytes::copy_from_slice(text.as_bytes()))));
    }

    fn send(&self, kind: &str, object: &Value) {
        self.raw(&format!("{}\n", json!({"type": kind, "object": object})));
    }

    fn tell(&self, event: &Event) {
        let kind = if event.deleted { "DELETED" } else { "MODIFIED" };
        self.send(kind, &object(&event.name, &event.uid, event.version));
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

/// Lines that no server should send, about an object that may well exist.
fn garbage(which: u8) -> String {
    let known = object("n0", "u1", 1);
    match which {
        0 => format!("{}\n", &json!({"type": "DELETED", "object": known}).to_string()[..60]),
        1 => "\0\0\0\n".to_owned(),
        2 => format!("{}\n", json!({"type": "EXPLODED", "object": known})),
        3 => format!(
            "{}\n",
            json!({"type": "MODIFIED", "object": {"kind": "Secret", "metadata": known["metadata"]}})
        ),
        _ => format!("{{\"type\":\"ADDED\",\"object\":\"{}\"}}\n", "x".repeat(5000)),
    }
}

// === impl Ledger ===

impl DeltaHandler for Ledger {
    fn handle(&self, delta: &Delta<'_>) {
        let of = |view: &View| {
            let meta = view.meta();
            (meta.uid.to_string(), meta.resource_version.to_string().parse::<u64>().unwrap())
        };
        let world = self.world.lock();
        let mut kept = self.kept.lock();
        let Some(latest) = delta.latest() else { return kept.wrong.push("nothing told".to_owned()) };
        let name = latest.meta().name().to_owned();
        let (old, new) = (delta.old.map(of), delta.new.map(of));
        let wrong = |why: &str| format!("{why}: {name} {old:?} -> {new:?}");
        let mut found = Vec::new();
        if kept.replica.get(&name) != old.as_ref() {
            found.push(wrong("does not continue the state before it"));
        }
        match (&old, &new) {
            (Some((before, was)), Some((after, is))) if before != after || was >= is => {
                found.push(wrong("an update goes forward within one uid"));
            }
            (Some((uid, _)), None) if world.objects.get(&name).is_some_and(|(is, _)| is == uid) => {
                found.push(wrong("the deletion is invented"));
            }
            _ => {}
        }
        if let Some((uid, version)) = &new {
            if kept.gone.contains(uid) {
                found.push(wrong("comes back from the dead"));
            }
            let happened = |event: &Event| event.uid == *uid && event.version == *version && !event.deleted;
            if !world.history.iter().any(happened) {
                found.push(wrong("never happened"));
            }
        }
        if let (Some((uid, _)), None) = (&old, &new) {
            kept.gone.insert(uid.clone());
        }
        match new {
            Some(new) => kept.replica.insert(name, new),
            None => kept.replica.remove(&name),
        };
        kept.wrong.append(&mut found);
    }

    fn name(&self) -> &'static str {
        "ledger"
    }
}

// === the property ===

/// A server, the cache that follows it, and a handler that keeps the books.
struct Case {
    world: Arc<Mutex<World>>,
    cache: Cache,
    answers: Vec<Written>,
}

impl Case {
    fn new(seed: u64) -> Self {
        let world = World {
            version: 1,
            uids: 0,
            objects: State::new(),
            history: Vec::new(),
            compacted: 0,
            lists: Vec::new(),
            watches: Vec::new(),
            refusals: Vec::new(),
            streams: true,
            random: fastrand::Rng::with_seed(seed),
        };
        let world = Arc::new(Mutex::new(world));
        let served = Arc::clone(&world);
        let service = tower::service_fn(move |request: Request<Body>| {
            let world = Arc::clone(&served);
            async move {
                let latency = world.lock().random.u64(0..40);
                tokio::time::sleep(Duration::from_millis(latency)).await;
                world.lock().answer(&request.uri().to_string())
            }
        });
        let settings =
            CacheSettings { resync: Duration::ZERO, max_object_bytes: 2000, ..CacheSettings::default() };
        let client = kube::Client::new(service, "default");
        let cache = Cache::with_random(settings, client, &Registry::new(), fastrand::Rng::with_seed(seed));
        Self { world, cache, answers: Vec::new() }
    }

    async fn take(&mut self, step: Step) {
        let mut world = self.world.lock();
        match step {
            Step::Put(name) => drop(world.put(name)),
            Step::Delete(name) => drop(world.delete(name)),
            Step::OwnPut(name) => self.answers.push(Written::Object(format!("n{name}"), world.put(name))),
            Step::OwnDelete(name) => {
                self.answers.extend(world.delete(name).map(|(name, uid)| Written::Deleted(name, uid)));
            }
            Step::Answer(_) if self.answers.is_empty() => {}
            Step::Answer(at) => {
                drop(world);
                let answer = self.answers.remove(at % self.answers.len());
                self.answer(&answer);
            }
            Step::Deliver(count) => world.deliver(count, false, false),
            Step::Early(count) => world.deliver(count, true, false),
            Step::Reversed(count) => world.deliver(count, false, true),
            Step::Repeat(count) => world.repeat(count),
            Step::Bookmark => {
                for watch in world.watches.iter().filter(|watch| watch.initial.is_empty() && !watch.opening) {
                    watch.send("BOOKMARK", &json!({"metadata": {"resourceVersion": watch.sent.to_string()}}));
                }
            }
            Step::Garbage(which) => world.to_all(&garbage(which)),
            Step::End => world.watches.clear(),
            Step::Reset => {
                for watch in world.watches.drain(..) {
                    drop(watch.lines.send(Err(io::ErrorKind::ConnectionReset.into())));
                }
            }
            Step::Error(code) => {
                for watch in world.watches.drain(..) {
                    watch.send("ERROR", &status(code));
                }
            }
            Step::Compact => world.compacted = world.version,
            Step::Refuse(code) => world.refusals.push(code),
            Step::Streams(streams) => world.streams = streams,
            Step::Wait(millis) => {
                drop(world);
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
        }
    }

    fn answer(&self, written: &Written) {
        let path = |name: &str| ResourcePath {
            group: String::new(),
            version: "v1".into(),
            plural: "configmaps".into(),
            namespace: Some("shop".into()),
            name: Some(name.to_owned()),
            subresource: None,
        };
        match written {
            Written::Object(name, object) => {
                self.cache.written(&path(name), &Bytes::from(object.to_string()), Writer::default());
            }
            Written::Deleted(name, uid) => {
                let status = json!({"kind": "Status", "status": "Success", "details": {"uid": uid}});
                self.cache.deleted(&path(name), &Bytes::from(status.to_string()), &[], Writer::default());
            }
        }
    }

    /// Nothing fails any more, and everything that is due arrives, for longer than the longest wait.
    async fn heal(&mut self) {
        for answer in std::mem::take(&mut self.answers) {
            self.answer(&answer);
        }
        self.world.lock().refusals.clear();
        for _ in 0..400 {
            self.world.lock().deliver(usize::MAX, false, false);
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

async fn run(seed: u64, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut case = Case::new(seed);
    let store = case.cache.kind(config_map(), Scope::all(), Projection::Full);
    let ledger = Arc::new(Ledger { world: Arc::clone(&case.world), kept: Mutex::default() });
    let _subscription = store.subscribe(Box::new(Shared(Arc::clone(&ledger))));
    let mut tasks = JoinSet::new();
    let cache = case.cache.clone();
    tasks.spawn(async move { cache.run(CancellationToken::new()).await });
    for step in steps {
        case.take(step.clone()).await;
        // Some steps fall between two others without the reflector having run.
        if seed.is_multiple_of(3) {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_millis(seed % 30)).await;
        }
        prop_assert_eq!(&ledger.kept.lock().wrong, &Vec::<String>::new(), "after {:?}", step);
    }
    case.heal().await;
    let expected = case.world.lock().state();
    let stored: State = store
        .list(&Select::all())
        .map_err(|error| TestCaseError::fail(error.to_string()))?
        .iter()
        .map(|view| {
            let meta = view.meta();
            (
                meta.name().to_owned(),
                (meta.uid.to_string(), meta.resource_version.to_string().parse().unwrap()),
            )
        })
        .collect();
    prop_assert_eq!(&stored, &expected, "the store is what the server has");
    let kept = ledger.kept.lock();
    prop_assert_eq!(&kept.replica, &expected, "the changes told replay to it");
    prop_assert_eq!(&kept.wrong, &Vec::<String>::new());
    prop_assert_eq!(store.status().down_since, None, "and it says that it works");
    Ok(())
}

/// One ledger, read by the test while the cache holds the handler.
struct Shared(Arc<Ledger>);

impl DeltaHandler for Shared {
    fn handle(&self, delta: &Delta<'_>) {
        self.0.handle(delta);
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0_u8..4;
    let few = 1_usize..4;
    let step = prop_oneof![
        4 => name.clone().prop_map(Step::Put),
        3 => name.clone().prop_map(Step::Delete),
        3 => name.clone().prop_map(Step::OwnPut),
        2 => name.prop_map(Step::OwnDelete),
        4 => few.clone().prop_map(Step::Answer),
        8 => few.clone().prop_map(Step::Deliver),
        1 => few.clone().prop_map(Step::Early),
        1 => few.clone().prop_map(Step::Repeat),
        1 => few.prop_map(Step::Reversed),
        1 => Just(Step::Bookmark),
        1 => (0_u8..5).prop_map(Step::Garbage),
        1 => Just(Step::End),
        1 => Just(Step::Reset),
        1 => prop::sample::select(vec![410_u16, 429, 500]).prop_map(Step::Error),
        1 => Just(Step::Compact),
        1 => prop::sample::select(vec![0_u16, 410, 429, 500, 503, 403, 404]).prop_map(Step::Refuse),
        1 => any::<bool>().prop_map(Step::Streams),
        6 => prop::sample::select(vec![1_u64, 30, 300, 1500, 5000, 20_000]).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..100)
}

/// Some seconds' worth, or with `MAINSTAY_LONG=1` some minutes'.
fn cases() -> u32 {
    if std::env::var_os("MAINSTAY_LONG").is_some() { 5_000 } else { 128 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_network_does_the_store_ends_as_the_server_and_its_changes_replay(
        seed in any::<u64>(), steps in steps(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(run(seed, steps))?;
    }
}
