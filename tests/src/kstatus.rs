//! How kstatus, and so Flux and Helm, sees an object of a kind it has no rules for.
//!
//! Follows cli-utils' `status.Compute` without its rules for built-in kinds:
//! <https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/status/core.go>.

use serde_json::Value;

/// The status of an object, by its name in kstatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kstatus {
    /// The object is being deleted.
    Terminating,
    /// The object is still reconciling.
    InProgress,
    /// The object is stalled.
    Failed,
    /// The object is reconciled.
    Current,
}

/// Returns the status of an object as kstatus computes it for a kind without rules of its own.
pub fn kstatus(object: &Value) -> Kstatus {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if !text(&object["metadata"]["deletionTimestamp"]).is_empty() {
        return Kstatus::Terminating;
    }
    // An object without an observed generation is not compared.
    let observed = object["status"]["observedGeneration"].as_i64();
    if observed.is_some_and(|observed| Some(observed) != object["metadata"]["generation"].as_i64()) {
        return Kstatus::InProgress;
    }
    let conditions: Vec<_> = object["status"]["conditions"].as_array().into_iter().flatten().collect();
    let standard = conditions.iter().find_map(|condition| {
        match (condition["type"].as_str(), condition["status"].as_str()) {
            (Some("Reconciling"), Some("True")) => Some(Kstatus::InProgress),
            (Some("Stalled"), Some("True")) => Some(Kstatus::Failed),
            _ => None,
        }
    });
    let ready = || {
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        ready.map(|ready| if ready["status"] == "True" { Kstatus::Current } else { Kstatus::InProgress })
    };
    // An object without a standard condition is current.
    standard.or_else(ready).unwrap_or(Kstatus::Current)
}

#[cfg(test)]
mod tests;
