//! The definition of a kind: its schema, and the pure functions that every write passes through.
//!
//! Everything here is a function of its arguments: no clock, no storage, no HTTP. Objects are
//! [`serde_json::Value`]s. The same [`Schema`] describes built-in kinds and custom resources, so defaults,
//! pruning, patches and server-side apply have one implementation each.

pub mod apply;
pub mod builtin;
pub mod checks;
pub(crate) mod conditions;
pub mod cron;
pub mod custom;
pub mod defaults;
mod errors;
pub(crate) mod go;
pub(crate) mod json;
mod kind;
pub mod metadata;
pub mod names;
mod number;
pub mod openapi;
pub mod patch;
mod path;
pub mod printers;
pub mod prune;
mod schema;

pub use errors::{FieldError, Reason, quoted};
pub use kind::{Generation, Kind, LazySchema, Scale, SelectableField, Subresource};
pub use path::Path;
pub use schema::{Fields, Form, List, Merge, Schema};
