//! A kind that the server serves in one version: its names, its schema and the rules of its endpoints.

use std::fmt;
use std::sync::{Arc, LazyLock};

use super::schema::Schema;

/// A kind in one version, built-in or declared by a CustomResourceDefinition.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate property of the kind")]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The kind of a list, such as `DeploymentList`.
    pub list_kind: String,
    /// The plural name in paths, such as `deployments`.
    pub plural: String,
    /// The singular name, such as `deployment`.
    pub singular: String,
    /// Short names, such as `deploy`.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// The verbs of the main endpoint, sorted. A kind without `get` is never stored: it answers a `create`.
    pub verbs: Vec<String>,
    /// Group and plural name under which objects are stored; differs from the kind's own only where two
    /// groups are views of the same objects, as with Event.
    pub stored_as: (String, String),
    /// Whether the kind has the `status` subresource.
    pub status: bool,
    /// The paths of the `scale` subresource, if the kind has it.
    pub scale: Option<Scale>,
    /// The other subresources.
    pub subresources: Vec<Subresource>,
    /// Which changes increase `metadata.generation`.
    pub generation: Generation,
    /// Whether an update may leave out `metadata.resourceVersion`.
    pub unconditional_update: bool,
    /// Whether an update of a missing object creates it.
    pub create_on_update: bool,
    /// Fields that a field selector may name, besides `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<SelectableField>,
    /// The name of the type in the table of built-in types; `None` for custom resources.
    pub type_name: Option<String>,
    /// The schema of an object.
    pub schema: LazySchema,
}

impl Kind {
    /// Returns `group/version`, or the version alone in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns `plural.group`, or the plural name alone in the core group, as error texts name a resource.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns whether the main endpoint has this verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|has| has == verb)
    }
}

/// A subresource other than `status` and `scale`, such as `eviction` of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// The name in paths, such as `eviction`.
    pub name: String,
    /// Group of the kind that is sent; empty for the core group.
    pub group: String,
    /// Version of the kind that is sent.
    pub version: String,
    /// The kind that is sent.
    pub kind: String,
    /// The verbs, sorted.
    pub verbs: Vec<String>,
}

/// Where the `scale` subresource finds its values; paths have the form `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The desired number of replicas.
    pub spec_replicas: String,
    /// The observed number of replicas.
    pub status_replicas: String,
    /// The label selector: a string in custom resources, a `LabelSelector` or a map of labels in built-in
    /// kinds.
    pub selector: Option<String>,
}

/// Which changes increase `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The kind has no generation.
    None,
    /// Changes outside `metadata`, and outside `status` where that is a subresource.
    Content,
    /// As [`Content`](Self::Content), and changes of annotations.
    ContentAndAnnotations,
}

/// A field that a field selector may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The name in the selector, such as `spec.nodeName`.
    pub label: String,
    /// The names of the fields that lead to the value; the first of these paths with a value counts.
    pub paths: Vec<Vec<String>>,
    /// The value of a missing field: empty for strings, `false` and `0` otherwise.
    pub missing: String,
}

/// A schema that is built at its first use, so that unused kinds cost nothing at the start of a server.
pub struct LazySchema(LazyLock<Arc<Schema>, Box<dyn FnOnce() -> Arc<Schema> + Send>>);

impl LazySchema {
    /// Returns a schema that `build` returns at the first use.
    pub fn new(build: impl FnOnce() -> Arc<Schema> + Send + 'static) -> Self {
        Self(LazyLock::new(Box::new(build)))
    }

    /// Returns the schema.
    pub fn get(&self) -> &Arc<Schema> {
        &self.0
    }
}

impl From<Arc<Schema>> for LazySchema {
    fn from(schema: Arc<Schema>) -> Self {
        Self::new(move || schema)
    }
}

impl fmt::Debug for LazySchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LazySchema")
    }
}
