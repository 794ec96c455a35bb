//! A reconciler that is handed the object itself, and asked to clean up before the object goes.
//!
//! [`object`] makes a [`Reconciler`] of an [`ObjectReconciler`]. What it does with a key:
//!
//! | the object | what is done |
//! |---|---|
//! | is not there | nothing |
//! | is there, with the finalizer or without need of one | `reconcile` |
//! | is there without the finalizer | the finalizer is added, then `reconcile` in the same run |
//! | is being deleted, with the finalizer | `cleanup`; once that answers `Ok(Action::Done)`, the finalizer is removed |
//! | is being deleted, without it | nothing: it is no longer ours |
//!
//! Differs from kube's `finalizer`, which ends the run after adding and waits for the event of its own write.
//!
//! # Invariants
//! 1. With a finalizer, `reconcile` runs only on an object that the server has let us hold back: what it does is
//!    cleaned up whatever comes.
//! 2. An object that cannot be decoded gets no finalizer: nobody could take it off again.
//! 3. The finalizer goes only after a `cleanup` that answered `Ok(Action::Done)`.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use tracing::debug;

use crate::cache::{Entry, Meta, Store};
use crate::client::Finalizer;
use crate::client::finalizer::Edited;
use crate::key::NamespacedName;

use super::{Action, Context, Outcome, Reconciler};

/// Brings the world closer to what one object asks for, and takes back what it did before the object goes.
///
/// The shape that kube-rs users know. Both methods must be safe to repeat. See [`object`] for when each is called.
pub trait ObjectReconciler<K: Send + Sync>: Send + Sync + 'static {
    /// Acts on an object that is there and not being deleted.
    fn reconcile(&self, object: Arc<K>, cx: &Context) -> impl Future<Output = Outcome> + Send;

    /// Takes back what [`reconcile`](Self::reconcile) did outside of what goes with the object by itself. Called while
    /// the object is being deleted and carries the finalizer.
    ///
    /// `Ok(Action::Done)` lets the object go, and so does `RequeueAfter` of no time, which is the same. After an error or
    /// any other `Ok(Action::RequeueAfter(..))` it stays, and this is called again.
    fn cleanup(&self, object: Arc<K>, cx: &Context) -> impl Future<Output = Outcome> + Send {
        let _ = (object, cx);
        async { Ok(Action::Done) }
    }
}

/// Adapts an [`ObjectReconciler`] to a controller that reconciles the objects of `store`.
///
/// With a finalizer, the controller needs the rights named at [`finalizer`](crate::client::finalizer), and a store that
/// an object does not leave by being changed: one that no longer has the store's labels is as good as gone to the
/// controller, and would keep its finalizer for ever.
///
/// With `None` no finalizer is written and `cleanup` is never called: for reconcilers whose every trace goes with the object by owner references.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mainstay::cache::Scope;
/// use mainstay::client::Finalizer;
/// use mainstay::controller::Controller;
/// use mainstay::manager::Manager;
/// use mainstay::reconcile::{self, Action, BoxError, Context, ObjectReconciler, Outcome};
///
/// struct Greeter;
///
/// impl ObjectReconciler<ConfigMap> for Greeter {
///     async fn reconcile(&self, map: Arc<ConfigMap>, _cx: &Context) -> Outcome {
///         println!("hello {:?}", map.metadata.name);
///         Ok(Action::Done)
///     }
///
///     async fn cleanup(&self, map: Arc<ConfigMap>, _cx: &Context) -> Outcome {
///         println!("goodbye {:?}", map.metadata.name);
///         Ok(Action::Done)
///     }
/// }
///
/// fn wire(manager: &Manager) -> Result<(), BoxError> {
///     let maps = manager.store::<ConfigMap>(Scope::all());
///     let greeter = reconcile::object(&maps, Finalizer::new("greeter.example.com/goodbye")?, Greeter);
///     manager.register(Controller::new("greeter").reconciles(&maps).reconciler(greeter))?;
///     Ok(())
/// }
/// ```
pub fn object<K, R>(
    store: &Store<K>,
    finalizer: impl Into<Option<Finalizer>>,
    reconciler: R,
) -> PerObject<K, R>
where
    K: DeserializeOwned + Send + Sync + 'static,
    R: ObjectReconciler<K>,
{
    PerObject { store: store.clone(), finalizer: finalizer.into(), reconciler }
}

/// An [`ObjectReconciler`] with all it takes to be a [`Reconciler`]. Made by [`object`].
pub struct PerObject<K, R> {
    store: Store<K>,
    /// `None`: objects go without asking us.
    finalizer: Option<Finalizer>,
    reconciler: R,
}

// === impl PerObject ===

impl<K, R> Reconciler<NamespacedName> for PerObject<K, R>
where
    K: DeserializeOwned + Send + Sync + 'static,
    R: ObjectReconciler<K>,
{
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        let Some(entry) = self.store.entry(request)? else { return Ok(Action::Done) };
        let meta = entry.meta();
        let held = self.finalizer.as_ref().map(|finalizer| (finalizer, finalizer.is_in(&meta.finalizers)));
        match (meta.deleting, held) {
            (true, Some((finalizer, true))) => self.let_go(finalizer, &entry, cx).await,
            (true, _) => Ok(Action::Done),
            (false, Some((finalizer, false))) => self.take_hold(finalizer, &entry, cx).await,
            (false, _) => self.reconciler.reconcile(entry.decode()?, cx).await,
        }
    }
}

impl<K, R> PerObject<K, R>
where
    K: DeserializeOwned + Send + Sync + 'static,
    R: ObjectReconciler<K>,
{
    /// Adds the finalizer and reconciles.
    async fn take_hold(&self, finalizer: &Finalizer, entry: &Entry<K>, cx: &Context) -> Outcome {
        let _decodes = entry.decode()?;
        let meta = entry.meta();
        match finalizer.add(cx, entry.view().kind(), &identity(meta)).await? {
            Edited::TooLate => return Ok(Action::Done),
            Edited::Changed => debug!(%finalizer, "finalizer added"),
            Edited::Already => {}
        }
        // The store shows our own write at once, so that a write guarded by its version is not refused. One that cannot
        // judge own writes shows the object as it was.
        let now = self.store.entry(&meta.request)?;
        let Some(now) = now.filter(|now| now.meta().uid == meta.uid && !now.meta().deleting) else {
            // Deleted while we wrote. If the finalizer holds it, that is the next run's matter.
            return Ok(Action::Done);
        };
        self.reconciler.reconcile(now.decode()?, cx).await
    }

    /// Cleans up and removes the finalizer.
    async fn let_go(&self, finalizer: &Finalizer, entry: &Entry<K>, cx: &Context) -> Outcome {
        let outcome = self.reconciler.cleanup(entry.decode()?, cx).await?;
        if outcome.requeue().is_none()
            && finalizer.remove(cx, entry.view().kind(), &identity(entry.meta())).await?
        {
            debug!(%finalizer, "finalizer removed");
        }
        Ok(outcome)
    }
}

impl<K, R> fmt::Debug for PerObject<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerObject")
            .field("store", &self.store)
            .field("finalizer", &self.finalizer)
            .finish_non_exhaustive()
    }
}

/// What [`Finalizer`] needs to know of a version of an object that is not known to be going.
fn identity(meta: &Meta) -> ObjectMeta {
    ObjectMeta {
        name: Some(meta.name().to_owned()),
        namespace: meta.namespace().map(str::to_owned),
        uid: Some(meta.uid.to_string()),
        resource_version: Some(meta.resource_version.to_string()),
        finalizers: Some(meta.finalizers.iter().map(ToString::to_string).collect()),
        ..ObjectMeta::default()
    }
}
