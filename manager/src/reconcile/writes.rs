//! Typed writes of a run: of children, and of the status of the object that is reconciled.
//!
//! A controller declares which kinds it writes; [`Context::apply`] finds here, by the kind of an object, the
//! applier and the store to compare with. A kind that is not declared is refused before any request, because
//! the rights of the controller follow from what it declares.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Context, ReconcileError};
use crate::cache::{ReadError, UntypedStore, View};
use crate::client::owner::name_of;
use crate::client::{APPLY, Applier, Effect, live, set_controller_reference};
use crate::key::{Key as _, KindId, KindScope, NamespacedName};
use crate::rbac::{Access, Need, Place, Within};

/// The kinds that one controller has declared to write, with an applier for each.
#[derive(Clone, Default)]
pub(crate) struct Writes {
    controller: Arc<str>,
    field_manager: Arc<str>,
    /// The name of the cluster to write to; `None` for the manager's own.
    cluster: Option<Arc<str>>,
    /// Every store that the controller watches: objects are compared with these before they are written.
    stores: Vec<Arc<UntypedStore>>,
    kinds: Vec<DeclaredKind>,
}

#[derive(Clone)]
struct DeclaredKind {
    kind: KindId,
    declared: Vec<Declared>,
    applier: Applier<()>,
}

/// One declaration that a controller writes a kind.
#[derive(Clone)]
struct Declared {
    part: Part,
    /// The part of the cluster in which the controller writes objects of the kind.
    within: Within,
    place: Place,
}

/// The part of an object that a controller declares to write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole object except its status.
    Object,
    /// The status only.
    Status,
}

// === impl Writes ===

impl Writes {
    /// Declares that the controller writes one part of the objects of a kind, in a part of the cluster.
    pub(crate) fn declare(&mut self, kind: &KindId, part: Part, within: Within, place: Place) {
        let declared = Declared { part, within, place };
        if let Some(known) = self.kinds.iter_mut().find(|known| known.kind == *kind) {
            known.declared.push(declared);
        } else {
            let applier = Applier::new(kind.clone(), "");
            self.kinds.push(DeclaredKind { kind: kind.clone(), declared: vec![declared], applier });
        }
    }

    /// Returns the rights that the declared writes need. An object that no store of the controller can hold
    /// is read from the API server before each write.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let mut needs = Vec::new();
        for DeclaredKind { kind, declared, .. } in &self.kinds {
            for Declared { part, within, place } in declared {
                let mut need = |subresource, verbs: &[&'static str], why: &str| {
                    let access = Access::of(kind, subresource, verbs.iter().copied()).within(within.clone());
                    let why = format!("controller {} {why}", self.controller);
                    needs.push(Need { access: access.because(why), place: *place });
                };
                if *part == Part::Status {
                    need("status", &["patch"], "writes the status");
                    continue;
                }
                need("", &APPLY, "writes it");
                let holds = |store: &Arc<UntypedStore>| {
                    store.kind() == kind
                        && [&Within::Served, &Within::Cluster, within].contains(&&store.within())
                };
                if !self.stores.iter().any(holds) {
                    need("", &["get"], "reads it before a write");
                }
            }
        }
        needs
    }

    /// Adds a store that objects are compared with before they are written.
    pub(crate) fn compare_with(&mut self, store: &Arc<UntypedStore>) {
        self.stores.push(Arc::clone(store));
    }

    /// Returns the same declared kinds for a controller of this name, with new appliers for this field
    /// manager.
    pub(crate) fn of(self, controller: &Arc<str>, field_manager: &Arc<str>) -> Self {
        let (controller, field_manager) = (Arc::clone(controller), Arc::clone(field_manager));
        Self { controller, field_manager, ..self }.within(None)
    }

    /// Returns the same declared kinds for writes to one cluster, `None` for the manager's own. Appliers are
    /// new, for one remembers the objects of a single cluster.
    pub(crate) fn within(&self, cluster: Option<&Arc<str>>) -> Self {
        let mut writes = Self { cluster: cluster.cloned(), ..self.clone() };
        for declared in &mut writes.kinds {
            declared.applier = Applier::new(declared.kind.clone(), Arc::clone(&self.field_manager));
        }
        writes
    }

    /// Returns the object as one of the controller's stores has it; `None` if none of the stores can hold the
    /// object.
    fn held(&self, kind: &KindId, name: &NamespacedName) -> Option<Result<Option<View>, ReadError>> {
        let fits =
            |store: &&Arc<UntypedStore>| store.kind() == kind && store.cluster() == self.cluster.as_deref();
        let mut reads = self.stores.iter().filter(fits).map(|store| store.get(name));
        reads.find(|read| !matches!(read, Err(ReadError::OutOfScope { .. })))
    }

    /// Returns all declarations as text, each with the place that makes it.
    fn places(&self) -> impl Iterator<Item = String> {
        self.kinds.iter().flat_map(|known| {
            known.declared.iter().map(|Declared { part, within, place }| {
                let status = if *part == Part::Status { " status" } else { "" };
                let namespace = match within {
                    Within::Namespace(namespace) => format!(" in {namespace}"),
                    _ => String::new(),
                };
                format!("{}{status}{namespace} ({place})", known.kind)
            })
        })
    }

    fn find(
        &self,
        kind: &KindId,
        name: &NamespacedName,
        part: Part,
    ) -> Result<&DeclaredKind, ReconcileError> {
        let admits = |declared: &Declared| {
            let elsewhere =
                matches!(&declared.within, Within::Namespace(one) if Some(&**one) != name.namespace());
            declared.part == part && !elsewhere
        };
        let found = self.kinds.iter().find(|known| known.kind == *kind);
        found.filter(|known| known.declared.iter().any(admits)).ok_or_else(|| {
            let places: Vec<String> = self.places().collect();
            let declared =
                if places.is_empty() { String::new() } else { format!("; declared: {}", places.join(", ")) };
            let (of, call) = match part {
                Part::Object => ("", format!(".owns(&store) or .writes::<{}>()", kind.kind())),
                Part::Status => (" status", format!(".writes_status::<{}>()", kind.kind())),
            };
            ReconcileError::terminal(format!(
                "{kind}{of} {name} was not sent: controller {:?} has not declared this write; call {call} on \
                 the controller{declared}",
                self.controller,
            ))
        })
    }
}

impl fmt::Debug for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.places()).finish()
    }
}

// === impl Context ===

impl Context {
    /// Applies `child` as given, as a child that `owner` controls. Sends no request if the stored object is
    /// already so.
    ///
    /// The controller has to declare the kind of `child`, with `.owns(&store)` or `.writes::<K>()`. The child
    /// needs a name; filled in are the namespace of the owner where the child has none, the owner reference
    /// and the field manager, which is the controller's name unless [`Controller::field_manager`] sets
    /// another one.
    ///
    /// The child is compared with the stores that the controller watches; see [`Applier::ensure`] for when a
    /// request is sent. A store that selects by labels has to select the child, so give the child those
    /// labels. If no store of the controller can hold the child, it is read from the API server first.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use k8s_openapi::api::core::v1::{ConfigMap, Service};
    /// use mainstay::prelude::*;
    ///
    /// struct Cards;
    ///
    /// impl ObjectReconciler<Service> for Cards {
    ///     async fn reconcile(&self, service: Arc<Service>, cx: &Context) -> Outcome {
    ///         let mut card = ConfigMap::default();
    ///         card.metadata.name = service.metadata.name.as_ref().map(|name| format!("{name}-card"));
    ///         if cx.apply(&*service, &card).await?.is_change() {
    ///             tracing::info!("card written");
    ///         }
    ///         Ok(Action::Done)
    ///     }
    /// }
    ///
    /// fn wire(manager: &Manager) -> Result<(), BoxError> {
    ///     let services = manager.store(Scope::all());
    ///     let cards = manager.store::<ConfigMap>(Scope::all());
    ///     let controller = Controller::new("cards").reconciles(&services).owns(&cards);
    ///     manager.register(controller.reconciler(without_finalizer(&services, Cards)))?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Terminal, and before any request: a kind that is not declared, and an owner that cannot own the child,
    /// such as one in another namespace. Else those of [`Applier::apply`] and of reads from the store.
    ///
    /// # Cancel safety
    /// Dropping it may leave the request sent; applying again is safe.
    ///
    /// [`Controller::field_manager`]: crate::controller::Controller::field_manager
    pub async fn apply<O, K>(&self, owner: &O, child: &K) -> Result<Effect<K>, ReconcileError>
    where
        O: Resource<DynamicType = ()>,
        O::Scope: KindScope,
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Send + Sync,
        K::Scope: KindScope,
    {
        let (kind, mut child) = (KindId::of::<K>(), child.clone());
        let meta = child.meta_mut();
        if kind.is_namespaced() && meta.namespace.is_none() {
            meta.namespace.clone_from(&owner.meta().namespace);
        }
        set_controller_reference(meta, owner.meta(), &KindId::of::<O>()).map_err(ReconcileError::terminal)?;
        self.apply_unowned(&child).await
    }

    /// Applies `object` as [`apply`](Self::apply) does, but without an owner: it stays when the reconciled
    /// object is deleted, unless [`cleanup`](super::ObjectReconciler::cleanup) deletes it.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    ///
    /// # Cancel safety
    /// As [`apply`](Self::apply).
    pub async fn apply_unowned<K>(&self, object: &K) -> Result<Effect<K>, ReconcileError>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Sync,
        K::Scope: KindScope,
    {
        let (kind, name) = (KindId::of::<K>(), name_of(object.meta()));
        let declared = self.writes().find(&kind, &name, Part::Object)?;
        let applier = declared.applier.view();
        Ok(match self.writes().held(&kind, &name) {
            Some(held) => applier.ensure(self, held?.as_ref(), object).await?,
            None => applier.ensure(self, live(self, &kind, &name).await?.as_ref(), object).await?,
        })
    }

    /// Applies the status of `object` as given, through the `status` subresource. Sends no request if the
    /// stored status is already so. Fields of the status that other field managers have set stay.
    ///
    /// The controller has to declare this, with `.writes_status::<K>()`.
    ///
    /// # Errors
    /// As [`apply`](Self::apply); a 404 if the object has gone, a 409 if another has taken its name.
    ///
    /// # Cancel safety
    /// As [`apply`](Self::apply).
    pub async fn apply_status<K>(
        &self,
        object: &K,
        status: &(impl Serialize + Sync),
    ) -> Result<Effect<K>, ReconcileError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Sync,
        K::Scope: KindScope,
    {
        let (kind, name) = (KindId::of::<K>(), name_of(object.meta()));
        let declared = self.writes().find(&kind, &name, Part::Status)?;
        let applier = declared.applier.view();
        let ObjectMeta { name: given, namespace, uid, .. } = object.meta().clone();
        let metadata = ObjectMeta { name: given, namespace, uid, ..ObjectMeta::default() };
        let body = json!({"metadata": metadata, "status": status});
        Ok(match self.writes().held(&kind, &name).transpose()?.flatten() {
            Some(held) => applier.ensure_status(self, &held, &body).await?,
            None => Effect::Changed(applier.apply_status(self, &body).await?),
        })
    }
}
