//! Keys of stored objects, and ranges of keys.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// An API group and the plural name of a resource; all versions of a kind share one value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// The API group, empty for the core group.
    pub group: Arc<str>,
    /// The plural name, such as `deployments`.
    pub resource: Arc<str>,
}

/// The key of an object among those of its resource: `namespace/name`, or `name` alone without a namespace.
///
/// Keys are ordered by their bytes, like the lists of kube-apiserver: `a-b/x` comes before `a/x`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

// === impl GroupResource ===

impl GroupResource {
    /// Returns the name of a resource.
    pub fn new(group: &str, resource: &str) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

impl fmt::Display for GroupResource {
    /// Writes `widgets.example.com`, or `pods` for the core group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

// === impl Key ===

impl Key {
    /// Joins a namespace (empty for cluster-scoped objects) and a name. Neither may contain a slash.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() { Self(name.into()) } else { Self(format!("{namespace}/{name}").into()) }
    }

    pub(super) fn parse(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the namespace; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }

    /// Returns the whole key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A range of keys: all keys or the keys of one namespace, optionally only those after a given key.
#[derive(Debug)]
pub(super) struct KeyRange {
    start: Bound<String>,
    /// Excludes the first key behind the namespace; unbounded for all namespaces.
    end: Bound<String>,
}

// === impl KeyRange ===

impl KeyRange {
    pub(super) fn new(namespace: Option<&str>, after: Option<&str>) -> Self {
        let first = namespace.map(|namespace| format!("{namespace}/"));
        // '0' is the byte after '/', so this bound ends exactly the keys that start with "namespace/".
        let end = namespace.map_or(Bound::Unbounded, |namespace| Bound::Excluded(format!("{namespace}0")));
        let start = match (first, after) {
            // A forged continue token may hold a key outside the namespace; the range must not leave it.
            (Some(first), Some(after)) if !after.starts_with(&first) => Bound::Included(first),
            (_, Some(after)) => Bound::Excluded(after.to_owned()),
            (Some(first), None) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        Self { start, end }
    }

    pub(super) fn bounds(&self) -> (Bound<&str>, Bound<&str>) {
        (self.start.as_ref().map(String::as_str), self.end.as_ref().map(String::as_str))
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        std::ops::RangeBounds::<str>::contains(&self.bounds(), key.as_str())
    }
}
