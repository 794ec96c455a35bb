use kube::core::Status;
use serde_json::{Value, json};

use super::*;

fn refused(status: Value) -> WriteError {
    let status: Box<Status> = serde_json::from_value(status).unwrap();
    WriteError::Refused { what: "apply".to_owned(), status, retry_after: None }
}

#[test]
fn only_a_refusal_that_would_come_again_is_a_rejection() {
    let about =
        |field: &str| json!({"causes": [{"reason": "FieldValueInvalid", "message": "", "field": field}]});
    let typed = "failed to create typed patch object (shop/web; apps/v1, Kind=Deployment): .spec.x: field not declared in schema";
    let webhook = "admission webhook \"a.example.com\" does not support dry run";
    let policy = "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'freeze' with binding 'freeze' denied request: change freeze";
    let unsigned = "admission webhook \"a.example.com\" denied the request: not signed";
    let unexplained = "admission webhook \"a.example.com\" denied the request without explanation";
    // Whether it is a rejection, and whether a denial.
    let cases = [
        (json!({"code": 422, "details": about("spec.template")}), (true, false), "an invalid template"),
        (json!({"code": 422}), (true, false), "invalid without details"),
        (
            json!({"code": 422, "details": about("metadata.uid")}),
            (false, false),
            "another Deployment of that name",
        ),
        (json!({"code": 400}), (true, false), "malformed"),
        (json!({"code": 400, "message": webhook}), (false, false), "only a real write can tell"),
        (json!({"code": 500, "message": typed}), (true, false), "a key no schema knows"),
        (json!({"code": 500, "message": "etcdserver: request timed out"}), (false, false), "an outage"),
        (json!({"code": 409}), (false, false), "a conflict"),
        (json!({"code": 403}), (false, false), "forbidden is tried again, slowly"),
        (
            json!({"code": 422, "message": policy, "details": about("")}),
            (false, true),
            "a policy without a reason",
        ),
        (json!({"code": 403, "message": policy}), (false, true), "a policy with reason Forbidden"),
        (json!({"code": 400, "message": unsigned}), (false, true), "a webhook without a code"),
        (json!({"code": 400, "message": unexplained}), (false, true), "a webhook without a word"),
        (
            json!({"code": 422, "message": unsigned, "details": about("spec")}),
            (false, true),
            "a webhook like a schema",
        ),
        (json!({"code": 500, "message": unsigned}), (false, false), "an outage that uses the same words"),
        (
            json!({"code": 422, "message": "spec.template: access denied"}),
            (true, false),
            "a schema that uses another word",
        ),
    ];
    for (status, expected, what) in cases {
        let error = refused(status);
        assert_eq!((is_rejection(&error), is_denial(&error)), expected, "{what}");
    }
}
