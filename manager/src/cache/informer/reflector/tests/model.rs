//! Any history of a server, seen through a network that fails: the store ends as the server is, the changes told on the
//! way replay to the same state, and no read is older than what this process has written.
//!
//! A server with one version, a history and a memory of it that may be cut short answers the reflector's own requests.
//! Under a paused clock a case of some minutes passes in milliseconds. A failing case prints its shape, seed and steps.

mod ledger;
mod world;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use k8s_openapi::api::core::v1::Namespace;
use kube::client::Body;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::ledger::{Known, Ledger, Shared, stored};
use self::world::{Deletion, Filter, Sort, World};
use crate::cache::tests::fixtures::config_map;
use crate::cache::{Cache, CacheSettings, KindStore, LabelSelector, Projection, Scope, Select, Subscription};
use crate::client::{WriteObserver, Writer};
use crate::key::{KindId, NamespacedName as Key};
use crate::metrics::Registry;

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
    /// This process deletes and is answered at once.
    OwnDeleteNow(u8),
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

/// What is cached, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// All there is.
    Whole,
    /// What has a label, which comes and goes.
    Selected,
    /// All there is, and a namespace and a selection that are read through it.
    Parts,
    /// Two namespaces, each with a list and a watch of its own.
    Split,
    /// All there is, without what a transform leaves out.
    Transformed,
    /// A kind whose objects stay for a while after they were deleted.
    Terminating,
}

/// An answer on its way back to the process that wrote.
enum Written {
    Object(Key, Value),
    /// With its version, and what was read under the name before.
    Deleted(Key, Deletion, u64, Vec<String>),
}

/// A server, the cache that follows it, and those who keep the books of its stores.
struct Case {
    sort: Sort,
    world: Arc<Mutex<World>>,
    cache: Cache,
    stores: Vec<(Arc<KindStore>, Arc<Ledger>)>,
    subscriptions: Vec<Subscription>,
    answers: Vec<Written>,
    known: Known,
}

// === impl Shape ===

impl Shape {
    fn sort(self) -> Sort {
        if self == Self::Terminating { Sort::Namespaces } else { Sort::ConfigMaps }
    }

    fn stores(self) -> Vec<(Scope, Filter)> {
        let all = (Scope::all(), Filter::default());
        let labelled = (
            Scope::all().labels(LabelSelector::parse("app=web").unwrap()),
            Filter { labelled: true, ..Filter::default() },
        );
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
    fn new(shape: Shape, seed: u64) -> Self {
        let sort = shape.sort();
        let world = Arc::new(Mutex::new(World::new(sort, seed)));
        let served = Arc::clone(&world);
        let service = tower::service_fn(move |request: Request<Body>| {
            let world = Arc::clone(&served);
            async move {
                // On its way there, and on the way back: what happens then is not in the answer.
                let latency = || {
                    let random = &mut world.lock().random;
                    let most = if random.bool() { 40 } else { 4000 };
                    Duration::from_millis(random.u64(0..most))
                };
                tokio::time::sleep(latency()).await;
                let answer = if request.method() == http::Method::POST {
                    Ok(world.lock().review())
                } else {
                    world.lock().answer(&request.uri().to_string())
                };
                tokio::time::sleep(latency()).await;
                answer
            }
        });
        let client = kube::Client::new(service, "default");
        let random = fastrand::Rng::with_seed(seed);
        let cache = Cache::with_random(shape.settings(), client, &Registry::new(), random);
        let kind = if sort == Sort::ConfigMaps { config_map() } else { KindId::of::<Namespace>() };
        if shape == Shape::Transformed {
            let leave_out = |object: &mut Value| {
                object["data"].as_object_mut().map(|data| data.remove("left out"));
                Ok(())
            };
            cache.transform(kind.clone(), leave_out).unwrap();
        }
        let mut case = Self {
            sort,
            world,
            cache,
            stores: Vec::new(),
            subscriptions: Vec::new(),
            answers: Vec::new(),
            known: Known::default(),
        };
        for (scope, filter) in shape.stores() {
            let store = case.cache.kind(kind.clone(), scope, Projection::Full);
            let ledger = Ledger::new(Arc::clone(&case.world), filter);
            case.subscriptions.push(store.subscribe(Box::new(Shared(Arc::clone(&ledger)))));
            case.stores.push((store, ledger));
        }
        case
    }

    async fn take(&mut self, step: Step) {
        let mut world = self.world.lock();
        match step {
            Step::Put(name) => drop(world.put(name)),
            Step::Delete(name) => world.delete(name),
            Step::OwnPut(name) => {
                let request = self.sort.request(name);
                self.answers.push(Written::Object(request, world.put(name)));
            }
            Step::OwnDelete(name) => {
                drop(world);
                self.answers.extend(self.own_delete(name));
            }
            Step::OwnDeleteNow(name) => {
                drop(world);
                if let Some(answer) = self.own_delete(name) {
                    self.answer(&answer);
                }
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
            Step::Bookmark => world.bookmark(),
            Step::Garbage(which) => world.garbage(which),
            Step::End => world.watches.clear(),
            Step::Reset => world.watches.drain(..).for_each(|watch| watch.reset()),
            Step::Error(code) => world.watches.drain(..).for_each(|watch| watch.fail(code)),
            Step::Compact => world.compacted = world.version,
            Step::Refuse(code) => world.refusals.push(code),
            Step::Streams(streams) => world.streams = streams,
            Step::Wait(millis) => {
                drop(world);
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
        }
    }

    /// Sends a DELETE; none if there is nothing.
    fn own_delete(&self, name: u8) -> Option<Written> {
        let shown = self.cache.shown(&self.sort.path(&self.sort.request(name)));
        let mut world = self.world.lock();
        let (request, deletion) = world.own_delete(name)?;
        Some(Written::Deleted(request, deletion, world.version, shown))
    }

    /// Gives an answer to who wrote, and reads at once.
    fn answer(&mut self, written: &Written) {
        let uncovered = self.cache.0.uncovered();
        let (request, object) = match written {
            Written::Object(request, object) => {
                let path = self.sort.path(request);
                self.cache.written(&path, &Bytes::from(object.to_string()), Writer::default());
                (request, Some(object))
            }
            Written::Deleted(request, Deletion::Begun(object), _, shown) => {
                let path = self.sort.path(request);
                self.cache.deleted(&path, &Bytes::from(object.to_string()), shown, Writer::default());
                (request, Some(object))
            }
            Written::Deleted(request, Deletion::Gone(uid), version, shown) => {
                let status = json!({"kind": "Status", "status": "Success", "details": {"uid": uid}});
                let path = self.sort.path(request);
                self.cache.deleted(&path, &Bytes::from(status.to_string()), shown, Writer::default());
                self.known.deleted.extend(shown.iter().chain([uid]).cloned());
                self.known.answered(request, *version, false);
                (request, None)
            }
        };
        if let Some(object) = object {
            let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            self.known.answered(request, version, true);
        }
        assert!(
            object.is_none() || self.cache.0.uncovered() == uncovered,
            "objects are judged without the watch"
        );
        self.read();
    }

    fn read(&self) {
        for (store, ledger) in &self.stores {
            ledger.read(store, (0..NAMES).map(|name| self.sort.request(name)), &self.known);
        }
    }

    fn wrong(&self) -> Vec<String> {
        self.stores.iter().flat_map(|(_, ledger)| ledger.wrong()).collect()
    }

    /// Nothing fails any more, and everything that is due arrives, for longer than the longest wait.
    async fn heal(&mut self) {
        for answer in std::mem::take(&mut self.answers) {
            self.answer(&answer);
        }
        self.world.lock().refusals.clear();
        self.world.lock().denies = false;
        for _ in 0..400 {
            self.world.lock().deliver(usize::MAX, false, false);
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

async fn run(shape: Shape, seed: u64, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut case = Case::new(shape, seed);
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
        case.read();
        prop_assert_eq!(&case.wrong(), &Vec::<String>::new(), "after {:?}", step);
    }
    case.heal().await;
    prop_assert_eq!(&case.wrong(), &Vec::<String>::new());
    for (store, ledger) in &case.stores {
        let views = store.list(&Select::all()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&stored(&views), &ledger.expected(), "the store is what the server has");
        prop_assert_eq!(&ledger.replica(), &ledger.expected(), "the changes told replay to it");
        prop_assert_eq!(store.status().down_since, None, "and it says that it works");
    }
    Ok(())
}

/// Names that there are.
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

fn shapes() -> impl Strategy<Value = Shape> {
    prop::sample::select(vec![
        Shape::Whole,
        Shape::Selected,
        Shape::Parts,
        Shape::Split,
        Shape::Transformed,
        Shape::Terminating,
    ])
}

/// Some seconds' worth, or with `MAINSTAY_LONG=1` some minutes'.
fn cases() -> u32 {
    if std::env::var_os("MAINSTAY_LONG").is_some() { 10_000 } else { 256 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_network_does_the_store_ends_as_the_server_its_changes_replay_and_reads_know_own_writes(
        shape in shapes(), seed in any::<u64>(), steps in steps(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(run(shape, seed, steps))?;
    }
}
