//! Hooks that every write passes: they may change an object before it is checked, and refuse a write after it.

mod namespaces;

use std::fmt;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::Status;
use super::request::{Target, User};
use crate::kinds::Kind;

pub(super) use namespaces::NamespaceLifecycle;

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An object appears.
    Create,
    /// An object changes.
    Update,
    /// An object is deleted.
    Delete,
    /// A subresource such as `binding` or `eviction` is called.
    Connect,
}

/// A write, as hooks see it.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The kind of the write.
    pub operation: Operation,
    /// The kind of the object.
    pub kind: &'a Kind,
    /// The endpoint; the name may be empty while it is not generated.
    pub target: &'a Target,
    /// The object before the write.
    pub old: Option<&'a Value>,
    /// The sender.
    pub user: &'a User,
    /// Whether nothing is stored.
    pub dry_run: bool,
}

/// A hook. Both functions accept everything unless they are implemented.
pub trait Admission: Send + Sync + fmt::Debug {
    /// Changes the object of a write, or refuses it; returns warnings. Called before validation. `object` is null in
    /// deletions.
    fn admit<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<Vec<String>, Status>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Refuses a write, or returns warnings. Called after validation. `object` is null in deletions.
    fn validate<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: &'a Value,
    ) -> BoxFuture<'a, Result<Vec<String>, Status>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
