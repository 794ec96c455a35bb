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
