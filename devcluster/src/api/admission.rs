//! Admission hooks: they may change an object before validation, and refuse a write before or after it.

mod classes;
mod conditions;
mod configured;
mod namespaces;
mod params;
mod policies;
mod review;
mod webhooks;
mod write;

use std::fmt;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::call::Call;
use super::request::{Target, User};
use super::{Api, Status};
use crate::kinds::Kind;

pub(super) use classes::Classes;
pub(super) use configured::{Configured, GROUP};
pub(super) use namespaces::NamespaceLifecycle;
use write::Write;

/// The type of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An object is created.
    Create,
    /// An object is changed.
    Update,
    /// An object is deleted.
    Delete,
    /// A subresource such as `exec` is called, which no embedded server has.
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

// === impl Api ===

impl Api {
    /// Passes a write through what may change or refuse it before validation: the hooks, then the mutating
    /// webhooks.
    pub(super) async fn admit(
        &self,
        call: &mut Call,
        operation: Operation,
        old: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), Status> {
        for hook in &self.shared.admission {
            let warnings = hook.admit(&call.attributes(operation, old), object).await?;
            call.warnings.extend(warnings);
        }
        let Some(configured) = self.configured(call) else { return Ok(()) };
        let (shown, shown_old) = call.shown(object, old, false)?;
        let write = Write { call, operation, old: shown_old.as_ref() };
        let mut changed = shown.into_owned();
        let called = self.call_mutating(&configured, &write, &mut changed).await;
        call.warn(called)?;
        call.take(changed, object);
        Ok(())
    }

    /// Passes a write through what may refuse it after validation: the hooks, the policies, then the
    /// validating webhooks.
    pub(super) async fn validate(
        &self,
        call: &mut Call,
        operation: Operation,
        old: Option<&Value>,
        object: &Value,
    ) -> Result<(), Status> {
        for hook in &self.shared.admission {
            let warnings = hook.validate(&call.attributes(operation, old), object).await?;
            call.warnings.extend(warnings);
        }
        let Some(configured) = self.configured(call) else { return Ok(()) };
        let (shown, shown_old) = call.shown(object, old, true)?;
        let write = Write { call, operation, old: shown_old.as_ref() };
        let judged = match self.apply_policies(&configured, &write, &shown).await {
            Ok(mut warnings) => self.call_validating(&configured, &write, &shown).await.map(|more| {
                warnings.extend(more);
                warnings
            }),
            refused => refused,
        };
        call.warn(judged)
    }
}

// === impl Call ===

impl Call {
    /// Keeps the warnings of plugins, those of a refusal too.
    fn warn(&mut self, outcome: Result<Vec<String>, Status>) -> Result<(), Status> {
        match outcome {
            Ok(warnings) => self.warnings.extend(warnings),
            Err(status) => {
                self.warnings.extend_from_slice(&status.failure().warnings);
                return Err(status);
            }
        }
        Ok(())
    }
}
