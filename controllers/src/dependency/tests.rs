use mainstay_api::WaitDeployment;
use serde_json::{Value, json};

use super::*;
use crate::dependency::probe::NextProbe;

impl Dependencies {
    /// Looks at no Services, no objects, and through an engine that nobody drives.
    pub(crate) fn for_test() -> Self {
        use mainstay::cache::Store;

        use crate::dependency::probe::{NoServices, NoSurroundings, Seams, TokioDial, TokioResolve};

        let seams = Seams {
            dial: Arc::new(TokioDial),
            resolve: Arc::new(TokioResolve::default()),
            services: Arc::new(NoServices),
            surroundings: Arc::new(NoSurroundings),
            random: Arc::new(|| 0.5),
        };
        let policy = crate::settings::ProbePolicy::default();
        let (engine, _driver) = Engine::new(policy, seams, |_| {}, &mainstay::metrics::Registry::new());
        let services = CachedServices::new(&Store::from_objects([]), &Store::from_objects([]));
        let objects = Store::from_objects([]);
        Self::new(engine, Arc::new(services), Resources::new(&objects, Vec::new(), |_| {}))
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
fn a_probe_is_described_by_what_it_looks_at_whatever_stood_before_it() {
    let probe = |host: &str| json!({"name": host, "tcpSocket": {"host": host, "port": 1}});
    let dependencies = Dependencies::for_test();
    dependencies.observe(&named("web"), &plan(&json!([probe("a"), probe("b")])), false, Duration::ZERO);
    let told = dependencies.describe(&named("web"), &plan(&json!([probe("b"), probe("c")])));
    let Described::Probed(b) = &told[0] else { panic!("{told:?}") };
    assert_eq!(b.target.address().unwrap().to_string(), "b:1");
    assert_eq!(told[1], Described::Nothing, "nobody has named it yet");
}

#[test]
fn of_a_delay_is_left_what_the_gate_has_not_been_closed_for() {
    let waits =
        plan(&json!([{"name": "a", "tcpSocket": {"host": "a", "port": 1}, "initialDelaySeconds": 60}]));
    for (closed_for, left) in [(0, 60), (45, 15), (90, 0)] {
        let dependencies = Dependencies::for_test();
        dependencies.observe(&named("web"), &waits, false, Duration::from_secs(closed_for));
        let told = dependencies.describe(&named("web"), &waits);
        let Described::Probed(a) = &told[0] else { panic!("{told:?}") };
        let NextProbe::In(next) = a.next else { panic!("{:?}", a.next) };
        let left = Duration::from_secs(left);
        assert!(next <= left && left < next + Duration::from_secs(10), "closed for {closed_for} s: {next:?}");
    }
}

#[test]
fn others_who_wait_for_an_object_are_told() {
    let job =
        |name: &str| json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "condition": "Complete"});
    let of = |name: &str| plan(&json!([{"name": "schema", "resource": job(name)}]));
    let dependencies = Dependencies::for_test();
    for (name, waits_for) in [("web", "a"), ("cron", "a"), ("api", "a"), ("other", "b")] {
        dependencies.observe(&named(name), &of(waits_for), false, Duration::ZERO);
    }
    let told = dependencies.describe(&named("web"), &of("a"));
    assert_eq!(told, [Described::Cached { others: vec![named("api"), named("cron")] }]);
}
