use serde_json::json;

use super::*;

#[test]
fn a_status_of_nulls_and_future_fields_decodes() {
    let status: WaitDeploymentStatus = serde_json::from_value(
        json!({"conditions": null, "dependencies": null, "fromTheFuture": {}, "replicas": null}),
    )
    .unwrap();
    assert_eq!(status, WaitDeploymentStatus::default());
    assert_eq!(serde_json::to_value(status).unwrap(), json!({}), "an empty status writes no empty lists");
}
