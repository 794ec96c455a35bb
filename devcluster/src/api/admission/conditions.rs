//! Match conditions: expressions that all must hold before a webhook is called or a policy is evaluated.

use serde_json::Value;

use super::super::object;
use crate::kinds::custom::{Activation, Environment, Expression, Output};

/// The compiled match conditions of a webhook or policy.
#[derive(Debug)]
pub(super) struct Conditions {
    expressions: Vec<Result<Expression, String>>,
    /// Whether a failed evaluation refuses the write, rather than excludes it.
    fail: bool,
}

// === impl Conditions ===

impl Conditions {
    /// Compiles the field `matchConditions`.
    pub(super) fn new(conditions: &Value, params: bool, fail: bool) -> Self {
        let environment = Environment::new(params, true);
        let compiled =
            conditions.as_array().into_iter().flatten().map(|condition| {
                environment.compile(object::text(condition, "expression").trim(), Output::Bool)
            });
        Self { expressions: compiled.collect(), fail }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.expressions.is_empty()
    }

    /// Returns whether all conditions hold.
    ///
    /// # Errors
    /// Returns the texts of the evaluations that failed.
    pub(super) fn hold(&self, activation: &Activation) -> Result<bool, String> {
        let mut errors: Vec<String> = Vec::new();
        for expression in &self.expressions {
            let held = match expression {
                Ok(expression) => activation.holds(expression),
                Err(error) => Err(format!("compilation error: {error}")),
            };
            match held {
                Ok(false) => return Ok(false),
                Ok(true) => {}
                Err(error) if errors.contains(&error) => {}
                Err(error) => errors.push(error),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            _ if !self.fail => Ok(false),
            [error] => Err(error.clone()),
            errors => Err(format!("[{}]", errors.join(", "))),
        }
    }
}
