//! The names that nearly every controller uses: `use mainstay::prelude::*;`.

pub use std::process::ExitCode;

pub use crate::cache::{Scope, Select, Store};
pub use crate::client::{Effect, EventType};
pub use crate::controller::Controller;
pub use crate::key::{Key, KindId, NamespacedName};
pub use crate::manager::Manager;
#[cfg(feature = "program")]
pub use crate::program::Program;
pub use crate::reconcile::{
    Action, BoxError, Context, ObjectReconciler, Outcome, ReconcileError, Reconciler, with_finalizer,
    without_finalizer,
};
pub use crate::watch::{GenerationChanged, Predicate, map, map_view};
