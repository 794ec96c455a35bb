//! The metrics of a manager in which every family has a series.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource as _;
use kube::api::PostParams;
use mainstay::cache::{Scope, Store};
use mainstay::client::EventType;
use mainstay::controller::Controller;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::metrics::{Format, OPENMETRICS_CONTENT_TYPE, Registry, TEXT_CONTENT_TYPE};
use mainstay::reconcile::{Action, Context, Outcome};
use mainstay::watch::map_view;
use mainstay_api::WaitDeployment;
use mainstay_tests::exposition::{Families, parse, promtool, scrape};
use mainstay_tests::fixtures::{wait_deployment, wait_probe};
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::wait::PATIENCE;
use mainstay_tests::witness::witness;
use mainstay_tests::{LocalManager, TestCluster};
use prometheus_client::metrics::gauge::Gauge;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

/// The `Accept` header of Prometheus 2.
const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0,\
                          application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
/// The lines before and after the list in `docs/metrics.md`.
const BEGIN: &str = "<!-- The list begins; \
    `MAINSTAY_UPDATE=1 cargo test -p mainstay-tests --test shared metrics` writes it. -->\n";
const END: &str = "<!-- The list ends. -->\n";

/// Families that appear only with their first series, in that order.
const LATE: [&str; 4] = [
    "rest_client_requests",
    "mainstay_events",
    "mainstay_waitdeployment_probe",
    "mainstay_waitdeployment_probe_duration_seconds",
];

/// Fails for the object `fails`, and reports an Event about each object.
async fn trouble(request: NamespacedName, cx: Context) -> Outcome {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(request.name().to_owned());
    map.metadata.namespace = request.namespace().map(str::to_owned);
    cx.events().event(&map.object_ref(&()), EventType::Normal, "Ran", "Run", "it ran");
    if request.name() == "fails" { Err("no luck".into()) } else { Ok(Action::Done) }
}

/// Starts a manager with the built-in controllers and one that causes every kind of error that has its own
/// family. Returns the store too, since its index lives with it.
async fn in_trouble(cluster: &TestCluster) -> (LocalManager, Store<ConfigMap>, Registry) {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]);
    let identity = cluster.install_base_with(&rules).await;
    let maps = cluster.api::<ConfigMap>();
    for name in ["fails", "fine"] {
        let map = json!({"metadata": {"name": name, "labels": {"of": "metrics"}}});
        let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
        maps.create(&PostParams::default(), &map).await.expect("created");
    }
    let (reconciler, _runs) = witness(trouble);
    let mut held = None;
    let manager = LocalManager::start_with(cluster, &identity, &json!({}), |manager| {
        let store =
            manager.store::<ConfigMap>(Scope::all().labels("of=metrics".parse().expect("a selector")));
        store.index_view("by-mood", |_| Err("no mood".into())).expect("an index");
        let slow = map_view(|_| {
            let began = Instant::now();
            // A handler is synchronous, so a slow one keeps its thread busy.
            while began.elapsed() < Duration::from_millis(11) {}
            [] as [NamespacedName; 0]
        });
        let panics = map_view(|_| -> [NamespacedName; 0] { panic!("a bug in a handler") });
        let controller = Controller::new("trouble")
            .reconciles(&store)
            .watches(&store, slow)
            .watches(&store, panics)
            .reconciler(reconciler);
        manager.register(controller).expect("registered");
        held = Some((store, manager.registry().clone()));
    })
    .await;
    manager.leads().await;
    let (store, registry) = held.expect("a store");
    (manager, store, registry)
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_reads_both_formats_and_the_families_match_the_docs() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (manager, _store, registry) = in_trouble(&cluster).await;
    let prerequisite = Prerequisite::closed();
    let objects = cluster.api::<WaitDeployment>();
    let web = wait_deployment("web", &json!({"waitProbe": wait_probe(prerequisite.address())}));
    objects.create(&PostParams::default(), &web).await.expect("created");

    // Without a series there are no labels to compare; a family with labels is not even written.
    let still = async || {
        let families = families_of(&manager.metrics_text().await);
        let empty =
            families.iter().filter(|(_, family)| family.series.is_empty()).map(|(name, _)| name.as_str());
        let unseen = LATE.into_iter().filter(|name| !families.contains_key(*name));
        empty.chain(unseen).map(str::to_owned).collect::<Vec<_>>()
    };
    let moved = timeout(PATIENCE, async {
        while !still().await.is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(moved.is_ok(), "without a series: {:?}", still().await);

    let address = manager.metrics();
    let (content_type, text) = scrape(address, "text/plain").await.expect("an answer");
    assert_eq!(content_type, TEXT_CONTENT_TYPE);
    let (content_type, openmetrics) = scrape(address, PROMETHEUS).await.expect("an answer");
    assert_eq!(content_type, OPENMETRICS_CONTENT_TYPE);
    for (written, format) in [(&text, Format::Text), (&openmetrics, Format::OpenMetrics)] {
        let read = promtool(written, format, &cluster.scratch("promtool")).await;
        if let Some(Err(refused)) = read {
            panic!("{format:?}: {refused:#}");
        }
    }
    let families = families_of(&text);
    let others = parse(&openmetrics, Format::OpenMetrics).expect("OpenMetrics");
    assert_eq!(list(&families), list(&others), "both formats contain the same families");
    compare_with_the_docs(&list(&families));
    let unnamed = unnamed_values(&families, &docs());
    assert!(unnamed.is_empty(), "docs/metrics.md does not explain these label values: {unnamed:#?}");
    for name in families.keys() {
        let again = registry.try_register(name, "Once more", Gauge::<i64>::default());
        assert!(
            again.as_ref().is_err_and(|error| error.to_string().contains("is taken")),
            "{name}: {again:?}"
        );
    }
    assert!(openmetrics.contains("le=\"9.999999999999999e-06\""), "as Go writes it");
    manager.stop().await.expect("stopped in order");
}

fn families_of(text: &str) -> Families {
    parse(text, Format::Text).unwrap_or_else(|refused| panic!("{refused:#}\n{text}"))
}

/// Writes the families as the rows of a table.
fn list(families: &Families) -> String {
    let mut rows = String::new();
    for (name, family) in families {
        let suffix = if family.kind == "counter" { "_total" } else { "" };
        let labels: Vec<&str> = family.labels.iter().map(String::as_str).collect();
        let help = family.help.trim_end_matches('.');
        let row = format!("| `{name}{suffix}` | {} | {} | {help} |", family.kind, labels.join(", "));
        writeln!(rows, "{}", row.replace("|  |", "| |")).expect("a String takes all");
    }
    rows
}

/// Returns the label values of WaitDeployment families that no row of the docs explains.
fn unnamed_values(families: &Families, docs: &str) -> BTreeSet<String> {
    let builtin = families.iter().filter(|(name, _)| name.starts_with("mainstay_waitdeployment_"));
    let mut unnamed = BTreeSet::new();
    for (name, family) in builtin {
        let inner = family.series.keys().filter_map(|series| series.split_once('{')?.1.strip_suffix('}'));
        for (label, value) in inner.flat_map(|inner| inner.split(',')).filter_map(|pair| pair.split_once('='))
        {
            let (row, value) = (format!("| `{label}` | "), format!("`{}`", value.trim_matches('"')));
            let is_named =
                |line: &str| line.starts_with(&row) && line.contains(name) && line.contains(&value);
            if label != "le" && !docs.lines().any(is_named) {
                unnamed.insert(format!("{name}: {label} {value}"));
            }
        }
    }
    unnamed
}

fn docs_path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md"))
}

fn docs() -> String {
    std::fs::read_to_string(docs_path()).expect("docs/metrics.md")
}

fn compare_with_the_docs(found: &str) {
    let docs = docs();
    let (before, rest) = docs.split_once(BEGIN).expect("the begin of the list");
    let (listed, after) = rest.split_once(END).expect("the end of the list");
    let heading = "| name | type | labels | |\n|---|---|---|---|\n";
    if std::env::var_os("MAINSTAY_UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(docs_path(), [before, BEGIN, heading, found, END, after].concat()).expect("written");
        return;
    }
    let listed: BTreeSet<&str> = listed.strip_prefix(heading).expect("its heading").lines().collect();
    let found: BTreeSet<&str> = found.lines().collect();
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/metrics.md does not list:\n{missing:#?}\nand lists families that do not exist:\n{gone:#?}"
    );
}
