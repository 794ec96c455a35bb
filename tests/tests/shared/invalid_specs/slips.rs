//! Specs with typical mistakes, written by hand.

use Expected::{Refused, Reported};
use mainstay_tests::fixtures::wait_deployment;
use serde_json::{Value, json};

/// The result of a spec.
pub(super) enum Expected {
    /// The API server refuses it, with this text in the message.
    Refused(&'static str),
    /// It is admitted, and its conditions contain this text.
    Reported(&'static str),
}

/// Returns an object without dependencies. Its labels are always of the name `web`, so that a mistake in them
/// means the same in all objects.
pub(super) fn bare(name: &str) -> Value {
    wait_deployment("web", &json!({"metadata": {"name": name}, "spec": {"replicas": 0}}))
}

/// Returns an object with one dependency of each kind, none of which is ready.
pub(super) fn waiting(name: &str) -> Value {
    let mut object = bare(name);
    object["spec"]["waitFor"] = json!({
        "dependencies": [
            {"name": "service", "timeoutSeconds": 3, "periodSeconds": 5,
                "service": {"name": "db", "port": 5432, "minReadyEndpoints": 1}},
            {"name": "tcp", "initialDelaySeconds": 1, "successThreshold": 1, "failureThreshold": 3,
                "tcpSocket": {"host": "db", "port": 5432}},
            {"name": "http", "optional": true, "httpGet": {
                "host": "db", "port": 80, "path": "/", "scheme": "HTTP", "expectedStatuses": [200],
                "httpHeaders": [{"name": "X-Probe", "value": "1"}],
            }},
            {"name": "grpc", "grpc": {"host": "db", "port": 1, "service": "a.B", "tlsMode": "Tls"}},
            {"name": "tls", "tls": {"host": "db", "port": 1, "serverName": "db",
                "caConfigMap": {"name": "ca", "key": "ca.crt"}}},
            {"name": "dns", "dns": {"name": "db.example.com", "record": "Address", "minRecords": 1}},
            {"name": "job", "resource": {
                "apiVersion": "batch/v1", "kind": "Job", "name": "a", "condition": "Complete",
            }},
            {"name": "pods", "resource": {
                "apiVersion": "v1", "kind": "Pod", "jsonPath": "{.status.phase}", "value": "Running",
                "selector": {
                    "matchLabels": {"app": "db"},
                    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
                },
            }},
        ],
        "match": "All",
        "gates": ["Create"],
        "deadlineSeconds": 900,
        "onDeadline": "Fail",
        "onLoss": "ScaleToZero",
        "lossGraceSeconds": 120,
        "recoveryDeadlineSeconds": 1800,
        "adoption": "IfUnowned",
    });
    object["spec"]["replicas"] = json!(1);
    object
}

/// Returns typical mistakes: the path in [`waiting`], the value (`null` removes the field), and the result.
pub(super) fn slips() -> impl Iterator<Item = (String, Value, Expected)> {
    assert_eq!(waiting("x")["spec"]["waitFor"]["dependencies"][0]["name"], "service");
    let in_dependencies = slips_in_dependencies()
        .into_iter()
        .map(|(path, value, expected)| (format!("/spec/waitFor/dependencies/{path}"), value, expected));
    let elsewhere =
        slips_elsewhere().into_iter().map(|(path, value, expected)| (path.to_owned(), value, expected));
    in_dependencies.chain(elsewhere)
}

/// As [`slips`], with paths that begin with the index of the dependency.
#[expect(clippy::too_many_lines, reason = "a table")]
fn slips_in_dependencies() -> Vec<(&'static str, Value, Expected)> {
    let ipv6 = |host: &str| json!({"host": host, "port": 1});
    vec![
        ("0/name", Value::Null, Refused("dependencies[0].name: Required value")),
        (
            "0/name",
            json!("Data Base"),
            Refused("dependencies[0].name: Invalid value: \"Data Base\": name must consist of"),
        ),
        ("0/name", json!("a".repeat(64)), Refused("dependencies[0].name: Too long")),
        ("0/service", Value::Null, Refused("exactly one of service, tcpSocket, httpGet")),
        (
            "0/tcpSocket",
            json!({"host": "db", "port": 1}),
            Refused("exactly one of service, tcpSocket, httpGet"),
        ),
        (
            "0",
            json!({"name": "a", "exec": {"command": ["true"]}}),
            Refused("exactly one of service, tcpSocket, httpGet"),
        ),
        (
            "0/service/name",
            json!("db.shop"),
            Refused("service.name: Invalid value: \"db.shop\": name must be that of a Service"),
        ),
        (
            "0/service/port",
            json!(0),
            Refused("service.port: Invalid value: 0: port must be a number from 1 to 65535"),
        ),
        (
            "0/service/port",
            json!("5432"),
            Refused("service.port: Invalid value: \"5432\": port must be a number"),
        ),
        ("0/service/port", json!(5_000_000_000_i64), Refused("service.port: Invalid value: 5000000000")),
        ("0/service/minReadyEndpoints", json!(0), Refused("service.minReadyEndpoints")),
        (
            "0/timeoutSeconds",
            json!(20),
            Refused("timeoutSeconds: Invalid value: timeoutSeconds is longer than periodSeconds"),
        ),
        ("0/timeoutSeconds", json!("3s"), Refused("dependencies[0].timeoutSeconds")),
        ("0/periodSeconds", json!(0), Refused("dependencies[0].periodSeconds")),
        ("0/periodSeconds", json!(1.5), Refused("dependencies[0].periodSeconds")),
        ("1/initialDelaySeconds", json!(-1), Refused("dependencies[1].initialDelaySeconds")),
        ("1/successThreshold", json!(11), Refused("dependencies[1].successThreshold")),
        ("1/failureThreshold", json!(0), Refused("dependencies[1].failureThreshold")),
        ("1/optional", json!("yes"), Refused("dependencies[1].optional")),
        ("1/tcpSocket/host", json!(""), Refused("tcpSocket.host")),
        (
            "1/tcpSocket/host",
            json!("db:5432"),
            Refused("tcpSocket.host: Invalid value: \"db:5432\": host must be"),
        ),
        ("1/tcpSocket/host", json!("2130706433"), Refused("tcpSocket.host")),
        ("1/tcpSocket/host", json!("0x7f.0.0.1"), Refused("tcpSocket.host")),
        ("1/tcpSocket/host", json!("127.0.0.01"), Refused("tcpSocket.host")),
        ("1/tcpSocket/host", json!("http://db"), Refused("tcpSocket.host")),
        ("1/tcpSocket/host", json!("fe80::1%eth0"), Refused("tcpSocket.host")),
        ("1/tcpSocket/port", json!(65536), Refused("tcpSocket.port")),
        ("1/tcpSocket/port", json!("postgres"), Refused("tcpSocket.port")),
        (
            "1/tcpSocket",
            ipv6(":::"),
            Reported("spec.waitFor.dependencies[tcp].tcpSocket.host \":::\": expected"),
        ),
        (
            "1/tcpSocket",
            ipv6("[1::2::3]"),
            Reported("spec.waitFor.dependencies[tcp].tcpSocket.host \"[1::2::3]\": expected"),
        ),
        (
            "2/httpGet/path",
            json!("ready"),
            Refused("httpGet.path: Invalid value: \"ready\": path must begin with /"),
        ),
        ("2/httpGet/path", json!("/a b"), Refused("httpGet.path")),
        ("2/httpGet/path", json!("/a#b"), Refused("httpGet.path")),
        ("2/httpGet/scheme", json!("https"), Refused("httpGet.scheme: Unsupported value: \"https\"")),
        ("2/httpGet/expectedStatuses", json!([99]), Refused("httpGet.expectedStatuses[0]")),
        ("2/httpGet/expectedStatuses", json!([200, 200]), Refused("expectedStatuses[1]: Duplicate value")),
        (
            "2/httpGet/httpHeaders/0/name",
            json!("Authorization"),
            Refused("httpHeaders[0].name: Invalid value: \"Authorization\": this header is not permitted"),
        ),
        ("2/httpGet/httpHeaders/0/name", json!("COOKIE"), Refused("httpHeaders[0].name")),
        ("2/httpGet/httpHeaders/0/name", json!("Proxy-Authorization"), Refused("httpHeaders[0].name")),
        ("2/httpGet/httpHeaders/0/name", json!("X-Forwarded-User"), Refused("httpHeaders[0].name")),
        ("2/httpGet/httpHeaders/0/name", json!("X-HTTP-Method-Override"), Refused("httpHeaders[0].name")),
        ("2/httpGet/httpHeaders/0/name", json!("X-WEBAUTH-USER"), Refused("httpHeaders[0].name")),
        ("2/httpGet/httpHeaders/0/name", json!("Host"), Refused("httpHeaders[0].name")),
        ("2/httpGet/httpHeaders/0/name", json!("a: b"), Refused("httpHeaders[0].name")),
        ("2/httpGet/httpHeaders/0/value", json!("a\r\nHost: b"), Refused("httpHeaders[0].value")),
        ("2/httpGet/host", json!("::1::"), Reported("dependencies[http].httpGet.host \"::1::\": expected")),
        ("3/grpc/tlsMode", json!("mTLS"), Refused("grpc.tlsMode: Unsupported value")),
        ("3/grpc/service", json!("a b"), Refused("grpc.service")),
        (
            "4/tls/serverName",
            json!("*.shop"),
            Refused("tls.serverName: Invalid value: \"*.shop\": serverName must be"),
        ),
        ("4/tls/caConfigMap/name", json!("CA"), Refused("tls.caConfigMap.name")),
        ("4/tls/caConfigMap/key", json!("a/b"), Refused("tls.caConfigMap.key")),
        ("4/tls/caConfigMap/key", json!("..data"), Refused("tls.caConfigMap.key")),
        ("4/tls/host", json!("1:2:3"), Reported("dependencies[tls].tls.host \"1:2:3\": expected")),
        (
            "5/dns/name",
            json!("10.0.0.1"),
            Refused("dns.name: Invalid value: \"10.0.0.1\": name must be a complete DNS name"),
        ),
        ("5/dns/record", json!("AAAA"), Refused("dns.record: Unsupported value")),
        ("5/dns/minRecords", json!(101), Refused("dns.minRecords")),
        ("6/resource/apiVersion", json!("Batch"), Refused("resource.apiVersion")),
        ("6/resource/apiVersion", json!("batch/v1/jobs"), Refused("resource.apiVersion")),
        ("6/resource/kind", json!("job.batch"), Refused("resource.kind")),
        ("6/resource/name", json!("../../nodes/x"), Refused("resource.name")),
        (
            "6/resource/name",
            Value::Null,
            Refused("resource: Invalid value: exactly one of name and selector"),
        ),
        ("6/resource/condition", json!("Complete=Yes"), Refused("resource.condition")),
        ("6/resource/condition", Value::Null, Refused("exactly one of condition and jsonPath")),
        ("6/resource/jsonPath", json!("{.status.phase}"), Refused("exactly one of condition and jsonPath")),
        ("6/resource/value", json!("Running"), Refused("jsonPath and value have to be set together")),
        ("7/resource/value", Value::Null, Refused("jsonPath and value have to be set together")),
        ("7/resource/value", json!(3), Refused("resource.value")),
        ("7/resource/jsonPath", json!(""), Refused("resource.jsonPath")),
        (
            "7/resource/jsonPath",
            json!(format!(".{}", "a".repeat(256))),
            Refused("resource.jsonPath: Too long"),
        ),
        ("7/resource/jsonPath", json!("{.status..phase}"), Reported("character 9: selects several values")),
        ("7/resource/selector", json!({}), Refused("selector is empty, which selects every object")),
        (
            "7/resource/selector/matchLabels",
            json!({"a b": "c"}),
            Reported("resource.selector.matchLabels \"a b\": expected the key of a label"),
        ),
        (
            "7/resource/selector/matchLabels",
            json!({"app": "-"}),
            Reported("resource.selector.matchLabels.app \"-\": expected"),
        ),
        (
            "7/resource/selector/matchExpressions/0/key",
            json!("a b"),
            Reported("matchExpressions[0].key \"a b\": expected the key"),
        ),
        (
            "7/resource/selector/matchExpressions/0/values",
            json!(["-"]),
            Reported("matchExpressions[0].values[0] \"-\": expected"),
        ),
        (
            "7/resource/selector/matchExpressions/0/values",
            Value::Null,
            Refused("values has to be given for the operators In and NotIn"),
        ),
        (
            "7/resource/selector/matchExpressions/0/operator",
            json!("Like"),
            Refused("operator: Unsupported value"),
        ),
    ]
}

fn slips_elsewhere() -> Vec<(&'static str, Value, Expected)> {
    let named_twice =
        json!([{"name": "a", "service": {"name": "a"}}, {"name": "a", "service": {"name": "b"}}]);
    let many: Vec<Value> =
        (0..17).map(|at| json!({"name": format!("d{at}"), "service": {"name": "a"}})).collect();
    let mut unscaled = bare("x")["spec"].clone();
    unscaled["replicas"] = Value::Null;
    unscaled["waitFor"] =
        json!({"dependencies": [{"name": "a", "service": {"name": "a"}}], "gates": ["ScaleFromZero"]});
    vec![
        (
            "/waitProbe",
            json!({"address": "db:5432"}),
            Refused("waitProbe: Forbidden: waitProbe and spec.waitFor exclude each other"),
        ),
        ("/spec/waitFor", json!("database"), Refused("spec.waitFor")),
        ("/spec/waitFor", json!({}), Refused("spec.waitFor.dependencies: Required value")),
        ("/spec/waitFor/dependencies", json!([]), Refused("spec.waitFor.dependencies")),
        ("/spec/waitFor/dependencies", json!(many), Refused("spec.waitFor.dependencies: Too many: 17")),
        ("/spec/waitFor/dependencies", json!(["db"]), Refused("spec.waitFor.dependencies[0]")),
        ("/spec/waitFor/dependencies", named_twice, Refused("spec.waitFor.dependencies[1]: Duplicate value")),
        ("/spec/waitFor/match", json!("all"), Refused("spec.waitFor.match: Unsupported value: \"all\"")),
        ("/spec/waitFor/gates", json!([]), Refused("spec.waitFor.gates")),
        ("/spec/waitFor/gates", json!(["Start"]), Refused("spec.waitFor.gates[0]: Unsupported value")),
        (
            "/spec/waitFor/gates",
            json!(["Create", "Create"]),
            Refused("spec.waitFor.gates[1]: Duplicate value"),
        ),
        ("/spec/waitFor/deadlineSeconds", json!(0), Refused("spec.waitFor.deadlineSeconds")),
        ("/spec/waitFor/deadlineSeconds", json!("15m"), Refused("spec.waitFor.deadlineSeconds")),
        ("/spec/waitFor/onDeadline", json!("Ignore"), Refused("spec.waitFor.onDeadline: Unsupported value")),
        (
            "/spec/waitFor/onLoss",
            json!("Ignore"),
            Refused("recoveryDeadlineSeconds has no effect where onLoss is Ignore"),
        ),
        (
            "/spec/waitFor/lossGraceSeconds",
            Value::Null,
            Refused("lossGraceSeconds: Required value: lossGraceSeconds has to be set"),
        ),
        ("/spec/waitFor/lossGraceSeconds", json!(86_401), Refused("spec.waitFor.lossGraceSeconds")),
        ("/spec/waitFor/adoption", json!("Always"), Refused("spec.waitFor.adoption: Unsupported value")),
        ("/spec/replicas", Value::Null, Refused("spec.replicas: Required value: replicas has to be set")),
        (
            "/spec",
            unscaled,
            Refused(
                "spec.replicas: Required value: replicas has to be set where waitFor.gates has ScaleFromZero",
            ),
        ),
        ("/spec/replicas", json!(-1), Refused("spec.replicas")),
        ("/spec/replicas", json!(5_000_000_000_i64), Refused("spec.replicas")),
        ("/spec/selector", Value::Null, Refused("spec.selector: Required value")),
        ("/spec/selector", json!({}), Refused("spec.selector is empty, which a Deployment does not accept")),
        ("/spec/template", Value::Null, Refused("spec.template: Required value")),
        ("/spec/template/spec/containers", json!("main"), Refused("spec.template.spec.containers")),
        (
            "/spec/template/spec/containers/0/name",
            Value::Null,
            Refused("spec.template.spec.containers[0].name: Required value"),
        ),
        ("/spec/strategy", json!("Recreate"), Refused("spec.strategy")),
        ("/spec/paused", json!("no"), Refused("spec.paused")),
    ]
}

/// Returns mistakes in objects without dependencies that only the validation of Deployments finds.
pub(super) fn bad_templates() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("/spec/template/metadata/labels", json!({"app": "other"}), "spec.template.metadata.labels"),
        ("/spec/template/spec/containers", json!([]), "spec.template.spec.containers"),
        ("/spec/template/spec/containers/0/image", json!(""), "spec.template.spec.containers[0].image"),
        ("/spec/template/spec/containers/0/imagePullPolicy", json!("Sometimes"), "imagePullPolicy"),
        ("/spec/template/spec/containers/0/ports", json!("80"), "ports"),
        ("/spec/template/spec/containers/0/imgae", json!("x"), "imgae"),
        ("/spec/template/spec/restartPolicy", json!("Never"), "spec.template.spec.restartPolicy"),
        ("/spec/strategy", json!({"type": "BlueGreen"}), "spec.strategy: Unsupported value"),
        ("/spec/waitfor", json!({"dependencies": []}), "waitfor"),
        ("/spec/selector/matchLabels", json!({"a b": "c"}), "spec.selector"),
    ]
}

/// Returns the object with the value at this path.
pub(super) fn edited(mut object: Value, pointer: &str, value: &Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.insert(key.to_owned(), value.clone());
        }
        Some(Value::Array(items)) => items[key.parse::<usize>().expect("an index")] = value.clone(),
        other => panic!("{pointer} in {other:?}"),
    }
    object
}
