//! How this process speaks to the API server, and what it must never say late.
//!
//! [`connect`] builds one connection stack per [`Role`]: reads, leader-only writes and the Lease never share a pool,
//! so neither a slow list nor a hidden retry can hold a write or a renewal. What our own client wrote is handed to a
//! [`WriteObserver`], which `cache` implements, with the [`Writer`] it is of.
//!
//! # Which one do I want?
//!
//! A reconciler's context is the [`Authority`] that all of these take: they stop when its Lease does.
//!
//! | to | use |
//! |---|---|
//! | make an object, or some fields of it, mine and as I say | [`Applier::ensure`]: server-side apply, and only if something is to change |
//! | change what depends on what is there, or what I share with others | [`Patcher::ensure`]: create-or-patch of the version I read |
//! | write a status | [`Applier::ensure_status`] or [`Patcher::ensure_status`] |
//! | know what a write would come to | `dry_run` and `dry_run_status` of both |
//! | have an object go with another | [`controller_reference`] in what is applied, [`set_controller_reference`] in an edit |
//! | clean up before an object goes | [`ObjectReconciler`](crate::reconcile::ObjectReconciler), or [`Finalizer`] by hand |
//! | tell people what happened | [`Recorder::event`], from `cx.events()` |
//! | read an object that no cache holds | [`live`] |
//! | do anything else, such as delete | [`kube::Api`] over [`Authority::client`] |
//! | know what went wrong | [`WriteError`]; [`is_conflict`], [`is_fenced`], [`refusal`] of any error around it |
//!
//! Each write answers with its [`Effect`]: created, changed, or unchanged. A conflict is an error to return: the key
//! is tried again, quietly. What the server warns of (`Warning` headers) is logged by itself, each text once.
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
//!     // Wholly ours, and gone with the Service.
//!     let name = NamespacedName::namespaced("shop", "card");
//!     let owner = controller_reference(service.meta(), &KindId::of::<Service>(), &name)?;
//!     let card = json!({
//!         "metadata": {"name": name.name(), "namespace": name.namespace(), "ownerReferences": [owner]},
//!         "data": {"open": "yes"},
//!     });
//!     let current = maps.entry(&name)?;
//!     if let Effect::Created(_) = applier.ensure(cx, current.as_ref(), &card).await? {
//!         cx.events().event(&service.object_ref(&()), EventType::Normal, "Carded", "Card", "it has a card now");
//!     }
//!     // Shared with others, and no cache holds it.
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
//! # write(&cx, &serde_json::from_value(service)?, &maps, &applier, &patcher).await.map_err(|error| error.to_string())?;
//! # assert_eq!(maps.list(&mainstay::cache::Select::all())?.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//! 1. No request is ever sent twice by this room: there is no retry layer, and hyper's own replay is off.
//! 2. Nothing of [`Role::Writes`] leaves once its fence is closed, whatever buffer it waits in.
//! 3. An observer has seen a write before its caller has.

pub mod apply;
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

pub use apply::{Applier, Authority};
pub use connect::{ConnectError, Connections, Fenced, Role};
pub use current::{Current, Extent, Live, live};
pub use effect::Effect;
pub use error::{WriteError, is_conflict, is_fenced, refusal};
pub use events::{EventType, EventWriter, Recorder};
pub use finalizer::{Finalizer, InvalidFinalizer};
pub use infer::infer;
pub use observe::{ResourcePath, Uncovered, WriteObserver};
pub use owner::{
    OwnerError, controller_of, controller_reference, has_owner_reference, remove_owner_reference,
    set_controller_reference, set_owner_reference,
};
pub use patch::Patcher;
pub use writer::Writer;

#[cfg(test)]
pub(crate) mod tests;
