//! A kind that the server serves in one version: its names, its schema and the rules of its endpoints.

use std::fmt;
use std::sync::{Arc, LazyLock};

use super::schema::Schema;

/// A kind in one version, built-in or declared by a CustomResourceDefinition.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate property of the kind")]
pub struct Kind {
    /// The API group, such as `apps`; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The kind of the list, such as `DeploymentList`.
    pub list_kind: String,
    /// The plural name in URL paths, such as `deployments`.
    pub plural: String,
    /// The singular name, such as `deployment`.
    pub singular: String,
    /// The short names, such as `deploy`; often empty.
    pub short_names: Vec<String>,
    /// The categories, such as `all`; often empty.
    pub categories: Vec<String>,
    /// Whether the objects are in a namespace.
    pub namespaced: bool,
    /// The verbs of the main endpoint, sorted. Objects of a kind without `get` are never stored: a `create`
    /// returns a result.
    pub verbs: Vec<String>,
    /// The group and the plural name under which objects are stored. They differ from those of the kind only
    /// if two groups are views of the same objects, like Event.
    pub stored_as: (String, String),
    /// Whether the kind has the `status` subresource.
    pub status: bool,
    /// The paths of the `scale` subresource; `None` if the kind does not have it.
    pub scale: Option<Scale>,
    /// The subresources besides `status` and `scale`.
    pub subresources: Vec<Subresource>,
    /// The changes that increase `metadata.generation`.
    pub generation: Generation,
    /// Whether an update may leave out `metadata.resourceVersion`.
    pub unconditional_update: bool,
    /// Whether an update of a missing object creates it.
    pub create_on_update: bool,
    /// The fields that a field selector can name, besides `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<SelectableField>,
    /// The name of the struct type in the table of built-in kinds; `None` for custom resources.
    pub type_name: Option<String>,
    /// The schema of whole objects.
    pub schema: LazySchema,
}

impl Kind {
    /// Returns `group/version`, or the version alone in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns `plural.group`, or the plural name alone in the core group. Error messages use this name.
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
    /// The name in URL paths, such as `eviction`.
    pub name: String,
    /// The group of the kind in requests; empty for the core group.
    pub group: String,
    /// The version of the kind in requests.
    pub version: String,
    /// The kind in requests, such as `Eviction`.
    pub kind: String,
    /// The verbs, sorted.
    pub verbs: Vec<String>,
}

/// The paths of the values of the `scale` subresource, in the form `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The path of the desired number of replicas.
    pub spec_replicas: String,
    /// The path of the observed number of replicas.
    pub status_replicas: String,
    /// The path of the label selector: a string in custom resources, a `LabelSelector` or a map of labels in
    /// built-in kinds. `None` if there is none.
    pub selector: Option<String>,
}

/// The changes that increase `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The kind has no generation.
    None,
    /// None: the generation stays 1.
    Fixed,
    /// Changes outside `metadata`, and outside `status` if that is a subresource.
    Content,
    /// The changes of [`Content`](Self::Content), and changes of annotations.
    ContentAndAnnotations,
    /// The changes of [`Content`](Self::Content), and changes of labels.
    ContentAndLabels,
}

/// A field that a field selector can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The name in the selector, such as `spec.nodeName`.
    pub label: String,
    /// The paths of the value, each a list of field names. The first path with a value counts.
    pub paths: Vec<Vec<String>>,
    /// The value of a missing field: empty for strings, else `false` or `0`.
    pub missing: String,
}

/// A schema that is built at its first use, so unused kinds cost no time when a server starts.
pub struct LazySchema(LazyLock<Arc<Schema>, Box<dyn FnOnce() -> Arc<Schema> + Send>>);

impl LazySchema {
    /// Returns a schema that `build` creates at its first use.
    pub fn new(build: impl FnOnce() -> Arc<Schema> + Send + 'static) -> Self {
        Self(LazyLock::new(Box::new(build)))
    }

    /// Returns the schema, and builds it at the first call.
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
