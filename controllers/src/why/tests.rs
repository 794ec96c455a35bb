use jiff::Timestamp;
use mainstay::cache::Store;
use mainstay::inspect::PageError;
use mainstay::key::KindId;
use mainstay_api::WaitDeployment;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::dependency::Dependencies;

const NOW: &str = "2026-01-01T00:10:00Z";

/// Returns a WaitDeployment `shop/NAME` with these dependencies and this status.
fn object(name: &str, dependencies: &Value, status: &Value) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name, "uid": name, "generation": 2},
        "spec": {
            "waitFor": {"dependencies": dependencies, "deadlineSeconds": 900},
            "selector": {"matchLabels": {"app": name}},
            "template": {},
        },
        "status": status,
    })
}

fn resource(name: &str) -> Value {
    json!({"name": name, "resource": {
        "apiVersion": "apps.mainstay.dev/v1alpha1", "kind": "WaitDeployment", "name": name,
        "condition": "Ready",
    }})
}

fn ask(objects: impl IntoIterator<Item = Value>, path: &[&str]) -> Result<Answer, PageError> {
    let objects = Store::from_values(&KindId::of::<WaitDeployment>(), objects);
    let why = Why::new(&objects, Dependencies::for_test(), watch::Sender::new(true).subscribe());
    let now: Timestamp = NOW.parse().unwrap();
    why.page(path, now).map(|page| serde_json::from_value(page).unwrap())
}

#[test]
fn a_dependency_that_is_a_waitdeployment_is_shown_with_its_own_dependencies() {
    let closed = json!({
        "observedGeneration": 2,
        "gateClosedTime": "2026-01-01T00:00:00Z",
        "deadlineTime": "2026-01-01T00:15:00Z",
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "Waiting", "message": "waiting for api"},
        ],
        "dependencies": [{
            "name": "api", "ready": false, "reason": "NotInState", "message": "Ready is False",
            "lastTransitionTime": "2026-01-01T00:00:30Z",
        }],
    });
    let mail = json!({"name": "mail", "optional": true, "tcpSocket": {"host": "mail", "port": 25}});
    let web = object("web", &json!([resource("api"), mail]), &closed);
    let api = object("api", &json!([{"name": "db", "service": {"name": "db", "port": "pg"}}]), &json!({}));
    let answer = ask([web, api], &["shop", "web"]).unwrap();
    let text = "\
shop/web   not ready, Waiting: waiting for api
gate closed for 10m00s, deadline in 5m00s, then Fail; waits for all of
├─ api   WaitDeployment api: Ready=True
│  not ready for 9m30s, NotInState: Ready is False
│  └─ shop/api   no status yet
│     the status is about an earlier spec
│     └─ db   Service db, port pg
│        not checked
└─ mail   TCP mail:25, optional
   not checked
";
    assert_eq!(text::tree(&answer), text);
}

#[test]
fn a_cycle_is_expanded_once() {
    let of =
        |name: &str, other: &str| object(name, &json!([resource(other)]), &json!({"observedGeneration": 2}));
    let answer = ask([of("a", "b"), of("b", "a")], &["shop", "a"]).unwrap();
    let b = answer.dependencies[0].waits.as_ref().unwrap();
    let a = b.dependencies[0].waits.as_ref().unwrap();
    assert_eq!((a.name.as_str(), a.elsewhere, &a.dependencies), ("a", true, &Vec::new()));
}

#[test]
fn many_paths_between_few_objects_do_not_make_a_long_answer() {
    // Nine layers of 16 objects, each of which waits for all objects of the next layer: 16 to the power of 8
    // paths.
    let name = |layer: usize, at: usize| format!("l{layer}-{at}");
    let objects = (0..9).flat_map(|layer| {
        (0..16).map(move |at| {
            let next: Vec<_> = (0..16).map(|next| resource(&name(layer + 1, next))).collect();
            object(&name(layer, at), &json!(next), &json!({}))
        })
    });
    let answer = ask(objects, &["shop", "l0-0"]).unwrap();
    let text = text::tree(&answer);
    let shown = text.lines().filter(|line| line.contains("no status yet")).count();
    assert!((100..=100 * 16 + 1).contains(&shown), "{shown} lines");
    assert!(text.contains("or left out: run why for it"));
}

#[test]
fn control_characters_of_tenants_do_not_reach_a_terminal() {
    let dependency =
        Dependency { name: "db".to_owned(), check: "a\u{1b}[2Jb\r".to_owned(), ..Dependency::default() };
    let text = text::tree(&Answer { dependencies: vec![dependency], ..Answer::default() });
    assert!(text.contains("a\\u{1b}[2Jb\\r"), "{text}");
    assert!(!text.contains(['\u{1b}', '\r']));
}

#[test]
fn an_invalid_spec_is_shown() {
    let answer = ask([object("web", &json!([{"name": "db"}]), &json!({}))], &["shop", "web"]).unwrap();
    let invalid = answer.invalid.unwrap();
    assert!(invalid.contains("dependencies[db]"), "{invalid}");
}

#[test]
fn probes_are_shown_in_one_line() {
    let probe = Probe {
        period_seconds: 10.0,
        began_seconds: Some(2.1),
        took_seconds: Some(0.003),
        last: Some("Refused".to_owned()),
        failures: 4,
        next_seconds: Some(7.9),
        ..Probe::default()
    };
    let line = |probe: Probe| {
        let dependency = Dependency { name: "db".to_owned(), probe: Some(probe), ..Dependency::default() };
        let answer =
            Answer { leading: true, observed: true, dependencies: vec![dependency], ..Answer::default() };
        text::tree(&answer).lines().last().unwrap().trim().to_owned()
    };
    assert_eq!(
        line(probe.clone()),
        "last probe 2.1s ago, took 3ms; 4 failures in a row (Refused); next in 7.9s, every 10s"
    );
    let delayed =
        Probe { delayed_by: Some("rate".to_owned()), next_seconds: None, failures: 1, ..probe.clone() };
    assert_eq!(
        line(delayed),
        "last probe 2.1s ago, took 3ms; 1 failure in a row (Refused); due, delayed by the limit rate, \
         every 10s"
    );
    let flying = Probe {
        delayed_by: Some("inFlight".to_owned()),
        next_seconds: None,
        took_seconds: None,
        failures: 0,
        successes: 2,
        ..probe
    };
    assert_eq!(line(flying), "in flight for 2.1s; 2 successes in a row, every 10s");
    assert_eq!(
        line(Probe { period_seconds: 5.0, next_seconds: Some(0.0), ..Probe::default() }),
        "not probed yet; next in 0ms, every 5.0s"
    );
}

#[test]
fn a_wrong_name_is_refused_with_the_expected_form() {
    let bad = ask([], &["shop"]).unwrap_err();
    assert!(matches!(&bad, PageError::BadRequest(text) if text.contains("NAMESPACE/NAME")), "{bad}");
    let missing = ask([], &["shop", "web"]).unwrap_err();
    assert_eq!(missing, PageError::NotFound("no WaitDeployment shop/web is known here".to_owned()));
    let command = Command::new("why").arg(Arg::new("object").required(true));
    let path = |key: &str| path(&command.clone().get_matches_from(["why", key]));
    assert_eq!(path("shop/web.1"), Ok("/debug/waitdeployments/shop/web.1".to_owned()));
    for key in ["web", "shop/", "/web", "shop/web/x", "shop/we b", "shop/Web", "shop/w%2e"] {
        assert!(path(key).unwrap_err().contains("expected NAMESPACE/NAME"), "{key}");
    }
}
