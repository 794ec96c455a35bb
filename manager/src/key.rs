//! Names of objects and kinds, queue keys and their causes, and the fence: types that all rooms share.
//!
//! A leaf: it imports no other room. A clone of any of these increments a reference count and copies no text,
//! because a key travels from the reflector through the queue to the log line of its reconcile.

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

/// Key of a queue. The debug pages filter queues of any key type by namespace and name.
pub trait Key: Clone + Eq + Hash + fmt::Display + Send + Sync + 'static {
    /// Returns the namespace of the key's object; `None` if it has none.
    fn namespace(&self) -> Option<&str>;
    /// Returns the name of the key's object, without the namespace. The debug pages find keys by it.
    fn name(&self) -> &str;

    /// Returns the key of this namespace and name; `None` for key types that need more than these two. With
    /// it, users can request a reconcile of an object that is not on the queue.
    fn named(_namespace: Option<&str>, _name: &str) -> Option<Self> {
        None
    }
}

/// Namespace and name of one object: the ordinary key of a queue.
///
/// Displays as `namespace/name`, or as `name` for a cluster-scoped object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Debug)]
#[debug("{self}")]
pub struct NamespacedName {
    /// `None` for cluster-scoped objects; never the empty string.
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

/// One kind in one API version, with the names needed to build its paths and to read its objects.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Debug)]
#[debug("{self}")]
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
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Debug)]
#[debug("{self}")]
pub struct ObjectKey {
    /// The kind of the object.
    pub kind: KindId,
    /// Its namespace and name.
    pub name: NamespacedName,
}

/// Cause for which a key was enqueued. Two words long, as every key of every queue holds one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Kind of event or call that enqueued the key.
    pub trigger: Trigger,
    /// The object of the event; `None` without an object, as for a timer. All keys that one event enqueues
    /// share one copy, and all [`Subject::Namesake`]s of one source share one.
    pub object: Option<Arc<Subject>>,
}

/// The object of the event in a [`Cause`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The object of this kind with the key's own namespace and name: usually the reconciled object itself.
    /// This form saves an allocation per event.
    Namesake(KindId),
    /// An object with another namespace or name.
    Other(ObjectKey),
}

/// Kind of event or call that enqueued a key.
// A whole word, which it occupies in `Cause` anyway: as a byte, the copy of its padding took a tenth of the
// time that a key spends in a queue.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trigger {
    /// An object was created.
    Created,
    /// An object was updated.
    Updated,
    /// An object was deleted.
    Deleted,
    /// The object was in the first list of its watch.
    Initial,
    /// The periodic resync enqueued all objects.
    Resync,
    /// A source other than a watch: a channel, a timer, a function.
    Generic,
    /// A user requested a reconcile.
    Manual,
    /// The last reconcile requeued its key after a delay.
    Requeued,
    /// The last reconcile failed and is retried.
    Retried,
}

// === impl NamespacedName ===

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

    /// Replaces the namespace by the copy that `copy` returns, so that many keys can share one.
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

// === impl KindId ===

impl KindId {
    /// Returns the kind of a Rust type. Its scope comes from the type: types of k8s-openapi and those derived
    /// with `kube::CustomResource` have it.
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: KindScope,
    {
        Self::new(&K::group(&()), &K::version(&()), &K::kind(&()), &K::plural(&()), K::Scope::NAMESPACED)
    }

    /// Returns the kind of an [`ApiResource`], as kube's discovery returns it. The discovery returns
    /// `namespaced` separately, in the capabilities.
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

    /// Names a kind known only at run time. The core group is the empty string, `plural` is the name in
    /// paths.
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
    pub fn object_path(&self, object: &NamespacedName) -> String {
        format!("{}/{}", self.collection_path(object.namespace()), object.name())
    }

    /// Returns the kind as kube's API for dynamic objects takes it.
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

/// Scope of a kind, known at compile time.
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
        write!(f, "{} {}", self.kind, self.name)
    }
}

// === impl Cause, Subject ===

impl Cause {
    /// Makes a cause without an object.
    pub fn bare(trigger: Trigger) -> Self {
        Self { trigger, object: None }
    }

    /// Makes a cause from an event of an object.
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

    /// Returns kind, namespace and name of the object, given the key that was enqueued.
    pub fn of(&self, key: &impl Key) -> ObjectKey {
        match self {
            Self::Namesake(kind) => {
                ObjectKey { kind: kind.clone(), name: NamespacedName::new(key.namespace(), key.name()) }
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

/// Displays as `updated Deployment.apps shop/web`, without the name for a namesake, or as the trigger alone.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.trigger.as_str())?;
        match self.object.as_deref() {
            None => Ok(()),
            Some(Subject::Namesake(kind)) => write!(f, " {kind}"),
            Some(Subject::Other(object)) => write!(f, " {object}"),
        }
    }
}
