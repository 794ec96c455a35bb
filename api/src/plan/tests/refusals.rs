//! Refusals of invalid fields of `spec.waitFor`.

use serde_json::{Value, json};

use super::*;

/// Returns a `waitFor` of one valid dependency on an object, with these fields replaced.
fn resource(fields: &Value) -> Value {
    let mut resource = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a", "condition": "Complete"});
    for (key, value) in fields.as_object().unwrap() {
        resource[key] = value.clone();
    }
    with(&json!({"resource": resource}))
}

#[track_caller]
fn refuses<const N: usize>(cases: [(Value, &str); N]) {
    for (wait_for, expected) in cases {
        let refused = plan(&wait_for).unwrap_err();
        assert!(refused.starts_with("spec.waitFor") && refused.contains(expected), "{wait_for}: {refused}");
    }
}

#[test]
fn a_refusal_has_path_value_and_expectation() {
    let tcp = json!({"host": "db", "port": 1});
    refuses([
        (json!({"dependencies": []}), r#"dependencies "0 entries": expected 1 to 16 entries"#),
        (
            json!({"dependencies": [{"name": "a", "dns": {"name": "b"}}, {"name": "a"}]}),
            r#"dependencies "a": expected each name once"#,
        ),
        (with(&json!({"name": "A", "tcpSocket": tcp})), r#"dependencies[A].name "A": expected lower-case"#),
        (with(&json!({})), "dependencies[db] []: expected exactly one of"),
        (
            with(&json!({"tcpSocket": tcp, "dns": {"name": "a"}})),
            r#"dependencies[db] ["tcpSocket","dns"]: expected exactly one"#,
        ),
        (
            with(&json!({"tcpSocket": tcp, "periodSeconds": 0})),
            "dependencies[db].periodSeconds 0: expected 1 to 3600",
        ),
        (
            with(&json!({"tcpSocket": tcp, "timeoutSeconds": 11})),
            "dependencies[db].timeoutSeconds 11: expected at most periodSeconds, 10",
        ),
        (
            with(&json!({"tcpSocket": tcp, "failureThreshold": 101})),
            "dependencies[db].failureThreshold 101: expected 1 to 100",
        ),
        (
            with(&json!({"tcpSocket": {"host": "", "port": 1}})),
            r#"dependencies[db].tcpSocket.host "": expected a Service by name"#,
        ),
        (
            with(&json!({"tcpSocket": {"host": "0x7f.1", "port": 1}})),
            r#"tcpSocket.host "0x7f.1": expected a Service by name"#,
        ),
        (
            with(&json!({"tcpSocket": {"host": "[::1%lo]", "port": 1}})),
            r#"tcpSocket.host "[::1%lo]": expected a Service by name"#,
        ),
        (
            with(&json!({"tcpSocket": {"host": "db", "port": 65536}})),
            "tcpSocket.port 65536: expected 1 to 65535",
        ),
        (with(&json!({"service": {"name": "Db"}})), r#"service.name "Db": expected the name of a Service"#),
        (
            with(&json!({"service": {"name": "db", "port": "5432"}})),
            r#"service.port "5432": expected a number from 1 to 65535 without quotes"#,
        ),
        (with(&json!({"service": {"name": "db", "port": 0}})), "service.port 0: expected 1 to 65535"),
        (
            with(&json!({"grpc": {"host": "a", "port": 1, "service": "a b"}})),
            r#"grpc.service "a b": expected the name of a gRPC"#,
        ),
        (
            with(&json!({"tls": {"host": "a", "port": 1, "serverName": "*.a"}})),
            r#"tls.serverName "*.a": expected the name in the certificate"#,
        ),
        (
            with(&json!({"tls": {"host": "a", "port": 1, "caConfigMap": {"name": "CA"}}})),
            r#"tls.caConfigMap.name "CA": expected the name of a ConfigMap"#,
        ),
        (
            with(&json!({"tls": {"host": "a", "port": 1, "caConfigMap": {"name": "ca", "key": "../x"}}})),
            r#"tls.caConfigMap.key "../x": expected letters"#,
        ),
        (with(&json!({"dns": {"name": "10.0.0.1"}})), r#"dns.name "10.0.0.1": expected a complete DNS name"#),
        (with(&json!({"dns": {"name": "db", "minRecords": 0}})), "dns.minRecords 0: expected 1 to 100"),
    ]);
}

#[test]
fn invalid_fields_of_a_get_are_refused() {
    let http = |key: &str, value: Value| with(&json!({"httpGet": {"host": "a", "port": 1, key: value}}));
    let header = |name: &str, value: &str| http("httpHeaders", json!([{"name": name, "value": value}]));
    refuses([
        (http("path", json!("ready")), r#"httpGet.path "ready": expected a path that begins with /"#),
        (http("path", json!("/a b")), r#"httpGet.path "/a b": expected a path"#),
        (http("path", json!("/a%2")), r#"httpGet.path "/a%2": expected a path"#),
        (http("expectedStatuses", json!([200, 101])), "httpGet.expectedStatuses[1] 101: expected 200 to 599"),
        (
            header("Authorization", "x"),
            r#"httpGet.httpHeaders[0].name "Authorization": expected a header that carries no credentials"#,
        ),
        (
            header("proxy-anything", "x"),
            r#"httpHeaders[0].name "proxy-anything": expected a header that carries no"#,
        ),
        (
            header("X-Forwarded-User", "x"),
            r#"httpHeaders[0].name "X-Forwarded-User": expected a header that carries no"#,
        ),
        (header("x-http-method-override", "DELETE"), "expected a header that carries no"),
        (header("X-Real-IP", "x"), "expected a header that carries no"),
        (header("X-Original-URL", "x"), "expected a header that carries no"),
        (header("a:b", "x"), r#"httpHeaders[0].name "a:b": expected the name of a header"#),
        (header("a", "secret\r\nHost: b"), r#"httpHeaders[0].value "of 15 bytes": expected printable ASCII"#),
    ]);
}

#[test]
fn headers_that_servers_trust_from_a_proxy_are_refused() {
    let header = |name: &str| {
        let headers = json!([{"name": name, "value": "x"}]);
        plan(&with(&json!({"httpGet": {"host": "db", "port": 80, "httpHeaders": headers}})))
    };
    for name in [
        "True-Client-IP",
        "CF-Connecting-IP",
        "Fastly-Client-IP",
        "X-Cluster-Client-IP",
        "X-Envoy-External-Address",
        "X-Envoy-Internal",
        "X-SSL-Client-CN",
        "SSL-Client-Verify",
        "X-Client-Cert",
        "Remote-User",
        "X-User",
        "X-Userinfo",
        "X-WEBAUTH-USER",
        "Impersonate-User",
        "X-Authenticated-User",
        "X-Authentik-Username",
        "X-Amzn-Oidc-Identity",
        "X-Goog-IAP-JWT-Assertion",
        "X-MS-CLIENT-PRINCIPAL",
    ] {
        let error = header(name).unwrap_err();
        assert!(error.contains("expected a header that carries no"), "{name}: {error}");
    }
    for name in [
        "Accept",
        "Accept-Language",
        "User-Agent",
        "X-Probe",
        "X-Request-ID",
        "X-Api-Version",
        "If-None-Match",
    ] {
        assert!(header(name).is_ok(), "{name}");
    }
}

#[test]
fn invalid_fields_of_a_resource_are_refused() {
    let selector = |selector: Value| resource(&json!({"name": null, "selector": selector}));
    refuses([
        (resource(&json!({"apiVersion": "a/b/v1"})), r#"resource.apiVersion "a/b/v1": expected a version"#),
        (resource(&json!({"kind": "jobs/status"})), r#"resource.kind "jobs/status": expected letters"#),
        (resource(&json!({"name": "../x"})), r#"resource.name "../x": expected the name of an object"#),
        (resource(&json!({"name": null})), "resource []: expected exactly one of name and selector"),
        (
            resource(&json!({"selector": {}})),
            r#"resource ["name","selector"]: expected exactly one of name and selector"#,
        ),
        (
            resource(&json!({"jsonPath": ".status.phase", "value": "Bound"})),
            r#"resource ["condition","jsonPath"]: expected exactly one"#,
        ),
        (
            resource(&json!({"condition": "Complete=Yes"})),
            r#"resource.condition "Complete=Yes": expected TYPE"#,
        ),
        (
            resource(&json!({"condition": null, "value": "Bound"})),
            "resource []: expected exactly one of condition and jsonPath",
        ),
        (
            resource(&json!({"value": "True"})),
            r#"resource.value "True": expected no value beside condition: it belongs to jsonPath"#,
        ),
        (
            resource(&json!({"condition": null, "jsonPath": "", "value": "Bound"})),
            concat!(
                r#"resource.jsonPath "": expected a path such as {.status.phase}; "#,
                "character 1: expected the name of a field"
            ),
        ),
        (
            resource(&json!({"condition": null, "jsonPath": ".status..phase", "value": "Bound"})),
            "; character 8: selects several values; expected one field, index or filter",
        ),
        (
            resource(&json!({"condition": null, "jsonPath": ".status.phase"})),
            "resource.value null: expected 1 to 256 characters to compare with",
        ),
        (
            resource(&json!({"condition": null, "jsonPath": ".status.phase", "value": "é".repeat(257)})),
            "expected 1 to 256 characters to compare with",
        ),
        (selector(json!({})), "resource.selector {}: expected at least one label"),
        (
            selector(json!({"matchLabels": {"a b": "c"}})),
            r#"resource.selector.matchLabels "a b": expected the key of a label"#,
        ),
        (
            selector(json!({"matchLabels": {"a": "-"}})),
            r#"resource.selector.matchLabels.a "-": expected the value of a label"#,
        ),
        (
            selector(json!({"matchExpressions": [{"key": "a", "operator": "Like"}]})),
            r#"matchExpressions[0].operator "Like": expected In, NotIn"#,
        ),
        (
            selector(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
            "matchExpressions[0].values []: expected at least one",
        ),
        (
            selector(json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]})),
            r#"values ["b"]: expected no values"#,
        ),
    ]);
}

#[test]
fn contradictory_fields_are_refused() {
    let beside = |key: &str, value: Value| {
        let mut wait_for = with(&json!({"tcpSocket": {"host": "db", "port": 1}}));
        wait_for[key] = value;
        wait_for
    };
    refuses([
        (beside("gates", json!([])), "spec.waitFor.gates []: expected at least one of Create"),
        (
            beside("onLoss", json!("ScaleToZero")),
            r#"spec.waitFor.onLoss "ScaleToZero": expected lossGraceSeconds beside it"#,
        ),
        (
            beside("onDeadline", json!("Proceed")),
            r#"spec.waitFor.onDeadline "Proceed": expected deadlineSeconds beside it"#,
        ),
        (beside("deadlineSeconds", json!(0)), "spec.waitFor.deadlineSeconds 0: expected 1 to 31536000"),
    ]);
    let mut ignored = beside("onLoss", json!("Ignore"));
    ignored["recoveryDeadlineSeconds"] = json!(1);
    let refused = plan(&ignored).unwrap_err();
    assert_eq!(refused, "spec.waitFor.recoveryDeadlineSeconds 1: expected no value beside onLoss: Ignore");
    let mut unscaled = object(&json!({
        "dependencies": [{"name": "a", "dns": {"name": "b"}}], "onLoss": "ScaleToZero", "lossGraceSeconds": 0,
    }));
    unscaled.spec.replicas = None;
    let refused = unscaled.plan().unwrap_err().to_string();
    assert!(refused.contains(r#"onLoss "ScaleToZero": expected spec.replicas beside it"#), "{refused}");
    let mut unscaled = object(&beside("gates", json!(["Create", "ScaleFromZero"])));
    assert!(unscaled.plan().is_ok());
    unscaled.spec.replicas = None;
    let refused = unscaled.plan().unwrap_err().to_string();
    let expected =
        r#"spec.waitFor.gates ["Create","ScaleFromZero"]: expected spec.replicas beside ScaleFromZero"#;
    assert!(refused.starts_with(expected), "{refused}");
}
