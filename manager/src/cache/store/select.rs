//! Selections of objects: the part of a kind that a store holds ([`Scope`]) and the part of a store that a
//! read returns ([`Select`]).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::Resource;
use kube::core::DynamicObject;

use crate::cache::object::{Labels, Meta, Uid};
use crate::cache::store::IndexFunction;
use crate::key::{Key, KindId, KindScope};

/// The scope of a store: the part of the objects of a kind that the store holds.
///
/// `Scope::all()` is everything the configuration allows: all namespaces, or those of `cache.namespaces`.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The only namespace of the scope; `None` = all namespaces that the configuration allows.
    pub(in crate::cache) namespace: Option<Arc<str>>,
    /// Selector of the objects in the scope by label; `None` = all objects; never a selector without
    /// requirements.
    pub(in crate::cache) labels: Option<LabelSelector>,
    /// Selector of the objects in the scope by field, in the server's syntax; `None` = all objects. Own
    /// writes do not enter such a store directly: fields cannot be evaluated in this process.
    pub(in crate::cache) fields: Option<Arc<str>>,
}

/// A kind and the part of its objects that a store holds. If the kind has a Rust type, a [`Scope`] converts
/// into a `ScopedKind`; [`Scope::of`] creates one for a kind that is known only at run time.
#[derive(Clone, Debug)]
pub struct ScopedKind<K = DynamicObject> {
    pub(in crate::cache) kind: KindId,
    pub(in crate::cache) scope: Scope,
    read_as: PhantomData<fn() -> K>,
}

/// A selection of the objects that a read of a store returns. `Default` selects all.
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct Select {
    pub(in crate::cache) namespace: Option<Arc<str>>,
    pub(in crate::cache) owner: Option<Uid>,
    pub(in crate::cache) labels: LabelSelector,
    pub(in crate::cache) functions: Vec<IndexValue>,
}

/// One value of one index by function, by which a read selects objects.
#[derive(Clone, Debug)]
pub(crate) struct IndexValue {
    /// The name under which the store handle has declared the index.
    pub(crate) name: Arc<str>,
    pub(crate) value: Arc<str>,
    /// The index function that the store handle has declared under the name; `None` before the handle has
    /// resolved the name, and if there is none.
    pub(crate) function: Option<Arc<IndexFunction>>,
}

/// A label selector as in kubectl: `app=web,tier!=cache,zone in (a, b),!legacy,cores>4`. The empty one
/// matches all objects.
///
/// `Display` writes the server's syntax in a fixed order; selectors that differ only in the order of their
/// requirements are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    /// The value of the label is none of these. Also true without the label, as on the server.
    NotIn(Vec<String>),
    /// The value of the label is an integer above this one. False without the label, and for any other value.
    Above(i64),
    /// The value of the label is an integer below this one. False without the label, and for any other value.
    Below(i64),
}

/// Error of a text that is not a label selector. A retry does not help; correct the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "label selector {selector:?} is invalid at {part:?}; \
     an example: app=web,tier!=cache,zone in (a, b),!legacy"
)]
pub struct SelectorError {
    selector: String,
    part: String,
}

// === impl Scope ===

impl Scope {
    /// Returns the scope of all objects that the configuration allows.
    pub fn all() -> Self {
        Self::default()
    }

    /// Combines this scope with a kind that is known only at run time, from a configuration or from
    /// discovery.
    pub fn of(self, kind: KindId) -> ScopedKind {
        ScopedKind { kind, scope: self, read_as: PhantomData }
    }

    /// Returns the scope of one namespace. For a cluster-scoped kind the namespace has no effect.
    pub fn namespace(namespace: impl Into<Arc<str>>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// Limits the scope to the objects that match a label selector, which the server evaluates.
    ///
    /// ```
    /// use mainstay::cache::{Scope, SelectorError};
    ///
    /// let scope = Scope::namespace("shop").labels("tier!=cache,app=web".parse()?);
    /// assert_eq!(scope.to_string(), "namespace shop, labels app=web,tier!=cache");
    /// # Ok::<(), SelectorError>(())
    /// ```
    pub fn labels(mut self, selector: LabelSelector) -> Self {
        self.labels = Some(selector).filter(|selector| !selector.0.is_empty());
        self
    }

    /// Limits the scope to the objects that match a field selector, such as `metadata.name=web`. Only the
    /// server knows the selectable fields of a kind: with an unknown field the store never syncs, and its
    /// status shows the error.
    pub fn fields(mut self, selector: impl Into<Arc<str>>) -> Self {
        self.fields = Some(selector.into());
        self
    }
}

// === impl ScopedKind ===

impl<K> From<Scope> for ScopedKind<K>
where
    K: Resource<DynamicType = ()>,
    K::Scope: KindScope,
{
    fn from(scope: Scope) -> Self {
        Self { kind: KindId::of::<K>(), scope, read_as: PhantomData }
    }
}

/// Writes the scope as a phrase for status lines: `all`, or `namespace shop, labels app=web`.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "namespace {namespace}")?,
            None => f.write_str("all")?,
        }
        if let Some(labels) = &self.labels {
            write!(f, ", labels {labels}")?;
        }
        self.fields.as_ref().map_or(Ok(()), |fields| write!(f, ", fields {fields}"))
    }
}

// === impl Select ===

impl Select {
    /// Returns the selection of all objects of a store.
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns the selection of the objects of one namespace. The cost depends on the result, not on the size
    /// of the store.
    pub fn namespace(namespace: impl Into<Arc<str>>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// Returns the selection of the objects with an owner reference to this uid. The cost depends on the
    /// result, not on the size of the store.
    pub fn owned_by(uid: impl Into<Uid>) -> Self {
        Self { owner: Some(uid.into()), ..Self::default() }
    }

    /// Returns the selection of the objects for which an index function has returned this value. The cost
    /// depends on the result, not on the size of the store.
    ///
    /// The index is declared with [`Store::index`](crate::cache::Store::index) or
    /// [`Store::index_view`](crate::cache::Store::index_view), on the handle that is read or on a clone or
    /// view of it.
    pub fn index(name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        Self::default().indexed(name, value)
    }

    /// Restricts the selection to the objects of one namespace.
    pub fn within(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Restricts the selection to objects for which the index function `name` has returned this value.
    pub fn indexed(mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        self.functions.push(IndexValue { name: name.into(), value: value.into(), function: None });
        self
    }

    /// Restricts the selection to objects that match a label selector. If one of its labels is indexed
    /// ([`UntypedStore::index_label`](crate::cache::UntypedStore::index_label)), the cost depends on the
    /// result; otherwise on the number of objects that match the rest of the selection.
    pub fn labels(mut self, selector: LabelSelector) -> Self {
        self.labels = selector;
        self
    }

    /// Restricts the selection to objects that have the label `key` with this value.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.0.push(Requirement { key: key.to_owned(), test: Test::In(vec![value.to_owned()]) });
        self
    }

    pub(in crate::cache) fn admits(&self, meta: &Meta) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| meta.request.namespace() == Some(namespace))
            && self.owner.as_ref().is_none_or(|uid| meta.owners.iter().any(|owner| owner.uid == *uid))
            && self.labels.matches(&meta.labels)
    }
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Returns the values that the selector allows for the label `key`, by an `=` or `in` requirement; `None`
    /// without one.
    pub(in crate::cache) fn values_of(&self, key: &str) -> Option<&[String]> {
        self.0.iter().find_map(|requirement| match &requirement.test {
            Test::In(values) if requirement.key == key => Some(values.as_slice()),
            _ => None,
        })
    }

    /// Returns the keys of the labels that all objects matching the selector have.
    pub(in crate::cache) fn needed(&self) -> impl Iterator<Item = &str> {
        let needs = |test: &Test| !matches!(test, Test::Absent | Test::NotIn(_));
        self.0.iter().filter(move |requirement| needs(&requirement.test)).map(|requirement| &*requirement.key)
    }

    /// Returns the selector of the objects that match both this selector and `other`.
    pub(in crate::cache) fn and(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().cloned());
        self
    }

    /// Returns whether the labels of an object match every requirement of the selector.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            fmt::Display::fmt(requirement, f)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for LabelSelector {
    type Err = SelectorError;

    /// Parses a label selector.
    ///
    /// # Errors
    /// Fails if a part of the text is not a requirement; the error quotes that part.
    fn from_str(selector: &str) -> Result<Self, SelectorError> {
        if selector.trim().is_empty() {
            return Ok(Self::default());
        }
        let parse = |part: &str| {
            let refused = || SelectorError { selector: selector.to_owned(), part: part.trim().to_owned() };
            Requirement::parse(part.trim()).ok_or_else(refused)
        };
        let mut requirements =
            split_outside_parentheses(selector).map(parse).collect::<Result<Vec<_>, _>>()?;
        requirements.sort_unstable();
        requirements.dedup();
        Ok(Self(requirements))
    }
}

impl Requirement {
    fn parse(text: &str) -> Option<Self> {
        let requirement = |key: &str, test| Some(Self { key: name(key)?, test });
        if let Some(key) = text.strip_prefix('!') {
            return requirement(key, Test::Absent);
        }
        if let Some(list) = text.strip_suffix(')') {
            let (head, list) = list.split_once('(')?;
            let (key, word) = head.trim_end().rsplit_once(char::is_whitespace)?;
            let mut values = list.split(',').map(value_of).collect::<Option<Vec<String>>>()?;
            values.sort_unstable();
            values.dedup();
            return match word {
                "in" => requirement(key, Test::In(values)),
                "notin" => requirement(key, Test::NotIn(values)),
                _ => None,
            };
        }
        let operator = |operator: &&str| text.contains(operator);
        let Some(operator) = [">", "<", "!=", "==", "="].into_iter().find(operator) else {
            return requirement(text, Test::Exists);
        };
        let (key, value) = text.split_once(operator)?;
        let condition = match operator {
            ">" => Test::Above(value.trim().parse().ok()?),
            "<" => Test::Below(value.trim().parse().ok()?),
            "!=" => Test::NotIn(vec![value_of(value)?]),
            _ => Test::In(vec![value_of(value)?]),
        };
        requirement(key, condition)
    }

    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let among = |list: &[String]| value.is_some_and(|value| list.iter().any(|one| one == value));
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::Above(bound) => number().is_some_and(|number| number > *bound),
            Test::Below(bound) => number().is_some_and(|number| number < *bound),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(list) => among(list),
            Test::NotIn(list) => !among(list),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            Test::Exists => f.write_str(key),
            Test::Absent => write!(f, "!{key}"),
            Test::In(values) if values.len() == 1 => write!(f, "{key}={}", values.concat()),
            Test::In(values) => write!(f, "{key} in ({})", values.join(",")),
            Test::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values.concat()),
            Test::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            Test::Above(bound) => write!(f, "{key}>{bound}"),
            Test::Below(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

/// Returns the text without surrounding white space as a label key; `None` for an invalid key.
fn name(text: &str) -> Option<String> {
    let text = text.trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    (!text.is_empty() && text.chars().all(fits)).then(|| text.to_owned())
}

/// Returns the text without surrounding white space as a label value, which may be empty; `None` for an
/// invalid value.
fn value_of(text: &str) -> Option<String> {
    if text.trim().is_empty() { Some(String::new()) } else { name(text) }
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests;
