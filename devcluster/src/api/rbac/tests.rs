use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{ApiOptions, Content, Request, Target, Verb};
use super::*;

async fn server() -> Api {
    let clock = Arc::new(|| Timestamp::from_second(1_700_000_000).expect("a time"));
    Api::new(ApiOptions { seed: 7, ..ApiOptions::new(clock) }).await
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    User { name: name.to_owned(), groups, ..User::default() }
}

fn target(plural: &str) -> Target {
    Target::new(GROUP, "v1", plural)
}

async fn create(api: &Api, target: Target, object: Value) {
    api.call(Request::new(Verb::Create, target).with_body(object)).await.expect("created");
}

/// Creates a Role in the namespace default, and binds it to the user bob.
async fn grant(api: &Api, name: &str, rights: Value) {
    create(api, target("roles").namespace("default"), json!({"metadata": {"name": name}, "rules": [rights]}))
        .await;
    let role = json!({"apiGroup": GROUP, "kind": "Role", "name": name});
    let subjects = json!([{"apiGroup": GROUP, "kind": "User", "name": "bob"}]);
    let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects});
    create(api, target("rolebindings").namespace("default"), binding).await;
}

fn maps(verb: &str) -> Action<'_> {
    Action::Resource(Access { verb, resource: "configmaps", namespace: "default", ..Access::default() })
}

#[tokio::test]
async fn a_grant_and_its_removal_take_effect_with_the_next_request() {
    let api = server().await;
    let bob = user("bob", &[]);
    let refused = api.authorize(&bob, &maps("list")).expect_err("no rights");
    let why = "configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" in the \
               namespace \"default\"";
    assert_eq!((refused.code(), refused.message()), (403, why));
    grant(&api, "r", json!({"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]})).await;
    api.authorize(&bob, &maps("list")).expect("granted");
    assert_eq!(
        api.decide(&bob, &maps("list")).reason(),
        "RBAC: allowed by RoleBinding \"r/default\" of Role \"r\" to User \"bob\""
    );
    api.authorize(&bob, &maps("get")).expect_err("another verb");
    api.authorize(&user("alice", &[]), &maps("list")).expect_err("another user");
    let delete = Request::new(Verb::Delete, target("roles").namespace("default").name("r"));
    api.call(delete).await.expect("deleted");
    let status = api.authorize(&bob, &maps("list")).expect_err("revoked");
    let why = "RBAC: role.rbac.authorization.k8s.io \"r\" not found";
    assert!(status.message().ends_with(why), "{status}");
}

#[tokio::test]
async fn the_first_roles_are_those_of_kubernetes() {
    let api = server().await;
    let before = api.store().revision();
    let list = Request::new(Verb::List, target("clusterroles"));
    let Content::List(list) = api.call(list).await.expect("listed").content else { panic!("a list") };
    assert!(list.items.len() > 60, "{}", list.items.len());
    assert_eq!(api.store().revision(), before);
    let viewer = user("bob", &["viewers"]);
    let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"});
    let subjects = json!([{"apiGroup": GROUP, "kind": "Group", "name": "viewers"}]);
    let binding = json!({"metadata": {"name": "viewers"}, "roleRef": role, "subjects": subjects});
    create(&api, target("clusterrolebindings"), binding).await;
    api.authorize(&viewer, &maps("list")).expect("the role has its aggregated rules");
    api.authorize(&viewer, &maps("delete")).expect_err("only reads");
    let anybody = user("bob", &["system:authenticated"]);
    api.authorize(&anybody, &Action::Path { verb: "get", path: "/api/v1" }).expect("discovery");
    api.authorize(&anybody, &Action::Path { verb: "get", path: "/metrics" }).expect_err("no discovery");
}

#[tokio::test]
async fn nobody_grants_rights_that_they_lack() {
    let api = server().await;
    let all = json!(["get", "create"]);
    grant(&api, "own", json!({"verbs": all, "apiGroups": [GROUP], "resources": ["roles", "rolebindings"]}))
        .await;
    let request = |plural: &str, object: Value| Request {
        user: user("bob", &["devs"]),
        ..Request::new(Verb::Create, target(plural).namespace("default")).with_body(object)
    };
    let rules = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "secrets"]}]);
    let role = json!({"metadata": {"name": "more"}, "rules": rules});
    let status = api.call(request("roles", role.clone())).await.expect_err("refused");
    assert_eq!(
        status.message(),
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"bob\" (groups=[\"devs\"]) is attempting to \
         grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
    );
    create(&api, target("roles").namespace("default"), role).await;
    let role = json!({"apiGroup": GROUP, "kind": "Role", "name": "more"});
    let binding = json!({"metadata": {"name": "b"}, "roleRef": role});
    api.call(request("rolebindings", binding.clone())).await.expect_err("refused");
    let bind = json!({"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["roles"]});
    grant(&api, "bind", bind).await;
    api.call(request("rolebindings", binding)).await.expect("the verb bind allows it");
}

#[tokio::test]
async fn without_rules_every_user_may_do_everything() {
    let clock = Arc::new(|| Timestamp::from_second(1_700_000_000).expect("a time"));
    let api = Api::new(ApiOptions { rbac: false, ..ApiOptions::new(clock) }).await;
    api.authorize(&user("bob", &[]), &maps("delete")).expect("allowed");
}

#[test]
fn a_rule_covers_subresources_and_paths_by_its_asterisk() {
    let rule = |rule: Value| Rule::all_of(&json!({"rules": [rule]}));
    let owned = [
        rule(json!({"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*/scale"]})),
        rule(json!({"verbs": ["get"], "nonResourceURLs": ["/x/*"]})),
        rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["*"], "resourceNames": ["a"]})),
    ]
    .concat();
    let missing = |wanted: Value| rule::missing(&owned, &rule(wanted));
    let none: [&str; 0] = [];
    assert_eq!(missing(json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["sets/scale"]})), none);
    assert_eq!(missing(json!({"verbs": ["get"], "nonResourceURLs": ["/x/y", "/x/*"]})), none);
    assert_eq!(
        missing(json!({"verbs": ["get"], "nonResourceURLs": ["/x", "/x/y"]})),
        ["{NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}"]
    );
    assert_eq!(
        missing(
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a", "b"]})
        ),
        ["{APIGroups:[\"\"], Resources:[\"pods\"], ResourceNames:[\"b\"], Verbs:[\"get\"]}"]
    );
    assert_eq!(missing(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]})).len(), 1);
}
