//! The span around each run: the fields that log lines and traces have without help of the reconciler.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context as LayerContext, SubscriberExt as _};
use tracing_subscriber::{Layer, registry};

use super::steering::store;
use super::*;
use crate::cache::tests::fixtures::{ByHand, object};
use crate::client::tests::server::logged_by_all;

/// The fields of a span, as they are written.
type Fields = BTreeMap<&'static str, String>;

/// Remembers the fields of every `reconcile` span.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Fields>>>);

impl<S: tracing::Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: LayerContext<'_, S>) {
        if span.metadata().name() == "reconcile" {
            let mut fields = Reader(Fields::new());
            span.record(&mut fields);
            self.0.lock().push(fields.0);
        }
    }
}

struct Reader(Fields);

impl Visit for Reader {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// A reconciler that sends the fields of its context, and whether it runs inside the span. Fails at its first
/// attempt.
struct Tells(mpsc::UnboundedSender<(Fields, &'static str)>);

impl Reconciler for Tells {
    async fn reconcile(&self, _: &NamespacedName, cx: &Context) -> Outcome {
        let said = Fields::from([
            ("reconcileID", cx.reconcile_id().to_string()),
            ("attempt", cx.attempt().to_string()),
            ("cause", cx.cause().to_string()),
        ]);
        let inside = tracing::Span::current().metadata().map_or("no span", |span| span.name());
        self.0.send((said, inside)).expect("the test listens");
        if cx.attempt() == 1 { Err("down".into()) } else { Ok(Action::Done) }
    }
}

#[tokio::test(start_paused = true)]
async fn each_run_has_a_span_that_names_it_and_says_what_its_context_says() {
    let spans = Spans::default();
    // With a single subscriber, tracing lets the thread that reaches a span first decide for all threads
    // whether the span is enabled, and this may be a thread of a test without a subscriber. With two
    // subscribers it checks both.
    let _second = tracing::Dispatch::new(registry());
    let _log = tracing::subscriber::set_default(registry().with(spans.clone()));
    let cache = ByHand::listed(&[object("web", "u1", 5)]);
    let (tell, mut told) = mpsc::unbounded_channel();
    let controller = Controller::new("test").reconciles(&store(&cache));
    let bench = Bench::start(controller, Tells(tell));
    let first = told.recv().await.expect("a run");
    let second = told.recv().await.expect("its retry");
    bench.notifier.notify(NamespacedName::cluster("lonely"));
    let third = told.recv().await.expect("another key's run");
    let spans = spans.0.lock().clone();
    assert_eq!(spans.len(), 3, "{spans:?}");
    let mut ids = Vec::new();
    for (fields, (said, inside)) in spans.iter().zip([first, second, third]) {
        assert_eq!(inside, "reconcile");
        for (field, value) in said {
            assert_eq!(fields[field], value, "{field}");
        }
        ids.push(fields["reconcileID"].clone());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "a run's id is its own, also that of a retry");

    let told: Vec<_> = spans
        .into_iter()
        .map(|mut fields| {
            fields.remove("reconcileID");
            json!(fields)
        })
        .collect();
    let (controller, group, kind) = ("test", "", "ConfigMap");
    let run = |name, attempt, cause| {
        json!({
            "controller": controller, "controllerGroup": group, "controllerKind": kind,
            "namespace": "shop", "name": name, "attempt": attempt, "cause": cause,
        })
    };
    let mut lonely = run("lonely", "1", "generic");
    lonely.as_object_mut().expect("an object").remove("namespace");
    assert_eq!(told, [run("web", "1", "initial ConfigMap"), run("web", "2", "retried ConfigMap"), lonely]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_names_its_object_also_where_nothing_but_errors_is_logged() {
    let lines = logged_by_all(tracing::Level::ERROR, async {
        let (reconciler, mut runs) =
            scripted(async |attempt| if attempt == 2 { Err("down".into()) } else { Err(conflict()) });
        let bench = Bench::start(Controller::new("test"), reconciler);
        bench.notifier.notify(key("web"));
        for attempt in 1..=3 {
            assert_eq!(next(&mut runs).await.1, attempt);
        }
    })
    .await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    for said in
        [r#"controller="test""#, r#"namespace="shop""#, r#"name="web""#, "attempt=2", "error=\"down\""]
    {
        assert!(lines[0].contains(said), "{said} in {}", lines[0]);
    }
}
