//! The documents of custom resources: a recorded document of two resources, one with namespaces and one
//! without, in which names are replaced, and the schemas of the definitions.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::kinds::Kind;
use crate::kinds::custom::CustomKind;

const META: &str = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The descriptions of `apiVersion`, `kind` and `metadata` in whole objects.
const OF_OBJECTS: [&str; 3] = [
    "APIVersion defines the versioned schema of this representation of an object. Servers should convert \
     recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
    "Kind is a string value representing the REST resource this object represents. Servers may infer this \
     from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
    METADATA,
];

/// The same of embedded objects.
const OF_EMBEDDED: [&str; 3] = [
    "apiVersion defines the versioned schema of this representation of an object. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
    "kind is a string value representing the type of this object. In CamelCase. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
    METADATA,
];

const METADATA: &str = "Standard object's metadata. More info: \
                        https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The fields that contain a schema, and those that contain a map of schemas.
const SCHEMAS: [&str; 2] = ["items", "additionalProperties"];

/// Returns a hash of everything that the document of these kinds depends on.
pub fn hash(kinds: &[Arc<CustomKind>]) -> String {
    let mut hasher = DefaultHasher::new();
    for custom in kinds {
        let kind = &custom.kind;
        (&custom.api_version, &kind.kind, &kind.list_kind, &kind.plural).hash(&mut hasher);
        (kind.namespaced, kind.status, kind.scale.is_some()).hash(&mut hasher);
        custom.declared.to_string().hash(&mut hasher);
        kind.selectable_fields.iter().for_each(|field| field.label.hash(&mut hasher));
    }
    format!("{:016X}", hasher.finish())
}

/// Returns the document of the custom resources in one version of a group.
pub fn document(kinds: &[Arc<CustomKind>]) -> Option<Value> {
    let template: Value = serde_json::from_str(&super::template()?).ok()?;
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    let scales = kinds.iter().any(|custom| custom.kind.scale.is_some());
    for (name, schema) in template.pointer("/components/schemas")?.as_object()? {
        let of_scales = name.starts_with("io.k8s.api.autoscaling.");
        if !name.starts_with("example.qq.") && (scales || !of_scales) {
            schemas.insert(name.clone(), schema.clone());
        }
    }
    for custom in kinds {
        let kind = &custom.kind;
        let resource = if kind.namespaced { "qqnamespaceds" } else { "qqclusters" };
        for (path, item) in template.get("paths")?.as_object()? {
            let is_of = path.split('/').any(|part| part == resource);
            let left_out = (path.ends_with("/status") && !kind.status)
                || (path.ends_with("/scale") && kind.scale.is_none());
            if is_of && !left_out {
                let named = renamed(&json!({path: item}).to_string(), kind);
                paths.extend(serde_json::from_str::<Map<String, Value>>(&named).ok()?);
            }
        }
        let list = if kind.namespaced { "QqnamespacedList" } else { "QqclusterList" };
        let list = template.pointer(&format!("/components/schemas/example.qq.v1alpha7.{list}"))?;
        let mut list = serde_json::from_str(&renamed(&list.to_string(), kind)).ok()?;
        add_selectable(&mut list, kind);
        schemas.insert(model(kind, &kind.list_kind), list);
        schemas.insert(model(kind, &kind.kind), whole(custom));
    }
    Some(json!({
        "openapi": template.get("openapi")?,
        "info": template.get("info")?,
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

/// Replaces the names of the recorded resources.
fn renamed(text: &str, kind: &Kind) -> String {
    let (recorded, plural) =
        if kind.namespaced { ("Qqnamespaced", "qqnamespaceds") } else { ("Qqcluster", "qqclusters") };
    let article = if kind.kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    let group = kind.group.strip_suffix(".k8s.io").unwrap_or(&kind.group);
    text.replace(&format!("{recorded}List"), &kind.list_kind)
        .replace(&format!(" a {recorded}"), &format!(" {article} {}", kind.kind))
        .replace(recorded, &kind.kind)
        .replace(plural, &kind.plural)
        .replace("qq.example", &kind.group)
        .replace("example.qq", &reversed(&kind.group))
        .replace("QqExample", &identifier(group, true))
        .replace("qqExample", &identifier(group, false))
        .replace("V1alpha7", &identifier(&kind.version, true))
        .replace("v1alpha7", &kind.version)
}

/// Returns the name of the schema of a kind.
fn model(kind: &Kind, name: &str) -> String {
    format!("{}.{}.{name}", reversed(&kind.group), kind.version)
}

fn reversed(group: &str) -> String {
    group.split('.').rev().collect::<Vec<_>>().join(".")
}

/// Returns a name in the form of an identifier: other characters are left out, and capitals follow them.
fn identifier(name: &str, capital: bool) -> String {
    let (mut out, mut capital) = (String::new(), capital);
    for (at, c) in name.char_indices() {
        if c.is_alphabetic() || c == '_' || (at != 0 && c.is_numeric()) {
            if capital {
                out.extend(c.to_uppercase());
            } else {
                out.push(c);
            }
            capital = false;
        } else {
            capital = true;
        }
    }
    out
}

/// Returns the schema of whole objects.
fn whole(custom: &CustomKind) -> Value {
    let kind = &custom.kind;
    let mut schema = if custom.declared.is_object() {
        let mut schema = converted(&custom.declared);
        add_type(&mut schema, OF_OBJECTS);
        schema
    } else {
        json!({"type": "object"})
    };
    if let Some(fields) = schema.as_object_mut() {
        let of = json!({"group": kind.group, "kind": kind.kind, "version": kind.version});
        fields.insert("x-kubernetes-group-version-kind".to_owned(), json!([of]));
    }
    add_selectable(&mut schema, kind);
    schema
}

fn add_selectable(schema: &mut Value, kind: &Kind) {
    let selectable: Vec<_> =
        kind.selectable_fields.iter().map(|field| json!({"fieldPath": field.label})).collect();
    if let Some(fields) = schema.as_object_mut().filter(|_| !selectable.is_empty()) {
        fields.insert("x-kubernetes-selectable-fields".to_owned(), selectable.into());
    }
}

/// Returns a declared schema as it is published: the types of its values are spelt out.
fn converted(declared: &Value) -> Value {
    let Some(fields) = declared.as_object() else { return declared.clone() };
    let mut schema = fields.clone();
    for (name, value) in &mut schema {
        if SCHEMAS.contains(&name.as_str()) {
            *value = converted(value);
        } else if name == "properties"
            && let Some(properties) = value.as_object_mut()
        {
            properties.values_mut().for_each(|property| *property = converted(property));
        }
    }
    let is = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    if is("x-kubernetes-int-or-string") && !fields.contains_key("anyOf") {
        schema.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    let mut schema = Value::Object(schema);
    if is("x-kubernetes-embedded-resource") {
        add_type(&mut schema, OF_EMBEDDED);
        let required = schema.as_object_mut().map(|fields| fields.entry("required").or_insert(json!([])));
        if let Some(Value::Array(required)) = required {
            for field in ["kind", "apiVersion"] {
                if !required.contains(&field.into()) {
                    required.push(field.into());
                }
            }
        }
    }
    schema
}

fn add_type(schema: &mut Value, descriptions: [&str; 3]) {
    let [api_version, kind, metadata] = descriptions;
    let Some(fields) = schema.as_object_mut() else { return };
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        for (name, description) in [("apiVersion", api_version), ("kind", kind)] {
            properties.insert(name.to_owned(), json!({"description": description, "type": "string"}));
        }
        let metadata = json!({"description": metadata, "allOf": [{"$ref": META}]});
        properties.insert("metadata".to_owned(), metadata);
    }
}
