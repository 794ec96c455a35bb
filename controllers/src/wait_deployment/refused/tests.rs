use kube::core::Status;
use serde_json::{Value, json};

use super::*;

fn refused(status: Value) -> WriteError {
    let status: Box<Status> = serde_json::from_value(status).unwrap();
    WriteError::Refused { what: "apply".to_owned(), status, retry_after: None }
}

#[test]
fn only_a_refusal_that_a_retry_cannot_change_is_invalid() {
    let about =
        |field: &str| json!({"causes": [{"reason": "FieldValueInvalid", "message": "", "field": field}]});
    let typed = "failed to create typed patch object (shop/web; apps/v1, Kind=Deployment): \
                 .spec.x: field not declared in schema";
    let webhook = "admission webhook \"a.example.com\" does not support dry run";
    let policy = "deployments.apps \"web\" is forbidden: \
                  ValidatingAdmissionPolicy 'freeze' with binding 'freeze' denied request: change freeze";
    let unsigned = "admission webhook \"a.example.com\" denied the request: not signed";
    let unexplained = "admission webhook \"a.example.com\" denied the request without explanation";
    let denied = Some(RefusalKind::Denied);
    // The kinds that `invalid_refusal` and `refusal_that_may_pass` return.
    let cases = [
        (
            json!({"code": 422, "details": about("spec.template")}),
            (Some(RefusalKind::Invalid), None),
            "an invalid template",
        ),
        (json!({"code": 422}), (Some(RefusalKind::Invalid), None), "invalid without details"),
        (
            json!({"code": 422, "details": about("metadata.uid")}),
            (None, None),
            "another Deployment of that name",
        ),
        (json!({"code": 400}), (Some(RefusalKind::Invalid), None), "malformed"),
        (json!({"code": 400, "message": webhook}), (None, None), "only a real write shows the result"),
        (
            json!({"code": 500, "message": typed}),
            (Some(RefusalKind::Invalid), None),
            "a field that is not in the schema",
        ),
        (json!({"code": 500, "message": "etcdserver: request timed out"}), (None, None), "an outage"),
        (json!({"code": 409}), (None, None), "a conflict"),
        (json!({"code": 403}), (None, Some(RefusalKind::Forbidden)), "forbidden is retried slowly"),
        (
            json!({"code": 422, "message": policy, "details": about("")}),
            (None, denied),
            "a policy without a reason",
        ),
        (json!({"code": 403, "message": policy}), (None, denied), "a policy with reason Forbidden"),
        (json!({"code": 400, "message": unsigned}), (None, denied), "a webhook without a code"),
        (json!({"code": 400, "message": unexplained}), (None, denied), "a webhook without an explanation"),
        (
            json!({"code": 422, "message": unsigned, "details": about("spec")}),
            (None, denied),
            "a webhook like a schema",
        ),
        (json!({"code": 500, "message": unsigned}), (None, None), "an outage that uses the same words"),
        (
            json!({"code": 422, "message": "spec.template: access denied"}),
            (Some(RefusalKind::Invalid), None),
            "a schema that uses another word",
        ),
    ];
    for (status, expected, case) in cases {
        let error = refused(status);
        let kinds = [invalid_refusal(&error), refusal_that_may_pass(&error)];
        let [invalid, may_pass] = kinds.map(|refusal| refusal.map(|refusal| refusal.kind));
        assert_eq!((invalid, may_pass), expected, "{case}");
    }
}
