//! The path of an event through the modules, as `docs/architecture.md` lists it.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use mainstay::prelude::*;
use mainstay_tests::TestCluster;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context as LayerContext, SubscriberExt as _};

const ARCHITECTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/architecture.md");

/// The modules of trace events, in the order of their first event.
#[derive(Clone, Default)]
struct Modules(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Modules {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() == Level::TRACE && metadata.target().starts_with("mainstay::") {
            // Formats every field as a log does.
            event.record(&mut Formats);
            let mut modules = self.0.lock();
            if !modules.iter().any(|module| module == metadata.target()) {
                modules.push(metadata.target().to_owned());
            }
        }
    }
}

struct Formats;

impl Visit for Formats {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        assert!(!format!("{value:?}").is_empty());
    }
}

struct Counts(mpsc::UnboundedSender<()>);

impl Reconciler for Counts {
    async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Outcome {
        self.0.send(())?;
        Ok(Action::Done)
    }
}

/// Returns the files of the list in the docs, as module paths, each with whether it emits a trace event.
fn documented() -> Vec<(String, bool)> {
    let text = std::fs::read_to_string(ARCHITECTURE).expect("the architecture");
    let section = text.split("## The way of an event").nth(1).expect("a section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let files = section.lines().filter_map(|line| line.split_once(". `")?.1.split_once(".rs`"));
    let module = |file: &str| format!("mainstay::{}", file.replace('/', "::"));
    files.map(|(file, rest)| (module(file), !rest.contains("under the lock"))).collect()
}

/// Single-threaded: the subscriber is set for the current thread.
#[tokio::test]
async fn an_event_goes_through_the_modules_that_the_docs_list_in_their_order() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let modules = Modules::default();
    // With a single dispatcher, tracing decides once for each line of code whether it is enabled, by the
    // default dispatcher of the thread that reaches the line first. With two dispatchers these two decide.
    let [traced, _second] =
        [(); 2].map(|()| Dispatch::new(tracing_subscriber::registry().with(modules.clone())));
    let _traced = tracing::dispatcher::set_default(&traced);
    let (sender, mut runs) = mpsc::unbounded_channel();
    let maps: Api<ConfigMap> = cluster.api();
    let web: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "web", "labels": {"way": "yes"}}}))
            .expect("an object");
    maps.create(&PostParams::default(), &web).await.expect("created");
    let setup = |manager: &Manager| {
        let scope = Scope::namespace(cluster.namespace()).labels("way=yes".parse()?);
        let maps = manager.store::<ConfigMap>(scope);
        manager.register(Controller::new("way").reconciles(&maps).reconciler(Counts(sender)))?;
        Ok(())
    };
    let manager = Manager::for_test(cluster.connection().await, setup).expect("a manager");
    runs.recv().await.expect("the run of the initial list");

    modules.0.lock().clear();
    let patch = Patch::Merge(json!({"data": {"a": "b"}}));
    maps.patch("web", &PatchParams::default(), &patch).await.expect("patched");
    runs.recv().await.expect("the run of the change");
    let (seen, expected) = (modules.0.lock().clone(), documented());
    assert!(expected.len() <= 16, "{} files", expected.len());
    let traced: Vec<_> =
        expected.into_iter().filter_map(|(module, traced)| traced.then_some(module)).collect();
    assert_eq!(seen, traced);
    manager.stop().await.expect("stopped in order");
}
