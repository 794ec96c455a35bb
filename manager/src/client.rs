//! How this process speaks to the API server, and what it must never say late.
//!
//! [`connect`] builds one connection stack per [`Role`]: reads, leader-only writes and the Lease never share a pool,
//! so neither a slow list nor a hidden retry can hold a write or a renewal. Above it stand the few verbs that
//! reconcilers write with: [`Applier`], [`Recorder`], [`Finalizer`] and the owner reference. What our own client wrote
//! is handed to a [`WriteObserver`], which `cache` implements.
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

mod body;
mod call;
mod recent;

pub use apply::{Applier, Authority};
pub use connect::{ConnectError, Connections, Fenced, Role};
pub use current::{Current, Live, live};
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

#[cfg(test)]
mod testserver;
