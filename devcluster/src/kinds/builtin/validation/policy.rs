//! Validation of disruption budgets.

use serde_json::Value;

use super::{Checks, internal, selectors, workloads};
use crate::kinds::FieldError;

pub(super) fn check_budget(checks: &mut Checks, spec: &Value) {
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let fields = [
            ("MinAvailable", "minAvailable"),
            ("Selector", "selector"),
            ("MaxUnavailable", "maxUnavailable"),
            ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy"),
        ];
        let shown = internal(spec, &fields, &Value::Null);
        let text = "minAvailable and maxUnavailable cannot be both set";
        checks.add(FieldError::invalid_shown("spec", &shown, text));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let path = format!("spec.{field}");
        workloads::share(checks, &path, &spec[field]);
        workloads::at_most_all(checks, &path, &spec[field]);
    }
    selectors::check(checks, "spec.selector", &spec["selector"]);
    if !spec["unhealthyPodEvictionPolicy"].is_null() {
        let supported = ["AlwaysAllow", "IfHealthyBudget"];
        checks.one_of("spec", spec, "unhealthyPodEvictionPolicy", &supported);
    }
}
