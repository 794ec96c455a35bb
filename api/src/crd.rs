//! The `CustomResourceDefinition` of [`WaitDeployment`], generated from the Rust types.
//!
//! Field names, types, bounds and descriptions come from the types. `rules` adds list keys for server-side
//! apply, the parts kept as JSON and the CEL rules; this module adds subresources and columns.
//!
//! # Invariants
//! 1. The API server prunes no field below `spec.template`: every object there preserves unknown fields.
//! 2. No CEL rule is below `spec.template`: its lists are unbounded, so the API server would refuse the CRD
//!    for the cost of the rule.
//! 3. No description is below `spec.template`, so the CRD stays far below the 262,144 bytes that client-side
//!    apply can store.

pub(crate) mod patterns;
mod rules;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use serde_json::{Value, json};

use crate::wait_deployment::{GROUP, KIND, PLURAL, VERSION, WaitDeployment};

/// Returns the CRD of [`WaitDeployment`], ready to apply.
#[expect(clippy::missing_panics_doc, reason = "the input is constant, and a test calls the function")]
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
    serde_json::from_value(definition).expect("the JSON above is a CustomResourceDefinition")
}

/// Returns the columns that `kubectl get` prints for a WaitDeployment; those of priority 1 are shown with `-o
/// wide`.
fn columns() -> Value {
    json!([
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Waiting-For", "type": "string", "jsonPath": ".status.waitingFor"},
        {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Available", "type": "integer", "jsonPath": ".status.availableReplicas"},
        {"name": "Up-To-Date", "type": "integer", "jsonPath": ".status.updatedReplicas", "priority": 1},
        {
            "name": "Reason", "type": "string", "priority": 1,
            "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason",
        },
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
    merge(&mut schema, &rules::patch());
    schema
}

/// Removes `nullable` from a schema and all schemas below it. The API server then treats a `null` as an
/// absent field, also in rules and defaults; only server-side apply refuses it. In a nullable field, rules
/// would see the `null` as a value. See
/// <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>, under
/// "Defaulting and Nullable".
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

/// Applies a JSON merge patch (RFC 7386) to `target`: objects are merged, `null` removes a key, any other
/// value replaces the old one.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match (value, target.as_object_mut()) {
            (Value::Null, Some(target)) => drop(target.remove(key)),
            _ => merge(&mut target[key], value),
        }
    }
}

#[cfg(test)]
mod tests;
