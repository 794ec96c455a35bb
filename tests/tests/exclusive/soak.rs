//! Watches are cut, the server is restarted and its history compacted while three writers write: in the end the store
//! is what the server has, and every deletion was told.

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
/// Names that objects come and go under, and how long there is trouble; restarts take their time on top.
const NAMES: u64 = 1_000;
const TROUBLE: Duration = Duration::from_secs(20);
const NAMES_IN_FULL: u64 = 5_000;
const TROUBLE_IN_FULL: Duration = Duration::from_mins(2);
/// Longest time between two troubles, and the longest that a writer waits before it asks a server that is away again.
const PAUSE_MILLIS: u64 = 800;

type State = BTreeMap<String, (String, String)>;

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
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

/// Creates, changes and deletes under one third of the names, whatever the server says.
struct Writer {
    maps: Api<ConfigMap>,
    number: u64,
    names: u64,
    dice: Dice,
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
}

impl Writer {
    async fn run(mut self) {
        for name in (self.number..self.names).step_by(WRITERS) {
            while self.create(name).await.is_err() {
                self.dice.pause().await;
            }
        }
        while !self.stop.load(Ordering::Relaxed) {
            let name = self.number + WRITERS as u64 * self.dice.below(self.names / WRITERS as u64);
            let outcome = match self.dice.below(10) {
                0..2 => self.maps.delete(&text(name), &DeleteParams::default()).await.map(drop),
                2..5 => self.create(name).await,
                _ => {
                    let patch = json!({"data": {"at": self.dice.below(1 << 40).to_string()}});
                    let params = PatchParams::default();
                    self.maps.patch(&text(name), &params, &Patch::Merge(patch)).await.map(drop)
                }
            };
            match outcome {
                Ok(()) => drop(self.written.fetch_add(1, Ordering::Relaxed)),
                // It is there already, or not there.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(_away) => self.dice.pause().await,
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
async fn whatever_happens_to_watches_server_and_history_no_deletion_is_missed() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let (names, trouble) = if long_form() { (NAMES_IN_FULL, TROUBLE_IN_FULL) } else { (NAMES, TROUBLE) };
    let follower = Follower::start(&cluster).await;
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut writers = JoinSet::new();
    for number in 0..WRITERS as u64 {
        // The first is this process, whose own writes the cache sees; the others are somebody else.
        let client = if number == 0 { follower.writer.clone() } else { cluster.client() };
        let writer = Writer {
            maps: Api::namespaced(client, cluster.namespace()),
            number,
            names,
            dice: Dice(number + 1),
            stop: Arc::clone(&stop),
            written: Arc::clone(&written),
        };
        writers.spawn(writer.run());
    }
    let filled = follower.books.until(|kept| kept.objects.len() as u64 >= names * 9 / 10);
    tokio::time::timeout(wait::PATIENCE * 3, filled).await.expect("the names are filled");

    let mut dice = Dice(99);
    let (mut cuts, mut restarts, mut compactions) = (0, 0, 0);
    let began = Instant::now();
    while began.elapsed() < trouble {
        dice.pause().await;
        match dice.below(12) {
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
                dice.pause().await;
                follower.middlebox.release();
            }
            _ => {
                follower.middlebox.cut();
                cuts += 1;
            }
        }
    }
    // Once at least, and last: a history that begins after what the watch has seen.
    follower.middlebox.hold();
    dice.pause().await;
    cluster.compact().await;
    cluster.control_plane().kill_apiserver().await;
    follower.middlebox.cut();
    follower.middlebox.release();
    cluster.control_plane().start_apiserver().await.expect("it starts again");
    dice.pause().await;
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = writers.join_next().await {
        ended.expect("a writer");
    }

    let calm = Instant::now();
    let maps = cluster.api::<ConfigMap>();
    let expected = served(&maps).await;
    let equal = follower.books.until(|kept| kept.objects == expected);
    if tokio::time::timeout(wait::PATIENCE, equal).await.is_err() {
        assert_eq!(follower.books.kept().objects, expected, "the changes told replay to what the server has");
    }
    figure_of_time("cache.soak.settled_after", calm.elapsed());
    assert_eq!(stored(&follower.store), expected, "the store is what the server has");
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
    assert!(status.relists > 0, "a history that was too short was met");
    assert_eq!(status.decode_errors, 0);
    cluster.stop().await;
}
