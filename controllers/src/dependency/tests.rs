use mainstay_api::WaitDeployment;
use serde_json::{Value, json};

use super::*;
use crate::dependency::probe::NextProbe;

impl Dependencies {
    /// Makes an observer of dependencies with an empty cache, and an engine with a driver that never runs.
    pub(crate) fn for_test() -> Self {
        use mainstay::cache::Store;

        use crate::dependency::probe::tests::no_cluster::{NoCluster, NoServices};
        use crate::dependency::probe::{Seams, TokioDial, TokioResolve};

        let seams = Seams {
            dial: Arc::new(TokioDial),
            resolve: Arc::new(TokioResolve::default()),
            services: Arc::new(NoServices),
            cluster: Arc::new(NoCluster),
            random: Arc::new(|| 0.5),
        };
        let policy = crate::settings::ProbePolicy::default();
        let (engine, _driver) = Engine::new(1, policy, seams, |_| {}, &mainstay::metrics::Registry::new());
        let services = CachedServices::new(&Store::from_objects([]), &Store::from_objects([]));
        let objects = Store::from_objects([]);
        let resources = Resources::new(&objects, Vec::new(), |_| {});
        Self::new(engine, Arc::new(services), resources, Cycles::new(|_| {}))
    }
}

fn plan(dependencies: &Value) -> Plan {
    let object: WaitDeployment = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {}, "template": {}, "waitFor": {"dependencies": dependencies}},
    }))
    .unwrap();
    object.plan().unwrap()
}

fn named(name: &str) -> NamespacedName {
    NamespacedName::namespaced("shop", name)
}

#[test]
fn a_probe_is_described_by_its_target_and_not_by_its_position() {
    let probe = |host: &str| json!({"name": host, "tcpSocket": {"host": host, "port": 1}});
    let dependencies = Dependencies::for_test();
    dependencies.observe(&named("web"), &plan(&json!([probe("a"), probe("b")])), false, Duration::ZERO);
    let described = dependencies.describe(&named("web"), &plan(&json!([probe("b"), probe("c")])));
    let Described::Probed(b) = &described[0] else { panic!("{described:?}") };
    assert_eq!(b.target.address().unwrap().to_string(), "b:1");
    assert_eq!(described[1], Described::NotRegistered, "no reconcile has registered it yet");
}

#[test]
fn an_initial_delay_counts_from_the_close_of_the_gate() {
    let waits =
        plan(&json!([{"name": "a", "tcpSocket": {"host": "a", "port": 1}, "initialDelaySeconds": 60}]));
    for (closed_for, left) in [(0, 60), (45, 15), (90, 0)] {
        let dependencies = Dependencies::for_test();
        dependencies.observe(&named("web"), &waits, false, Duration::from_secs(closed_for));
        let described = dependencies.describe(&named("web"), &waits);
        let Described::Probed(a) = &described[0] else { panic!("{described:?}") };
        let NextProbe::In(next) = a.next else { panic!("{:?}", a.next) };
        let left = Duration::from_secs(left);
        assert!(next <= left && left < next + Duration::from_secs(10), "closed for {closed_for} s: {next:?}");
    }
}

#[test]
fn a_description_names_the_other_waiters_of_an_object() {
    let job =
        |name: &str| json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "condition": "Complete"});
    let of = |name: &str| plan(&json!([{"name": "schema", "resource": job(name)}]));
    let dependencies = Dependencies::for_test();
    for (name, waits_for) in [("web", "a"), ("cron", "a"), ("api", "a"), ("other", "b")] {
        dependencies.observe(&named(name), &of(waits_for), false, Duration::ZERO);
    }
    let described = dependencies.describe(&named("web"), &of("a"));
    assert_eq!(described, [Described::Cached { others: vec![named("api"), named("cron")] }]);
}
