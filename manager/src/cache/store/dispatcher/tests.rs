use std::collections::BTreeMap;
use std::sync::Weak;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::cache::Select;
use crate::cache::tests::fixtures::{ByHand, object, recorder};
use crate::client::Writer;

/// Compares each delta with the state of the store at that moment.
struct Compares {
    store: Weak<UntypedStore>,
    wrong: Arc<Mutex<Vec<String>>>,
}

impl DeltaHandler for Compares {
    fn handle(&self, delta: &Delta<'_>) {
        let (Some(store), Some(latest)) = (self.store.upgrade(), delta.latest()) else { return };
        let stored = store.get(latest.request()).unwrap();
        let version = |view: &View| view.meta().resource_version.clone();
        let as_new = match (delta.new, &stored) {
            (Some(new), Some(stored)) => !version(new).is_newer_than(&version(stored)),
            (None, Some(stored)) => stored.meta().uid != latest.meta().uid,
            (_, None) => true,
        };
        if !as_new {
            self.wrong.lock().push(format!("delta {delta:?} while {stored:?} was stored"));
        }
    }
}

#[tokio::test]
async fn a_handler_reads_a_store_as_new_as_its_delta() {
    let by_hand = ByHand::listed(&[object("a", "u1", 5), object("b", "u2", 6)]);
    let wrong = Arc::new(Mutex::new(Vec::new()));
    let compares = Compares { store: Arc::downgrade(&by_hand.store), wrong: wrong.clone() };
    let mut subscription = by_hand.store.subscribe(Box::new(compares));
    let (handler, mut deltas) = recorder();
    let _last = by_hand.store.subscribe(handler);
    subscription.synced().await;
    by_hand.changed(&object("a", "u1", 11));
    by_hand.deleted(&object("a", "u1", 12));
    by_hand.deleted(&object("unknown", "u9", 13));
    by_hand.changed(&object("a", "u3", 14));
    by_hand.written(&object("a", "u3", 15), Writer::default());
    by_hand.relisted(&[object("a", "u4", 16)], 20);
    let expected = ["a@5 -> a@11", "- a@11", "+ a@14", "a@14 -> a@15 own", "- a@15", "+ a@16", "- b@6"];
    let mut lines = deltas.take(9).await;
    lines.retain(|line| !line.ends_with("initial"));
    assert_eq!(lines, expected, "no delta for the unknown object");
    assert_eq!(*wrong.lock(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn short_subscriptions_each_receive_a_consistent_history() {
    /// The state after all deltas so far, and the deltas that do not continue it.
    #[derive(Default)]
    struct History {
        objects: BTreeMap<String, String>,
        wrong: Vec<String>,
    }
    struct Follows(Arc<Mutex<History>>);
    impl DeltaHandler for Follows {
        fn handle(&self, delta: &Delta<'_>) {
            let mut history = self.0.lock();
            let version = |view: &View| view.meta().resource_version.to_string();
            let Some(name) = delta.latest().map(|view| view.meta().name().to_owned()) else { return };
            let known = history.objects.get(&name).cloned();
            if known != delta.old.map(version) {
                history.wrong.push(format!("{delta:?} after {known:?}"));
            }
            match delta.new {
                Some(new) => drop(history.objects.insert(name, version(new))),
                None => drop(history.objects.remove(&name)),
            }
        }
    }
    let by_hand = Arc::new(ByHand::listed(&[object("n0", "n0", 5)]));
    let mut coming_and_going = JoinSet::new();
    let (over, wrong) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
    for _ in 0..20 {
        let (by_hand, over, wrong) = (by_hand.clone(), over.clone(), wrong.clone());
        coming_and_going.spawn(async move {
            while !over.is_cancelled() {
                let history = Arc::new(Mutex::new(History::default()));
                let mut subscription = by_hand.store.subscribe(Box::new(Follows(history.clone())));
                subscription.synced().await;
                drop(subscription);
                wrong.lock().append(&mut history.lock().wrong);
            }
        });
    }
    let history = Arc::new(Mutex::new(History::default()));
    let mut stays = by_hand.store.subscribe(Box::new(Follows(history.clone())));
    stays.synced().await;
    for version in 11_u64..3000 {
        let name = format!("n{}", version % 7);
        // Deleted for some versions, then created again with another uid.
        let object = object(&name, &format!("{name}-{}", version / 50), version);
        if version % 50 < 7 {
            by_hand.deleted(&object);
        } else {
            by_hand.changed(&object);
        }
        if version % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    over.cancel();
    while coming_and_going.join_next().await.is_some() {}
    let mut last = by_hand.store.subscribe(Box::new(Follows(Arc::default())));
    // This handler subscribed behind all changes, so they have been delivered.
    last.synced().await;
    let held = by_hand.store.list(&Select::all()).unwrap();
    let held: BTreeMap<String, String> = held
        .iter()
        .map(|view| (view.meta().name().to_owned(), view.meta().resource_version.to_string()))
        .collect();
    assert_eq!(history.lock().objects, held);
    assert_eq!((&history.lock().wrong, &*wrong.lock()), (&Vec::new(), &Vec::new()));
}
