//! How kstatus, and with it Flux and Helm, sees an object of a kind it does not know.
//!
//! Follows cli-utils' `status.Compute` without its rules for built-in kinds:
//! <https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/status/core.go>.

use serde_json::Value;

/// The result, by its name in kstatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kstatus {
    /// Being deleted.
    Terminating,
    /// On its way to what is asked for, by itself.
    InProgress,
    /// It will not get there by itself.
    Failed,
    /// As asked for.
    Current,
}

/// Judges an object.
pub fn kstatus(object: &Value) -> Kstatus {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if !text(&object["metadata"]["deletionTimestamp"]).is_empty() {
        return Kstatus::Terminating;
    }
    // An object without a count of generations says nothing by it.
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
    // What says nothing at all counts as it should be.
    standard.or_else(ready).unwrap_or(Kstatus::Current)
}

#[cfg(test)]
mod tests;
