//! A reconciler that is given the object itself, and cleans up before the object goes.
//!
//! [`with_finalizer`] makes a [`Reconciler`] of an [`ObjectReconciler`]. One run, by the state of the object:
//!
//! | the object | the run |
//! |---|---|
//! | does not exist | ends at once |
//! | exists, with the finalizer | calls `reconcile` |
//! | exists, without the finalizer | adds the finalizer, then calls `reconcile` |
//! | is being deleted, with the finalizer | calls `cleanup`; after `Ok(Action::Done)` removes the finalizer |
//! | is being deleted, without the finalizer | ends at once |
//! | is left out by [`ObjectAdapter::when`], with the finalizer | as for an object that is being deleted |
//! | is left out by [`ObjectAdapter::when`], without the finalizer | ends at once |
//!
//! Differs from kube's `finalizer`, which ends the run after it has added the finalizer and waits for the
//! watch event.
//!
//! # Invariants
//! 1. `reconcile` runs only on an object that has the finalizer, so everything it does is cleaned up.
//! 2. An object that cannot be decoded gets no finalizer, because `cleanup` could not run to remove it.
//! 3. The finalizer is removed only after a `cleanup` that returned `Ok(Action::Done)`.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use tracing::debug;

use crate::cache::{Entry, Meta, ReadError, Store};
use crate::client::finalizer::Edited;
use crate::client::{Finalizer, InvalidFinalizer};
use crate::key::{KindId, NamespacedName};
use crate::rbac::{Access, Need, Place};

use super::{Action, BoxError, Context, Outcome, ReconcileError, Reconciler};

/// A reconciler that brings the cluster closer to the spec of one object, and cleans up before the object is
/// deleted.
///
/// It has the shape that kube-rs users know. Both methods must be safe to repeat. See [`with_finalizer`].
pub trait ObjectReconciler<K: Send + Sync>: Send + Sync + 'static {
    /// Reconciles an object that exists and is not being deleted.
    fn reconcile(&self, object: Arc<K>, cx: &Context) -> impl Future<Output = Outcome> + Send;

    /// Undoes the effects of [`reconcile`](Self::reconcile), except for children, which the garbage collector
    /// deletes. Called while the object is being deleted and has the finalizer, and for one that
    /// [`ObjectAdapter::when`] no longer admits.
    ///
    /// After `Ok(Action::Done)`, and after `RequeueAfter` of zero, which is the same, the finalizer is
    /// removed. After an error or any other `RequeueAfter` the object keeps it, and `cleanup` is called
    /// again.
    fn cleanup(&self, object: Arc<K>, cx: &Context) -> impl Future<Output = Outcome> + Send {
        let _ = (object, cx);
        async { Ok(Action::Done) }
    }
}

/// Adapts an [`ObjectReconciler`] to a controller that reconciles the objects of `store`, and holds each
/// object back by a finalizer, such as `greeter.example.com/goodbye`, until `cleanup` has run.
///
/// The controller needs the rights named at [`finalizer`](crate::client::finalizer). The store must not
/// select by labels or fields: an object that leaves the selection would keep its finalizer. Select with
/// [`ObjectAdapter::when`] instead.
///
/// `Manager::register` refuses a finalizer that has no valid name, and a store of another kind than the
/// controller reconciles.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mainstay::prelude::*;
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
///     let greeter = with_finalizer(&maps, "greeter.example.com/goodbye", Greeter)
///         .when(|map: &ConfigMap| map.data.is_some());
///     manager.register(Controller::new("greeter").reconciles(&maps).reconciler(greeter))?;
///     Ok(())
/// }
/// ```
#[track_caller]
pub fn with_finalizer<K, R>(store: &Store<K>, finalizer: &str, reconciler: R) -> ObjectAdapter<K, R>
where
    R: ObjectReconciler<K>,
    K: Send + Sync,
{
    let (finalizer, made_at) = (Some(Finalizer::new(finalizer)), Place::caller());
    ObjectAdapter { finalizer, made_at, ..without_finalizer(store, reconciler) }
}

/// Adapts an [`ObjectReconciler`] to a controller as [`with_finalizer`] does, for a reconciler that needs no
/// cleanup, because the garbage collector deletes all that it creates by owner references: no finalizer is
/// written, and `cleanup` is never called.
#[track_caller]
pub fn without_finalizer<K, R>(store: &Store<K>, reconciler: R) -> ObjectAdapter<K, R>
where
    R: ObjectReconciler<K>,
    K: Send + Sync,
{
    ObjectAdapter {
        store: store.clone(),
        finalizer: None,
        admits: None,
        made_at: Place::caller(),
        reconciler,
    }
}

/// An [`ObjectReconciler`] with store and finalizer, which makes it a [`Reconciler`]. Made by
/// [`with_finalizer`] and [`without_finalizer`].
#[derive(derive_more::Debug)]
#[debug("ObjectAdapter {{ store: {:?}, .. }}", self.store)]
pub struct ObjectAdapter<K, R> {
    store: Store<K>,
    /// The finalizer that holds objects back until `cleanup`; `None` if objects are deleted without a
    /// cleanup. An invalid name is an error of the wiring.
    finalizer: Option<Result<Finalizer, InvalidFinalizer>>,
    /// Returns whether an object is to be reconciled; `None` if every object is.
    admits: Option<Admits<K>>,
    /// The line of code that made the adapter.
    made_at: Place,
    reconciler: R,
}

type Admits<K> = Box<dyn Fn(&K) -> bool + Send + Sync>;

// === impl ObjectAdapter ===

impl<K, R> ObjectAdapter<K, R> {
    /// Limits the reconciler to the objects that `admits` returns true for. An object that was reconciled
    /// before and is no longer admitted is cleaned up and loses the finalizer.
    #[must_use]
    pub fn when(self, admits: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        Self { admits: Some(Box::new(admits)), ..self }
    }
}

impl<K, R> Reconciler<NamespacedName> for ObjectAdapter<K, R>
where
    K: DeserializeOwned + Send + Sync + 'static,
    R: ObjectReconciler<K>,
{
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        let finalizer = match &self.finalizer {
            Some(Err(invalid)) => return Err(ReconcileError::terminal(invalid.clone())),
            Some(Ok(finalizer)) => Some(finalizer),
            None => None,
        };
        let Some(entry) = self.store.entry(request)? else { return Ok(Action::Done) };
        let meta = entry.meta();
        let held = finalizer.map(|finalizer| (finalizer, finalizer.is_in(&meta.finalizers)));
        let wanted = !meta.deleting && self.admits(&entry)?;
        match (wanted, held) {
            (false, Some((finalizer, true))) => self.let_go(finalizer, &entry, cx).await,
            (false, _) => Ok(Action::Done),
            (true, Some((finalizer, false))) => self.take_hold(finalizer, &entry, cx).await,
            (true, _) => self.reconciler.reconcile(entry.decode()?, cx).await,
        }
    }

    fn check(&self, primary: Option<&KindId>) -> Result<(), BoxError> {
        let kind = self.store.untyped().kind();
        match (&self.finalizer, primary) {
            (Some(Err(invalid)), _) => Err(invalid.clone().into()),
            (_, Some(primary)) if primary != kind => {
                Err(format!("it reads {kind}, and the controller reconciles {primary}; give both one store")
                    .into())
            }
            _ => Ok(()),
        }
    }

    fn needs(&self) -> Vec<Need> {
        let store = self.store.untyped();
        let needs = |finalizer: &Finalizer| {
            let of = |verb, why| {
                let access = Access::of(store.kind(), "", [verb]).within(store.within());
                access.because(format!("{why} the finalizer {finalizer}"))
            };
            let after_conflict = of("get", "reads the object after a conflict about").seldom();
            [of("patch", "writes"), after_conflict].map(|access| Need { access, place: self.made_at })
        };
        self.finalizer.iter().flatten().flat_map(needs).collect()
    }
}

impl<K, R> ObjectAdapter<K, R>
where
    K: DeserializeOwned + Send + Sync + 'static,
    R: ObjectReconciler<K>,
{
    fn admits(&self, entry: &Entry<K>) -> Result<bool, ReadError> {
        let Some(admits) = &self.admits else { return Ok(true) };
        Ok(admits(&*entry.decode()?))
    }

    /// Adds the finalizer to an object, then reconciles the object.
    async fn take_hold(&self, finalizer: &Finalizer, entry: &Entry<K>, cx: &Context) -> Outcome {
        let _decodes = entry.decode()?;
        let meta = entry.meta();
        match finalizer.add(cx, entry.view().kind(), &identity(meta)).await? {
            Edited::TooLate => return Ok(Action::Done),
            Edited::Changed => debug!(%finalizer, "finalizer added"),
            Edited::Already => {}
        }
        // The store shows the own write at once, so that a write guarded by its version is not refused. A
        // store that cannot judge own writes shows the object as it was.
        let now = self.store.entry(&meta.request)?;
        let Some(now) = now.filter(|now| now.meta().uid == meta.uid && !now.meta().deleting) else {
            // Deleted meanwhile: the next run cleans up, if the finalizer holds the object back.
            return Ok(Action::Done);
        };
        self.reconciler.reconcile(now.decode()?, cx).await
    }

    /// Cleans up for an object, then removes the finalizer from it unless `cleanup` is to be called again.
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

/// Returns the metadata that [`Finalizer`] needs to change an object; without the deletion timestamp.
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
