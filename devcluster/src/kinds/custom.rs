//! Custom resources: builds kinds from a CustomResourceDefinition, and validates their objects.
//!
//! [`kinds`] reads a definition that has passed its own checks. The methods of [`CustomKind`] then prune,
//! default and validate objects, with the error messages of the real server.

mod conversion;
pub mod definition;
mod embedded;
mod field_path;
mod formats;
mod limits;
mod lists;
mod object;
mod patterns;
mod ratchet;
mod rules;
pub mod status;
mod structural;
mod validate;

use std::sync::Arc;

use serde_json::Value;

pub use conversion::{Conversion, converted};
pub(super) use formats::go_duration;
pub use object::at_path;
pub use rules::{Activation, Environment, Expression, Output, RESERVED, Rule};
pub use structural::schema;

use super::kind::{Generation, Kind, Scale, SelectableField};
use super::schema::{Fields, Form, Schema};

/// The verbs of every custom resource.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// One version of a custom resource.
#[derive(Debug)]
pub struct CustomKind {
    /// The kind of the objects in this version.
    pub kind: Arc<Kind>,
    /// Group and version, such as `example.com/v1`.
    pub api_version: String,
    /// Whether clients can use the version.
    pub served: bool,
    /// Whether objects are stored in this version.
    pub storage: bool,
    /// The warning in responses, if the version is deprecated.
    pub deprecation: Option<String>,
    /// The columns of tables, besides the name. Never empty: the default is the age.
    pub columns: Vec<Column>,
    /// The `openAPIV3Schema` of the definition; null if it has none.
    pub declared: Value,
    /// Whether unknown fields are kept everywhere, as definitions older than `v1` may require.
    preserves_all: bool,
}

/// A column of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The title of the column.
    pub name: String,
    /// The type of the values: `integer`, `number`, `string`, `boolean` or `date`.
    pub column_type: String,
    /// The format of the values, often empty.
    pub format: String,
    /// The description of the column, often empty.
    pub description: String,
    /// The priority. Columns with a priority above 0 are shown only in wide tables.
    pub priority: i64,
    /// The path of the value in an object.
    pub path: String,
}

/// Returns the versions of a CustomResourceDefinition, in the order of its `spec.versions`.
pub fn kinds(definition: &Value) -> Vec<CustomKind> {
    let spec = definition.get("spec").unwrap_or(&Value::Null);
    let accepted =
        definition.pointer("/status/acceptedNames").filter(|names| !text(names, "plural").is_empty());
    let names = accepted.or_else(|| spec.get("names")).unwrap_or(&Value::Null);
    let versions = spec.get("versions").and_then(Value::as_array).into_iter().flatten();
    versions.map(|version| custom_kind(spec, names, version)).collect()
}

fn custom_kind(spec: &Value, names: &Value, version: &Value) -> CustomKind {
    let group = text(spec, "group");
    let api_version = format!("{group}/{}", text(version, "name"));
    let declared = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
    let kind = Kind {
        group: group.clone(),
        version: text(version, "name"),
        kind: text(names, "kind"),
        list_kind: text(names, "listKind"),
        plural: text(names, "plural"),
        singular: text(names, "singular"),
        short_names: structural::strings(names, "shortNames"),
        categories: structural::strings(names, "categories"),
        namespaced: text(spec, "scope") == "Namespaced",
        verbs: VERBS.map(str::to_owned).to_vec(),
        stored_as: (group, text(names, "plural")),
        status: version.pointer("/subresources/status").is_some_and(Value::is_object),
        scale: version.pointer("/subresources/scale").filter(|scale| scale.is_object()).map(|scale| Scale {
            spec_replicas: text(scale, "specReplicasPath"),
            status_replicas: text(scale, "statusReplicasPath"),
            selector: Some(text(scale, "labelSelectorPath")).filter(|path| !path.is_empty()),
        }),
        subresources: Vec::new(),
        generation: Generation::Content,
        unconditional_update: false,
        create_on_update: false,
        selectable_fields: list(version, "selectableFields").map(selectable_field).collect(),
        type_name: None,
        schema: Arc::new(root_schema(&declared)).into(),
    };
    let deprecated = structural::flag(version, "deprecated");
    let deprecation = deprecated.then(|| match version.get("deprecationWarning").and_then(Value::as_str) {
        Some(warning) => warning.to_owned(),
        None => format!("{api_version} {} is deprecated{}", kind.kind, replacement(spec, &kind)),
    });
    CustomKind {
        kind: Arc::new(kind),
        api_version,
        served: structural::flag(version, "served"),
        storage: structural::flag(version, "storage"),
        deprecation,
        columns: columns(version),
        declared,
        preserves_all: structural::flag(spec, "preserveUnknownFields"),
    }
}

/// Returns the end of a deprecation warning, which names the highest served version that is newer and not
/// deprecated. Empty if there is none.
fn replacement(spec: &Value, kind: &Kind) -> String {
    let usable =
        |version: &&Value| structural::flag(version, "served") && !structural::flag(version, "deprecated");
    let names = list(spec, "versions").filter(usable).map(|version| text(version, "name"));
    let newer =
        names.filter(|name| priority(name) > priority(&kind.version)).max_by_key(|name| priority(name));
    newer.map_or_else(String::new, |name| format!("; use {}/{name} {}", kind.group, kind.kind))
}

/// Returns the rank of a version: stable before beta before alpha, then by number. Other names come last.
fn priority(version: &str) -> (u8, u64, u64) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let Ok(major) = major.parse() else { return (0, 0, 0) };
    let (stage, minor) = match (rest, rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        ("", ..) => return (3, major, 0),
        (_, Some(minor), _) => (2, minor),
        (_, _, Some(minor)) => (1, minor),
        _ => return (0, 0, 0),
    };
    minor.parse().map_or((0, 0, 0), |minor| (stage, major, minor))
}

fn columns(version: &Value) -> Vec<Column> {
    let declared: Vec<Column> = list(version, "additionalPrinterColumns")
        .map(|column| Column {
            name: text(column, "name"),
            column_type: text(column, "type"),
            format: text(column, "format"),
            description: text(column, "description"),
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
            path: text(column, "jsonPath"),
        })
        .collect();
    if !declared.is_empty() {
        return declared;
    }
    vec![Column {
        name: "Age".to_owned(),
        column_type: "date".to_owned(),
        format: String::new(),
        description: AGE.to_owned(),
        priority: 0,
        path: ".metadata.creationTimestamp".to_owned(),
    }]
}

/// The description of the default column.
pub(super) const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was \
                   created. It is not guaranteed to be set in happens-before order across separate \
                   operations. Clients may not set this value. It is represented in RFC3339 form and is in \
                   UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
                   https://git.k8s.io/community/contributors/devel/sig-architecture/\
                   api-conventions.md#metadata";

fn selectable_field(field: &Value) -> SelectableField {
    let label = text(field, "jsonPath").trim_start_matches('.').to_owned();
    let path = label.split('.').map(str::to_owned).collect();
    SelectableField { label, paths: vec![path], missing: String::new() }
}

/// Returns the schema of whole objects: the declared schema, and the fields that every object has.
fn root_schema(declared: &Value) -> Schema {
    let mut schema = structural::schema(declared);
    let mut fields = match schema.form {
        Form::Object(fields) => Arc::unwrap_or_clone(fields),
        _ => Fields { preserve_unknown: true, ..Fields::default() },
    };
    let text = || Arc::new(Schema { form: Form::String, nullable: false, default: None, checks: None });
    fields.fields.entry("apiVersion".to_owned()).or_insert_with(text);
    fields.fields.entry("kind".to_owned()).or_insert_with(text);
    if let Some(of_all) = embedded::metadata_schema() {
        let metadata = merged_metadata(of_all, fields.fields.get("metadata").map(AsRef::as_ref));
        fields.fields.insert("metadata".to_owned(), Arc::new(metadata));
    }
    schema.form = Form::Object(Arc::new(fields));
    schema
}

/// Returns the schema of `metadata`, in which a definition may restrict `name` and `generateName`.
fn merged_metadata(of_all: &Schema, declared: Option<&Schema>) -> Schema {
    let (Some(declared), Form::Object(fields)) = (declared, &of_all.form) else { return of_all.clone() };
    let mut fields = Fields::clone(fields);
    if let Form::Object(restricted) = &declared.form {
        fields
            .fields
            .extend(restricted.fields.iter().map(|(name, schema)| (name.clone(), Arc::clone(schema))));
    }
    Schema { form: Form::Object(Arc::new(fields)), checks: declared.checks.clone(), ..of_all.clone() }
}

fn text(object: &Value, field: &str) -> String {
    object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn list<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests;
