//! A request, free of HTTP: a verb, its target, its options and a decoded body.

use serde_json::Value;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to do.
    pub verb: Verb,
    /// The endpoint.
    pub target: Target,
    /// The options, as the query of a URL carries them.
    pub query: Query,
    /// The decoded body, if there is one.
    pub body: Option<Body>,
    /// The sender.
    pub user: User,
    /// The client's User-Agent; up to its first `/` it is the default field manager.
    pub user_agent: String,
}

/// What to do with the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read an object.
    Get,
    /// Read objects.
    List,
    /// Follow the changes of objects.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Change an object.
    Patch(PatchType),
    /// Delete an object.
    Delete,
    /// Delete objects.
    DeleteCollection,
}

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`: a list of operations.
    Json,
    /// `application/merge-patch+json`: a partial object, where null deletes.
    Merge,
    /// `application/strategic-merge-patch+json`: as a merge patch, but lists merge by their keys.
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
    /// The namespace; empty for all, and for resources without namespaces.
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
    /// Remarks of a strict decoder, such as `duplicate field "spec.x"`: refused, returned as warnings or ignored,
    /// as the option `fieldValidation` wants it.
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
    /// Further attributes.
    pub extra: Vec<(String, Vec<String>)>,
}

// === impl Request ===

impl Request {
    /// A request of an administrator without options and body.
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
    /// The collection of a resource, in all namespaces.
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

    /// Returns the first value of an option.
    pub fn get(&self, option: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == option).map(|(_, value)| value.as_str())
    }

    /// Returns all values of an option.
    pub fn all<'a>(&'a self, option: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == option).map(|(_, value)| value.as_str())
    }
}

// === impl User ===

impl User {
    /// The administrator of the cluster.
    pub fn admin() -> Self {
        Self {
            name: "system:admin".to_owned(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
            ..Self::default()
        }
    }
}
