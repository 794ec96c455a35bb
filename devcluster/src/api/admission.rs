//! Admission hooks: they may change an object before validation, and refuse a write before or after it.

mod classes;
mod namespaces;

use std::fmt;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::Status;
use super::request::{Target, User};
use crate::kinds::Kind;

pub(super) use classes::Classes;
pub(super) use namespaces::NamespaceLifecycle;

/// The type of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An object is created.
    Create,
    /// An object is changed.
    Update,
    /// An object is deleted.
    Delete,
    /// A subresource such as `binding` or `eviction` is called.
    Connect,
}

/// The attributes of a write, passed to hooks.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The type of the write.
    pub operation: Operation,
    /// The kind of the object.
    pub kind: &'a Kind,
    /// The endpoint; the name is empty before `generateName` is resolved.
    pub target: &'a Target,
    /// The object before the write; `None` for creations and connects.
    pub old: Option<&'a Value>,
    /// The sender.
    pub user: &'a User,
    /// Whether the write is a dry run, which stores no change.
    pub dry_run: bool,
}

/// An admission hook. The default implementations accept every write unchanged.
pub trait Admission: Send + Sync + fmt::Debug {
    /// Changes or refuses a write, and returns warnings. Called before validation. `object`
    /// is null in deletions.
    fn admit<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<Vec<String>, Status>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Accepts or refuses a write, and returns warnings. Called after validation. `object`
    /// is null in deletions.
    fn validate<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: &'a Value,
    ) -> BoxFuture<'a, Result<Vec<String>, Status>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
