//! Runs of `with_finalizer` and `without_finalizer`, by the state of the object.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use mainstay::cache::Store;
use mainstay::controller::{Controller, WiringError};
use mainstay::key::{KindId, NamespacedName};
use mainstay::reconcile::{
    Action, Context, ObjectAdapter, ObjectReconciler, Outcome, ReconcileError, Retry, with_finalizer,
    without_finalizer,
};
use mainstay::testing::{Run, reconcile_once};
use parking_lot::Mutex;
use serde_json::{Value, json};

const OURS: &str = "greeter.example.com/goodbye";
const OTHER: &str = "other.example.com/a";

/// Remembers each call with the finalizers of its object, and answers a cleanup by script, then with `Done`.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<(Vec<String>, Vec<Outcome>)>>);

impl Notes {
    fn note(&self, call: &str, map: &ConfigMap) {
        let finalizers = map.metadata.finalizers.clone().unwrap_or_default().join(" ");
        self.0.lock().0.push(format!("{call} [{finalizers}]"));
    }

    fn answers(&self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.0.lock().1.extend(outcomes);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().0)
    }
}

impl ObjectReconciler<ConfigMap> for Notes {
    async fn reconcile(&self, map: Arc<ConfigMap>, _cx: &Context) -> Outcome {
        self.note("reconcile", &map);
        Ok(Action::RequeueAfter(Duration::from_secs(9)))
    }

    async fn cleanup(&self, map: Arc<ConfigMap>, _cx: &Context) -> Outcome {
        self.note("cleanup", &map);
        let script = &mut self.0.lock().1;
        if script.is_empty() { Ok(Action::Done) } else { script.remove(0) }
    }
}

fn web() -> NamespacedName {
    NamespacedName::namespaced("shop", "web")
}

/// A stored `ConfigMap` at version 5.
fn stored(finalizers: &[&str], deleting: bool) -> Value {
    let mut metadata = json!({
        "name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "5", "finalizers": finalizers,
    });
    if deleting {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        metadata["deletionGracePeriodSeconds"] = json!(0);
    }
    json!({"metadata": metadata})
}

fn store(objects: impl IntoIterator<Item = Value>) -> Store<ConfigMap> {
    Store::from_values(&KindId::of::<ConfigMap>(), objects)
}

fn adapted(store: &Store<ConfigMap>, notes: &Notes) -> ObjectAdapter<ConfigMap, Notes> {
    with_finalizer(store, OURS, notes.clone())
}

/// Runs once on the cached object, while the server has another version.
async fn run_stale(
    shown: Value,
    live: impl IntoIterator<Item = Value>,
) -> (Run, Vec<String>, Store<ConfigMap>) {
    let (notes, shown, live) = (Notes::default(), store([shown]), store(live));
    let cx = Context::for_test().with_store(&live);
    let run = reconcile_once(&adapted(&shown, &notes), &web(), &cx).await;
    (run, notes.take(), live)
}

fn finalizers(store: &Store<ConfigMap>) -> Vec<String> {
    let map = store.get(&web()).unwrap().expect("it is there");
    map.metadata.finalizers.clone().unwrap_or_default()
}

#[tokio::test]
async fn an_object_gets_its_finalizer_before_the_first_reconcile_and_in_the_same_run() {
    let (notes, store) = (Notes::default(), store([stored(&[OTHER], false)]));
    let cx = Context::for_test().with_store(&store);
    let reconciler = adapted(&store, &notes);

    let run = reconcile_once(&reconciler, &web(), &cx).await;
    assert_eq!(run.action(), Action::RequeueAfter(Duration::from_secs(9)));
    assert_eq!(run.wrote(), ["merge configmaps shop/web"]);
    assert_eq!(notes.take(), [format!("reconcile [{OTHER} {OURS}]")], "the reconciler sees its own write");

    let run = reconcile_once(&reconciler, &web(), &cx).await;
    assert_eq!((run.wrote(), notes.take().len()), (vec![], 1), "what is held is not written again");
}

#[tokio::test]
async fn an_object_is_deleted_once_its_cleanup_is_done_and_not_before() {
    let (notes, store) = (Notes::default(), store([stored(&[OURS], true)]));
    let cx = Context::for_test().with_store(&store);
    let reconciler = adapted(&store, &notes);
    let later = Action::RequeueAfter(Duration::from_secs(1));
    notes.answers([Err(ReconcileError::from("not yet")), Ok(later)]);

    let run = reconcile_once(&reconciler, &web(), &cx).await;
    assert!(run.outcome.is_err() && run.writes.is_empty());
    let run = reconcile_once(&reconciler, &web(), &cx).await;
    assert!(run.action() == later && run.writes.is_empty());
    let run = reconcile_once(&reconciler, &web(), &cx).await;
    assert_eq!((run.action(), run.wrote()), (Action::Done, vec!["merge configmaps shop/web".to_owned()]));
    assert!(store.get(&web()).unwrap().is_none());
    let run = reconcile_once(&reconciler, &web(), &cx).await;
    assert_eq!((run.action(), run.wrote()), (Action::Done, vec![]));
    assert_eq!(notes.take(), [(); 3].map(|()| format!("cleanup [{OURS}]")));
}

#[tokio::test]
async fn a_cleanup_that_requeues_after_zero_time_is_done() {
    let (notes, store) = (Notes::default(), store([stored(&[OURS], true)]));
    let cx = Context::for_test().with_store(&store);
    notes.answers([Ok(Action::RequeueAfter(Duration::ZERO))]);
    // Otherwise no event would cause another run, and the object would stay forever.
    let run = reconcile_once(&adapted(&store, &notes), &web(), &cx).await;
    assert!(run.outcome.is_ok(), "{:?}", run.outcome);
    assert!(store.get(&web()).unwrap().is_none());
}

#[tokio::test]
async fn finalizers_of_other_controllers_stay() {
    let (notes, store) = (Notes::default(), store([stored(&[OTHER, OURS, "x/y"], true)]));
    let cx = Context::for_test().with_store(&store);
    let run = reconcile_once(&adapted(&store, &notes), &web(), &cx).await;
    assert_eq!(run.action(), Action::Done);
    assert_eq!(finalizers(&store), [OTHER, "x/y"]);
    // It waits for the others now, and is no longer ours.
    let run = reconcile_once(&adapted(&store, &notes), &web(), &cx).await;
    assert_eq!((run.action(), run.wrote(), notes.take().len()), (Action::Done, vec![], 1));
}

#[tokio::test]
async fn without_a_finalizer_no_write_is_sent_and_an_object_that_is_being_deleted_is_left_alone() {
    for (deleting, expected) in [(false, vec![format!("reconcile [{OTHER}]")]), (true, vec![])] {
        let (notes, store) = (Notes::default(), store([stored(&[OTHER], deleting)]));
        let cx = Context::for_test().with_store(&store);
        let run = reconcile_once(&without_finalizer(&store, notes.clone()), &web(), &cx).await;
        assert!(run.outcome.is_ok() && run.writes.is_empty());
        assert_eq!(notes.take(), expected);
    }
}

#[tokio::test]
async fn an_object_that_changed_meanwhile_gets_its_finalizer_in_its_present_state() {
    let mut live = stored(&[OTHER], false);
    live["metadata"]["resourceVersion"] = json!("6");
    let (run, calls, live) = run_stale(stored(&[], false), [live]).await;
    assert!(run.outcome.is_ok());
    assert_eq!(run.wrote(), ["merge configmaps shop/web (409)", "merge configmaps shop/web"]);
    assert_eq!(calls, ["reconcile []"], "as the cache shows it");
    assert_eq!(finalizers(&live), [OTHER, OURS]);
}

#[tokio::test]
async fn an_object_deleted_or_replaced_between_read_and_write_gets_neither_finalizer_nor_reconcile() {
    let mut replaced = stored(&[], false);
    (replaced["metadata"]["uid"], replaced["metadata"]["resourceVersion"]) = (json!("u2"), json!("6"));
    let mut going = stored(&[OTHER], true);
    going["metadata"]["resourceVersion"] = json!("6");
    for live in [vec![], vec![replaced], vec![going]] {
        let before = live.first().map(|live| live["metadata"]["finalizers"].clone());
        let (run, calls, store) = run_stale(stored(&[], false), live).await;
        assert_eq!((run.action(), calls), (Action::Done, vec![]));
        let after =
            store.get(&web()).unwrap().map(|map| json!(map.metadata.finalizers.clone().unwrap_or_default()));
        assert_eq!(after, before);
    }
}

#[tokio::test]
async fn a_finalizer_that_is_removed_during_the_cleanup_is_no_error() {
    let mut without = stored(&[OTHER], true);
    without["metadata"]["resourceVersion"] = json!("6");
    let mut replaced = stored(&[OURS], false);
    (replaced["metadata"]["uid"], replaced["metadata"]["resourceVersion"]) = (json!("u2"), json!("6"));
    for live in [vec![], vec![without], vec![replaced]] {
        let (run, calls, _) = run_stale(stored(&[OTHER, OURS], true), live).await;
        assert_eq!((run.action(), calls), (Action::Done, vec![format!("cleanup [{OTHER} {OURS}]")]));
    }
}

#[tokio::test]
async fn a_conflict_that_stays_is_tried_again_quietly() {
    let (notes, store) = (Notes::default(), store([stored(&[], false)]));
    let cx = Context::for_test().with_store(&store);
    cx.api().refuse_next(409, "Conflict", "changed");
    cx.api().answer_next(stored(&[], false));
    cx.api().refuse_next(409, "Conflict", "changed again");
    let error = reconcile_once(&adapted(&store, &notes), &web(), &cx).await.outcome.unwrap_err();
    assert!(error.is_conflict() && error.retry() == Retry::Backoff, "{error}");
    assert!(notes.take().is_empty(), "what is not held is not reconciled");
}

#[tokio::test]
async fn an_object_that_does_not_decode_gets_no_finalizer() {
    let mut odd = stored(&[], false);
    odd["data"] = json!(7);
    let (run, calls, _) = run_stale(odd.clone(), [odd]).await;
    assert!(run.writes.is_empty() && calls.is_empty());
    assert_eq!(run.outcome.unwrap_err().retry(), Retry::Never, "only a change can help");
}

#[tokio::test]
async fn an_object_that_is_not_admitted_gets_no_finalizer_and_one_that_has_it_is_cleaned_up() {
    let labelled = |value: &str, finalizers: &[&str]| {
        let mut object = stored(finalizers, false);
        object["metadata"]["labels"] = json!({"greet": value});
        object
    };
    let is_greeted = |map: &ConfigMap| {
        map.metadata.labels.iter().flatten().any(|(key, value)| key == "greet" && value == "yes")
    };
    for (object, calls, writes) in [
        (labelled("no", &[OTHER]), vec![], 0),
        (labelled("no", &[OTHER, OURS]), vec![format!("cleanup [{OTHER} {OURS}]")], 1),
        (labelled("yes", &[OURS]), vec![format!("reconcile [{OURS}]")], 0),
    ] {
        let (notes, store) = (Notes::default(), store([object]));
        let cx = Context::for_test().with_store(&store);
        let run = reconcile_once(&adapted(&store, &notes).when(is_greeted), &web(), &cx).await;
        assert!(run.outcome.is_ok(), "{run:?}");
        assert_eq!((notes.take(), run.writes.len()), (calls, writes));
    }
}

#[tokio::test]
async fn an_object_that_is_not_admitted_keeps_the_finalizer_until_its_cleanup_is_done() {
    let (notes, store) = (Notes::default(), store([stored(&[OURS], false)]));
    let cx = Context::for_test().with_store(&store);
    let reconciler = adapted(&store, &notes).when(|_| false);
    notes.answers([Err(ReconcileError::from("not yet"))]);
    let run = reconcile_once(&reconciler, &web(), &cx).await;
    assert!(run.outcome.is_err() && run.writes.is_empty());
    let run = reconcile_once(&reconciler, &web(), &cx).await;
    assert_eq!(run.wrote(), ["merge configmaps shop/web"]);
    assert_eq!(finalizers(&store), [""; 0]);
}

#[tokio::test]
async fn mistakes_of_an_adapter_are_refused_before_the_controller_is_registered() {
    let maps = store([]);
    let secrets: Store<k8s_openapi::api::core::v1::Secret> = Store::from_objects([]);
    let mistake = |store: &Store<ConfigMap>, finalizer: &str| {
        let registration = Controller::new("greeter").reconciles(&secrets).reconciler(with_finalizer(
            store,
            finalizer,
            Notes::default(),
        ));
        match registration.problem() {
            Some(WiringError::Reconciler { source }) => source.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        mistake(&maps, "goodbye"),
        "finalizer \"goodbye\" has no domain; write it as domain/name, such as greeter.example.com/cleanup"
    );
    assert_eq!(
        mistake(&maps, OURS),
        "it reads ConfigMap, and the controller reconciles Secret; give both one store"
    );
    let cx = Context::for_test();
    let run = reconcile_once(&with_finalizer(&maps, "goodbye", Notes::default()), &web(), &cx).await;
    assert_eq!(run.outcome.unwrap_err().retry(), Retry::Never);
}
