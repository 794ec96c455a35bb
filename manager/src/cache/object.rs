//! One version of one object: its bytes, its metadata and its compressed body.

pub(super) mod body;
pub(super) mod changes;
pub(super) mod delta;
pub(super) mod dictionary;
pub(super) mod json;
pub(super) mod meta;
pub(super) mod packing;
pub(super) mod raw;
pub(super) mod recent;
pub(super) mod scan;
pub(super) mod store_context;
pub(super) mod transform;
pub(super) mod view;

/// An object that carries this annotation with the value `true` is paused: its controller does not reconcile
/// it until the annotation is removed. Only its deletion is still handled.
pub const PAUSED_ANNOTATION: &str = "mainstay.dev/paused";
/// Each new value of this annotation enqueues the object for a reconcile at once.
pub const RECONCILE_AT_ANNOTATION: &str = "mainstay.dev/reconcile-at";

/// How much of each object a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// The whole object without `metadata.managedFields`.
    Full,
    /// Only `metadata`, without `managedFields`.
    Metadata,
}
