//! Tests of tokens, reviews, Events in two API groups, and Deployments.

use super::*;

#[tokio::test]
async fn an_issued_token_authenticates_its_service_account() {
    let server = Server::start().await;
    let accounts = Target::new("", "v1", "serviceaccounts").namespace("default");
    server.create(accounts.clone(), json!({"metadata": {"name": "a"}})).await;
    let target = accounts.name("a").subresource("token");
    let answer = server.create(target.clone(), json!({"spec": {"expirationSeconds": 600}})).await;
    let token = answer["status"]["token"].as_str().unwrap();
    assert_eq!(token.split('.').count(), 3);
    assert_eq!(answer["status"]["expirationTimestamp"], "2023-11-14T22:23:20Z");
    let user = server.api.authenticate(token).unwrap();
    assert_eq!(user.name, "system:serviceaccount:default:a");
    assert!(server.api.authenticate("other").is_none());
    let short = Request::new(Verb::Create, target).with_body(json!({"spec": {"expirationSeconds": 5}}));
    assert_eq!(server.call(short).await.unwrap_err().code(), 422);
}

#[tokio::test]
async fn reviews_allow_every_action_and_are_not_stored() {
    let server = Server::start().await;
    let before = server.api.store().revision();
    let reviews = Target::new("authorization.k8s.io", "v1", "selfsubjectaccessreviews");
    let spec = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
    let answer = server.create(reviews.clone(), json!({"spec": spec})).await;
    assert_eq!(answer["status"]["allowed"], true);
    assert_eq!(server.call(Request::new(Verb::List, reviews)).await.unwrap_err().code(), 405);
    let answer =
        server.create(Target::new("authentication.k8s.io", "v1", "selfsubjectreviews"), json!({})).await;
    assert_eq!(answer["status"]["userInfo"]["username"], "system:admin");
    assert_eq!(server.api.store().revision(), before);
}

#[tokio::test]
async fn an_event_is_readable_and_selectable_in_the_core_group() {
    let server = Server::start().await;
    let event = json!({
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
        "eventTime": "2023-11-14T22:13:20.000000Z",
        "note": "hello",
        "type": "Normal",
        "reason": "R",
        "action": "A",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
    });
    server.create(Target::new("events.k8s.io", "v1", "events").namespace("default"), event).await;
    let core = server.get(Target::new("", "v1", "events").namespace("default").name("e")).await;
    assert_eq!((&core["apiVersion"], &core["message"]), (&json!("v1"), &json!("hello")));
    assert_eq!(core["involvedObject"]["name"], "p");
    let list = Request::new(Verb::List, Target::new("", "v1", "events").namespace("default"))
        .with("fieldSelector", "involvedObject.name=p");
    assert_eq!(names(&server.list(list).await.unwrap()), ["e"]);
}

#[tokio::test]
async fn a_deployment_gets_defaults_a_scale_and_a_generation_per_change() {
    let server = Server::start().await;
    let target = Target::new("apps", "v1", "deployments").namespace("default");
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    let created = server.create(target.clone(), json!({"metadata": {"name": "d"}, "spec": spec})).await;
    assert_eq!((&created["spec"]["replicas"], &created["status"]), (&json!(1), &json!({})));
    let container = &created["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    let scale = server.get(target.clone().name("d").subresource("scale")).await;
    assert_eq!(scale["status"]["selector"], "app=web");
    let annotated = json!({"metadata": {"annotations": {"a": "b"}}});
    let changed = server.merge(target.clone().name("d"), annotated).await.unwrap();
    assert_eq!(changed["metadata"]["generation"], 2, "annotations of a Deployment count");
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}});
    let request = Request::new(Verb::Patch(PatchType::Strategic), target.name("d")).with_body(patch);
    let patched = server.object(request).await;
    let container = &patched["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["imagePullPolicy"]), (&json!("i:2"), &json!("IfNotPresent")));
}

fn pod() -> Value {
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": spec})
}

#[tokio::test]
async fn a_binding_sets_the_node_and_a_condition_but_no_generation() {
    let server = Server::start().await;
    server.create(pods(), pod()).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    server.create(pods().name("p").subresource("binding"), binding.clone()).await;
    let bound = server.get(pods().name("p")).await;
    assert_eq!((&bound["spec"]["nodeName"], &bound["metadata"]["generation"]), (&json!("n"), &json!(1)));
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let again = Request::new(Verb::Create, pods().name("p").subresource("binding")).with_body(binding);
    assert_eq!(server.call(again).await.unwrap_err().code(), 409);
}

#[tokio::test]
async fn an_eviction_counts_in_its_budget_until_none_is_allowed() {
    let server = Server::start().await;
    let budgets = Target::new("policy", "v1", "poddisruptionbudgets").namespace("default");
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}});
    server.create(budgets.clone(), json!({"metadata": {"name": "b"}, "spec": spec})).await;
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1}});
    server.merge(budgets.clone().name("b").subresource("status"), status).await.unwrap();
    let mut codes = Vec::new();
    for name in ["p", "q"] {
        let mut pod = pod();
        pod["metadata"]["name"] = name.into();
        server.create(pods(), pod).await;
        let running =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        server.merge(pods().name(name).subresource("status"), running).await.unwrap();
        let eviction = Request::new(Verb::Create, pods().name(name).subresource("eviction"));
        let eviction = eviction.with_body(json!({"metadata": {"name": name}}));
        codes.push(server.call(eviction).await.map_or_else(|status| status.code(), |response| response.code));
    }
    assert_eq!(codes, [201, 429]);
    let budget = server.get(budgets.name("b")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["p"].is_string(), "{budget}");
}

#[tokio::test]
async fn a_refused_write_carries_the_warnings_about_it() {
    let server = Server::with_widgets().await;
    let body = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"replicas": -1, "bogus": 1},
    });
    let status = server.call(Request::new(Verb::Create, widgets()).with_body(body)).await.unwrap_err();
    assert_eq!(status.code(), 422);
    assert_eq!(status.failure().warnings, ["unknown field \"spec.bogus\""]);
}
