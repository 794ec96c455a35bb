//! What Argo CD makes of an object: our health script for it, in the Lua that Argo CD runs.

use mlua::{Lua, Table};
use serde_json::Value;

/// As shipped.
const SCRIPT: &str = include_str!("../../deploy/argocd/health.lua");

/// Judges an object; the status is one of Argo CD's words, such as `Degraded`.
///
/// # Errors
///
/// That of the script.
pub fn health(object: &Value) -> mlua::Result<Health> {
    let lua = Lua::new();
    lua.load(format!("obj = {}", in_lua(object))).exec()?;
    let health: Table = lua.load(SCRIPT).eval()?;
    Ok(Health { status: health.get("status")?, message: health.get("message")? })
}

/// As a script returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The word.
    pub status: String,
    /// What it is shown with.
    pub message: Option<String>,
}

/// Writes JSON as Lua; both quote alike what stands in an object of a test.
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
