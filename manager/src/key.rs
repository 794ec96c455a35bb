//! The vocabulary every room shares: what is asked for, of which kind, and why.
//!
//! A leaf: it imports no other room. Cloning any of these is a reference count, never a copy of text, because a
//! key travels from the reflector through the queue to the log line of its reconcile.

mod chain;
mod fence;
mod label;
mod panic;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use kube::Resource;
use kube::core::{ApiResource, GroupVersionKind};

pub(crate) use chain::Chain;
pub use fence::{BootInstant, Fence, FencePass};
pub(crate) use label::{is_dns_label, is_dns_subdomain};
pub(crate) use panic::panic_text;

/// What a queue is keyed by. Namespace and name let every queue be filtered alike, whatever its key type.
pub trait Key: Clone + Eq + Hash + fmt::Display + Send + Sync + 'static {
    /// Returns the namespace the key lives in, if it has one.
    fn namespace(&self) -> Option<&str>;
    /// Returns the name within the namespace.
    fn name(&self) -> &str;

    /// Returns the key of this namespace and this name, if those are all it takes to make one: then a person can ask for a
    /// reconcile of an object that is not on the queue.
    fn named(_namespace: Option<&str>, _name: &str) -> Option<Self> {
        None
    }
}

/// Namespace and name of one object: the ordinary key of a queue.
///
/// Displays as `namespace/name`, or as `name` for a cluster-scoped object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespacedName {
    /// `None` for cluster-scoped objects; never the empty string.
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

/// One kind as a server serves it: the names needed to build its paths and to read its objects.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindId(Arc<KindNames>);

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct KindNames {
    group: String,
    version: String,
    kind: String,
    plural: String,
    namespaced: bool,
}

/// One object of one kind.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The kind of the object.
    pub kind: KindId,
    /// Its namespace and name.
    pub request: NamespacedName,
}

/// Why a key was put on a queue. Two words long: every key of every queue holds one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// What happened.
    pub trigger: Trigger,
    /// The object it happened to; `None` where no object was involved, such as a timer. One copy for all keys that
    /// one event concerns, and for namesakes one copy per source.
    pub object: Option<Arc<Subject>>,
}

/// The object a [`Cause`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The object of this kind that has the key's own namespace and name: mostly the very object the key names, so
    /// that the common cause needs no memory of its own.
    Namesake(KindId),
    /// An object of another name.
    Other(ObjectKey),
}

/// What happened that put a key on a queue.
// A word, as it fills one in every `Cause` anyway: beside a byte, padding is copied in pieces that straddle words, which
// took a tenth of the time a key needs to go through a queue.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trigger {
    /// An object appeared.
    Created,
    /// An object changed.
    Updated,
    /// An object went away.
    Deleted,
    /// The object was there when its watch began.
    Initial,
    /// The periodic look at everything.
    Resync,
    /// Something outside the cluster's objects: a channel, a timer, a function.
    Generic,
    /// A person asked.
    Manual,
    /// The last run asked to be run again after a time.
    Requeued,
    /// The last run failed.
    Retried,
}

// === impl Request ===

impl NamespacedName {
    /// Names an object in a namespace.
    pub fn namespaced(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        let namespace: Arc<str> = namespace.into();
        Self { namespace: (!namespace.is_empty()).then_some(namespace), name: name.into() }
    }

    /// Names a cluster-scoped object.
    pub fn cluster(name: impl Into<Arc<str>>) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// Names an object that may or may not have a namespace.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        namespace.map_or_else(|| Self::cluster(name), |namespace| Self::namespaced(namespace, name))
    }

    /// Puts another copy of the namespace in place of its own, so that many keys can share one.
    pub(crate) fn map_namespace(self, copy: impl FnOnce(&str) -> Arc<str>) -> Self {
        Self { namespace: self.namespace.as_deref().map(copy), name: self.name }
    }

    /// Names the given object.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }
}

impl Key for NamespacedName {
    fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn named(namespace: Option<&str>, name: &str) -> Option<Self> {
        Some(Self::new(namespace, name))
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl fmt::Debug for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl KindId ===

impl KindId {
    /// Returns the kind of a type known at compile time. `namespaced` is what its CRD or the server says; kinds
    /// of k8s-openapi and those derived with `kube::CustomResource` carry it in their scope type.
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: KindScope,
    {
        Self::new(&K::group(&()), &K::version(&()), &K::kind(&()), &K::plural(&()), K::Scope::NAMESPACED)
    }

    /// Returns a kind as kube's discovery has found it, or as kube's API for dynamic objects takes it. `namespaced` is
    /// what the discovery says apart from it, in its capabilities.
    ///
    /// ```
    /// use kube::core::{ApiResource, GroupVersionKind};
    /// use mainstay::key::KindId;
    ///
    /// let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    /// let widget = KindId::of_resource(&resource, true);
    /// assert_eq!(widget, KindId::new("example.com", "v1", "Widget", "widgets", true));
    /// assert_eq!(widget.resource(), resource);
    /// ```
    pub fn of_resource(resource: &ApiResource, namespaced: bool) -> Self {
        Self::new(&resource.group, &resource.version, &resource.kind, &resource.plural, namespaced)
    }

    /// Names a kind known only at run time. The core group is the empty string.
    pub fn new(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        Self(Arc::new(KindNames {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced,
        }))
    }

    /// Returns the API group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.0.group
    }

    /// Returns the version, such as `v1`.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Returns the kind, such as `Deployment`.
    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// Returns the plural used in paths, such as `deployments`.
    pub fn plural(&self) -> &str {
        &self.0.plural
    }

    /// Returns whether objects of this kind live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.0.namespaced
    }

    /// Returns `group/version`, or `version` for the core group.
    pub fn api_version(&self) -> String {
        if self.0.group.is_empty() {
            self.0.version.clone()
        } else {
            format!("{}/{}", self.0.group, self.0.version)
        }
    }

    /// Returns the path of the collection: of one namespace, or of all with `None`.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        let root = if self.0.group.is_empty() { "/api" } else { "/apis" };
        let api_version = self.api_version();
        match namespace {
            Some(namespace) => format!("{root}/{api_version}/namespaces/{namespace}/{}", self.0.plural),
            None => format!("{root}/{api_version}/{}", self.0.plural),
        }
    }

    /// Returns the path of one object.
    pub fn object_path(&self, request: &NamespacedName) -> String {
        format!("{}/{}", self.collection_path(request.namespace()), request.name())
    }

    /// Returns what kube's API for dynamic objects takes.
    pub fn resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group(), self.version(), self.kind());
        ApiResource::from_gvk_with_plural(&kind, self.plural())
    }
}

/// Displays as `kind.group`, or as `kind` for the core group: the form kubectl accepts.
impl fmt::Display for KindId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.group.is_empty() {
            f.write_str(&self.0.kind)
        } else {
            write!(f, "{}.{}", self.0.kind, self.0.group)
        }
    }
}

impl fmt::Debug for KindId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Says at compile time whether a scope type means "in a namespace".
pub trait KindScope {
    /// Whether objects of this scope live in namespaces.
    const NAMESPACED: bool;
}

impl KindScope for k8s_openapi::NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl KindScope for k8s_openapi::ClusterResourceScope {
    const NAMESPACED: bool = false;
}

// === impl ObjectKey ===

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.request)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Cause, Subject ===

impl Cause {
    /// A cause that no object had a part in.
    pub fn bare(trigger: Trigger) -> Self {
        Self { trigger, object: None }
    }

    /// A cause that came from an object.
    pub fn from_object(trigger: Trigger, object: impl Into<Arc<Subject>>) -> Self {
        Self { trigger, object: Some(object.into()) }
    }
}

impl Subject {
    /// Returns the kind of the object.
    pub fn kind(&self) -> &KindId {
        match self {
            Self::Namesake(kind) => kind,
            Self::Other(object) => &object.kind,
        }
    }

    /// Returns the object's full name, given the key it is the cause for.
    pub fn of(&self, key: &impl Key) -> ObjectKey {
        match self {
            Self::Namesake(kind) => {
                ObjectKey { kind: kind.clone(), request: NamespacedName::new(key.namespace(), key.name()) }
            }
            Self::Other(object) => object.clone(),
        }
    }
}

impl Trigger {
    /// Returns the lower-case word used in logs, metrics and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Initial => "initial",
            Self::Resync => "resync",
            Self::Generic => "generic",
            Self::Manual => "manual",
            Self::Requeued => "requeued",
            Self::Retried => "retried",
        }
    }
}

/// Displays as the kind alone where the key beside it says the rest, else as `Deployment.apps shop/web`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namesake(kind) => write!(f, "{kind}"),
            Self::Other(object) => write!(f, "{object}"),
        }
    }
}

/// Displays as `updated Deployment.apps shop/web`, without the name if it is the key's own, or as the bare word.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.trigger.as_str())?;
        self.object.as_ref().map_or(Ok(()), |object| write!(f, " {object}"))
    }
}
