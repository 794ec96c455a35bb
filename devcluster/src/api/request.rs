//! A request without HTTP: a verb, a target, options and a decoded body.

use serde_json::Value;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The verb.
    pub verb: Verb,
    /// The endpoint.
    pub target: Target,
    /// The options, as in the query of a URL.
    pub query: Query,
    /// The decoded body; `None` if the request has none.
    pub body: Option<Body>,
    /// The sender.
    pub user: User,
    /// The client's User-Agent; the part before its first `/` is the default field manager.
    pub user_agent: String,
}

/// The operation on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads an object.
    Get,
    /// Reads several objects.
    List,
    /// Streams the changes of objects.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes parts of an object.
    Patch(PatchType),
    /// Deletes an object.
    Delete,
    /// Deletes several objects.
    DeleteCollection,
}

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`: a list of operations.
    Json,
    /// `application/merge-patch+json`: a partial object, where null deletes.
    Merge,
    /// `application/strategic-merge-patch+json`: like a merge patch, but list items merge by their keys.
    Strategic,
    /// `application/apply-patch+yaml`: the fields that a manager wants to own.
    Apply,
}

/// An endpoint: a resource in a version, and possibly one object or one of its subresources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The plural name, such as `deployments`.
    pub resource: String,
    /// The namespace; empty for all namespaces, and for cluster-scoped resources.
    pub namespace: String,
    /// The name of the object; empty for a collection.
    pub name: String,
    /// The subresource, such as `status`; empty for the object itself.
    pub subresource: String,
}

/// A decoded body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Body {
    /// The decoded value.
    pub value: Value,
    /// Errors of strict decoding, such as `duplicate field "spec.x"`. The option `fieldValidation` decides
    /// whether they fail the request, become warnings or are ignored.
    pub strict_errors: Vec<String>,
}

/// The options of a request: the decoded pairs of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

/// The sender of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The uid, possibly empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Further attributes, each with its values.
    pub extra: Vec<(String, Vec<String>)>,
}

// === impl Request ===

impl Request {
    /// Returns a request of the administrator, without options or body.
    pub fn new(verb: Verb, target: Target) -> Self {
        Self {
            verb,
            target,
            query: Query::default(),
            body: None,
            user: User::admin(),
            user_agent: String::new(),
        }
    }

    /// Adds a body.
    #[must_use]
    pub fn with_body(mut self, value: Value) -> Self {
        self.body = Some(Body { value, strict_errors: Vec::new() });
        self
    }

    /// Adds an option.
    #[must_use]
    pub fn with(mut self, option: &str, value: impl Into<String>) -> Self {
        self.query.0.push((option.to_owned(), value.into()));
        self
    }
}

// === impl Target ===

impl Target {
    /// Returns the collection of a resource in all namespaces.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        let (group, version, resource) = (group.to_owned(), version.to_owned(), resource.to_owned());
        Self { group, version, resource, ..Self::default() }
    }

    /// Narrows the target to a namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Narrows the target to an object.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Narrows the target to a subresource.
    #[must_use]
    pub fn subresource(mut self, subresource: &str) -> Self {
        subresource.clone_into(&mut self.subresource);
        self
    }
}

// === impl Query ===

impl Query {
    /// Decodes the query of a URL.
    pub fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// Returns the first value of an option; `None` if it is missing.
    pub fn get(&self, option: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == option).map(|(_, value)| value.as_str())
    }

    /// Returns all values of an option, in the order of the query.
    pub fn all<'a>(&'a self, option: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == option).map(|(_, value)| value.as_str())
    }
}

// === impl User ===

impl User {
    /// Returns the administrator of the cluster.
    pub fn admin() -> Self {
        Self {
            name: "system:admin".to_owned(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
            ..Self::default()
        }
    }
}
