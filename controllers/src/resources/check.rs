//! What can be said of a resource check by itself.

use kube::core::GroupVersionKind;
use mainstay_api::plan::{ResourceCheck, ResourceState, Which};

/// What is over for good and often removed once it is: that it is gone says nothing against it.
const FINAL_CONDITIONS: [&str; 4] = ["Complete", "Completed", "Succeeded", "SuccessCriteriaMet"];

pub(super) fn gvk(check: &ResourceCheck) -> GroupVersionKind {
    GroupVersionKind::gvk(&check.group, &check.version, &check.kind)
}

/// As the configuration writes it.
pub(super) fn kind_name(kind: &GroupVersionKind) -> String {
    if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) }
}

pub(super) fn verb(check: &ResourceCheck) -> &'static str {
    if matches!(check.which, Which::Name(_)) { "get" } else { "list" }
}

/// Whether what the check waits for does not pass again by itself.
pub(super) fn is_final(check: &ResourceCheck) -> bool {
    let is_job = check.group == "batch" && check.kind == "Job";
    let by_condition = match &check.state {
        ResourceState::Condition { type_, status } => {
            let is_final = |name: &&str| name.eq_ignore_ascii_case(type_);
            status.eq_ignore_ascii_case("True") && FINAL_CONDITIONS.iter().any(is_final)
        }
        ResourceState::Expression(_) => false,
    };
    matches!(check.which, Which::Name(_)) && (is_job || by_condition)
}
