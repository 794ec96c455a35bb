//! The definition of the custom resource, generated from the Rust types.
//!
//! Field names, types, bounds and descriptions come from the types; what Rust cannot say is added: list keys for
//! server-side apply, the parts carried as JSON and rules by `rules`, subresources and columns here.
//!
//! # Invariants
//! 1. Nothing below `spec.template` is pruned: every object there preserves unknown fields.
//! 2. No CEL rule stands below `spec.template`: its lists are unbounded, and the server would refuse the CRD for its cost.
//! 3. No description stands below `spec.template`, which keeps the whole far below the 262,144 bytes that client-side
//!    apply can carry.

pub(crate) mod patterns;
mod rules;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use serde_json::{Value, json};

use crate::wait_deployment::{GROUP, KIND, PLURAL, VERSION, WaitDeployment};

/// Returns the definition of [`WaitDeployment`], ready to be applied.
#[expect(clippy::missing_panics_doc, reason = "nothing a caller does can make it panic, and a test calls it")]
pub fn crd() -> CustomResourceDefinition {
    let definition = json!({
        "metadata": {"name": format!("{PLURAL}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": format!("{KIND}List"),
                "plural": PLURAL,
                "singular": "waitdeployment",
                "shortNames": ["wdeploy"],
                "categories": ["all", "mainstay"],
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema()},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "additionalPrinterColumns": columns(),
            }],
        },
    });
    #[expect(clippy::expect_used, reason = "the input is a constant of this build, and a test decodes it")]
    serde_json::from_value(definition).expect("the definition assembled above is a CustomResourceDefinition")
}

/// Wide columns carry priority 1.
fn columns() -> Value {
    json!([
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Waiting-For", "type": "string", "jsonPath": ".status.waitingFor"},
        {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Available", "type": "integer", "jsonPath": ".status.availableReplicas"},
        {"name": "Up-To-Date", "type": "integer", "jsonPath": ".status.updatedReplicas", "priority": 1},
        {"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason", "priority": 1},
        {"name": "Deployment", "type": "string", "jsonPath": ".status.deployment.name", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ])
}

fn schema() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let generator = settings
        .with_transform(AddNullable::default())
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(OptionalIntOrString)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<WaitDeployment>().to_value();
    if let Some(root) = schema.as_object_mut() {
        root.remove("title");
    }
    drop_nullable(&mut schema["properties"]["spec"]["properties"]["waitFor"]);
    merge(&mut schema, &rules::touches());
    schema
}

/// A `null` for a field that may not be `null` is the absence of the field to the server, for rules and defaults too;
/// only server-side apply refuses it. Rules would take it for a value otherwise.
/// See <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting-and-nullable>.
fn drop_nullable(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("nullable");
            object.values_mut().for_each(drop_nullable);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nullable),
        _ => {}
    }
}

/// RFC 7386: objects merge, `null` removes, anything else replaces.
fn merge(target: &mut Value, patch: &Value) {
    let (Some(target), Some(patch)) = (target.as_object_mut(), patch.as_object()) else { return };
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(_) => {
                let entry = target.entry(key).or_insert_with(|| json!({}));
                if entry.is_object() {
                    merge(entry, value);
                } else {
                    *entry = value.clone();
                }
            }
            other => {
                target.insert(key.clone(), other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Value {
        let crd = serde_json::to_value(crd()).unwrap();
        crd["spec"]["versions"][0].clone()
    }

    fn walk<'a>(
        value: &'a Value,
        path: &str,
        visit: &mut impl FnMut(&str, &'a serde_json::Map<String, Value>),
    ) {
        match value {
            Value::Object(map) => {
                visit(path, map);
                for (key, value) in map {
                    walk(value, &format!("{path}.{key}"), visit);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, path, visit)),
            _ => {}
        }
    }

    #[test]
    fn the_definition_has_the_names_people_type() {
        let crd = crd();
        assert_eq!(crd.metadata.name.as_deref(), Some("waitdeployments.apps.mainstay.dev"));
        assert_eq!(crd.spec.names.short_names, Some(vec!["wdeploy".to_owned()]));
        assert_eq!(crd.spec.names.categories, Some(vec!["all".to_owned(), "mainstay".to_owned()]));
    }

    #[test]
    fn the_template_is_open_all_the_way_down() {
        let version = version();
        let template = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["template"];
        assert!(template["description"].is_string(), "the template itself is described");
        walk(template, "template", &mut |path, map| {
            if map.get("type") == Some(&json!("object")) {
                assert_eq!(map.get("x-kubernetes-preserve-unknown-fields"), Some(&json!(true)), "{path}");
            }
            assert!(!map.contains_key("x-kubernetes-validations"), "{path}");
            assert!(path == "template" || !map.contains_key("description"), "{path}");
        });
    }

    #[test]
    fn the_schema_is_structural_and_described() {
        let version = version();
        let schema = &version["schema"]["openAPIV3Schema"];
        walk(schema, "", &mut |path, map| {
            for key in ["$ref", "$schema", "title", "definitions", "oneOf", "anyOf", "allOf"] {
                let is_keyword = !path.ends_with(".properties");
                assert!(!(is_keyword && map.contains_key(key)), "{path} has {key}");
            }
            let both = map.contains_key("properties") && map.contains_key("additionalProperties");
            assert!(!both, "{path} has properties and additionalProperties");
        });
        for (name, property) in ["spec", "status", "waitProbe"]
            .iter()
            .flat_map(|part| schema["properties"][part]["properties"].as_object().unwrap())
        {
            assert!(property["description"].is_string(), "{name} has no description");
        }
        assert_eq!(schema["required"], json!(["spec"]));
        let timeout = &schema["properties"]["waitProbe"]["properties"]["timeout"];
        assert_eq!(timeout["x-kubernetes-int-or-string"], json!(true));
        assert_eq!(timeout.get("type"), None, "a type beside int-or-string is refused by the server");
        assert_eq!(schema["properties"]["spec"]["properties"]["replicas"].get("default"), None);
    }

    #[test]
    fn lists_of_status_merge_by_key() {
        let version = version();
        let status = &version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
        assert_eq!(status["conditions"]["x-kubernetes-list-map-keys"], json!(["type"]));
        assert_eq!(status["dependencies"]["x-kubernetes-list-map-keys"], json!(["name"]));
        assert_eq!(status["conditions"]["items"]["required"], json!(["status", "type"]));
    }

    #[test]
    fn the_definition_fits_client_side_apply() {
        let bytes = serde_json::to_vec(&crd()).unwrap().len();
        assert!(bytes < 64 * 1024, "{bytes} bytes");
    }

    /// The server estimates what rules cost from the bounds, and refuses a definition without them.
    #[test]
    fn everything_below_wait_for_is_bounded() {
        let version = version();
        let wait_for = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["waitFor"];
        let mut checked = 0;
        walk(wait_for, "waitFor", &mut |path, map| {
            let is_any = |keys: &[&str]| keys.iter().any(|key| map.contains_key(*key));
            let bounded = match map.get("type").and_then(Value::as_str) {
                Some("string") => is_any(&["maxLength", "enum"]),
                Some("array") => is_any(&["maxItems"]),
                Some("integer") => is_any(&["minimum"]) && is_any(&["maximum"]),
                Some("object") if is_any(&["additionalProperties"]) => is_any(&["maxProperties"]),
                Some("object") => is_any(&["properties"]),
                _ => return,
            };
            assert!(bounded, "{path} has no bounds");
            checked += 1;
        });
        assert!(checked > 50, "{checked} schemas");
    }

    #[test]
    fn no_default_changes_what_absence_means() {
        let version = version();
        let mut defaults = Vec::new();
        walk(&version["schema"], "", &mut |path, map| {
            if let Some(default) = map.get("default").filter(|_| !path.ends_with(".properties")) {
                let (_, field) = path.rsplit_once('.').unwrap();
                defaults.push(format!("{field}: {default}"));
            }
        });
        defaults.sort();
        let expected = [
            r#"adoption: "IfUnowned""#,
            "failureThreshold: 3",
            "initialDelaySeconds: 0",
            r#"key: "ca.crt""#,
            r#"match: "All""#,
            "minReadyEndpoints: 1",
            "minRecords: 1",
            "observedGeneration: -1",
            r#"onDeadline: "Fail""#,
            r#"onLoss: "Report""#,
            r#"path: "/""#,
            "periodSeconds: 10",
            r#"record: "Address""#,
            r#"scheme: "HTTP""#,
            r#"service: """#,
            // An object that nobody has looked at yet is not taken for one that has been.
            r#"status: {"observedGeneration":-1}"#,
            "successThreshold: 1",
            r#"tlsMode: "Plaintext""#,
        ];
        // Not replicas, which an autoscaler may own; not timeoutSeconds, which follows a short period; not gates, since
        // server-side apply would join a set that nobody owns with the one that a user writes later.
        assert_eq!(defaults, expected);
    }

    #[test]
    fn a_null_is_an_absent_field() {
        let version = version();
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        walk(&spec["waitFor"], "waitFor", &mut |path, map| {
            assert!(!map.contains_key("nullable"), "{path} would keep a null");
        });
        assert_eq!(spec["replicas"]["nullable"], json!(true), "as admitted by server-side apply since ever");
    }
}
