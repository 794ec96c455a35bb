//! What a refusal of the API server means for the next try.

use mainstay::client::{WriteError, refusal};

/// Returns whether another try with the same body would be refused again: invalid (422), malformed (400), or with a
/// key or a type that the schema does not have, which server-side apply answers with a plain 500.
///
/// A 422 about the uid is none: another Deployment has taken the name, and the cache will show it soon.
pub(super) fn is_rejection(error: &WriteError) -> bool {
    let details = refusal(error).and_then(|status| status.details.as_ref());
    let replaced =
        details.is_some_and(|details| details.causes.iter().any(|cause| cause.field == "metadata.uid"));
    let no_schema = || words_of(error).contains("failed to create typed patch object");
    match error.code() {
        Some(422) => !replaced,
        Some(400) => !is_no_dry_run(error),
        Some(500) => no_schema(),
        _ => false,
    }
}

/// Returns whether nobody can say without doing it: an admission webhook with side effects cannot be asked, which the
/// server answers with 400.
pub(super) fn is_no_dry_run(error: &WriteError) -> bool {
    error.code() == Some(400) && words_of(error).contains("does not support dry run")
}

/// Returns the server's own words.
pub(super) fn words_of(error: &WriteError) -> String {
    refusal(error).map_or_else(|| error.to_string(), |status| status.message.clone())
}

#[cfg(test)]
mod tests {
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
        let cases = [
            (json!({"code": 422, "details": about("spec.template")}), true, "an invalid template"),
            (json!({"code": 422}), true, "invalid without details"),
            (
                json!({"code": 422, "details": about("metadata.uid")}),
                false,
                "another Deployment of that name",
            ),
            (json!({"code": 400}), true, "malformed"),
            (json!({"code": 400, "message": webhook}), false, "only a real write can tell"),
            (json!({"code": 500, "message": typed}), true, "a key no schema knows"),
            (json!({"code": 500, "message": "etcdserver: request timed out"}), false, "an outage"),
            (json!({"code": 409}), false, "a conflict"),
            (json!({"code": 403}), false, "forbidden is tried again, slowly"),
        ];
        for (status, expected, what) in cases {
            assert_eq!(is_rejection(&refused(status)), expected, "{what}");
        }
    }
}
