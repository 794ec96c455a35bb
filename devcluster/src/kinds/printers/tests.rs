use serde_json::{Value, json};

use super::json_path::JsonPath;
use super::*;
use crate::kinds::builtin;

/// Returns the cells of an object at a fixed time.
fn cells(object: &Value) -> Value {
    let api_version = object["apiVersion"].as_str().expect("an apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = builtin::find(group, version, object["kind"].as_str().expect("a kind")).expect("a kind");
    let now = "2026-01-01T00:00:00Z".parse().expect("a time");
    Printer::built_in(kind).rows([object].into_iter(), now)[0]["cells"].clone()
}

fn found(path: &str, object: &Value) -> Option<Vec<Value>> {
    let path = JsonPath::parse(path)?;
    Some(path.find(object).ok()?.into_iter().map(std::borrow::Cow::into_owned).collect())
}

#[test]
fn every_kind_has_columns_and_as_many_cells() {
    for kind in builtin::kinds() {
        let printer = Printer::built_in(kind);
        let rows = printer.rows([&json!({})].into_iter(), Timestamp::UNIX_EPOCH);
        let row = rows[0]["cells"].as_array().expect("a list").len();
        let columns = printer.columns().len();
        // The real server sends an age of IPAddresses without a column too.
        let extra = usize::from(kind.kind == "IPAddress");
        assert_eq!(row, columns + extra, "{}", kind.kind);
    }
    let with_columns = COLUMNS.lines().skip(1).count();
    let known = builtin::kinds().iter().filter(|kind| cells_of(&kind.group, &kind.kind).is_some());
    // The subresource `scale` has columns but is no kind of its own; versions share those of their kind.
    let mut known: Vec<_> = known.map(|kind| (&kind.group, &kind.kind)).collect();
    known.dedup();
    assert_eq!(known.len() + 1, with_columns);
}

#[test]
fn the_status_of_a_pod_is_that_of_its_containers() {
    let pod = |status: Value| {
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec,
            "status": status});
        let row = cells(&pod);
        [&row[1], &row[2], &row[3]].map(|cell| cell.as_str().expect("text").to_owned()).join(" ")
    };
    let terminated = |code: i64, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2025-12-31T23:59:00Z"}});
    assert_eq!(pod(json!({"phase": "Pending"})), "0/3 Pending 0");
    let waiting = json!([{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}]);
    assert_eq!(pod(json!({"phase": "Pending", "initContainerStatuses": waiting})), "0/3 Init:0/2 0");
    let failed = json!([{"name": "i", "restartCount": 2, "state": terminated(1, ""),
        "lastState": terminated(1, "Error")}]);
    assert_eq!(
        pod(json!({"phase": "Pending", "initContainerStatuses": failed})),
        "0/3 Init:ExitCode:1 2 (60s ago)"
    );
    let started = json!([{"name": "i", "state": terminated(0, "Completed")},
        {"name": "s", "started": true, "ready": true, "restartCount": 1}]);
    let running = json!([{"name": "a", "ready": true, "state": {"running": {}}},
        {"name": "b", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3}]);
    let status = json!({"phase": "Running", "initContainerStatuses": started, "containerStatuses": running});
    assert_eq!(pod(status), "2/3 CrashLoopBackOff 4");
}

#[test]
fn a_volume_shows_its_claim_and_the_annotation_of_its_class() {
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "v", "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
        "spec": {"claimRef": {"namespace": "n", "name": "c"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}});
    let row = cells(&volume);
    assert_eq!([&row[1], &row[2], &row[5], &row[6]], ["0", "RWO,RWX", "n/c", "old"]);
}

#[test]
fn paths_select_as_in_kubernetes() {
    let object = json!({"a": {"b.c": 1, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2.5}, {"n": "z"}]}});
    let cases = [
        (".a.b\\.c", Some(json!([1]))),
        (".a['b\\.c']", Some(json!([1]))),
        (".a.list[1].n", Some(json!(["y"]))),
        (".a.list[-1].n", Some(json!(["z"]))),
        (".a.list[0:2].n", Some(json!(["x", "y"]))),
        (".a.list[::2].n", Some(json!(["x", "z"]))),
        (".a.list[*].n", Some(json!(["x", "y", "z"]))),
        (".a.list[0,2].n", Some(json!(["x", "z"]))),
        (".a.list[?(@.n==\"y\")].v", Some(json!([2.5]))),
        (".a.list[?(@.v>2)].n", None),
        (".a.list[?(@.v)].n", Some(json!(["x", "y"]))),
        (".a.list[7].n", None),
        ("..n", Some(json!(["x", "y", "z"]))),
        (".none.at.all", Some(json!([]))),
        (".a[0]", None),
        (".a.list[x]", None),
        (".a.list[?(@.n==", None),
        ("range .a", None),
    ];
    for (path, expected) in cases {
        assert_eq!(found(path, &object).map(Value::from), expected, "{path}");
    }
}
