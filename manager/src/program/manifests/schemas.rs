//! JSON Schemas of the custom resources, for tools that validate files without a cluster, such as
//! kubeconform.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

use super::Files;

/// Returns a schema for each version of each custom resource, under the path by which kubeconform finds it:
/// `GROUP/KIND_VERSION.json`.
pub(super) fn schemas(crds: &[CustomResourceDefinition]) -> Files {
    let mut files = Files::new();
    for crd in crds {
        let kind = crd.spec.names.kind.to_lowercase();
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
            let mut schema = json!(schema);
            if let Some(fields) = schema.as_object_mut() {
                make_strict(fields);
            }
            for field in ["apiVersion", "kind"] {
                schema["properties"][field] = json!({"type": "string"});
            }
            schema["properties"]["metadata"] = json!({"type": "object"});
            let path = format!("{}/{kind}_{}.json", crd.spec.group, version.name);
            files.insert(path, format!("{schema:#}\n"));
        }
    }
    files
}

/// Makes a schema of a definition a JSON Schema that refuses unknown fields, as an API server does with
/// strict validation.
fn make_strict(schema: &mut Map<String, Value>) {
    let is = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let (any_fields, int_or_string, nullable) =
        (is("x-kubernetes-preserve-unknown-fields"), is("x-kubernetes-int-or-string"), is("nullable"));
    schema.retain(|key, _| !key.starts_with("x-kubernetes-") && key != "nullable");
    if int_or_string {
        schema.remove("anyOf");
        schema.insert("type".to_owned(), json!(["integer", "string"]));
    } else if let Some(kind) = schema.get_mut("type").filter(|_| nullable) {
        *kind = json!([kind.take(), "null"]);
    }
    if schema.contains_key("properties") && !any_fields {
        schema.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    for key in ["properties", "items", "additionalProperties"] {
        let Some(Value::Object(below)) = schema.get_mut(key) else { continue };
        if key == "properties" {
            below.values_mut().filter_map(Value::as_object_mut).for_each(make_strict);
        } else {
            make_strict(below);
        }
    }
}
