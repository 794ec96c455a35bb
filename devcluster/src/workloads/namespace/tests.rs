use super::*;
use crate::workloads::client::Verb;

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("a time")
}

fn object(name: &str, finalizers: &[&str], deleting: bool) -> Arc<Value> {
    let deleted = deleting.then_some("2026-01-02T03:04:00Z");
    Arc::new(json!({"metadata": {"name": name, "finalizers": finalizers, "deletionTimestamp": deleted}}))
}

fn terminating(conditions: &[Value]) -> Value {
    json!({
        "metadata": {"name": "work", "deletionTimestamp": "2026-01-02T03:04:00Z"},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Terminating", "conditions": conditions},
    })
}

fn decide(namespace: &Value, content: &[(&GroupResource, Vec<&Arc<Value>>)]) -> Vec<Request> {
    decide_deletion(namespace, &content.iter().cloned().collect(), now())
}

#[test]
fn a_new_namespace_gets_an_account_and_the_certificate() {
    let namespace = json!({"metadata": {"name": "work"}});
    let requests = decide_defaults(&namespace, None, None, "PEM");
    let [account, config] = requests.as_slice() else { panic!("two requests: {requests:?}") };
    assert_eq!((account.name.as_str(), account.namespace.as_str()), ("default", "work"));
    assert_eq!(config.body["data"], json!({"ca.crt": "PEM"}));

    let mut changed = config.body.clone();
    assert!(
        decide_defaults(&namespace, Some(&Arc::new(Value::Null)), Some(&Arc::new(changed.clone())), "PEM")
            .is_empty()
    );
    changed["data"]["ca.crt"] = "other".into();
    let restored = decide_defaults(&namespace, Some(&Arc::new(Value::Null)), Some(&Arc::new(changed)), "PEM");
    assert_eq!((restored[0].verb, &restored[0].body["data"]["ca.crt"]), (Verb::Update, &json!("PEM")));
    assert!(decide_defaults(&terminating(&[]), None, None, "PEM").is_empty());
}

#[test]
fn pods_are_deleted_before_anything_else() {
    let (pods, maps) = (resources::pods(), resources::config_maps());
    let (pod, map) = (object("p", &[], false), object("m", &[], false));
    let requests = decide(&terminating(&[]), &[(&pods, vec![&pod]), (&maps, vec![&map])]);
    assert_eq!(requests, [Request::delete_collection(&pods, "work")]);
    let requests = decide(&terminating(&[]), &[(&maps, vec![&map])]);
    assert_eq!(requests, [Request::delete_collection(&maps, "work")]);
}

#[test]
fn objects_with_finalizers_are_reported_in_conditions() {
    let maps = resources::config_maps();
    let held = object("m", &["example.com/hold"], true);
    let requests = decide(&terminating(&[]), &[(&maps, vec![&held])]);
    let [update] = requests.as_slice() else { panic!("one request: {requests:?}") };
    let text = |kind| {
        update.body.condition(kind).map(|c| (c.text("/status"), c.text("/reason"), c.text("/message")))
    };
    assert_eq!(
        text("NamespaceContentRemaining"),
        Some((
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 1 resource instances"
        ))
    );
    assert_eq!(
        text("NamespaceFinalizersRemaining"),
        Some((
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        ))
    );
    // The same state again needs no write.
    assert!(decide(&update.body, &[(&maps, vec![&held])]).is_empty());
}

#[test]
fn an_empty_namespace_shows_its_conditions_and_then_loses_the_finalizer() {
    let requests = decide(&terminating(&[]), &[]);
    assert_eq!(requests[0].subresource, "status");
    assert_eq!(requests[0].body.list("/status/conditions").len(), 5);
    let requests = decide(&requests[0].body, &[]);
    assert_eq!(requests[0].subresource, "finalize");
    assert_eq!(requests[0].body["spec"]["finalizers"], json!([]));
    assert!(decide(&requests[0].body, &[]).is_empty());
}
