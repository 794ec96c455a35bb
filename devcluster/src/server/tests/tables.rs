//! Tables in place of objects.

use serde_json::{Value, json};

use super::{CONFIG_MAPS, WIDGETS, accept, filled};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn names(table: &Value) -> Vec<&Value> {
    table["columnDefinitions"].as_array().expect("columns").iter().map(|column| &column["name"]).collect()
}

#[tokio::test]
async fn a_table_has_the_columns_of_the_kind_and_a_row_for_each_object() {
    let server = filled().await;
    let table = accept(&server, CONFIG_MAPS, TABLE).await.json();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert_eq!(names(&table), ["Name", "Data", "Age"]);
    let row = &table["rows"][0];
    assert_eq!(row["cells"].as_array().expect("cells")[..2], [json!("c1"), json!(1)]);
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    let table = accept(&server, WIDGETS, TABLE).await.json();
    assert_eq!(
        (names(&table), &table["rows"][0]["cells"][0]),
        (vec![&json!("Name"), &json!("Age")], &json!("w1"))
    );
}

#[tokio::test]
async fn a_request_chooses_what_a_row_has_of_its_object() {
    let server = filled().await;
    for (include, kind) in [("None", Value::Null), ("Object", "ConfigMap".into())] {
        let path = format!("{CONFIG_MAPS}/c1?includeObject={include}");
        let table = accept(&server, &path, TABLE).await.json();
        assert_eq!(table["rows"][0]["object"]["kind"], kind, "{include}");
    }
    let refused = accept(&server, &format!("{CONFIG_MAPS}?includeObject=All"), TABLE).await;
    assert_eq!(
        refused.message(),
        "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be 'Metadata', \
         'Object', 'None', or empty"
    );
}
