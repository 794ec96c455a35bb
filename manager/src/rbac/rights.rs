//! The sum of all needs: one rule for each resource and namespace.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::core::ObjectMeta;

use super::{Need, Place, Within};

/// The verbs in the order in which roles list them.
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// The rights that one manager needs, as rules with their grounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Rights {
    name: String,
    rules: Vec<Rule>,
}

/// The verbs that a manager needs on one resource, in one namespace or in the whole cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The namespace of the rule; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// The resource or URL of the rule.
    pub target: Target,
    /// The needed verbs, each with the declarations that need it.
    pub verbs: BTreeMap<Verb, Vec<Grounds>>,
}

/// The subject of a rule: objects of a resource, or a URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Objects of one resource.
    Resource {
        /// The API group; empty for the core group.
        group: String,
        /// The plural of the kind, with the subresource behind a slash.
        resource: String,
        /// The name of the only object; `None` for every object.
        name: Option<String>,
    },
    /// A URL that names no resource, such as `/metrics`.
    Url(String),
}

/// A verb of a rule, ordered as roles list them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verb(usize, String);

/// A declaration that needs a verb of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grounds {
    /// The reason, such as `the cache lists and watches it`.
    pub why: String,
    /// The place that declares the need.
    pub place: Place,
    /// Whether ordinary work never uses the verb.
    pub seldom: bool,
}

// === impl Rights ===

impl Rights {
    /// Adds up needs for a manager of this name. `own` is the manager's namespace, and `served` are the
    /// namespaces to which its cache is restricted; empty for the whole cluster.
    pub fn new(name: &str, own: &str, served: &[String], needs: &[Need]) -> Self {
        let mut rules: BTreeMap<(Option<String>, Target), BTreeMap<Verb, Vec<Grounds>>> = BTreeMap::new();
        for need in needs {
            for namespace in namespaces(&need.access.within, own, served) {
                for target in targets(&need.access.rule) {
                    let verbs = rules.entry((namespace.clone(), target)).or_default();
                    for verb in &need.access.rule.verbs {
                        let grounds = verbs.entry(Verb::new(verb)).or_default();
                        let new = Grounds::of(need);
                        if !grounds.contains(&new) {
                            grounds.push(new);
                        }
                    }
                }
            }
        }
        let rules = rules.into_iter().map(|((namespace, target), verbs)| Rule { namespace, target, verbs });
        Self { name: name.to_owned(), rules: without_covered(rules.collect()) }
    }

    /// Returns the rules, those of the whole cluster first.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the rights without one of them, which is written as verb, resource and namespace, such as
    /// `patch configmaps in attic`.
    #[must_use]
    pub fn without(mut self, right: &str) -> Self {
        for rule in &mut self.rules {
            let place = rule.place();
            rule.verbs.retain(|verb, _| verb.right(&place) != right);
        }
        self.rules.retain(|rule| !rule.verbs.is_empty());
        self
    }

    /// Returns each right as text, one for each verb of each rule, such as `patch configmaps in attic`,
    /// without those that ordinary work never uses.
    pub fn ordinary(&self) -> Vec<String> {
        let texts = |rule: &Rule| {
            let place = rule.place();
            let ordinary = rule.verbs.iter().filter(|(_, grounds)| grounds.iter().any(|one| !one.seldom));
            ordinary.map(|(verb, _)| verb.right(&place)).collect::<Vec<_>>()
        };
        self.rules.iter().flat_map(texts).collect()
    }

    /// Returns the role that grants the rights in the whole cluster; `None` if no such rights are needed.
    pub fn cluster_role(&self) -> Option<ClusterRole> {
        let rules = self.policy(None);
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        (!rules.is_empty()).then(|| ClusterRole { metadata, rules: Some(rules), ..ClusterRole::default() })
    }

    /// Returns the roles that grant the rights in single namespaces, by namespace.
    pub fn roles(&self) -> Vec<Role> {
        let role = |namespace: &str| Role {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            rules: Some(self.policy(Some(namespace))),
        };
        self.scopes().into_iter().flatten().map(role).collect()
    }

    /// Returns the namespaces of the rules; `None`, which comes first, for the whole cluster.
    pub fn scopes(&self) -> Vec<Option<&str>> {
        let mut scopes: Vec<Option<&str>> = self.rules.iter().map(|rule| rule.namespace.as_deref()).collect();
        scopes.dedup();
        scopes
    }

    /// Returns the name of the roles, which is that of the program.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn policy(&self, namespace: Option<&str>) -> Vec<PolicyRule> {
        let rules = self.rules.iter().filter(|rule| rule.namespace.as_deref() == namespace);
        rules.map(Rule::policy).collect()
    }
}

// === impl Rule ===

impl Rule {
    /// Returns the names of the needed verbs, in the order of a role.
    pub fn verbs(&self) -> impl Iterator<Item = &str> {
        self.verbs.keys().map(Verb::as_str)
    }

    /// Returns the resource and the namespace of the rule as text, such as `configmaps in attic`.
    pub fn place(&self) -> String {
        let namespace = self.namespace.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
        format!("{}{namespace}", self.target)
    }

    /// Returns the rule as a role lists it.
    pub fn policy(&self) -> PolicyRule {
        let mut policy =
            PolicyRule { verbs: self.verbs().map(str::to_owned).collect(), ..PolicyRule::default() };
        match &self.target {
            Target::Resource { group, resource, name } => {
                policy.api_groups = Some(vec![group.clone()]);
                policy.resources = Some(vec![resource.clone()]);
                policy.resource_names = name.clone().map(|name| vec![name]);
            }
            Target::Url(url) => policy.non_resource_urls = Some(vec![url.clone()]),
        }
        policy
    }
}

// === impl Target ===

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource { group, resource, name } => {
                f.write_str(resource)?;
                if !group.is_empty() {
                    write!(f, " of {group}")?;
                }
                name.as_ref().map_or(Ok(()), |name| write!(f, " named {name}"))
            }
            Self::Url(url) => f.write_str(url),
        }
    }
}

// === impl Verb ===

impl Verb {
    fn new(name: &str) -> Self {
        Self(VERBS.iter().position(|verb| *verb == name).unwrap_or(VERBS.len()), name.to_owned())
    }

    /// Returns the right to this verb at the place of a rule as text, such as `patch configmaps in attic`.
    fn right(&self, place: &str) -> String {
        format!("{} {place}", self.as_str())
    }

    /// Returns the name of the verb, such as `list`.
    pub fn as_str(&self) -> &str {
        &self.1
    }
}

// === impl Grounds ===

impl Grounds {
    fn of(need: &Need) -> Self {
        Self { why: need.access.why.to_string(), place: need.place, seldom: need.access.seldom }
    }
}

/// Returns the namespaces of a part of the cluster; `None` stands for the whole cluster.
fn namespaces(within: &Within, own: &str, served: &[String]) -> Vec<Option<String>> {
    match within {
        Within::Cluster => vec![None],
        Within::Served if served.is_empty() => vec![None],
        Within::Served => served.iter().cloned().map(Some).collect(),
        Within::Namespace(namespace) => vec![Some(namespace.to_string())],
        Within::Own => vec![Some(own.to_owned())],
    }
}

/// Returns every target of a rule of a role.
fn targets(rule: &PolicyRule) -> Vec<Target> {
    let urls = rule.non_resource_urls.iter().flatten().cloned().map(Target::Url);
    let names: Vec<Option<String>> = match rule.resource_names.as_deref() {
        None | Some([]) => vec![None],
        Some(names) => names.iter().cloned().map(Some).collect(),
    };
    let mut targets: Vec<Target> = urls.collect();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            let target = |name: &Option<String>| Target::Resource {
                group: group.clone(),
                resource: resource.clone(),
                name: name.clone(),
            };
            targets.extend(names.iter().map(target));
        }
    }
    targets
}

/// Moves the verbs of each rule that a wider rule grants as well to the wider one, with their grounds.
fn without_covered(mut rules: Vec<Rule>) -> Vec<Rule> {
    for narrow in 0..rules.len() {
        for wide in 0..rules.len() {
            if wide == narrow || !covers(&rules[wide], &rules[narrow]) {
                continue;
            }
            let shared: Vec<Verb> = rules[narrow]
                .verbs
                .keys()
                .filter(|verb| rules[wide].verbs.contains_key(verb))
                .cloned()
                .collect();
            for verb in shared {
                let moved = rules[narrow].verbs.remove(&verb).unwrap_or_default();
                let grounds = rules[wide].verbs.entry(verb).or_default();
                for one in moved {
                    if !grounds.contains(&one) {
                        grounds.push(one);
                    }
                }
            }
        }
    }
    rules.retain(|rule| !rule.verbs.is_empty());
    rules
}

/// Returns whether a rule is about everything that the other one is about, and more.
fn covers(wide: &Rule, narrow: &Rule) -> bool {
    let (
        Target::Resource { group, resource, name },
        Target::Resource { group: other_group, resource: other_resource, name: other_name },
    ) = (&wide.target, &narrow.target)
    else {
        return false;
    };
    let same = group == other_group && resource == other_resource;
    let namespace = wide.namespace.is_none() || wide.namespace == narrow.namespace;
    same && namespace && (name.is_none() || name == other_name)
}
