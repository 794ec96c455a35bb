use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::json;

use super::*;

fn need(access: impl Into<Access>) -> Need {
    Need { access: access.into(), place: Place::Setting("a.key") }
}

fn rights(served: &[&str], accesses: impl IntoIterator<Item = Access>) -> Rights {
    let needs: Vec<Need> = accesses.into_iter().map(need).collect();
    let served: Vec<String> = served.iter().map(|name| (*name).to_owned()).collect();
    Rights::new("shop", "shop-system", &served, &needs)
}

/// Returns each rule as one line, without its grounds.
fn lines(rights: &Rights) -> Vec<String> {
    let line = |rule: &Rule| rule.to_string().split(": ").next().unwrap_or_default().to_owned();
    rights.rules().iter().map(line).collect()
}

#[test]
fn verbs_of_one_resource_are_one_rule_in_the_order_of_roles() {
    let rights = rights(
        &[],
        [
            Access::to::<Deployment>(["patch", "create"]),
            Access::to::<Deployment>(["watch", "list"]),
            Access::to::<ConfigMap>(["get"]),
        ],
    );
    assert_eq!(lines(&rights), ["get configmaps", "list,watch,create,patch deployments of apps"]);
    assert_eq!(
        json!(rights.cluster_role().unwrap())["rules"][1],
        json!({
            "apiGroups": ["apps"], "resources": ["deployments"],
            "verbs": ["list", "watch", "create", "patch"],
        })
    );
    assert_eq!(rights.roles(), []);
}

#[test]
fn a_right_is_asked_for_in_the_smallest_scope() {
    let accesses = || {
        [
            Access::to::<ConfigMap>(["list"]),
            Access::to::<Namespace>(["get"]),
            Access::to::<ConfigMap>(["delete"]).in_namespace("attic"),
            Access::to::<ConfigMap>(["get"]).within(Within::Own).named("settings"),
        ]
    };
    assert_eq!(
        lines(&rights(&[], accesses())),
        [
            "list configmaps",
            "get namespaces",
            "delete configmaps in attic",
            "get configmaps named settings in shop-system",
        ]
    );
    let two = rights(&["one", "two"], accesses());
    assert_eq!(
        lines(&two),
        [
            "get namespaces",
            "delete configmaps in attic",
            "list configmaps in one",
            "get configmaps named settings in shop-system",
            "list configmaps in two",
        ]
    );
    let namespaces: Vec<_> = two.roles().into_iter().filter_map(|role| role.metadata.namespace).collect();
    assert_eq!(namespaces, ["attic", "one", "shop-system", "two"]);
}

#[test]
fn a_narrow_rule_leaves_out_what_a_wider_one_grants_and_its_grounds_move() {
    let both = rights(
        &[],
        [
            Access::to::<ConfigMap>(["get", "list"]).because("reads all"),
            Access::to::<ConfigMap>(["get", "delete"]).in_namespace("attic").because("tidies up"),
            Access::to::<ConfigMap>(["list"]).named("one").because("reads one"),
        ],
    );
    assert_eq!(lines(&both), ["get,list configmaps", "delete configmaps in attic"]);
    let text = "\
ClusterRole shop
  configmaps: get, list
    get, list: reads all (a.key in the configuration)
    get: tidies up (a.key in the configuration)
    list: reads one (a.key in the configuration)
Role shop in namespace attic
  configmaps: delete
    delete: tidies up (a.key in the configuration)
";
    assert_eq!(both.explain(), text);
}

#[test]
fn a_rule_of_a_role_counts_for_each_of_its_resources_names_and_urls() {
    let rule = json!({
        "apiGroups": ["", "apps"], "resources": ["pods", "deployments/scale"], "resourceNames": ["a", "b"],
        "verbs": ["get"], "nonResourceURLs": ["/metrics"],
    });
    let rule: PolicyRule = serde_json::from_value(rule).unwrap();
    let rights = rights(&[], [rule.into()]);
    assert_eq!(rights.rules().len(), 9);
    let last = rights.rules().last().unwrap().policy();
    assert_eq!(json!(last), json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}));
}

#[test]
fn a_need_is_listed_once_for_each_place() {
    let declarations = Declarations::default();
    for _ in 0..2 {
        declarations.declare(Access::to::<ConfigMap>(["get"]), Place::caller());
    }
    declarations.declare(Access::to::<ConfigMap>(["get"]), Place::caller());
    let needs = declarations.needs();
    assert_eq!(needs.len(), 2);
    assert!(needs[0].place.to_string().starts_with("manager/src/rbac/tests.rs:"), "{}", needs[0].place);
    let rights = Rights::new("shop", "default", &[], &needs);
    assert_eq!(rights.rules()[0].grounds().len(), 2);
}
