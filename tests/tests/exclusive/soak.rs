//! Three writers write while watches are cut, the API server restarts and etcd is compacted. In the end the
//! store equals the objects on the server, and the handlers have received every deletion.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use mainstay::cache::{Select, Store};
use mainstay::client::Current as _;
use mainstay_tests::follow::Follower;
use mainstay_tests::report::{figure, figure_of_time, long_form};
use mainstay_tests::{TestCluster, wait};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

const WRITERS: usize = 3;
/// Number of names under which objects are created and deleted.
const NAMES: u64 = 1_000;
/// How long faults are injected; the last restart comes on top.
const DURATION: Duration = Duration::from_secs(20);
const NAMES_IN_FULL: u64 = 5_000;
const DURATION_IN_FULL: Duration = Duration::from_mins(2);
/// Longest pause between two faults, and before a writer retries after an error.
const PAUSE_MILLIS: u64 = 800;

type State = BTreeMap<String, (String, String)>;

/// Pseudorandom numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        // xorshift64: period 2^64 - 1, never 0.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    async fn pause(&mut self) {
        tokio::time::sleep(Duration::from_millis(self.below(PAUSE_MILLIS))).await;
    }
}

/// Creates, changes and deletes objects under one third of the names, and ignores errors of the API server.
struct Writer {
    maps: Api<ConfigMap>,
    number: u64,
    names: u64,
    random: Random,
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
}

impl Writer {
    async fn run(mut self) {
        for name in (self.number..self.names).step_by(WRITERS) {
            while self.create(name).await.is_err() {
                self.random.pause().await;
            }
        }
        while !self.stop.load(Ordering::Relaxed) {
            let name = self.number + WRITERS as u64 * self.random.below(self.names / WRITERS as u64);
            let outcome = match self.random.below(10) {
                0..2 => self.maps.delete(&text(name), &DeleteParams::default()).await.map(drop),
                2..5 => self.create(name).await,
                _ => {
                    let patch = json!({"data": {"at": self.random.below(1 << 40).to_string()}});
                    let params = PatchParams::default();
                    self.maps.patch(&text(name), &params, &Patch::Merge(patch)).await.map(drop)
                }
            };
            match outcome {
                Ok(()) => drop(self.written.fetch_add(1, Ordering::Relaxed)),
                // The object already exists, or does not exist.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(_unavailable) => self.random.pause().await,
            }
        }
    }

    async fn create(&self, name: u64) -> kube::Result<()> {
        let map = ConfigMap {
            metadata: kube::api::ObjectMeta { name: Some(text(name)), ..Default::default() },
            ..ConfigMap::default()
        };
        match self.maps.create(&PostParams::default(), &map).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop),
        }
    }
}

fn text(name: u64) -> String {
    format!("soak-{name}")
}

fn stored(store: &Store<ConfigMap>) -> State {
    let entries = store.untyped().list(&Select::all()).expect("synced");
    let entries = entries.iter().map(|view| {
        let meta = view.meta();
        (meta.name().to_owned(), (view.uid().to_string(), meta.resource_version.to_string()))
    });
    entries.collect()
}

async fn served(maps: &Api<ConfigMap>) -> State {
    let list = maps.list(&ListParams::default()).await.expect("listed");
    let state = list.items.into_iter().map(|map| {
        let (uid, version) = (map.uid().unwrap_or_default(), map.resource_version().unwrap_or_default());
        (map.name_any(), (uid, version))
    });
    state.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_deletion_is_missed_despite_cut_watches_restarts_and_compactions() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let (names, duration) = if long_form() { (NAMES_IN_FULL, DURATION_IN_FULL) } else { (NAMES, DURATION) };
    let follower = Follower::start(&cluster).await;
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut writers = JoinSet::new();
    for number in 0..WRITERS as u64 {
        // The cache records the writes of the first client as its own; the other clients are foreign.
        let client = if number == 0 { follower.writer.clone() } else { cluster.client() };
        let writer = Writer {
            maps: Api::namespaced(client, cluster.namespace()),
            number,
            names,
            random: Random(number + 1),
            stop: Arc::clone(&stop),
            written: Arc::clone(&written),
        };
        writers.spawn(writer.run());
    }
    let filled = follower.books.until(|kept| kept.objects.len() as u64 >= names * 9 / 10);
    tokio::time::timeout(wait::PATIENCE * 3, filled).await.expect("nine tenths of the names are in use");

    let mut random = Random(99);
    let (mut cuts, mut restarts, mut compactions) = (0, 0, 0);
    let began = Instant::now();
    while began.elapsed() < duration {
        random.pause().await;
        match random.below(12) {
            0 => {
                cluster.control_plane().kill_apiserver().await;
                cluster.control_plane().start_apiserver().await.expect("it starts again");
                restarts += 1;
            }
            1..4 => {
                cluster.compact().await;
                compactions += 1;
            }
            4..6 => {
                follower.middlebox.hold();
                random.pause().await;
                follower.middlebox.release();
            }
            _ => {
                follower.middlebox.cut();
                cuts += 1;
            }
        }
    }
    // The last fault: the history of etcd begins after the last event that the watch has received, so that at
    // least one watch fails with 410 and the cache relists.
    follower.middlebox.hold();
    random.pause().await;
    cluster.compact().await;
    cluster.control_plane().kill_apiserver().await;
    follower.middlebox.cut();
    follower.middlebox.release();
    cluster.control_plane().start_apiserver().await.expect("it starts again");
    random.pause().await;
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = writers.join_next().await {
        ended.expect("a writer");
    }

    let calm = Instant::now();
    let maps = cluster.api::<ConfigMap>();
    let expected = served(&maps).await;
    let equal = follower.books.until(|kept| kept.objects == expected);
    if tokio::time::timeout(wait::PATIENCE, equal).await.is_err() {
        assert_eq!(
            follower.books.kept().objects,
            expected,
            "the deltas do not add up to the objects of the server"
        );
    }
    figure_of_time("cache.soak.settled_after", calm.elapsed());
    assert_eq!(stored(&follower.store), expected, "the store differs from the server");
    let kept = follower.books.kept();
    assert_eq!(kept.wrong, Vec::<String>::new());
    let status = follower.status();
    for (name, value) in [
        ("writes", written.load(Ordering::Relaxed)),
        ("cuts", cuts),
        ("server_restarts", restarts + 1),
        ("compactions", compactions + 1),
        ("relists", status.relists),
        ("watch_restarts", status.restarts),
        ("deletes_told", kept.deleted.len() as u64),
        ("missed_deletes", kept.objects.keys().filter(|name| !expected.contains_key(*name)).count() as u64),
    ] {
        let value = u32::try_from(value).expect("few");
        figure(&format!("cache.soak.{name}"), value.into(), "count");
    }
    assert!(status.relists > 0, "no relist although etcd was compacted");
    assert_eq!(status.decode_errors, 0);
    cluster.stop().await;
}
