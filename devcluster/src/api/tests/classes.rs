//! Tests of default classes: those of the whole cluster would disturb other scenarios of the comparison.

use super::*;

fn priorities() -> Target {
    Target::new("scheduling.k8s.io", "v1", "priorityclasses")
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test]
async fn the_default_priority_class_applies_to_pods_without_one() {
    let server = Server::start().await;
    let before = server.create(pods(), pod("before")).await;
    assert_eq!(
        (&before["spec"]["priority"], &before["spec"]["priorityClassName"]),
        (&json!(0), &Value::Null)
    );

    let class = |name: &str, default: bool| {
        json!({
            "metadata": {"name": name}, "value": 7, "globalDefault": default, "preemptionPolicy": "Never",
        })
    };
    server.create(priorities(), class("usual", true)).await;
    let after = server.create(pods(), pod("after")).await;
    let spec = &after["spec"];
    assert_eq!((&spec["priority"], &spec["priorityClassName"]), (&json!(7), &json!("usual")));
    assert_eq!(spec["preemptionPolicy"], "Never");

    let second = server.call(Request::new(Verb::Create, priorities()).with_body(class("other", true))).await;
    assert_eq!(
        second.unwrap_err().message(),
        "priorityclasses.scheduling.k8s.io \"other\" is forbidden: PriorityClass usual is already marked as \
         default. Only one default can exist"
    );
    server.create(priorities(), class("other", false)).await;
    let marked = server.merge(priorities().name("other"), json!({"globalDefault": true})).await;
    assert_eq!(marked.unwrap_err().reason(), "Forbidden");
    server.merge(priorities().name("usual"), json!({"description": "still the default"})).await.unwrap();
}

#[tokio::test]
async fn ingresses_and_claims_get_the_default_class() {
    let server = Server::start().await;
    let ingresses = || Target::new("networking.k8s.io", "v1", "ingresses").namespace("default");
    let claims = || Target::new("", "v1", "persistentvolumeclaims").namespace("default");
    let ingress = |name: &str| {
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        json!({"metadata": {"name": name}, "spec": {"defaultBackend": backend}})
    };
    let claim = |name: &str| {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        json!({"metadata": {"name": name}, "spec": spec})
    };
    assert_eq!(server.create(ingresses(), ingress("a")).await["spec"]["ingressClassName"], Value::Null);
    assert_eq!(server.create(claims(), claim("a")).await["spec"]["storageClassName"], Value::Null);

    let marked = |mark: &str, fields: Value| {
        let mut class = json!({"metadata": {"name": "usual", "annotations": {mark: "true"}}});
        class.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        class
    };
    let controller = json!({"spec": {"controller": "example.com/c"}});
    let class = marked("ingressclass.kubernetes.io/is-default-class", controller);
    server.create(Target::new("networking.k8s.io", "v1", "ingressclasses"), class).await;
    let class = marked("storageclass.kubernetes.io/is-default-class", json!({"provisioner": "p"}));
    server.create(Target::new("storage.k8s.io", "v1", "storageclasses"), class).await;

    assert_eq!(server.create(ingresses(), ingress("b")).await["spec"]["ingressClassName"], "usual");
    assert_eq!(server.create(claims(), claim("b")).await["spec"]["storageClassName"], "usual");
    let mut named = claim("c");
    named["spec"]["storageClassName"] = json!("");
    assert_eq!(server.create(claims(), named).await["spec"]["storageClassName"], "");
}
