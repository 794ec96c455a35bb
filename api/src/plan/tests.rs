mod refusals;

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::wait_deployment::WaitDeployment;
use crate::wait_for::Adoption;
use crate::wait_probe::Timeout;

fn object(wait_for: &Value) -> WaitDeployment {
    let object = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {}, "waitFor": wait_for,
        },
    });
    serde_json::from_value(object).unwrap()
}

fn plan(wait_for: &Value) -> Result<Plan, String> {
    object(wait_for).plan().map_err(|invalid| invalid.to_string())
}

fn kind(check: &Check) -> &'static str {
    match check {
        Check::Service(_) => "service",
        Check::Probe(probe) => probe.kind(),
        Check::Resource(_) => "resource",
    }
}

/// Returns a `waitFor` of one dependency with these fields.
fn with(fields: &Value) -> Value {
    let mut dependency = json!({"name": "db"});
    for (key, value) in fields.as_object().unwrap() {
        dependency[key] = value.clone();
    }
    json!({"dependencies": [dependency]})
}

/// Returns a `waitFor` with a dependency of each kind and every field.
fn everything() -> Value {
    json!({
        "dependencies": [
            {"name": "service", "service": {"name": "db", "port": "postgres", "minReadyEndpoints": 2}},
            {"name": "tcp", "tcpSocket": {"host": "Db.", "port": 5432}, "optional": true},
            {"name": "http", "periodSeconds": 2, "httpGet": {
                "host": "::1", "port": 443, "scheme": "HTTPS", "path": "/a?b=%20",
                "expectedStatuses": [503, 200],
                "httpHeaders": [{"name": "X-Probe", "value": "a b"}],
            }},
            {"name": "grpc", "grpc": {"host": "10.0.0.1", "port": 1, "service": "a.B", "tlsMode": "Tls"}},
            {"name": "tls", "tls": {"host": "[::1]", "port": 1, "caConfigMap": {"name": "ca"}}},
            {"name": "tls-2", "tls": {"host": "db", "port": 1, "serverName": "DB.shop.svc."}},
            {"name": "dns", "dns": {"name": "_a._tcp.Example.com.", "record": "Srv", "minRecords": 3}},
            {"name": "job", "resource": {
                "apiVersion": "batch/v1", "kind": "Job", "name": "a", "condition": "Complete",
            }},
            {"name": "pods", "resource": {
                "apiVersion": "v1", "kind": "Pod", "jsonPath": "{.status.phase}", "value": "Running",
                "selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
            }},
        ],
        "match": "Any",
        "gates": ["Update", "ScaleFromZero"],
        "deadlineSeconds": 900,
        "onDeadline": "Proceed",
        "onLoss": "ScaleToZero",
        "lossGraceSeconds": 120,
        "recoveryDeadlineSeconds": 1800,
        "adoption": "IfIdentical",
    })
}

#[test]
fn every_field_is_in_the_plan() {
    let plan = plan(&everything()).unwrap();
    let spec = object(&everything()).spec;
    assert_eq!(spec.gates(), Gates { create: false, update: true, scale_from_zero: true });
    assert_eq!((plan.deadline, plan.on_deadline), (Some(Duration::from_mins(15)), OnDeadline::Proceed));
    assert_eq!((plan.on_loss, plan.loss_grace), (OnLoss::ScaleToZero, Duration::from_mins(2)));
    assert_eq!(plan.recovery_deadline, Some(Duration::from_mins(30)));
    assert_eq!((plan.match_policy, spec.adoption()), (MatchPolicy::Any, Adoption::IfIdentical));
    let kinds: Vec<_> = plan.dependencies.iter().map(|dependency| kind(&dependency.check)).collect();
    assert_eq!(kinds, ["service", "tcp", "http", "grpc", "tls", "tls", "dns", "resource", "resource"]);

    let check = |at: usize| &plan.dependencies[at].check;
    let address = |at: usize| match check(at) {
        Check::Probe(probe) => probe.address().unwrap().to_string(),
        _ => unreachable!(),
    };
    assert_eq!([address(1), address(2), address(3)], ["db:5432", "[::1]:443", "10.0.0.1:1"]);
    let Check::Probe(ProbeCheck::Http(http)) = check(2) else { unreachable!() };
    assert_eq!(http.statuses, [200, 503], "sorted, so that equal checks are equal");
    let timeout = |at: usize| plan.dependencies[at].timeout.as_secs();
    assert_eq!((timeout(1), timeout(2)), (3, 2), "the default follows a shorter period");
    let name = |at: usize| match check(at) {
        Check::Probe(ProbeCheck::Tls(tls)) => (tls.server_name.as_str(), tls.ca.clone()),
        _ => unreachable!(),
    };
    let ca = ConfigMapKey { name: "ca".to_owned(), key: Some("ca.crt".to_owned()) };
    assert_eq!((name(4), name(5)), (("::1", Some(ca)), ("db.shop.svc", None)));
    let Check::Probe(ProbeCheck::Dns(dns)) = check(6) else { unreachable!() };
    assert_eq!((dns.name.as_str(), dns.min_records), ("_a._tcp.example.com", 3));
    let Check::Resource(job) = check(7) else { unreachable!() };
    assert_eq!((job.group.as_str(), job.version.as_str()), ("batch", "v1"));
    let complete = ResourceState::Condition { type_: "Complete".to_owned(), status: "True".to_owned() };
    assert_eq!(job.state, complete);
    let Check::Resource(pods) = check(8) else { unreachable!() };
    let path = "{.status.phase}".parse().unwrap();
    assert_eq!(pods.state, ResourceState::JsonPath { path, value: "Running".to_owned() });
}

#[test]
fn absent_fields_have_defaults() {
    let bare = with(&json!({"tcpSocket": {"host": "db", "port": 1}}));
    assert_eq!(object(&bare).spec.gates(), Gates::default());
    let bare = plan(&bare).unwrap();
    assert_eq!(Plan { dependencies: Vec::new(), ..bare.clone() }, Plan::default());
    assert_eq!(bare.on_loss, OnLoss::Report);
    let db = &bare.dependencies[0];
    assert_eq!((db.period.as_secs(), db.timeout.as_secs(), db.initial_delay.as_secs()), (10, 3, 0));
    assert_eq!((db.success_threshold, db.failure_threshold, db.optional), (1, 3, false));
}

#[test]
fn the_default_grace_of_a_watched_dependency_equals_its_failing_probes() {
    let grace = |wait_for: &Value| plan(wait_for).unwrap().loss_grace.as_secs();
    let mut service = with(&json!({"service": {"name": "db"}, "periodSeconds": 5, "failureThreshold": 4}));
    assert_eq!(grace(&service), 20);
    service["lossGraceSeconds"] = json!(0);
    assert_eq!(grace(&service), 0, "set explicitly");
    assert_eq!(
        grace(&with(&json!({"tcpSocket": {"host": "db", "port": 1}}))),
        0,
        "a probe has failed three times before a loss"
    );
}

#[test]
fn the_articles_form_is_one_tcp_dependency_whose_loss_is_ignored() {
    let object = json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {}, "template": {}},
        "waitProbe": {"address": "db:5432", "timeout": 1_000_000_000, "periodSeconds": 5},
    });
    let object: WaitDeployment = serde_json::from_value(object).unwrap();
    let plan = object.plan().unwrap();
    assert_eq!((plan.dependencies.len(), plan.on_loss), (1, OnLoss::Ignore));
    let db = &plan.dependencies[0];
    assert_eq!((db.name.as_str(), kind(&db.check)), ("default", "tcp"));
    assert_eq!((db.period.as_secs(), db.timeout.as_secs()), (5, 1));
    let mut long = object.clone();
    long.wait_probe.as_mut().unwrap().timeout = Some(Timeout::Text("20s".to_owned()));
    let plan = long.plan().unwrap();
    assert_eq!(plan.dependencies[0].timeout.as_secs(), 5, "an attempt ends with the period");
}

#[test]
fn a_refusal_of_the_articles_form_has_path_value_and_expectation_too() {
    let refused = |probe: Value| {
        let mut object = object(&Value::Null);
        object.wait_probe = Some(serde_json::from_value(probe).unwrap());
        let InvalidSpec { path, value, expected } = object.plan().unwrap_err();
        assert!(expected.contains("expected ") || expected.contains("is accepted"), "{expected}");
        format!("{path} {value}")
    };
    assert_eq!(refused(json!({})), r#"waitProbe.address """#);
    assert_eq!(refused(json!({"address": "a: b:1"})), r#"waitProbe.address "a: b:1""#);
    assert_eq!(refused(json!({"address": "a:1", "timeout": 3})), "waitProbe.timeout 3");
    assert_eq!(refused(json!({"address": "a:1", "timeout": "3: s"})), r#"waitProbe.timeout "3: s""#);
    assert_eq!(refused(json!({"address": "a:1", "periodSeconds": 0})), "waitProbe.periodSeconds 0");
}

#[test]
fn both_forms_at_once_are_refused() {
    let mut object = object(&everything());
    object.wait_probe = Some(serde_json::from_value(json!({"address": "db:1"})).unwrap());
    let expected = r#"waitProbe "db:1": expected spec.waitFor alone, with tcpSocket for this address"#;
    assert_eq!(object.plan().unwrap_err().to_string(), expected);
}

#[test]
fn fields_of_a_newer_version_are_reported_and_kept() {
    let mut newer = everything();
    newer["dependencies"][1]["tcpSocket"]["port"] = json!("postgres");
    newer["dependencies"][1]["fromTheFuture"] = json!([1]);
    let expected = concat!(
        r#"spec.waitFor.dependencies[1].tcpSocket.port "postgres": "#,
        "expected a value that this version understands; "
    );
    assert!(plan(&newer).unwrap_err().starts_with(expected), "{:?}", plan(&newer));
    let read = object(&newer);
    assert_eq!(serde_json::to_value(&read).unwrap()["spec"]["waitFor"], newer);
    assert!(read.spec.gates().update, "gates are read despite other invalid fields");

    let mut newer = everything();
    newer["adoption"] = json!("IfOlder");
    newer["gates"] = json!(["Create", "Restart"]);
    let read = object(&newer);
    assert!(read.plan().unwrap_err().path.starts_with("spec.waitFor."));
    assert_eq!(read.spec.adoption(), Adoption::Never, "the safest policy");
    assert_eq!(read.spec.gates(), Gates { create: true, update: false, scale_from_zero: false });
    let gates = |given: Value| {
        let Gates { create, update, scale_from_zero } = object(&json!({"gates": given})).spec.gates();
        (create, update, scale_from_zero)
    };
    assert_eq!(gates(json!(["Restart"])), (true, false, false), "an unknown gate holds back the creation");
    assert_eq!(gates(json!(["Update", "Restart"])), (true, true, false));
    assert_eq!(gates(json!([])), (true, false, false));
    assert_eq!(gates(json!("Update")), (true, true, true), "not a list");
    assert_eq!(gates(json!(["Update", "ScaleFromZero"])), (false, true, true));
    assert_eq!(gates(Value::Null), (true, false, false), "the default");
    for odd in [json!([]), json!("x"), json!(7), json!({"dependencies": "x"})] {
        assert!(plan(&odd).unwrap_err().starts_with("spec.waitFor"), "{odd}");
    }
    assert_eq!(plan(&Value::Null), Ok(Plan::default()));
}

#[test]
fn a_long_value_is_not_quoted_in_full() {
    let refused = plan(&with(&json!({"dns": {"name": "é".repeat(5000)}}))).unwrap_err();
    assert!(refused.len() < 400 && refused.contains('…'), "{refused}");
}

/// Returns small arbitrary JSON values.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2..70_000_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        "[a-zA-Z0-9./:=%-]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Adds the JSON pointers of all values in `value`.
fn pointers(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| pointers(value, &format!("{path}/{key}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| pointers(value, &format!("{path}/{at}"), found));
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_content_has_a_plan_or_a_complete_refusal(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any_json()), 1..4),
    ) {
        let mut wait_for = everything();
        for (at, value) in edits {
            let mut found = Vec::new();
            pointers(&wait_for, "", &mut found);
            *wait_for.pointer_mut(at.get::<String>(&found)).unwrap() = value;
        }
        let read = object(&wait_for);
        let written = serde_json::to_value(&read).unwrap();
        prop_assert_eq!(&written["spec"]["waitFor"], &wait_for);
        let (_, _) = (read.spec.gates(), read.spec.adoption());
        if let Err(invalid) = read.plan() {
            prop_assert!(invalid.path.starts_with("spec.waitFor"), "{:?}", invalid);
            let is_complete = invalid.expected.starts_with("expected ") && invalid.expected.len() > 12;
            prop_assert!(is_complete, "{:?}", invalid);
            prop_assert!(!invalid.value.is_empty(), "{:?}", invalid);
        }
    }
}
