//! One version of one object: its bytes, its metadata, how its body is kept.

pub(super) mod body;
pub(super) mod changes;
pub(super) mod delta;
pub(super) mod dictionary;
pub(super) mod home;
pub(super) mod json;
pub(super) mod meta;
pub(super) mod packing;
pub(super) mod raw;
pub(super) mod recent;
pub(super) mod scan;
pub(super) mod transform;
pub(super) mod view;

/// On an object whose value is `true`: its controller leaves it alone until the annotation goes. Its deletion is still
/// seen to.
pub const PAUSED_ANNOTATION: &str = "mainstay.dev/paused";
/// Any new value asks for a reconcile at once.
pub const RECONCILE_AT_ANNOTATION: &str = "mainstay.dev/reconcile-at";

/// How much of each object a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// All but managedFields.
    Full,
    /// `metadata` without managedFields.
    Metadata,
}
