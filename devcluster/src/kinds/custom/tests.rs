use serde_json::json;

use super::{Column, kinds};
use crate::kinds::{Form, SelectableField};

#[test]
fn a_definition_becomes_one_kind_for_each_version() {
    let definition = json!({"spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
            "shortNames": ["wd"], "categories": ["all"]},
        "versions": [
            {"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                }},
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
            },
            {"name": "v1beta1", "served": true, "storage": false, "deprecated": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}},
        ],
    }});
    let kinds = kinds(&definition);
    let [v1, beta] = kinds.as_slice() else { panic!("two versions") };
    assert_eq!(v1.api_version, "example.com/v1");
    assert!(v1.storage && v1.served && v1.kind.status && v1.kind.namespaced);
    assert_eq!(v1.kind.scale.as_ref().unwrap().selector, None);
    assert_eq!(
        v1.kind.selectable_fields,
        [SelectableField {
            label: "spec.color".to_owned(),
            paths: vec![vec!["spec".to_owned(), "color".to_owned()]],
            missing: String::new(),
        }]
    );
    let column: &Column = &v1.columns[0];
    assert_eq!((column.name.as_str(), column.path.as_str()), ("Color", ".spec.color"));
    assert_eq!(v1.deprecation, None);
    let Form::Object(fields) = &v1.kind.schema.get().form else { panic!("an object") };
    let mut names: Vec<_> = fields.fields.keys().collect();
    names.sort_unstable();
    assert_eq!(names, ["apiVersion", "kind", "metadata", "spec"]);
    assert_eq!(
        beta.deprecation.as_deref(),
        Some("example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget")
    );
    assert_eq!(beta.columns[0].name, "Age");
    assert!(!beta.kind.status);
}
