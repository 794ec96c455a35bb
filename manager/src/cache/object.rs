//! One version of one object: its bytes, its metadata and its compressed body.

mod body;
mod delta;
pub(super) mod dictionary;
pub(super) mod json;
pub(super) mod meta;
mod recent;
pub(super) mod scan;
mod transform;
mod view;

pub use body::Packing;
pub use delta::Delta;
pub use dictionary::Damage;
pub use meta::{Labels, Meta, Owner, ResourceVersion, Uid};
pub use transform::{HookFailure, TransformError};
pub use view::{ReadError, View};

pub(super) use body::Form;
pub(super) use delta::Origin;
pub(super) use dictionary::{Compressor, Dictionary, Packed, Samples};
pub(super) use json::Raw;
pub(super) use scan::{PartialIdentity, Scan, ScanError};
pub(super) use transform::{Transform, call_hook};
pub(super) use view::StoreContext;

/// An object that carries this annotation with the value `true` is paused: its controller does not reconcile
/// it until the annotation is removed. Only its deletion is still handled.
pub const PAUSED_ANNOTATION: &str = "mainstay.dev/paused";
/// Name of an annotation: each new value of it enqueues the object for a reconcile at once.
pub const RECONCILE_AT_ANNOTATION: &str = "mainstay.dev/reconcile-at";

/// The part of each object that a store holds: all of it or only the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// The store holds whole objects, without `metadata.managedFields`.
    Full,
    /// The store holds only the `metadata` of objects, without `managedFields`.
    Metadata,
}
