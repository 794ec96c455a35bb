//! Authorization by Roles and `ClusterRoles`, as in a kube-apiserver with `--authorization-mode=RBAC`.
//!
//! Members of `system:masters` may do everything. All other users have the rules of the roles that bindings
//! name them in, first those of `ClusterRoleBindings`, then those of the `RoleBindings` of the namespace. The
//! index of roles and bindings is built by the first request that needs it after a change, so a change takes
//! effect with the next request.

mod escalation;
mod first;
mod policy;
mod rule;

use std::sync::Arc;

use super::derived::Derived;
use super::request::User;
use super::{Api, Details, Shared, Status};
use crate::kinds::{Kind, quoted};
use policy::{Binding, Policy};

pub(super) use rule::{Rule, listed};

/// The API group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// The group whose members may do everything.
const MASTERS: &str = "system:masters";

/// The action that a user asks for.
#[derive(Clone, Copy, Debug)]
pub enum Action<'a> {
    /// A verb on a resource.
    Resource(Access<'a>),
    /// A method in lower case, and a path that is no resource.
    Path {
        /// The method.
        verb: &'a str,
        /// The decoded path.
        path: &'a str,
    },
}

/// A verb on a resource. A part that the request lacks is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Access<'a> {
    /// The verb, such as `list`.
    pub verb: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name of the resource.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: &'a str,
    /// The namespace; of a Namespace its own name.
    pub namespace: &'a str,
    /// The name of the object.
    pub name: &'a str,
}

/// The rules in force.
#[derive(Debug)]
pub(super) struct Rbac {
    enforced: bool,
    policy: Derived<Policy>,
}

/// The answer to an action.
#[derive(Debug)]
pub(super) enum Decision {
    /// Allowed without a look at the rules.
    Always,
    /// Allowed by a rule of the role of this binding, for the subject at this index.
    Granted(Arc<Binding>, usize),
    /// Not allowed; has the error of each binding whose role does not exist.
    Refused(Vec<String>),
}

// === impl Action ===

impl Action<'_> {
    /// Returns the 403 error of a user without the right to this action; `reason` may be empty.
    pub fn forbidden(&self, user: &User, reason: &str) -> Status {
        let user = quoted(&user.name);
        let (details, message) = match self {
            Self::Path { verb, path } => {
                (Details::default(), format!("User {user} cannot {verb} path {}", quoted(path)))
            }
            Self::Resource(access) => {
                let details = Details {
                    name: access.name.to_owned(),
                    group: access.group.to_owned(),
                    kind: access.resource.to_owned(),
                    ..Details::default()
                };
                (details, format!("User {user} cannot {}", access.described()))
            }
        };
        // As in the real server, nothing in the text can be taken for HTML.
        let mut message = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        if !reason.is_empty() {
            message = format!("{message}: {reason}");
        }
        let subject = match self {
            Self::Resource(access) if !access.resource.is_empty() => access.subject() + " is ",
            _ => String::new(),
        };
        Status::new(403, "Forbidden", format!("{subject}forbidden: {message}")).with_details(details)
    }
}

// === impl Access ===

impl<'a> Access<'a> {
    /// Returns the verb on an object of a kind; the name is empty for the collection.
    pub(super) fn to(verb: &'a str, kind: &'a Kind, namespace: &'a str, name: &'a str) -> Self {
        // The namespace of a request for a Namespace is that Namespace.
        let namespace = if kind.group.is_empty() && kind.kind == "Namespace" { name } else { namespace };
        let (group, resource) = (kind.group.as_str(), kind.plural.as_str());
        Self { verb, group, resource, namespace, name, ..Self::default() }
    }

    /// Returns the resource with its subresource, as rules name it.
    fn combined(&self) -> String {
        match self.subresource {
            "" => self.resource.to_owned(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }

    fn subject(&self) -> String {
        let qualified = match self.group {
            "" => self.resource.to_owned(),
            group => format!("{}.{group}", self.resource),
        };
        if self.name.is_empty() { qualified } else { format!("{qualified} {}", quoted(self.name)) }
    }

    fn described(&self) -> String {
        let scope = match self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quoted(namespace)),
        };
        let (resource, group) = (quoted(&self.combined()), quoted(self.group));
        format!("{} resource {resource} in API group {group} {scope}", self.verb)
    }
}

// === impl Rbac ===

impl Rbac {
    /// Returns an index that is built on its first use.
    pub(super) fn new(enforced: bool) -> Self {
        Self { enforced, policy: Derived::default() }
    }

    /// Reacts to a change of a role or binding.
    pub(super) fn note_change(&self, kind: &Kind) {
        if kind.group == GROUP {
            self.policy.changed();
        }
    }
}

// === impl Decision ===

impl Decision {
    pub(super) fn is_allowed(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }

    /// Returns the reason as in access reviews; may be empty.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Always => String::new(),
            Self::Granted(binding, subject) => format!("RBAC: allowed by {}", binding.described(*subject)),
            Self::Refused(errors) if errors.is_empty() => String::new(),
            Self::Refused(errors) => format!("RBAC: {}", joined(errors)),
        }
    }
}

// === impl User ===

impl User {
    /// Returns whether the user is in `system:masters`, whose members may do everything.
    pub(super) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

// === impl Api ===

impl Api {
    /// Checks that a user may do what a request asks for.
    ///
    /// # Errors
    /// 403 with the text of kube-apiserver.
    pub fn authorize(&self, user: &User, action: &Action<'_>) -> Result<(), Status> {
        let decision = self.decide(user, action);
        if decision.is_allowed() { Ok(()) } else { Err(action.forbidden(user, &decision.reason())) }
    }

    /// Decides about an action of a user.
    pub(super) fn decide(&self, user: &User, action: &Action<'_>) -> Decision {
        if !self.shared.rbac.enforced || user.is_master() {
            return Decision::Always;
        }
        let policy = self.policy();
        let (namespace, combined) = match action {
            Action::Resource(access) => (access.namespace, access.combined()),
            Action::Path { .. } => ("", String::new()),
        };
        let mut errors = Vec::new();
        for (binding, subject) in policy.bindings(user, namespace) {
            match policy.rules(&binding.role, namespace) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(action, &combined)) => {
                    return Decision::Granted(Arc::clone(binding), subject);
                }
                Ok(_) => {}
                Err(missing) => errors.push(missing.of_cache()),
            }
        }
        Decision::Refused(errors)
    }

    /// Returns the rules of a user at the cluster scope and in a namespace, and the errors of bindings whose
    /// role does not exist.
    pub(super) fn rules_of(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        if !self.shared.rbac.enforced {
            return (Rule::everything(), Vec::new());
        }
        let policy = self.policy();
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for (binding, _) in policy.bindings(user, namespace) {
            match policy.rules(&binding.role, namespace) {
                Ok(found) => rules.extend(found.iter().cloned()),
                Err(missing) => errors.push(missing.of_cache()),
            }
        }
        (rules, errors)
    }

    /// Returns the index of all roles and bindings, rebuilt if one of them has changed.
    fn policy(&self) -> Arc<Policy> {
        let Shared { rbac, store, .. } = &*self.shared;
        rbac.policy.newest(|previous| Policy::read(store, previous))
    }
}

/// Joins the texts of errors as Kubernetes' aggregate of errors does.
pub(super) fn joined(errors: &[String]) -> String {
    let mut texts: Vec<&str> = Vec::new();
    for error in errors {
        if !texts.contains(&error.as_str()) {
            texts.push(error);
        }
    }
    match texts.as_slice() {
        [text] => (*text).to_owned(),
        texts => format!("[{}]", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests;
