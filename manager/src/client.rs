//! Connections to the API server, the fence that stops late writes, and the ways to write an object.
//!
//! [`connect`] builds one connection stack per [`Role`]: reads, leader-only writes and the Lease never share
//! a pool, so neither a slow list nor a hidden retry can delay a write or a renewal. Each successful write of
//! this process is passed to a [`WriteObserver`], which `cache` implements, together with its [`Writer`].
//!
//! # Which one do I want?
//!
//! Each of these takes an [`Authority`], such as a reconciler's context: its requests stop when the Lease is
//! lost.
//!
//! | to | use |
//! |---|---|
//! | own an object, or some of its fields | [`Applier::ensure`]: server-side apply, sent only if needed |
//! | change an object that others write too | [`Patcher::ensure`]: create, or patch of the version read |
//! | write a status | [`Applier::ensure_status`] or [`Patcher::ensure_status`] |
//! | change a condition in a status | [`set_condition`] |
//! | see the effect of a write in advance | `dry_run` and `dry_run_status` of both |
//! | delete an object together with its owner | [`controller_reference`] or [`set_controller_reference`] |
//! | clean up before a deletion | [`ObjectReconciler`](crate::reconcile::ObjectReconciler) or [`Finalizer`] |
//! | report what happened to an object | [`Recorder::event`], from `cx.events()` |
//! | read an object that no cache holds | [`live`] |
//! | send any other request, such as a delete | [`kube::Api`] over [`Authority::client`] |
//! | handle a failed write | [`WriteError`]; for any error [`is_conflict`], [`is_fenced`], [`refusal`] |
//!
//! Each write returns its [`Effect`]: created, changed, or unchanged. A reconciler returns a conflict as its
//! error; the key is retried without an error log. Warnings of the API server (`Warning` headers) are logged,
//! each text once.
//!
//! ```
//! use k8s_openapi::api::core::v1::{ConfigMap, Service};
//! use kube::Resource;
//! use mainstay::cache::Store;
//! use mainstay::client::{Applier, Effect, EventType, Patcher, controller_reference};
//! use mainstay::key::{Key as _, KindId, NamespacedName};
//! use mainstay::reconcile::{Context, ReconcileError};
//! use serde_json::json;
//!
//! async fn write(
//!     cx: &Context,
//!     service: &Service,
//!     maps: &Store<ConfigMap>,
//!     applier: &Applier<ConfigMap>,
//!     patcher: &Patcher<ConfigMap>,
//! ) -> Result<(), ReconcileError> {
//!     // Only this controller writes the card, and it is deleted together with the Service.
//!     let name = NamespacedName::namespaced("shop", "card");
//!     let owner = controller_reference(service.meta(), &KindId::of::<Service>(), &name)?;
//!     let card = json!({
//!         "metadata": {"name": name.name(), "namespace": name.namespace(), "ownerReferences": [owner]},
//!         "data": {"open": "yes"},
//!     });
//!     let current = maps.entry(&name)?;
//!     if let Effect::Created(_) = applier.ensure(cx, current.as_ref(), &card).await? {
//!         let service = service.object_ref(&());
//!         cx.events().event(&service, EventType::Normal, "Carded", "Card", "it has a card now");
//!     }
//!     // Others write the directory too, and no cache holds it.
//!     let shared = NamespacedName::namespaced("shop", "directory");
//!     let listed = patcher.ensure_live(cx, &shared, |directory| {
//!         directory.data.get_or_insert_default().insert("card".to_owned(), "yes".to_owned());
//!         Ok(())
//!     });
//!     if listed.await?.is_change() {
//!         tracing::info!("listed");
//!     }
//!     Ok(())
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let of = KindId::of::<ConfigMap>;
//! # let maps = Store::<ConfigMap>::from_objects([]);
//! # let service = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}});
//! # let cx = Context::for_test().with_store(&maps);
//! # let (applier, patcher) = (Applier::new(of(), "docs"), Patcher::new(of(), "docs"));
//! # let service = serde_json::from_value(service)?;
//! # write(&cx, &service, &maps, &applier, &patcher).await.map_err(|error| error.to_string())?;
//! # assert_eq!(maps.list(&mainstay::cache::Select::all())?.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//! 1. This module never sends a request twice: there is no retry layer, and hyper's own replay is off.
//! 2. No byte of [`Role::Writes`] leaves the process once its fence is closed, whichever buffer the byte
//!    waits in.
//! 3. The observer sees a write before the caller gets the response.

pub mod apply;
pub mod condition;
pub mod connect;
pub mod current;
pub mod effect;
pub mod error;
pub mod events;
pub mod finalizer;
pub mod infer;
pub mod observe;
pub mod owner;
pub mod patch;
pub mod writer;

mod body;
mod call;

pub(crate) use apply::APPLY;
pub use apply::{Applier, Authority};
pub use condition::set_condition;
pub use connect::{ConnectError, Connections, Fenced, Role};
pub use current::{Current, Extent, Live, live};
pub use effect::Effect;
pub use error::{WriteError, is_conflict, is_fenced, refusal};
pub use events::{EventType, EventWriter, Recorder};
pub use finalizer::{Finalizer, InvalidFinalizer};
pub use infer::infer;
pub use observe::{ResourcePath, WriteObserver};
pub use owner::{
    OwnerError, controller_of, controller_reference, has_owner_reference, remove_owner_reference,
    set_controller_reference, set_owner_reference,
};
pub use patch::Patcher;
pub use writer::Writer;

#[cfg(test)]
pub(crate) mod tests;
