//! Properties of a resource check that follow from the check alone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::GroupVersionKind;
use mainstay::cache::{self, Select};
use mainstay_api::plan::{Objects, ResourceCheck, ResourceState};

use crate::selector;

/// Conditions of finished work, which is often deleted later: once one was True, a deletion does not undo it.
const FINAL_CONDITIONS: [&str; 4] = ["Complete", "Completed", "Succeeded", "SuccessCriteriaMet"];

pub(super) fn gvk(check: &ResourceCheck) -> GroupVersionKind {
    GroupVersionKind::gvk(&check.group, &check.version, &check.kind)
}

/// Returns the name of a kind as `probePolicy.resources` lists it, such as `Job.batch`.
pub(super) fn kind_name(kind: &GroupVersionKind) -> String {
    if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) }
}

pub(super) fn verb(check: &ResourceCheck) -> &'static str {
    if matches!(check.objects, Objects::Name(_)) { "get" } else { "list" }
}

/// Returns the selection of the objects with these labels in the namespace. Fails with the cause for an
/// invalid selector.
pub(super) fn select(namespace: &str, selector: &LabelSelector) -> Result<Select, String> {
    let labels = selector::text_of(selector).parse::<cache::LabelSelector>();
    Ok(Select::namespace(namespace).labels(labels.map_err(|error| error.to_string())?))
}

/// Returns whether the state of the check, once reached, still counts after the object was deleted.
pub(super) fn is_final(check: &ResourceCheck) -> bool {
    match (&check.objects, &check.state) {
        (Objects::Name(_), ResourceState::Condition { type_, status }) => {
            let is_final = |name: &&str| name.eq_ignore_ascii_case(type_);
            status.eq_ignore_ascii_case("True") && FINAL_CONDITIONS.iter().any(is_final)
        }
        _ => false,
    }
}
