//! The discovery entries of one kind and its subresources.

use serde_json::{Map, Value, json};

use crate::kinds::{Kind, Subresource};

/// The verbs of custom resources in the order in which kube-apiserver lists them.
const CUSTOM_VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Returns the entries of a kind and its subresources for an `APIResourceList`.
pub(super) fn plain(kind: &Kind) -> Vec<Value> {
    let mut row = Map::new();
    row.insert("name".to_owned(), json!(kind.plural));
    row.insert("singularName".to_owned(), json!(kind.singular));
    row.insert("namespaced".to_owned(), json!(kind.namespaced));
    row.insert("kind".to_owned(), json!(kind.kind));
    row.insert("verbs".to_owned(), verbs(kind));
    set_names(&mut row, kind);
    let mut rows = vec![Value::Object(row)];
    rows.extend(subresources(kind).iter().map(|subresource| {
        let mut row = Map::new();
        row.insert("name".to_owned(), json!(format!("{}/{}", kind.plural, subresource.name)));
        row.insert("singularName".to_owned(), json!(""));
        row.insert("namespaced".to_owned(), json!(kind.namespaced));
        if !is_of(kind, subresource) {
            row.insert("group".to_owned(), json!(subresource.group));
            row.insert("version".to_owned(), json!(subresource.version));
        }
        row.insert("kind".to_owned(), json!(subresource.kind));
        row.insert("verbs".to_owned(), json!(subresource.verbs));
        Value::Object(row)
    }));
    rows
}

/// Returns the entry of a kind, subresources included, in the aggregated form.
pub(super) fn aggregated(kind: &Kind) -> Value {
    let mut row = Map::new();
    row.insert("resource".to_owned(), json!(kind.plural));
    // kube-apiserver omits group and version of a built-in kind if they are those of its resource.
    let response_kind = |group: &str, version: &str, name: &str| {
        let own = kind.type_name.is_some() && group == kind.group && version == kind.version;
        let (group, version) = if own { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": name})
    };
    row.insert("responseKind".to_owned(), response_kind(&kind.group, &kind.version, &kind.kind));
    row.insert("scope".to_owned(), json!(if kind.namespaced { "Namespaced" } else { "Cluster" }));
    row.insert("singularResource".to_owned(), json!(kind.singular));
    row.insert("verbs".to_owned(), verbs(kind));
    set_names(&mut row, kind);
    let subresources: Vec<_> = subresources(kind)
        .iter()
        .map(|of| {
            let response_kind = response_kind(&of.group, &of.version, &of.kind);
            json!({"subresource": of.name, "responseKind": response_kind, "verbs": of.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        row.insert("subresources".to_owned(), Value::Array(subresources));
    }
    Value::Object(row)
}

fn verbs(kind: &Kind) -> Value {
    if kind.type_name.is_some() {
        return json!(kind.verbs);
    }
    json!(CUSTOM_VERBS.iter().filter(|verb| kind.has_verb(verb)).collect::<Vec<_>>())
}

fn set_names(row: &mut Map<String, Value>, kind: &Kind) {
    if !kind.short_names.is_empty() {
        row.insert("shortNames".to_owned(), json!(kind.short_names));
    }
    if !kind.categories.is_empty() {
        row.insert("categories".to_owned(), json!(kind.categories));
    }
}

/// Returns all subresources of a kind by name, `status` and `scale` included.
fn subresources(kind: &Kind) -> Vec<Subresource> {
    let of = |name: &str, group: &str, version: &str, of: &str| Subresource {
        name: name.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        kind: of.to_owned(),
        verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
    };
    let mut all = kind.subresources.clone();
    if kind.status {
        all.push(of("status", &kind.group, &kind.version, &kind.kind));
    }
    if kind.scale.is_some() {
        all.push(of("scale", "autoscaling", "v1", "Scale"));
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn is_of(kind: &Kind, subresource: &Subresource) -> bool {
    subresource.group == kind.group && subresource.version == kind.version
}
