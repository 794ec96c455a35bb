//! What the server knows of a kind: its schema, and the pure functions that a write passes through.
//!
//! Everything here is a function of its arguments: no clock, no storage, no HTTP. Objects are
//! [`serde_json::Value`]s. Built-in kinds and custom resources are described by the same [`Schema`], so there is
//! one implementation of defaults, pruning, patches and server-side apply.

pub mod apply;
pub mod builtin;
pub mod checks;
pub mod custom;
pub mod defaults;
mod errors;
mod go;
pub mod json;
mod kind;
pub mod metadata;
pub mod names;
mod number;
pub mod patch;
mod path;
pub mod prune;
mod schema;

pub use errors::{FieldError, Reason, quoted};
pub use kind::{Generation, Kind, LazySchema, Scale, SelectableField, Subresource};
pub use path::Path;
pub use schema::{Fields, Form, List, Merge, Schema};
