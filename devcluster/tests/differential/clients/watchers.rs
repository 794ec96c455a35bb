//! The watchers, reflectors and the Controller of kube-runtime.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Client, Resource as _, ResourceExt as _};
use kube_runtime::controller::{Action, Controller};
use kube_runtime::reflector::{self, Store};
use kube_runtime::{WatchStreamExt as _, watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::order::Order;
use super::report::Report;
use super::state::{self, Objects};
use super::{KINDS, api, resource};

/// The pause after a failed reconcile.
const RETRY: Duration = Duration::from_millis(200);

/// Two watchers for each kind, one for each way to start, and a Controller that keeps a `ConfigMap` for each
/// Foo.
pub(crate) struct Watchers {
    caches: Vec<Cache>,
    errors: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

struct Cache {
    plural: &'static str,
    store: Store<DynamicObject>,
    order: Arc<Mutex<Order>>,
}

// === impl Watchers ===

impl Watchers {
    pub(crate) fn start(client: &Client) -> Self {
        let (errors, mut tasks) = (Arc::default(), JoinSet::new());
        let mut caches = Vec::new();
        for (plural, ..) in KINDS {
            for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
                let writer = reflector::store::Writer::new(resource(plural));
                let (store, order) = (writer.as_reader(), Arc::<Mutex<Order>>::default());
                caches.push(Cache { plural, store, order: Arc::clone(&order) });
                let stream = watcher(api(client, plural), config).default_backoff().reflect(writer);
                let errors = Arc::clone(&errors);
                tasks.spawn(stream.for_each(move |event| {
                    match event {
                        Ok(event) => saw(&mut order.lock(), &event),
                        Err(error) => note(&errors, &error),
                    }
                    std::future::ready(())
                }));
            }
        }
        tasks.spawn(control(client.clone(), Arc::clone(&errors)));
        Self { caches, errors, _tasks: tasks }
    }

    /// Compares all caches with the server's objects, and both watchers of each kind with each other.
    pub(crate) fn report(self, objects: &Objects) -> Report {
        let mut report = Report::default();
        for Cache { plural, store, order } in &self.caches {
            let cached = store
                .state()
                .into_iter()
                .map(|object| (format!("{plural}/{}", object.name_any()), state::untyped((*object).clone())));
            report.cache("kube-runtime", plural, &order.lock(), &cached.collect(), objects);
        }
        for [one, other] in self.caches.as_chunks().0 {
            let (one_order, other_order) = (one.order.lock(), other.order.lock());
            let missed = [one_order.missed(&other_order), other_order.missed(&one_order)].concat();
            if !missed.is_empty() {
                report
                    .problems
                    .push(format!("kube-runtime, {}: only one watcher saw {missed:?}", one.plural));
            }
        }
        report.errors("kube-runtime", self.errors.lock().iter());
        report
    }
}

fn note(errors: &Mutex<Vec<String>>, error: &dyn std::error::Error) {
    let causes = std::iter::successors(Some(error), |error| error.source());
    errors.lock().push(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "));
}

fn saw(order: &mut Order, event: &watcher::Event<DynamicObject>) {
    let (event, object) = match event {
        watcher::Event::Init => return order.restart(),
        watcher::Event::InitDone => return,
        watcher::Event::InitApply(object) => ("add", object),
        watcher::Event::Apply(object) => ("apply", object),
        watcher::Event::Delete(object) => ("delete", object),
    };
    order.saw(event, &object.name_any(), &object.resource_version().unwrap_or_default());
}

/// Keeps a `ConfigMap` for each Foo.
async fn control(client: Client, errors: Arc<Mutex<Vec<String>>>) {
    let config = watcher::Config::default;
    let controller = Controller::new_with(api(&client, "foos"), config(), resource("foos")).owns_with(
        api(&client, "configmaps"),
        resource("configmaps"),
        config(),
    );
    let results = controller.run(reconcile, |_, _, _| Action::requeue(RETRY), Arc::new(client));
    results
        .for_each(|result| {
            if let Err(error) = result {
                note(&errors, &error);
            }
            std::future::ready(())
        })
        .await;
}

async fn reconcile(parent: Arc<DynamicObject>, client: Arc<Client>) -> kube::Result<Action> {
    let name = format!("{}-child", parent.name_any());
    let child = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [parent.controller_owner_ref(&resource("foos"))]},
        "data": {"replicas": parent.data["spec"]["replicas"].to_string()},
    });
    let params = PatchParams::apply("kube-runtime").force();
    api(&client, "configmaps").patch(&name, &params, &Patch::Apply::<Value>(child)).await?;
    Ok(Action::await_change())
}
