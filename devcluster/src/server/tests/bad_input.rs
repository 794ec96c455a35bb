//! Input that no client should send. `tests/differential/scenarios/bad_input.txt` compares more of it with
//! the real server.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;

use super::*;
use crate::api::ApiOptions;
use crate::store::Window;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// More than the largest URL of the HTTP library leaves for a selector.
const LONG: usize = 60_000;

/// Returns a definition of the kind Tree with this schema.
fn tree(schema: &Value) -> Value {
    json!({
        "metadata": {"name": "trees.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "trees", "kind": "Tree"},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    })
}

fn patch_type(name: &str) -> String {
    format!("application/{name}-patch+{}", if name == "apply" { "yaml" } else { "json" })
}

#[tokio::test]
async fn malformed_bodies_are_refused_and_store_nothing() {
    let server = filled().await;
    let before = get(&server, CONFIG_MAPS).await.json();
    let unrecognized = "the object provided is unrecognized (must be of type ConfigMap): couldn't get \
                        version/kind; json parse error: ";
    let cases: [(&[u8], &str); 6] = [
        (b"{\"metadata\":{\"name\":\"a\"}", "unexpected end of JSON input ({\"metadata\":{\"name\":\"a\"})"),
        (b"{\"a\":tru}", "invalid character '}' in literal true (expecting 'e') ({\"a\":tru})"),
        (b"\xff\xfe", "invalid character 'ÿ' looking for beginning of value (fffe)"),
        (b"\0", "invalid character '\\x00' looking for beginning of value (00)"),
        (b"", "unexpected end of JSON input (<empty>)"),
        (
            b"{\"a\":\"\\ud800\\u\"}",
            "invalid character '\"' in \\u hexadecimal character escape \
          ({\"a\":\"\\ud800\\u\"})",
        ),
    ];
    for (body, message) in cases {
        let reply = send(&server, "POST", CONFIG_MAPS, &[JSON], body).await;
        assert_eq!(reply.json()["reason"], "BadRequest");
        assert_eq!((reply.code, reply.message()), (400, format!("{unrecognized}{message}")));
    }
    for media_type in ["application/yaml", "application/vnd.kubernetes.protobuf"] {
        for body in
            [&b"{"[..], b"\xff\xfe\0", b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"k8s\0\x12\x7f"]
        {
            let reply = send(&server, "POST", CONFIG_MAPS, &[("content-type", media_type)], body).await;
            assert_eq!((reply.code, reply.json()["reason"].clone()), (400, json!("BadRequest")), "{body:?}");
        }
    }
    assert_eq!(get(&server, CONFIG_MAPS).await.json(), before);
}

#[tokio::test]
async fn invalid_utf8_in_a_text_is_replaced() {
    let server = filled().await;
    let body = b"{\"metadata\":{\"name\":\"u\"},\"data\":{\"a\":\"\xff\"}}";
    let reply = send(&server, "POST", CONFIG_MAPS, &[JSON], &body[..]).await;
    assert_eq!((reply.code, reply.json()["data"]["a"].clone()), (201, json!("\u{fffd}")));
    let reply = get(&server, &format!("{CONFIG_MAPS}/%ff")).await;
    assert_eq!((reply.code, reply.message().as_str()), (404, "configmaps \"\u{fffd}\" not found"));
}

#[tokio::test]
async fn deep_nesting_is_refused_before_it_exhausts_the_stack() {
    let server = filled().await;
    let widget = |depth: usize| {
        let free = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"deep"}},"spec":{free}}}"#
        )
    };
    let reply = send(&server, "POST", WIDGETS, &[JSON], widget(300)).await;
    assert_eq!(reply.code, 400);
    assert!(reply.message().contains("invalid character '{' exceeded max depth"), "{}", reply.text());
    for depth in [100_000, 500_000] {
        for name in ["json", "merge", "apply"] {
            let path = format!("{WIDGETS}/w1?fieldManager=x");
            let content_type = patch_type(name);
            let reply =
                send(&server, "PATCH", &path, &[("content-type", &content_type)], widget(depth)).await;
            assert_eq!(reply.code, 400, "{name}: {}", reply.text());
        }
        let flow = "[".repeat(depth);
        let reply = send(&server, "POST", CONFIG_MAPS, &[("content-type", "application/yaml")], flow).await;
        assert_eq!(reply.code, 400);
    }
}

#[tokio::test]
async fn the_deepest_accepted_objects_can_be_read_and_changed() {
    let server = filled().await;
    let nested = |field: &str, end: &str| format!("{}{end}{}", field.repeat(240), "}".repeat(240));
    let entry = format!(
        r#"{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}}"#,
        nested("{\"f:a\":", "{}")
    );
    let map = format!(r#"{{"metadata":{{"name":"deep","managedFields":[{entry}]}},"data":{{"a":"1"}}}}"#);
    let object = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Tree","metadata":{{"name":"deep"}},"free":{}}}"#,
        nested("{\"a\":", "1")
    );
    let definition = tree(&json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-validations": [{"rule": "self.metadata.name != 'x'"}],
    }));
    let reply = send(&server, "POST", DEFINITIONS, &[JSON], definition.to_string()).await;
    assert_eq!(reply.code, 201, "{}", reply.text());
    let trees = "/apis/example.com/v1/namespaces/default/trees";
    let apply = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"data":{"b":"1"}}"#;
    let cases = [(CONFIG_MAPS, map, apply.to_owned(), 4), (trees, object.clone(), object, 3)];
    for (collection, object, apply, types) in cases {
        let reply = send(&server, "POST", collection, &[JSON], object).await;
        assert_eq!(reply.code, 201, "{}", reply.text());
        let path = format!("{collection}/deep");
        let patches = [
            ("json", r#"[{"op":"add","path":"/metadata/labels","value":{"a":"1"}}]"#),
            ("merge", r#"{"metadata":{"labels":{"b":"1"}}}"#),
            ("apply", &apply),
            ("strategic-merge", r#"{"metadata":{"labels":{"c":"1"}}}"#),
        ];
        for (name, patch) in patches.into_iter().take(types) {
            let path = format!("{path}?fieldManager=x");
            let content_type = patch_type(name);
            let reply =
                send(&server, "PATCH", &path, &[("content-type", &content_type)], patch.to_owned()).await;
            assert_eq!(reply.code, 200, "{name}: {}", reply.text());
        }
        assert_eq!(accept(&server, &path, "application/yaml").await.code, 200);
        assert_eq!(get(&server, &format!("{collection}?pretty=1")).await.code, 200);
    }
}

#[tokio::test]
async fn a_deep_expression_is_refused_with_its_definition() {
    let server = server().await;
    for rule in
        ["(".repeat(20_000), "!".repeat(20_000), format!("{}1", "-".repeat(20_000)), "[".repeat(9_000)]
    {
        let definition = tree(&json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]}));
        let reply = send(&server, "POST", DEFINITIONS, &[JSON], definition.to_string()).await;
        assert_eq!(reply.code, 422, "{}", reply.text());
    }
}

#[tokio::test]
async fn large_selectors_are_answered() {
    let server = filled().await;
    let many: Vec<String> = (0..LONG / 6).map(|number| format!("v{number:04}")).collect();
    let label = format!("{CONFIG_MAPS}?labelSelector=app+in+({})", many.join(","));
    let reply = get(&server, &label).await;
    assert_eq!((reply.code, reply.json()["items"].clone()), (200, json!([])));
    let long = "k".repeat(LONG);
    let reply = get(&server, &format!("{CONFIG_MAPS}?labelSelector={long}")).await;
    assert_eq!((reply.code, reply.json()["reason"].clone()), (400, json!("BadRequest")));
    assert!(reply.message().contains("name part must be no more than 63 bytes"), "{}", reply.text());
    let reply = get(&server, &format!("{CONFIG_MAPS}?fieldSelector=metadata.name={long}")).await;
    assert_eq!((reply.code, reply.json()["items"].clone()), (200, json!([])));
    let reply = get(&server, &format!("{CONFIG_MAPS}?labelSelector={}", "(".repeat(LONG))).await;
    assert_eq!(reply.code, 400);
}

#[tokio::test]
async fn forged_continue_tokens_are_refused() {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;

    let server = filled().await;
    let page = async |token: &str| get(&server, &format!("{CONFIG_MAPS}?continue={token}")).await;
    let invalid = "invalid continue token: continue key is not valid: ";
    let version = "(version meta.k8s.io/v1)";
    let cases = [
        (json!({"v": "v2"}), "server does not recognize this encoded version v2".to_owned()),
        (
            json!({"v": "meta.k8s.io/v1", "rv": 0, "start": "a"}),
            format!("incorrect encoded start resourceVersion {version}"),
        ),
        (json!({"v": "meta.k8s.io/v1", "rv": 1, "start": ""}), format!("encoded start key empty {version}")),
        (json!({"v": "meta.k8s.io/v1", "rv": -1, "start": "../x"}), "../x".to_owned()),
    ];
    for (token, message) in cases {
        let reply = page(&BASE64_URL_SAFE_NO_PAD.encode(token.to_string())).await;
        assert_eq!((reply.code, reply.message()), (400, format!("{invalid}{message}")), "{token}");
    }
    // The token of another namespace, or of a future state.
    let token = |rv: i64, start: &str| {
        BASE64_URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": rv, "start": start}).to_string())
    };
    let reply = page(&token(-1, "kube-system/x")).await;
    let items = reply.json()["items"].as_array().cloned().unwrap_or_default();
    assert!(items.iter().all(|item| item["metadata"]["namespace"] == "default"), "{items:?}");
    assert_eq!(page(&token(i64::MAX, "a")).await.code, 504);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_end_in_time_is_a_timeout() {
    let server = filled().await;
    let start = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{\"metadata\":")))]);
    let body = StreamBody::new(futures_util::StreamExt::chain(start, stream::pending()));
    let request = http::Request::post(CONFIG_MAPS).body(body).expect("a request");
    let answer = tokio::time::timeout(Duration::from_mins(1), server.clone().call(request)).await;
    let (head, body) = answer.expect("in time").expect("infallible").into_parts();
    let body = body.collect().await.expect("infallible").to_bytes();
    let status: Value = serde_json::from_slice(&body).expect("a status");
    assert_eq!((head.status.as_u16(), status["reason"].clone()), (504, json!("Timeout")));
}

#[tokio::test]
async fn a_body_that_breaks_off_stores_nothing() {
    let server = filled().await;
    let whole = br#"{"metadata":{"name":"half"},"data":{}}"#;
    let frames = [Ok(Frame::data(Bytes::from_static(whole))), Err("connection reset")];
    let request = http::Request::post(CONFIG_MAPS).body(StreamBody::new(stream::iter(frames)));
    let answer = server.clone().call(request.expect("a request")).await.expect("infallible");
    assert_eq!(answer.status(), 400);
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/half")).await.code, 404);
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut_and_keeps_no_events() {
    let window = Window { min_changes: 4, max_changes: 8, watch_buffer: 8, ..Window::default() };
    let api = Api::new(ApiOptions { window, ..EmbeddedOptions::default().api }).await;
    let server = ApiService::new(api, [], 1).as_user(User::admin());
    let watch = http::Request::get(format!("{CONFIG_MAPS}?watch=1")).body(Full::<Bytes>::default());
    let watch = server.clone().call(watch.expect("a request")).await.expect("infallible");
    for number in 0..100 {
        let body = json!({"metadata": {"name": format!("map-{number}")}, "data": {"a": "x".repeat(10_000)}});
        assert_eq!(send(&server, "POST", CONFIG_MAPS, &[JSON], body.to_string()).await.code, 201);
    }
    let read = watch.into_body().collect().await.expect("infallible").to_bytes();
    assert!(read.is_empty(), "the watch ends, and the client lists again: {} bytes", read.len());
}
