//! Property test: after any history of a server behind a failing network, the store equals the server, its
//! deltas replay to the same state, and no read is older than an own write.
//!
//! The model server has one version, a history and compaction, and responds to the reflector's own
//! requests. The clock is paused, so a case of some minutes takes milliseconds. A failing case prints its
//! setup, seed and steps.

mod checker;
mod objects;
mod server;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use kube::client::Body;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::checker::{Checker, CheckingHandler, OwnWrites, state_of};
use self::objects::{Filter, ObjectKind};
use self::server::{Deletion, Server};
use crate::cache::{Cache, CacheSettings, Projection, Scope, Select, Subscription, UntypedStore};
use crate::client::{WriteObserver, Writer};
use crate::key::NamespacedName as Key;
use crate::metrics::Registry;

/// One step of a history. Names are `n0` to `n3`.
#[derive(Clone, Debug)]
enum Step {
    /// Another process creates or updates an object.
    Put(u8),
    /// Another process deletes an object.
    Delete(u8),
    /// This process writes; the response arrives with a later [`Step::Answer`], in any order.
    OwnPut(u8),
    OwnDelete(u8),
    Answer(usize),
    /// This process deletes an object and gets the response at once.
    OwnDeleteNow(u8),
    /// Every open watch gets this many of its next events, and the end mark when its initial events are sent.
    Deliver(usize),
    /// As [`Step::Deliver`], with changes before the end mark.
    Early(usize),
    /// Every open watch gets its last events again.
    Repeat(usize),
    /// Every open watch gets its next events newest first.
    Reversed(usize),
    Bookmark,
    /// Every open watch gets an invalid line.
    Garbage(u8),
    /// Every open watch ends.
    End,
    /// The connection of every open watch is reset.
    Reset,
    /// Every open watch gets an ERROR event with this code and ends.
    Error(u16),
    /// The server compacts its history; half-read lists expire.
    Compact,
    /// The next request is refused with this code; 0 resets its connection.
    Refuse(u16),
    /// The server allows or refuses streamed lists.
    Streams(bool),
    Wait(u64),
}

/// The stores of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setup {
    /// One store of all objects.
    Whole,
    /// Objects with a label that is set and removed.
    Selected,
    /// All objects, and a namespace and a selection that are read through that store.
    Parts,
    /// Two namespaces, each with a list and a watch of its own.
    Split,
    /// All objects, with a transform that removes a field.
    Transformed,
    /// A kind with objects that exist for a while after their deletion.
    Terminating,
}

/// The response to an own write that this process has not received yet.
enum Pending {
    Object(Key, Value),
    /// With the version of the deletion, and the uids cached under the name before.
    Deleted(Key, Deletion, u64, Vec<String>),
}

/// A server, the cache that follows it, and a checker for each store.
struct Case {
    kind: ObjectKind,
    server: Arc<Mutex<Server>>,
    cache: Cache,
    stores: Vec<(Arc<UntypedStore>, Arc<Checker>)>,
    subscriptions: Vec<Subscription>,
    answers: Vec<Pending>,
    own: OwnWrites,
}

// === impl Setup ===

impl Setup {
    fn kind(self) -> ObjectKind {
        if self == Self::Terminating { ObjectKind::Namespaces } else { ObjectKind::ConfigMaps }
    }

    fn stores(self) -> Vec<(Scope, Filter)> {
        let all = (Scope::all(), Filter::default());
        let labelled =
            (Scope::all().labels("app=web".parse().unwrap()), Filter { labelled: true, ..Filter::default() });
        let shop = Filter { namespace: Some("shop".into()), ..Filter::default() };
        match self {
            Self::Selected => vec![labelled],
            Self::Parts => vec![all, labelled, (Scope::namespace("shop"), shop)],
            Self::Whole | Self::Split | Self::Transformed | Self::Terminating => vec![all],
        }
    }

    fn settings(self) -> CacheSettings {
        let namespaces = if self == Self::Split { &["shop", "bank"][..] } else { &[] };
        CacheSettings {
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
            resync: Duration::ZERO,
            max_frame_bytes: 2000,
            ..CacheSettings::default()
        }
    }
}

// === impl Case ===

impl Case {
    fn new(setup: Setup, seed: u64) -> Self {
        let kind = setup.kind();
        let server = Arc::new(Mutex::new(Server::new(kind, seed)));
        let shared = Arc::clone(&server);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&shared);
            async move {
                // Before and after the server responds; changes during the second delay are not in the
                // response.
                let latency = || {
                    let random = &mut server.lock().random;
                    let most = if random.bool() { 40 } else { 4000 };
                    Duration::from_millis(random.u64(0..most))
                };
                tokio::time::sleep(latency()).await;
                let answer = if request.method() == http::Method::POST {
                    Ok(server.lock().review())
                } else {
                    server.lock().answer(&request.uri().to_string())
                };
                tokio::time::sleep(latency()).await;
                answer
            }
        });
        let client = kube::Client::new(service, "default");
        let random = fastrand::Rng::with_seed(seed);
        let cache = Cache::new(setup.settings(), client, &Registry::new());
        *cache.0.random.lock() = random;
        if setup == Setup::Transformed {
            let leave_out = |object: &mut Value| {
                object["data"].as_object_mut().map(|data| data.remove("left out"));
                Ok(())
            };
            cache.transform(kind.id(), leave_out).unwrap();
        }
        let mut case = Self {
            kind,
            server,
            cache,
            stores: Vec::new(),
            subscriptions: Vec::new(),
            answers: Vec::new(),
            own: OwnWrites::default(),
        };
        for (scope, filter) in setup.stores() {
            let store = case.cache.kind(kind.id(), scope, Projection::Full);
            let checker = Checker::new(Arc::clone(&case.server), filter);
            case.subscriptions.push(store.subscribe(Box::new(CheckingHandler(Arc::clone(&checker)))));
            case.stores.push((store, checker));
        }
        case
    }

    async fn take(&mut self, step: Step) {
        let mut server = self.server.lock();
        match step {
            Step::Put(name) => drop(server.put(name)),
            Step::Delete(name) => server.delete(name),
            Step::OwnPut(name) => {
                let request = self.kind.request(name);
                self.answers.push(Pending::Object(request, server.put(name)));
            }
            Step::OwnDelete(name) => {
                drop(server);
                self.answers.extend(self.own_delete(name));
            }
            Step::OwnDeleteNow(name) => {
                drop(server);
                if let Some(answer) = self.own_delete(name) {
                    self.answer(&answer);
                }
            }
            Step::Answer(_) if self.answers.is_empty() => {}
            Step::Answer(at) => {
                drop(server);
                let answer = self.answers.remove(at % self.answers.len());
                self.answer(&answer);
            }
            Step::Deliver(count) => server.deliver(count, false, false),
            Step::Early(count) => server.deliver(count, true, false),
            Step::Reversed(count) => server.deliver(count, false, true),
            Step::Repeat(count) => server.repeat(count),
            Step::Bookmark => server.bookmark(),
            Step::Garbage(which) => server.garbage(which),
            Step::End => server.watches.clear(),
            Step::Reset => server.watches.drain(..).for_each(|watch| watch.reset()),
            Step::Error(code) => server.watches.drain(..).for_each(|watch| watch.fail(code)),
            Step::Compact => server.compacted = server.version,
            Step::Refuse(code) => server.refusals.push(code),
            Step::Streams(streams) => server.streams = streams,
            Step::Wait(millis) => {
                drop(server);
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
        }
    }

    /// Sends a DELETE; `None` if the object does not exist.
    fn own_delete(&self, name: u8) -> Option<Pending> {
        let shown = self.cache.cached_uids(&self.kind.path(&self.kind.request(name)));
        let mut server = self.server.lock();
        let (request, deletion) = server.own_delete(name)?;
        Some(Pending::Deleted(request, deletion, server.version, shown))
    }

    /// Reports the response of an own write to the cache, and checks reads at once.
    fn answer(&mut self, written: &Pending) {
        let uncovered = self.cache.0.uncovered();
        let (request, object) = match written {
            Pending::Object(request, object) => {
                let path = self.kind.path(request);
                self.cache.written(&path, &Bytes::from(object.to_string()), Writer::default());
                (request, Some(object))
            }
            Pending::Deleted(request, Deletion::Begun(object), _, shown) => {
                let path = self.kind.path(request);
                self.cache.deleted(&path, &Bytes::from(object.to_string()), shown, Writer::default());
                (request, Some(object))
            }
            Pending::Deleted(request, Deletion::Done(uid), version, shown) => {
                let status = json!({"kind": "Status", "status": "Success", "details": {"uid": uid}});
                let path = self.kind.path(request);
                self.cache.deleted(&path, &Bytes::from(status.to_string()), shown, Writer::default());
                self.own.deleted.extend(shown.iter().chain([uid]).cloned());
                self.own.answered(request, *version, false);
                (request, None)
            }
        };
        if let Some(object) = object {
            let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            self.own.answered(request, version, true);
        }
        assert!(
            object.is_none() || self.cache.0.uncovered() == uncovered,
            "a response with an object does not wait for the watch"
        );
        self.read();
    }

    fn read(&self) {
        for (store, checker) in &self.stores {
            checker.read(store, (0..NAMES).map(|name| self.kind.request(name)), &self.own);
        }
    }

    fn violations(&self) -> Vec<String> {
        self.stores.iter().flat_map(|(_, checker)| checker.violations()).collect()
    }

    /// Delivers all responses and events without failures, for longer than the longest delay.
    async fn heal(&mut self) {
        for answer in std::mem::take(&mut self.answers) {
            self.answer(&answer);
        }
        self.server.lock().refusals.clear();
        self.server.lock().denies = false;
        for _ in 0..400 {
            self.server.lock().deliver(usize::MAX, false, false);
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

async fn run(setup: Setup, seed: u64, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut case = Case::new(setup, seed);
    let mut tasks = JoinSet::new();
    let cache = case.cache.clone();
    tasks.spawn(async move { cache.run(CancellationToken::new()).await });
    for step in steps {
        case.take(step.clone()).await;
        // In a third of the cases the reflector does not get to run between some steps.
        if seed.is_multiple_of(3) {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_millis(seed % 30)).await;
        }
        case.read();
        prop_assert_eq!(&case.violations(), &Vec::<String>::new(), "after {:?}", step);
    }
    case.heal().await;
    prop_assert_eq!(&case.violations(), &Vec::<String>::new());
    for (store, checker) in &case.stores {
        let views = store.list(&Select::all()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&state_of(&views), &checker.expected(), "the store equals the server");
        prop_assert_eq!(&checker.replica(), &checker.expected(), "the deltas replay to it");
        prop_assert_eq!(store.status().down_since, None, "the store is up");
    }
    Ok(())
}

/// The number of object names.
const NAMES: u8 = 4;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..NAMES;
    let few = 1_usize..4;
    let step = prop_oneof![
        4 => name.clone().prop_map(Step::Put),
        3 => name.clone().prop_map(Step::Delete),
        3 => name.clone().prop_map(Step::OwnPut),
        2 => name.clone().prop_map(Step::OwnDelete),
        3 => name.prop_map(Step::OwnDeleteNow),
        4 => few.clone().prop_map(Step::Answer),
        8 => few.clone().prop_map(Step::Deliver),
        1 => few.clone().prop_map(Step::Early),
        1 => few.clone().prop_map(Step::Repeat),
        1 => few.prop_map(Step::Reversed),
        1 => Just(Step::Bookmark),
        1 => (0_u8..5).prop_map(Step::Garbage),
        1 => Just(Step::End),
        1 => Just(Step::Reset),
        1 => Just(Step::Error(410)),
        1 => prop::sample::select(vec![410_u16, 429, 500]).prop_map(Step::Error),
        1 => Just(Step::Compact),
        1 => prop::sample::select(vec![0_u16, 410, 429, 500, 503, 403, 404]).prop_map(Step::Refuse),
        1 => any::<bool>().prop_map(Step::Streams),
        6 => prop::sample::select(vec![1_u64, 30, 300, 1500, 5000, 20_000]).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..100)
}

fn setups() -> impl Strategy<Value = Setup> {
    prop::sample::select(vec![
        Setup::Whole,
        Setup::Selected,
        Setup::Parts,
        Setup::Split,
        Setup::Transformed,
        Setup::Terminating,
    ])
}

/// Enough cases for some seconds, or with `MAINSTAY_LONG=1` for some minutes.
fn cases() -> u32 {
    if std::env::var_os("MAINSTAY_LONG").is_some() { 10_000 } else { 256 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn after_any_history_the_store_equals_the_server_its_deltas_replay_and_reads_include_own_writes(
        setup in setups(), seed in any::<u64>(), steps in steps(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(run(setup, seed, steps))?;
    }
}
