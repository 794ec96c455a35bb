//! Runs the shipped Argo CD health script on an object, with Lua as Argo CD does.

use mlua::{Lua, Table};
use serde_json::Value;

/// The Argo CD health script for WaitDeployments, in Lua, as it is shipped.
const SCRIPT: &str = include_str!("../../deploy/argocd/health.lua");

/// Returns the health of an object by the shipped script; its status is a word of Argo CD, such as
/// `Degraded`.
///
/// # Errors
///
/// Fails if the script fails.
pub fn health(object: &Value) -> mlua::Result<Health> {
    let lua = Lua::new();
    lua.load(format!("obj = {}", in_lua(object))).exec()?;
    let health: Table = lua.load(SCRIPT).eval()?;
    Ok(Health { status: health.get("status")?, message: health.get("message")? })
}

/// The health of an object, as an Argo CD health script returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The health status of the object, such as `Healthy`.
    pub status: String,
    /// The message that Argo CD shows beside the health status.
    pub message: Option<String>,
}

/// Returns JSON as Lua source. Strings are written as JSON: for the texts of these tests both quote alike.
fn in_lua(value: &Value) -> String {
    let all = |parts: Vec<String>| format!("{{{}}}", parts.join(", "));
    match value {
        Value::Null => "nil".to_owned(),
        Value::Array(items) => all(items.iter().map(in_lua).collect()),
        Value::Object(fields) => all(fields
            .iter()
            .map(|(key, value)| format!("[{}] = {}", Value::from(key.as_str()), in_lua(value)))
            .collect()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
