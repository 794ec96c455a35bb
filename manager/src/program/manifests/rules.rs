//! Roles and bindings as YAML, with the reason of each rule as a comment.

use std::fmt::Write as _;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::chart;
use super::template::{Values, template};
use crate::rbac::{Rights, Rule};

/// The comment above the role for the whole cluster.
const CLUSTER_ROLE: &str = "\
# The rights of the manager, from its code: `rbac --explain` names the lines.
";

/// Returns all roles of the manager, each with its binding to the `ServiceAccount`.
pub(super) fn roles(rights: &Rights, values: &Values) -> String {
    let namespaces = rights.scopes().into_iter().flatten().count();
    let document = |scope: Option<&str>| {
        let heading = if scope.is_none() { CLUSTER_ROLE } else { "" };
        // The namespace of a release may be one of the others.
        let own = if scope == Some(chart::NAMESPACE) && namespaces > 1 { "-own" } else { "" };
        let values = role(&format!("{}{own}", rights.name()), scope, in_scope(rights, scope), values);
        let (role, binding) = (template!("role.yaml"), template!("role_binding.yaml"));
        format!("{heading}{}---\n{}", values.fill(role), values.fill(binding))
    };
    rights.scopes().into_iter().map(document).collect::<Vec<_>>().join("---\n")
}

/// Returns the changes for a manager that serves only its own namespace: the patch of the role for the whole
/// cluster, empty if there is none, and roles with their bindings. `usual` are the rights of the manager that
/// serves all namespaces.
pub(super) fn namespaced(rights: &Rights, usual: &Rights, values: &Values) -> (String, String) {
    let wide: Vec<&Rule> = in_scope(rights, None).collect();
    let patch = if in_scope(usual, None).next().is_none() {
        String::new()
    } else if wide.is_empty() {
        values.fill(template!("no_cluster_role.yaml"))
    } else {
        role(rights.name(), None, wide.into_iter(), values).fill(template!("role.yaml"))
    };
    let name = format!("{}-namespaced", rights.name());
    let is_new = |rule: &&Rule| !usual.rules().contains(rule);
    let mut roles = Vec::new();
    for scope in rights.scopes().into_iter().flatten().map(Some) {
        let mut new = in_scope(rights, scope).filter(is_new).peekable();
        if new.peek().is_some() {
            let values = role(&name, scope, new, values);
            roles.extend(
                [template!("role.yaml"), template!("role_binding.yaml")].map(|text| values.fill(text)),
            );
        }
    }
    (patch, roles.join("---\n"))
}

fn in_scope<'a>(rights: &'a Rights, scope: Option<&str>) -> impl Iterator<Item = &'a Rule> {
    rights.rules().iter().filter(move |rule| rule.namespace.as_deref() == scope)
}

/// Returns the values for a role of these rules and for its binding.
fn role<'a>(
    name: &str,
    scope: Option<&str>,
    rules: impl Iterator<Item = &'a Rule>,
    values: &Values,
) -> Values {
    values
        .clone()
        .with("kind", if scope.is_some() { "Role" } else { "ClusterRole" })
        .with("role", name)
        .with("within", scope.map_or_else(String::new, |namespace| format!("namespace: {namespace}")))
        .with("rules", rules.map(rule).collect::<String>())
}

/// Returns a rule with its reasons.
fn rule(rule: &Rule) -> String {
    let mut text = String::new();
    for (verbs, grounds) in rule.grounds() {
        // Writing into a string never fails.
        let why = grounds.why.replace(char::is_control, " ").replace("{{", "{ {");
        writeln!(text, "# {}: {why}", verbs.join(", ")).ok();
    }
    let policy = rule.policy();
    let fields = [
        ("apiGroups", policy.api_groups),
        ("resources", policy.resources),
        ("resourceNames", policy.resource_names),
        ("nonResourceURLs", policy.non_resource_urls),
        ("verbs", Some(policy.verbs)),
    ];
    for (number, (field, values)) in fields.into_iter().filter(|(_, values)| values.is_some()).enumerate() {
        let values: Vec<String> = values.iter().flatten().map(|value| quoted(value)).collect();
        let dash = if number == 0 { "-" } else { " " };
        writeln!(text, "{dash} {field}: [{}]", values.join(", ")).ok();
    }
    text
}

/// Returns a text as a YAML scalar: in quotes, unless it is a plain word.
fn quoted(text: &str) -> String {
    let is_word = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-./".contains(c))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text);
    if is_word { text.to_owned() } else { format!("{text:?}") }
}

/// Returns the roles that give users their rights on the custom resources of the program, as parts of the
/// roles that every cluster has.
pub(super) fn user_roles(crds: &[CustomResourceDefinition], values: &Values) -> String {
    let (mut edit, mut view) = (String::new(), String::new());
    let add = |rules: &mut String, group: &str, resources: &str, verbs: &str| {
        write!(rules, "- apiGroups: [{group}]\n  resources: [{resources}]\n  verbs: [{verbs}]\n").ok();
    };
    for crd in crds {
        let (group, plural) = (&crd.spec.group, &crd.spec.names.plural);
        let mut subresources = crd.spec.versions.iter().filter_map(|version| version.subresources.as_ref());
        let has_scale = subresources.clone().any(|all| all.scale.is_some());
        add(&mut edit, group, plural, "get, list, watch, create, update, patch, delete, deletecollection");
        let mut seen = plural.clone();
        if subresources.any(|all| all.status.is_some()) {
            write!(seen, ", {plural}/status").ok();
        }
        if has_scale {
            add(&mut edit, group, &format!("{plural}/scale"), "get, update, patch");
            write!(seen, ", {plural}/scale").ok();
        }
        add(&mut view, group, &seen, "get, list, watch");
    }
    values.clone().with("edit", edit).with("view", view).fill(template!("user_roles.yaml"))
}
