//! The index of roles and bindings.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::super::object;
use super::super::request::User;
use super::rule::Rule;
use super::{GROUP, Status};
use crate::kinds::{Kind, quoted};
use crate::store::{At, GroupResource, Key, Store, Version};

/// All roles and bindings at one time.
#[derive(Debug, Default)]
pub(super) struct Policy {
    cluster_roles: HashMap<Key, Parsed<[Rule]>>,
    roles: HashMap<Key, Parsed<[Rule]>>,
    cluster_bindings: HashMap<Key, Parsed<Binding>>,
    bindings: HashMap<Key, Parsed<Binding>>,
    /// The bindings by subject, at the cluster scope under the empty namespace.
    subjects: HashMap<String, Subjects>,
}

/// A role or binding, and the revision that it was read at.
#[derive(Debug)]
struct Parsed<T: ?Sized> {
    revision: u64,
    value: Arc<T>,
}

/// A binding of a role to subjects.
#[derive(Debug)]
pub(in super::super) struct Binding {
    key: Key,
    pub(super) role: RoleRef,
    subjects: Vec<Subject>,
}

/// The role of a binding.
#[derive(Clone, Debug)]
pub(super) struct RoleRef {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) name: String,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    name: String,
    /// The namespace of a ServiceAccount; empty if the binding has none either.
    namespace: String,
}

/// The bindings of one scope by their subjects.
#[derive(Debug, Default)]
struct Subjects {
    /// In order of their names.
    bindings: Vec<Arc<Binding>>,
    /// The indices of bindings and of their subjects, by the name of the user.
    users: HashMap<String, Vec<(usize, usize)>>,
    /// As `users`, by the name of the group.
    groups: HashMap<String, Vec<(usize, usize)>>,
}

/// A role that a binding names and that does not exist, or whose kind is unknown.
#[derive(Debug)]
pub(super) struct Missing<'a>(&'a RoleRef);

// === impl Policy ===

impl Policy {
    /// Reads all roles and bindings; unchanged ones are taken from `previous`.
    pub(super) fn read(store: &Store, previous: &Self) -> Self {
        let rules = |version: &Version| Arc::from(Rule::all_of(version.value()));
        let binding = |version: &Version| Arc::new(Binding::read(version));
        let mut policy = Self {
            cluster_roles: parsed(store, "clusterroles", &previous.cluster_roles, rules),
            roles: parsed(store, "roles", &previous.roles, rules),
            cluster_bindings: parsed(store, "clusterrolebindings", &previous.cluster_bindings, binding),
            bindings: parsed(store, "rolebindings", &previous.bindings, binding),
            subjects: HashMap::new(),
        };
        let mut all: Vec<_> = policy.cluster_bindings.values().chain(policy.bindings.values()).collect();
        all.sort_by(|a, b| a.value.key.cmp(&b.value.key));
        for binding in all {
            let namespace = binding.value.key.namespace().to_owned();
            policy.subjects.entry(namespace).or_default().add(&binding.value);
        }
        policy
    }

    /// Returns the bindings of a user: those of the cluster, then those of the namespace, each with the index
    /// of the first subject that is the user.
    pub(super) fn bindings<'a>(
        &'a self,
        user: &User,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a Arc<Binding>, usize)> {
        let of_namespace = if namespace.is_empty() { None } else { self.subjects.get(namespace) };
        let scopes = self.subjects.get("").into_iter().chain(of_namespace);
        scopes.flat_map(|scope| scope.of(user)).collect::<Vec<_>>().into_iter()
    }

    /// Returns the rules of a role in the namespace of its binding.
    pub(super) fn rules<'a>(&self, role: &'a RoleRef, namespace: &str) -> Result<&[Rule], Missing<'a>> {
        let found = match role.kind.as_str() {
            "Role" => self.roles.get(&Key::new(namespace, &role.name)),
            "ClusterRole" => self.cluster_roles.get(&Key::new("", &role.name)),
            _ => None,
        };
        found.map(|rules| &*rules.value).ok_or(Missing(role))
    }
}

fn parsed<T: ?Sized>(
    store: &Store,
    plural: &str,
    previous: &HashMap<Key, Parsed<T>>,
    read: impl Fn(&Version) -> Arc<T>,
) -> HashMap<Key, Parsed<T>> {
    let listed = store.list(&GroupResource::new(GROUP, plural), None, None, At::Newest);
    // The newest state can always be read.
    let items = listed.map(|listing| listing.items).unwrap_or_default();
    let entry = |version: Arc<Version>| {
        let revision = version.revision();
        let kept = previous.get(version.key()).filter(|known| known.revision == revision);
        let value = kept.map_or_else(|| read(&version), |known| Arc::clone(&known.value));
        (version.key().clone(), Parsed { revision, value })
    };
    items.into_iter().map(entry).collect()
}

// === impl Binding ===

impl Binding {
    fn read(version: &Version) -> Self {
        let (key, value) = (version.key().clone(), version.value());
        let subjects = value.get("subjects").and_then(Value::as_array).into_iter().flatten();
        let subjects = subjects.map(|subject| Subject::read(subject, key.namespace())).collect();
        Self { role: RoleRef::of(value), subjects, key }
    }

    /// Returns the binding of a subject in the form of an access review's reason.
    pub(super) fn described(&self, subject: usize) -> String {
        let (name, namespace) = (self.key.name(), self.key.namespace());
        let binding = match namespace {
            "" => format!("ClusterRoleBinding {}", quoted(name)),
            namespace => format!("RoleBinding {}", quoted(&format!("{name}/{namespace}"))),
        };
        let subject = self.subjects.get(subject).map(Subject::described).unwrap_or_default();
        format!("{binding} of {} {} to {subject}", self.role.kind, quoted(&self.role.name))
    }
}

// === impl RoleRef ===

impl RoleRef {
    /// Reads the role of a binding.
    pub(super) fn of(binding: &Value) -> Self {
        let role = binding.get("roleRef").unwrap_or(&Value::Null);
        let text = |field| object::text(role, field).to_owned();
        Self { group: text("apiGroup"), kind: text("kind"), name: text("name") }
    }
}

// === impl Subject ===

impl Subject {
    fn read(subject: &Value, namespace: &str) -> Self {
        let text = |field| object::text(subject, field).to_owned();
        let own = text("namespace");
        let namespace = if own.is_empty() { namespace.to_owned() } else { own };
        Self { kind: text("kind"), name: text("name"), namespace }
    }

    fn described(&self) -> String {
        match self.kind.as_str() {
            "ServiceAccount" => {
                format!("{} {}", self.kind, quoted(&format!("{}/{}", self.name, self.namespace)))
            }
            kind => format!("{kind} {}", quoted(&self.name)),
        }
    }
}

// === impl Subjects ===

impl Subjects {
    fn add(&mut self, binding: &Arc<Binding>) {
        let place = self.bindings.len();
        self.bindings.push(Arc::clone(binding));
        for (index, subject) in binding.subjects.iter().enumerate() {
            let entries = match subject.kind.as_str() {
                "User" => self.users.entry(subject.name.clone()),
                "Group" => self.groups.entry(subject.name.clone()),
                "ServiceAccount" if !subject.namespace.is_empty() => {
                    self.users.entry(format!("system:serviceaccount:{}:{}", subject.namespace, subject.name))
                }
                _ => continue,
            };
            entries.or_default().push((place, index));
        }
    }

    fn of(&self, user: &User) -> impl Iterator<Item = (&Arc<Binding>, usize)> {
        let named = self.users.get(&user.name).into_iter();
        let mut found: Vec<(usize, usize)> = named
            .chain(user.groups.iter().filter_map(|group| self.groups.get(group)))
            .flatten()
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup_by_key(|(binding, _)| *binding);
        found.into_iter().filter_map(|(binding, subject)| Some((self.bindings.get(binding)?, subject)))
    }
}

// === impl Missing ===

impl Missing<'_> {
    /// Returns the text of a decision, which the real server makes from its cache.
    pub(super) fn of_cache(&self) -> String {
        let Self(role) = self;
        match role.kind.as_str() {
            "Role" | "ClusterRole" => {
                format!("{}.{GROUP} {} not found", role.kind.to_ascii_lowercase(), quoted(&role.name))
            }
            kind => format!("unsupported role reference kind: {}", quoted(kind)),
        }
    }

    /// Returns the error of a write of a binding.
    pub(super) fn of_write(&self, binding: &Kind) -> Status {
        let Self(role) = self;
        match role.kind.as_str() {
            "Role" if !binding.namespaced => Status::bad_request("Namespace parameter required."),
            // The real server names the resource of the request.
            "Role" | "ClusterRole" => Status::not_found(binding, &role.name),
            kind => Status::unclassified(format!("unsupported role reference kind: {}", quoted(kind))),
        }
    }
}
