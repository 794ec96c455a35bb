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

/// Key of a work queue, which names the object to reconcile. The debug pages filter queues of any key type by
/// namespace and name.
pub trait Key: Clone + Eq + Hash + fmt::Display + Send + Sync + 'static {
    /// Returns the namespace of the key's object; `None` if it has none.
    fn namespace(&self) -> Option<&str>;
    /// Returns the name of the key's object, without the namespace. The debug pages find keys by it.
    fn name(&self) -> &str;

    /// Returns the key for the object of this namespace and name; `None` for key types that need more than
    /// these two. With it, users can request a reconcile of an object that is not on the queue.
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
    /// Namespace of the object; `None` for cluster-scoped objects, never the empty string.
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

/// One kind of Kubernetes objects in one API version, with the names needed to build its paths and to read
/// its objects.
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

/// Kind, namespace and name of one object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Debug)]
#[debug("{self}")]
pub struct ObjectKey {
    /// The kind of the object that the key names.
    pub kind: KindId,
    /// The namespace and name of the object.
    pub name: NamespacedName,
}

/// Cause for which a key was enqueued. It is kept to two machine words, because every key in every queue
/// holds one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Kind of event or call that enqueued the key.
    pub trigger: Trigger,
    /// The object of the event that enqueued the key; `None` without an object, as for a timer. All keys that
    /// one event enqueues share one copy, and all [`Subject::Namesake`]s of one source share one.
    pub object: Option<Arc<Subject>>,
}

/// The object of the event that enqueued a key, in a [`Cause`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The object of this kind with the enqueued key's own namespace and name: usually the reconciled object
    /// itself. This form saves an allocation per event.
    Namesake(KindId),
    /// An object with another namespace or name than the enqueued key.
    Other(ObjectKey),
}

/// Kind of event or call that enqueued a key.
// A whole word, which it occupies in `Cause` anyway: as a byte, the copy of its padding took a tenth of the
// time that a key spends in a queue.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trigger {
    /// The key was enqueued because an object was created.
    Created,
    /// The key was enqueued because an object was updated.
    Updated,
    /// The key was enqueued because an object was deleted.
    Deleted,
    /// The key was enqueued because an object was in the first list of its watch.
    Initial,
    /// The key was enqueued by the periodic resync, with all other objects.
    Resync,
    /// The key was enqueued by a source other than a watch: a channel, a timer, a function.
    Generic,
    /// The key was enqueued because a user requested a reconcile.
    Manual,
    /// The last reconcile of the key requeued it after a delay.
    Requeued,
    /// The last reconcile of the key failed and is retried.
    Retried,
}

// === impl NamespacedName ===

impl NamespacedName {
    /// Makes the name of an object in a namespace; an empty namespace counts as none.
    pub fn namespaced(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        let namespace: Arc<str> = namespace.into();
        Self { namespace: (!namespace.is_empty()).then_some(namespace), name: name.into() }
    }

    /// Makes the name of a cluster-scoped object.
    pub fn cluster(name: impl Into<Arc<str>>) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// Makes the name of an object that may or may not have a namespace.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        namespace.map_or_else(|| Self::cluster(name), |namespace| Self::namespaced(namespace, name))
    }

    /// Replaces the namespace of the name by the copy that `copy` returns, so that many keys can share one.
    pub(crate) fn map_namespace(self, copy: impl FnOnce(&str) -> Arc<str>) -> Self {
        Self { namespace: self.namespace.as_deref().map(copy), name: self.name }
    }

    /// Returns the namespace and name of an object, from its metadata.
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
    /// Returns the kind of a Rust type of Kubernetes objects. Its scope comes from the type: types of
    /// k8s-openapi and those derived with `kube::CustomResource` have it.
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: KindScope,
    {
        Self::new(&K::group(&()), &K::version(&()), &K::kind(&()), &K::plural(&()), K::Scope::NAMESPACED)
    }

    /// Returns the kind that an [`ApiResource`] of kube's discovery describes. The discovery returns
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

    /// Makes a kind that is known only at run time. The core group is the empty string, `plural` is the name
    /// in paths.
    pub fn new(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        Self(Arc::new(KindNames {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced,
        }))
    }

    /// Returns the API group of the kind; empty for the core group.
    pub fn group(&self) -> &str {
        &self.0.group
    }

    /// Returns the API version of the kind without its group, such as `v1`.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Returns the name of the kind, such as `Deployment`.
    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// Returns the kind's plural name used in URL paths, such as `deployments`.
    pub fn plural(&self) -> &str {
        &self.0.plural
    }

    /// Returns whether objects of this kind live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.0.namespaced
    }

    /// Returns the `apiVersion` of the kind: `group/version`, or `version` for the core group.
    pub fn api_version(&self) -> String {
        if self.0.group.is_empty() {
            self.0.version.clone()
        } else {
            format!("{}/{}", self.0.group, self.0.version)
        }
    }

    /// Returns the URL path of all objects of this kind: in one namespace, or in all with `None`.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        let root = if self.0.group.is_empty() { "/api" } else { "/apis" };
        let api_version = self.api_version();
        match namespace {
            Some(namespace) => format!("{root}/{api_version}/namespaces/{namespace}/{}", self.0.plural),
            None => format!("{root}/{api_version}/{}", self.0.plural),
        }
    }

    /// Returns the URL path of one object of this kind.
    pub fn object_path(&self, object: &NamespacedName) -> String {
        format!("{}/{}", self.collection_path(object.namespace()), object.name())
    }

    /// Returns the kind as an [`ApiResource`], which kube's API for dynamic objects takes.
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

/// Scope of a kind, namespaced or cluster-scoped, known at compile time.
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
    /// Makes the cause of an enqueued key without an object, such as for a timer.
    pub fn bare(trigger: Trigger) -> Self {
        Self { trigger, object: None }
    }

    /// Makes the cause of an enqueued key from an event of an object.
    pub fn from_object(trigger: Trigger, object: impl Into<Arc<Subject>>) -> Self {
        Self { trigger, object: Some(object.into()) }
    }
}

impl Subject {
    /// Returns the kind of the object that caused the event.
    pub fn kind(&self) -> &KindId {
        match self {
            Self::Namesake(kind) => kind,
            Self::Other(object) => &object.kind,
        }
    }

    /// Returns kind, namespace and name of the object that caused the event, given the key that was enqueued.
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
    /// Returns the lower-case word for this cause of an enqueue, such as `updated`, used in logs, metrics and
    /// JSON.
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

/// Displays as `updated Deployment.apps shop/web`. The name is left out for an object with the key's own
/// name; without an object only the trigger is shown.
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
