use serde_json::{Value, json};

use super::*;

#[test]
fn selectors_have_the_syntax_of_kubectl() {
    let check = |selector: Value, text: &str| {
        let selector: LabelSelector = serde_json::from_value(selector).unwrap();
        assert_eq!(text_of(&selector), text);
    };
    check(json!({}), "");
    check(json!({"matchLabels": {"b": "2", "a": "1", "c": ""}}), "a=1,b=2,c=");
    let expressions = json!([
        {"key": "z", "operator": "In", "values": ["2", "1"]},
        {"key": "y", "operator": "NotIn", "values": ["1"]},
        {"key": "x", "operator": "Exists"}, {"key": "w", "operator": "DoesNotExist"},
    ]);
    check(
        json!({"matchLabels": {"y": "0"}, "matchExpressions": expressions}),
        "!w,x,y notin (1),y=0,z in (1,2)",
    );
}
