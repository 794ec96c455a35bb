//! Tests of webhooks and policies: which writes they see, and what they make of them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::outgoing::tests::TestServer;

fn registered(plural: &str) -> Target {
    Target::new("admissionregistration.k8s.io", "v1", plural)
}

fn rules(resources: &str) -> Value {
    json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resources]}])
}

fn webhook(hook: &TestServer, path: &str) -> Value {
    json!({
        "name": "a.example.com",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": rules("configmaps"),
        "clientConfig": {
            "url": format!("https://127.0.0.1:{}{path}", hook.port),
            "caBundle": STANDARD.encode(&hook.authority),
        },
    })
}

fn configuration(webhook: &Value) -> Value {
    json!({"metadata": {"name": "hooks"}, "webhooks": [webhook]})
}

/// Returns an answer to a review: a denial, or a patch that adds data.
fn answer(path: &str, review: &Value) -> Value {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": path != "/deny"});
    if path == "/patch" {
        let operations = json!([{"op": "add", "path": "/data/added", "value": "yes"}]).to_string();
        response["patchType"] = "JSONPatch".into();
        response["patch"] = STANDARD.encode(operations).into();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn policy(expression: &str) -> Value {
    json!({"metadata": {"name": "rule"}, "spec": {
        "matchConstraints": {"resourceRules": rules("configmaps")},
        "validations": [{"expression": expression, "message": "no"}],
    }})
}

fn binding(actions: &[&str]) -> Value {
    json!({"metadata": {"name": "rule"}, "spec": {"policyName": "rule", "validationActions": actions}})
}

async fn create_map(server: &Server, name: &str) -> Result<Response, Status> {
    server.call(Request::new(Verb::Create, maps()).with_body(map(name))).await
}

#[tokio::test]
async fn a_mutating_webhook_changes_the_object() {
    let (server, hook) = (Server::start().await, TestServer::start(answer).await);
    server
        .create(registered("mutatingwebhookconfigurations"), configuration(&webhook(&hook, "/patch")))
        .await;
    let created = server.create(maps(), map("a")).await;
    assert_eq!(created["data"], json!({"k": "v", "added": "yes"}));
}

#[tokio::test]
async fn a_validating_webhook_refuses_a_write_until_it_is_deleted() {
    let (server, hook) = (Server::start().await, TestServer::start(answer).await);
    let configurations = registered("validatingwebhookconfigurations");
    server.create(configurations.clone(), configuration(&webhook(&hook, "/deny"))).await;
    let status = create_map(&server, "a").await.unwrap_err();
    let text = "admission webhook \"a.example.com\" denied the request without explanation";
    assert_eq!((status.code(), status.message()), (400, text));
    server.object(Request::new(Verb::Delete, configurations.name("hooks"))).await;
    create_map(&server, "a").await.unwrap();
}

#[tokio::test]
async fn the_failure_policy_decides_about_a_webhook_that_is_not_reachable() {
    let server = Server::start().await;
    let mut lost = json!({
        "name": "a.example.com",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": rules("configmaps"),
        "clientConfig": {"service": {"namespace": "default", "name": "none"}},
    });
    let configurations = registered("validatingwebhookconfigurations");
    server.create(configurations.clone(), configuration(&lost)).await;
    let status = create_map(&server, "a").await.unwrap_err();
    let text = "Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: Post \
                \"https://none.default.svc:443/?timeout=10s\": service \"none\" not found";
    assert_eq!((status.code(), status.message()), (500, text));
    lost["failurePolicy"] = "Ignore".into();
    let mut ignored = configuration(&lost);
    ignored["metadata"]["resourceVersion"] =
        server.get(configurations.clone().name("hooks")).await["metadata"]["resourceVersion"].clone();
    server.update(configurations.name("hooks"), ignored).await.unwrap();
    create_map(&server, "a").await.unwrap();
}

#[tokio::test]
async fn a_service_is_found_by_its_endpoints_on_loopback() {
    let (server, hook) = (Server::start().await, TestServer::start(answer).await);
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}});
    server.create(Target::new("", "v1", "services").namespace("default"), service).await;
    let slice = json!({
        "metadata": {"name": "hook", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "", "port": hook.port}],
    });
    let slices = Target::new("discovery.k8s.io", "v1", "endpointslices").namespace("default");
    // The address is not allowed for clients.
    let mut request = Request::new(Verb::Create, slices).with_body(slice);
    request.user_agent = "tests".to_owned();
    server.api.call_with(request, |call| call.unchecked = true).await.unwrap();
    let mut webhook = webhook(&hook, "/deny");
    webhook["clientConfig"] = json!({
        "service": {"namespace": "default", "name": "hook", "path": "/deny"},
        "caBundle": STANDARD.encode(&hook.authority),
    });
    server.create(registered("validatingwebhookconfigurations"), configuration(&webhook)).await;
    let status = create_map(&server, "a").await.unwrap_err();
    // The server was reached: its certificate lacks the name of the Service.
    assert!(status.message().contains("not hook.default.svc"), "{status}");
}

#[tokio::test]
async fn a_policy_refuses_or_warns_once_it_is_bound() {
    let server = Server::start().await;
    server.create(registered("validatingadmissionpolicies"), policy("object.data.k != 'v'")).await;
    create_map(&server, "a").await.unwrap();
    let bindings = registered("validatingadmissionpolicybindings");
    server.create(bindings.clone(), binding(&["Warn"])).await;
    let text = "Validation failed for ValidatingAdmissionPolicy 'rule' with binding 'rule': no";
    assert_eq!(create_map(&server, "b").await.unwrap().warnings, [text]);
    server.merge(bindings.name("rule"), json!({"spec": {"validationActions": ["Deny"]}})).await.unwrap();
    let status = create_map(&server, "c").await.unwrap_err();
    let text = "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'rule' with binding 'rule' denied \
                request: no";
    assert_eq!((status.code(), status.message()), (422, text));
}

#[tokio::test]
async fn a_policy_that_asks_the_authorizer_fails_by_its_failure_policy() {
    let server = Server::start().await;
    let asking = policy("authorizer.group('').resource('pods').check('get').allowed()");
    server.create(registered("validatingadmissionpolicies"), asking).await;
    server.create(registered("validatingadmissionpolicybindings"), binding(&["Deny"])).await;
    let status = create_map(&server, "a").await.unwrap_err();
    assert!(status.message().contains("resulted in error"), "{status}");
    let patch = json!({"spec": {"failurePolicy": "Ignore"}});
    server.merge(registered("validatingadmissionpolicies").name("rule"), patch).await.unwrap();
    create_map(&server, "a").await.unwrap();
}

#[tokio::test]
async fn a_list_is_converted_in_one_call_that_is_not_repeated() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let convert = move |_: &str, review: &Value| {
        counted.fetch_add(1, Ordering::Relaxed);
        let request = &review["request"];
        let mut objects = request["objects"].clone();
        for object in objects.as_array_mut().unwrap() {
            object["apiVersion"] = request["desiredAPIVersion"].clone();
            object["spec"]["converted"] = true.into();
        }
        let result = json!({"status": "Success"});
        let response = json!({"uid": request["uid"], "convertedObjects": objects, "result": result});
        json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
    };
    let (server, hook) = (Server::start().await, TestServer::start(convert).await);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [version("v1", true), version("v2", false)],
        "conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": webhook(&hook, "/")["clientConfig"],
        }},
    }});
    server.create(Target::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"), definition).await;
    let things = |version: &str| Target::new("example.com", version, "things").namespace("default");
    for name in ["a", "b", "c"] {
        let thing =
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {}});
        server.create(things("v1"), thing).await;
    }
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    for _ in 0..2 {
        let list = server.list(Request::new(Verb::List, things("v2"))).await.unwrap();
        assert!(list.items.iter().all(|item| item.value()["spec"]["converted"] == true));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let mut watch = server.watch(Request::new(Verb::Watch, things("v2"))).await.unwrap();
    assert_eq!(watch.next().await.unwrap().len(), 3);
    server.merge(things("v1").name("a"), json!({"spec": {"x": 1}})).await.unwrap();
    assert_eq!(shown(&watch.next().await.unwrap()), ["MODIFIED a"]);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
