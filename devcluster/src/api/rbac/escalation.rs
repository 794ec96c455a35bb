//! Writes of roles and bindings: a user may grant only rights that this user has.
//!
//! The verb `escalate` on a role, and the verb `bind` on the role of a binding, lift that.

use serde_json::Value;

use super::super::call::Call;
use super::super::object;
use super::super::request::Verb;
use super::super::{Api, Status};
use super::policy::RoleRef;
use super::rule::{self, Rule};
use super::{Access, Action, GROUP, joined};
use crate::kinds::quoted;

// === impl Api ===

impl Api {
    /// Checks that the user of a write of a role or binding has the rights that it grants. `old` is `None`
    /// for a creation.
    pub(in super::super) fn check_grant(
        &self,
        call: &Call,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<(), Status> {
        let kind = &*call.served.kind;
        if kind.group != GROUP || !self.shared.rbac.enforced || call.user.is_master() {
            return Ok(());
        }
        if old.is_some_and(|old| changes_only_owners(old, new)) {
            return Ok(());
        }
        let name = object::meta(new, "name");
        let refused = |why: String| Err(Status::forbidden(kind, name, why));
        match kind.kind.as_str() {
            "Role" | "ClusterRole" => {
                // The path of a create has no name.
                let named = if call.verb == Verb::Create { "" } else { call.target.name.as_str() };
                if self.may(call, Access::to("escalate", kind, &call.target.namespace, named)) {
                    return Ok(());
                }
                if let Some(why) = self.lacking(call, &Rule::all_of(new)) {
                    return refused(why);
                }
                let aggregates = |role: &Value| {
                    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors");
                    selectors.and_then(Value::as_array).is_some_and(|selectors| !selectors.is_empty())
                };
                if (aggregates(new) || old.is_some_and(aggregates))
                    && self.lacking(call, &Rule::everything()).is_some()
                {
                    return refused(
                        "must have cluster-admin privileges to use the aggregationRule".to_owned(),
                    );
                }
            }
            _ => {
                let role = RoleRef::of(new);
                let namespace = call.target.namespace.as_str();
                let resource = match role.kind.as_str() {
                    "ClusterRole" => "clusterroles",
                    "Role" => "roles",
                    _ => "",
                };
                let (group, name) = (role.group.as_str(), role.name.as_str());
                let bind = Access { verb: "bind", group, resource, namespace, name, ..Access::default() };
                if !resource.is_empty() && self.may(call, bind) {
                    return Ok(());
                }
                let policy = self.policy();
                let rules = policy.rules(&role, namespace).map_err(|missing| missing.of_write(kind))?;
                if let Some(why) = self.lacking(call, rules) {
                    return refused(why);
                }
            }
        }
        Ok(())
    }

    fn may(&self, call: &Call, access: Access<'_>) -> bool {
        self.decide(&call.user, &Action::Resource(access)).is_allowed()
    }

    /// Returns the error about rules that the user of a call does not have; `None` if the user has them all.
    fn lacking(&self, call: &Call, wanted: &[Rule]) -> Option<String> {
        let (owned, errors) = self.rules_of(&call.user, &call.target.namespace);
        let missing = rule::missing(&owned, wanted);
        if missing.is_empty() {
            return None;
        }
        let (user, groups) = (quoted(&call.user.name), rule::listed(&call.user.groups));
        let missing = missing.join("\n");
        let errors = match errors.as_slice() {
            [] => String::new(),
            errors => format!("; resolution errors: [{}]", joined(errors)),
        };
        Some(format!(
            "user {user} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n\
             {missing}{errors}"
        ))
    }
}

/// Returns whether a change is only one that the garbage collector makes, so that it needs no rights.
fn changes_only_owners(old: &Value, new: &Value) -> bool {
    let mut new = new.clone();
    for field in ["ownerReferences", "finalizers", "managedFields"] {
        object::copy_meta(old, &mut new, field);
    }
    new == *old
}
