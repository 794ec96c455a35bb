//! The access to a resource that a declaration asks for.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Resource;

use crate::key::{KindId, KindScope};

/// The access that code needs to a resource of the API server: a rule of a role, the part of the cluster in
/// which it is needed, and the reason. Declared with `Controller::needs` or `Manager::needs`.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mainstay::rbac::Access;
///
/// let access = Access::to::<ConfigMap>(["delete"]).in_namespace("attic").because("removes old copies");
/// # let _ = access;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an access is granted nothing until it is declared"]
pub struct Access {
    pub(super) rule: PolicyRule,
    pub(super) within: Within,
    pub(super) why: Cow<'static, str>,
    pub(super) seldom: bool,
}

/// The part of the cluster in which an access is needed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Within {
    /// The whole cluster, as for cluster-scoped kinds.
    Cluster,
    /// The namespaces that `cache.namespaces` of the configuration names; the whole cluster if it names none.
    Served,
    /// One namespace.
    Namespace(Arc<str>),
    /// The namespace of the manager itself, which is that of its Lease.
    Own,
}

// === impl Access ===

impl Access {
    /// Makes the access with these verbs to the objects of the kind `K`: in the namespaces that the manager
    /// serves, or in the whole cluster if the kind is cluster-scoped.
    pub fn to<K>(verbs: impl IntoIterator<Item = &'static str>) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: KindScope,
    {
        Self::of(&KindId::of::<K>(), "", verbs)
    }

    /// Makes the access with these verbs to a kind that may be known only at run time. `subresource` is the
    /// part after the slash, such as `status`; empty for the objects themselves.
    pub fn of(kind: &KindId, subresource: &str, verbs: impl IntoIterator<Item = &'static str>) -> Self {
        let slash = if subresource.is_empty() { "" } else { "/" };
        let rule = PolicyRule {
            api_groups: Some(vec![kind.group().to_owned()]),
            resources: Some(vec![format!("{}{slash}{subresource}", kind.plural())]),
            verbs: verbs.into_iter().map(str::to_owned).collect(),
            ..PolicyRule::default()
        };
        let within = if kind.is_namespaced() { Within::Served } else { Within::Cluster };
        Self { within, ..rule.into() }
    }

    /// Limits the access to one namespace.
    pub fn in_namespace(self, namespace: impl Into<Arc<str>>) -> Self {
        self.within(Within::Namespace(namespace.into()))
    }

    /// Limits the access to a part of the cluster.
    pub fn within(self, within: Within) -> Self {
        Self { within, ..self }
    }

    /// Limits the access to the object of this name. The verbs `create` and `deletecollection` cannot be
    /// limited.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.rule.resource_names = Some(vec![name.into()]);
        self
    }

    /// Sets the reason of the access, such as `deletes the copies of deleted originals`, for people who grant
    /// it.
    pub fn because(self, why: impl Into<Cow<'static, str>>) -> Self {
        Self { why: why.into(), ..self }
    }

    /// Marks an access that ordinary work does not use, such as one for a feature that is off by default: it
    /// is granted, but `run --preflight` passes without it, and so does a test that never uses it.
    pub fn seldom(self) -> Self {
        Self { seldom: true, ..self }
    }
}

impl From<PolicyRule> for Access {
    /// Makes the access of a rule of a role, in the whole cluster.
    fn from(rule: PolicyRule) -> Self {
        Self { rule, within: Within::Cluster, why: "declared in the code".into(), seldom: false }
    }
}
