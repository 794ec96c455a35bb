//! The cost of the cache: memory per object, time and allocations per event, reads, relists, and readers
//! beside a writer.
//!
//! `cargo bench -p mainstay --bench cache` prints one line `figure NAME VALUE UNIT` per figure. kube's own
//! `reflector::Store` does the same work on the same bytes in the same run; its figures end in `.kube`.
//!
//! Times are the processor time of all threads of this process: without the other load of the machine, but
//! with packing on another thread; a packed event is done when its body is packed. Allocations are counted by
//! the allocator of the benchmark; the store reports the allocations of zstd. With `MAINSTAY_BENCH=quick`,
//! and as a test, fewer objects are used: bytes and allocations, which do not depend on the machine, are
//! asserted against 1.25 times their bounds, times against ten times their bounds.

#![expect(clippy::cast_precision_loss, reason = "figures have a few digits")]
#![expect(clippy::expect_used, reason = "a benchmark that cannot start must end")]

mod api;
mod crowd;
mod peer;
mod pods;

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::api::core::v1;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use mainstay::cache::{Cache, CacheSettings, Delta, DeltaHandler, Pack, Packing, Scope, Store, Subscription};
use mainstay::key::NamespacedName;
use mainstay::metrics::Registry;

use self::api::{Api, COUNTED, LISTED, Watch, event};
use self::peer::Peer;
use self::pods::Pod;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Events sent in one chunk: the result of one read from a busy connection.
const CHUNK: u32 = 8;

#[derive(Clone, Copy)]
struct Form {
    quick: bool,
    /// Whether times are measured too; not as a test.
    timed: bool,
    /// Objects in the store.
    pods: u32,
    /// Changes ingested per round.
    events: u32,
}

/// A store under measurement: mainstay's or kube's.
struct Filled {
    watch: Watch,
    /// Changes ingested so far.
    taken: Arc<AtomicUsize>,
    reader: Reader,
    local: LocalSet,
    runtime: Runtime,
}

enum Reader {
    Ours { store: Store<v1::Pod>, _cache: Cache, _subscription: Subscription },
    Kube { _peer: Peer },
}

/// Counts the deltas.
struct Counter(Arc<AtomicUsize>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// The default: bodies are packed once that pays.
    Packed,
    /// No body is packed.
    Plain,
    Kube,
}

const ALL: [Which; 3] = [Which::Packed, Which::Plain, Which::Kube];

// === impl Form ===

impl Form {
    fn new() -> Self {
        // The argument that cargo passes to a benchmark, but not to a test.
        let timed = std::env::args().any(|arg| arg == "--bench");
        let quick = !timed || std::env::var("MAINSTAY_BENCH").is_ok_and(|form| form == "quick");
        let (pods, events) = if quick { (2_000, 1_000) } else { (20_000, 10_000) };
        Self { quick, timed, pods, events }
    }

    /// Prints a figure that depends on the machine.
    fn print(self, name: &str, value: f64, unit: &str, most: Option<f64>) {
        self.judge(name, value, unit, most.map(|most| 10.0 * most));
    }

    /// Prints a figure of memory, which does not depend on the machine. The bound is wider by a quarter,
    /// because the fixed cost of a store weighs more with few objects.
    fn count(self, name: &str, value: f64, unit: &str, most: Option<f64>) {
        self.judge(name, value, unit, most.map(|most| 1.25 * most));
    }

    #[expect(clippy::print_stdout, reason = "the figures are the output")]
    fn judge(self, name: &str, value: f64, unit: &str, most: Option<f64>) {
        println!("figure {name} {value:.2} {unit}");
        let held = most.is_none_or(|most| value <= most);
        assert!(held || !self.quick, "{name} is {value} {unit}, far beyond its bound");
    }
}

// === impl Which ===

impl Which {
    fn suffix(self) -> &'static str {
        ["packed", "plain", "kube"][self as usize]
    }
}

// === impl Filled ===

impl Filled {
    fn new(which: Which, pods: u32) -> Self {
        Self::of(which, pods, |number, version| Pod::new(number).json(version))
    }

    /// Returns a store filled with objects that `write` returns by number and version.
    fn of(which: Which, pods: u32, write: fn(u32, u64) -> String) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the runtime starts");
        let entered = runtime.enter();
        let api = Api::serve(pods, write);
        let local = LocalSet::new();
        let (taken, reader, task) = reader(which, &api);
        local.spawn_local(task);
        drop(entered);
        let filled = Self { watch: api.watch(), taken, reader, local, runtime };
        filled.wait_for(pods as usize);
        filled.settle(which, pods as usize);
        filled
    }

    /// Runs the store until every body is packed, unless it packs none.
    fn settle(&self, which: Which, pods: usize) {
        if which == Which::Packed {
            self.wait(|| self.packing().objects == pods);
        }
    }

    fn packing(&self) -> Packing {
        self.ours().untyped().status().packing
    }

    /// Runs the store until it has ingested so many changes in all.
    fn wait_for(&self, changes: usize) {
        self.wait(|| self.taken.load(Ordering::Relaxed) >= changes);
    }

    fn wait(&self, done: impl Fn() -> bool) {
        self.runtime.block_on(self.local.run_until(async {
            while !done() {
                // A busy loop would be part of the measured time.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }));
    }

    fn ingest(&self, which: Which, form: Form, chunks: &[Bytes]) {
        let before = self.taken.load(Ordering::Relaxed);
        for chunk in chunks {
            self.watch.send(chunk.clone());
        }
        self.wait_for(before + form.events as usize);
        self.settle(which, form.pods as usize);
    }

    /// Reads every object as its type, and keeps none.
    fn read_each(&self, pods: u32) {
        for number in 0..pods {
            drop(black_box(self.ours().get(&request(number))));
        }
    }

    fn ours(&self) -> &Store<v1::Pod> {
        match &self.reader {
            Reader::Ours { store, .. } => store,
            Reader::Kube { .. } => unreachable!("only for a store of mainstay"),
        }
    }
}

impl DeltaHandler for Counter {
    fn handle(&self, _: &Delta<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn reader(which: Which, api: &Api) -> (Arc<AtomicUsize>, Reader, Pin<Box<dyn Future<Output = ()>>>) {
    if which == Which::Kube {
        let (peer, task) = Peer::new(api.client());
        return (peer.taken.clone(), Reader::Kube { _peer: peer }, task);
    }
    let pack = if which == Which::Packed { Pack::Auto } else { Pack::Never };
    let settings = CacheSettings { pack, ..CacheSettings::default() };
    let cache = Cache::new(settings, api.client(), &Registry::new());
    let store = cache.store::<v1::Pod>(Scope::all());
    let taken = Arc::new(AtomicUsize::new(0));
    let subscription = store.untyped().subscribe(Box::new(Counter(taken.clone())));
    let running = cache.clone();
    let task = async move { running.run(CancellationToken::new()).await };
    (taken, Reader::Ours { store, _cache: cache, _subscription: subscription }, Box::pin(task))
}

fn main() {
    let form = Form::new();
    if form.timed {
        times(form);
    }
    // From here on every allocation is counted, which is slow.
    let _profiler = dhat::Profiler::builder().testing().build();
    COUNTED.store(true, Ordering::Relaxed);
    for which in ALL {
        let before = dhat::HeapStats::get().curr_bytes;
        let filled = Filled::new(which, form.pods);
        if which != Which::Kube {
            // Kube's store keeps decoded objects; in mainstay's store, read objects must cost no more than
            // unread ones.
            filled.read_each(form.pods);
        }
        let prepared = if which == Which::Packed { filled.packing().dictionary_bytes } else { 0 };
        let held = dhat::HeapStats::get().curr_bytes - before + prepared;
        let most = [Some(1000.0), Some(8000.0), None][which as usize];
        let per_pod = held as f64 / f64::from(form.pods);
        form.count(&format!("cache.bytes_per_pod.{}", which.suffix()), per_pod, "bytes", most);
        let allocations = ingest_allocations(&filled, which, form);
        let most = [Some(12.0), Some(10.0), None][which as usize];
        form.count(&format!("cache.ingest_allocs.{}", which.suffix()), allocations, "count", most);
        let name = match which {
            Which::Packed => "cache.relist_peak_ratio",
            Which::Plain => "cache.relist_peak_ratio.plain",
            Which::Kube => "cache.relist_peak_ratio.kube",
        };
        let most = (which != Which::Kube).then_some(1.3);
        form.print(name, relist_peak(&filled, form, before), "ratio", most);
    }
}

fn times(form: Form) {
    for which in ALL {
        let filled = Filled::new(which, form.pods);
        let spent = median(|round| ingest_us(&filled, which, form, round));
        let most = [Some(25.0), Some(15.0), None][which as usize];
        form.print(&format!("cache.ingest_us.{}", which.suffix()), spent, "us", most);
        if which != Which::Kube {
            reads(&filled, which, form);
        }
    }
    crowd::measure(form);
}

/// Returns microseconds per change without typed reads.
fn ingest_us(filled: &Filled, which: Which, form: Form, round: u32) -> f64 {
    let chunks = changes(form, round);
    let start = cpu_time();
    filled.ingest(which, form, &chunks);
    since(start) * 1e6 / f64::from(form.events)
}

fn ingest_allocations(filled: &Filled, which: Which, form: Form) -> f64 {
    let chunks = changes(form, 9);
    let before = dhat::HeapStats::get().total_blocks;
    filled.ingest(which, form, &chunks);
    (dhat::HeapStats::get().total_blocks - before) as f64 / f64::from(form.events)
}

/// Returns the ratio of the most bytes during a relist in which every object has changed to the bytes before
/// it.
fn relist_peak(filled: &Filled, form: Form, without: usize) -> f64 {
    let taken = filled.taken.load(Ordering::Relaxed);
    let steady = dhat::HeapStats::get().curr_bytes - without;
    filled.watch.take_peak();
    filled.watch.expire();
    filled.wait_for(taken + form.pods as usize);
    let peak = filled.watch.take_peak().max(dhat::HeapStats::get().curr_bytes) - without;
    peak as f64 / steady as f64
}

fn reads(filled: &Filled, which: Which, form: Form) {
    let store = filled.ours();
    let requests: Vec<NamespacedName> = (0..form.pods.min(1000)).map(request).collect();
    // The results are dropped at once, so every read decodes.
    let read = median(|_| per_item(&requests, 1, |request| drop(black_box(store.get(request))))) * 1e6;
    form.print(&format!("cache.typed_read_us.{}", which.suffix()), read, "us", None);
    if which == Which::Packed {
        return;
    }
    let get = median(|_| per_item(&requests, 100, |request| drop(black_box(store.entry(request))))) * 1e9;
    form.print("cache.get_ns", get, "ns", Some(100.0));
    let bodies: Vec<Bytes> =
        requests.iter().filter_map(|request| store.entry(request).ok()??.view().bytes().ok()).collect();
    let decode = median(|_| {
        per_item(&bodies, 1, |body| drop(black_box(serde_json::from_slice::<v1::Pod>(body).ok())))
    });
    form.print("cache.decode_us", decode * 1e6, "us", None);
}

/// Returns seconds per item.
fn per_item<T>(items: &[T], turns: u32, act: impl Fn(&T)) -> f64 {
    let start = cpu_time();
    for _ in 0..turns {
        items.iter().for_each(&act);
    }
    since(start) / f64::from(turns) / items.len() as f64
}

/// Returns changes to Pods of the list, in chunks as they arrive.
fn changes(form: Form, round: u32) -> Vec<Bytes> {
    let first = LISTED + u64::from(round + 1) * u64::from(form.events);
    let numbers: Vec<u32> = (0..form.events).collect();
    numbers
        .chunks(CHUNK as usize)
        .map(|chunk| {
            let lines = chunk.iter().map(|number| {
                event("MODIFIED", &Pod::new(number * 7 % form.pods).json(first + u64::from(*number)))
            });
            Bytes::from(lines.collect::<String>())
        })
        .collect()
}

fn request(number: u32) -> NamespacedName {
    let pod = Pod::new(number);
    NamespacedName::namespaced(pod.namespace(), pod.name())
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn since(earlier: Duration) -> f64 {
    cpu_time().saturating_sub(earlier).as_secs_f64()
}

fn median(mut round: impl FnMut(u32) -> f64) -> f64 {
    let mut rounds = [round(0), round(1), round(2)];
    rounds.sort_by(f64::total_cmp);
    rounds[1]
}
