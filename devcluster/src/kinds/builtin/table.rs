//! The text of the table of built-in kinds: finds its lines and parses those of kinds.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use super::schema::schema;
use crate::kinds::kind::{Generation, Kind, LazySchema, Scale, SelectableField, Subresource};

static TABLE: &str = include_str!("../../../data/kinds.jsonl");

/// The first line of the table.
#[derive(Deserialize)]
pub(super) struct Header {
    /// The release of Kubernetes.
    pub(super) release: &'static str,
    /// A hash over all other lines.
    #[cfg(test)]
    pub(super) hash: &'static str,
}

/// The line of a kind.
#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the line")]
struct KindLine {
    kind: &'static str,
    #[serde(default)]
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    singular: &'static str,
    #[serde(default)]
    short: Vec<&'static str>,
    #[serde(default)]
    categories: Vec<&'static str>,
    #[serde(default)]
    namespaced: bool,
    verbs: Vec<&'static str>,
    /// Group and plural name of the objects in storage, if they differ from those of the kind.
    #[serde(default)]
    stored: Option<(&'static str, &'static str)>,
    #[serde(default)]
    status: bool,
    #[serde(default)]
    scale: Option<(&'static str, &'static str, &'static str)>,
    #[serde(default)]
    subresources: Vec<(&'static str, &'static str, &'static str, &'static str, Vec<&'static str>)>,
    #[serde(default)]
    generation: &'static str,
    #[serde(default)]
    unconditional: bool,
    #[serde(default)]
    create_on_update: bool,
    /// For each selectable field: its label, its paths, and the value of a missing field.
    #[serde(default)]
    select: Vec<(&'static str, Vec<&'static str>, &'static str)>,
    /// The name of the struct type.
    #[serde(rename = "as")]
    type_name: &'static str,
}

impl KindLine {
    fn into_kind(self) -> Kind {
        let type_name = self.type_name;
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let (group, plural) = self.stored.unwrap_or((self.group, self.plural));
        Kind {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            plural: self.plural.to_owned(),
            singular: self.singular.to_owned(),
            short_names: owned(self.short),
            categories: owned(self.categories),
            namespaced: self.namespaced,
            verbs: owned(self.verbs),
            stored_as: (group.to_owned(), plural.to_owned()),
            status: self.status,
            scale: self.scale.map(|(spec, status, selector)| Scale {
                spec_replicas: spec.to_owned(),
                status_replicas: status.to_owned(),
                selector: (!selector.is_empty()).then(|| selector.to_owned()),
            }),
            subresources: self
                .subresources
                .into_iter()
                .map(|(name, group, version, kind, verbs)| Subresource {
                    name: name.to_owned(),
                    group: group.to_owned(),
                    version: version.to_owned(),
                    kind: kind.to_owned(),
                    verbs: owned(verbs),
                })
                .collect(),
            generation: match self.generation {
                "fixed" => Generation::Fixed,
                "content" => Generation::Content,
                "content+annotations" => Generation::ContentAndAnnotations,
                "content+labels" => Generation::ContentAndLabels,
                _ => Generation::None,
            },
            unconditional_update: self.unconditional,
            create_on_update: self.create_on_update,
            selectable_fields: self
                .select
                .into_iter()
                .map(|(label, paths, missing)| SelectableField {
                    label: label.to_owned(),
                    paths: paths.iter().map(|path| path.split('.').map(str::to_owned).collect()).collect(),
                    missing: missing.to_owned(),
                })
                .collect(),
            type_name: Some(type_name.to_owned()),
            schema: LazySchema::new(move || schema(type_name)),
        }
    }
}

/// Parses the first line of the table.
#[expect(clippy::expect_used, reason = "the table is part of the binary, and a test reads all of it")]
pub(super) fn header() -> Header {
    let line = TABLE.lines().next().unwrap_or_default();
    serde_json::from_str(line).expect("the first line of the table is a header")
}

/// Parses the lines of kinds.
#[expect(clippy::expect_used, reason = "the table is part of the binary, and a test reads all of it")]
pub(super) fn kinds() -> Vec<Arc<Kind>> {
    TABLE
        .lines()
        .filter(|line| line.starts_with("{\"kind\":"))
        .map(|line| serde_json::from_str::<KindLine>(line).expect("the line of a kind"))
        .map(|line| Arc::new(line.into_kind()))
        .collect()
}

/// Returns the kind of the subresource `scale`.
pub(super) fn scale_kind() -> Kind {
    kind_of(
        r#"{"kind":"Scale","group":"autoscaling","version":"v1","plural":"scales","singular":"scale",
        "namespaced":true,"verbs":[],"as":"autoscaling/v1.Scale"}"#,
    )
}

/// Returns the kind of the subresource `token` of ServiceAccounts.
pub(super) fn token_kind() -> Kind {
    kind_of(
        r#"{"kind":"TokenRequest","group":"authentication.k8s.io","version":"v1","plural":"tokenrequests",
        "singular":"tokenrequest","namespaced":true,"verbs":[],"as":"authentication/v1.TokenRequest"}"#,
    )
}

#[expect(
    clippy::expect_used,
    reason = "the lines are constants, and the tests of the subresources read them"
)]
fn kind_of(line: &'static str) -> Kind {
    serde_json::from_str::<KindLine>(line).expect("the line of a kind").into_kind()
}

/// Returns the line of each struct type, by the name of the type.
pub(super) fn type_lines() -> &'static HashMap<&'static str, &'static str> {
    static LINES: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
        TABLE
            .lines()
            .filter_map(|line| {
                let (name, _) = line.strip_prefix("{\"type\":\"")?.split_once('"')?;
                Some((name, line))
            })
            .collect()
    });
    &LINES
}
