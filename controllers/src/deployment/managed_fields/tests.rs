use super::*;

fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
    json!({
        "manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": "2020-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

fn of_creator() -> Value {
    let annotations = json!({"f:foreign": {}, "f:passed": {}, ".": {}});
    json!({
        "f:metadata": {"f:labels": {"f:app": {}, "f:team": {}}, "f:annotations": annotations},
        "f:spec": {
            "f:replicas": {}, "f:selector": {}, "f:minReadySeconds": {},
            "f:template": {
                "f:metadata": {"f:annotations": {"f:restarted": {}, "f:written": {}}}, "f:spec": {},
            },
        },
    })
}

fn desired(replicas: Option<i32>) -> Value {
    let mut desired = json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {"passed": "on"}},
        "spec": {"template": {"metadata": {"annotations": {"written": "x"}}}},
    });
    if let Some(replicas) = replicas {
        desired["spec"]["replicas"] = replicas.into();
    }
    desired
}

#[test]
fn written_fields_move_from_the_creator_to_the_gate_and_the_rest_stays() {
    let other = entry("kubectl-rollout", "Update", &json!({"f:spec": {"f:template": {}}}));
    let managed = vec![entry("old", "Update", &of_creator()), other.clone()];
    let moved = with_creators_fields(managed, &desired(None)).unwrap();
    let left = json!({
        "f:metadata": {"f:labels": {"f:team": {}}, "f:annotations": {"f:foreign": {}, ".": {}}},
        "f:spec": {
            "f:replicas": {},
            "f:template": {"f:metadata": {"f:annotations": {"f:restarted": {}}}},
        },
    });
    assert_eq!(moved[0], entry("old", "Update", &left));
    assert_eq!(moved[1], other, "the manager of the restart annotation keeps it");
    assert_eq!((&moved[2]["manager"], &moved[2]["operation"]), (&json!(FIELD_MANAGER), &json!("Apply")));
    let gate = json!({
        "f:metadata": {"f:labels": {"f:app": {}}, "f:annotations": {"f:passed": {}}},
        "f:spec": {
            "f:selector": {}, "f:minReadySeconds": {},
            "f:template": {"f:metadata": {"f:annotations": {"f:written": {}}}, "f:spec": {}},
        },
    });
    assert_eq!(moved[2]["fieldsV1"], gate);
}

#[test]
fn replicas_are_moved_only_where_they_are_written() {
    let managed = vec![entry("old", "Update", &json!({"f:spec": {"f:replicas": {}, "f:selector": {}}}))];
    let moved = with_creators_fields(managed, &desired(Some(3))).unwrap();
    assert_eq!(moved.len(), 1, "the creator has no field left");
    assert!(moved[0]["fieldsV1"]["f:spec"].get("f:replicas").is_some());
}

#[test]
fn only_fields_of_the_creator_are_moved_and_only_once() {
    let spec = json!({"f:spec": {"f:selector": {}}});
    let gate = entry(FIELD_MANAGER, "Apply", &spec);
    assert_eq!(with_creators_fields(vec![gate.clone()], &desired(None)), None, "orphaned by a deletion");
    let both = vec![gate.clone(), entry("old", "Apply", &spec)];
    assert_eq!(with_creators_fields(both, &desired(None)).unwrap(), [gate]);
    let mut status = entry("old", "Update", &spec);
    status["subresource"] = json!("status");
    assert_eq!(with_creators_fields(vec![status], &desired(None)), None);
    let mut beta = entry("old", "Update", &spec);
    beta["apiVersion"] = json!("apps/v1beta1");
    assert_eq!(
        with_creators_fields(vec![beta], &desired(None)),
        None,
        "another version may have other field names"
    );
    assert_eq!(with_creators_fields(Vec::new(), &desired(None)), None);
}
