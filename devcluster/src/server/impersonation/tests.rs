use http::HeaderValue;
use serde_json::json;

use super::*;
use crate::EmbeddedOptions;
use crate::api::{Request, Target, Verb};

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    User { name: name.to_owned(), groups, ..User::default() }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (name.parse::<http::HeaderName>().expect("name"), HeaderValue::from_static(value))
    };
    pairs.iter().map(pair).collect()
}

/// A server and the modes that its senders used last.
struct Server(Api, LastModes);

impl Server {
    async fn start() -> Self {
        Self(Api::new(EmbeddedOptions::default().api).await, LastModes::default())
    }

    /// Lists `ConfigMaps` as another user.
    fn list_as(&self, sender: User, asked: &[(&'static str, &'static str)]) -> Result<User, Status> {
        let access =
            Access { verb: "list", resource: "configmaps", namespace: "default", ..Access::default() };
        impersonated(&self.0, &self.1, sender, &headers(asked), &Action::Resource(access))
    }

    /// Gives a user a right that is no right to a resource of the cluster.
    async fn grant(&self, name: &str, verb: &str, group: &str, resource: &str) {
        let rules = json!([{"verbs": [verb], "apiGroups": [group], "resources": [resource]}]);
        let id = format!("{name}-{resource}-{}", verb.replace(':', "-"));
        let role = json!({"metadata": {"name": id}, "rules": rules});
        let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": id});
        let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]);
        let binding = json!({"metadata": {"name": id}, "roleRef": role_ref, "subjects": subjects});
        for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
            let target = Target::new("rbac.authorization.k8s.io", "v1", plural);
            self.0.call(Request::new(Verb::Create, target).with_body(object)).await.expect("created");
        }
    }
}

#[tokio::test]
async fn an_administrator_may_impersonate_other_users() {
    let server = Server::start().await;
    let asked =
        [("impersonate-user", "alice"), ("impersonate-group", "devs"), ("impersonate-extra-foo%2fbar", "1")];
    let alice = server.list_as(User::admin(), &asked).expect("allowed");
    assert_eq!((alice.name.as_str(), alice.groups.len()), ("alice", 2));
    assert_eq!(alice.extra, [("foo/bar".to_owned(), vec!["1".to_owned()])]);
    let account = [("impersonate-user", "system:serviceaccount:default:x")];
    let account = server.list_as(User::admin(), &account).expect("allowed");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(account.groups, groups);
    let node = server.list_as(User::admin(), &[("impersonate-user", "system:node:n")]).expect("allowed");
    assert_eq!(node.groups, ["system:nodes", "system:authenticated"]);
    let nobody = server.list_as(User::admin(), &[("impersonate-user", "system:anonymous")]).expect("allowed");
    assert_eq!(nobody.groups, ["system:unauthenticated"]);
    assert_eq!(server.list_as(user("bob", &[]), &[]), Ok(user("bob", &[])));
}

#[tokio::test]
async fn other_users_need_rights_to_impersonate() {
    let server = Server::start().await;
    let refused = |asked| server.list_as(user("bob", &[]), asked).expect_err("refused").message().to_owned();
    assert_eq!(
        refused(&[("impersonate-user", "alice")]),
        "configmaps is forbidden: User \"bob\" cannot impersonate-on:user-info:list resource \
         \"configmaps\" \
         in API group \"\" in the namespace \"default\""
    );
    let nameless = server.list_as(User::admin(), &[("impersonate-group", "devs")]).expect_err("refused");
    assert_eq!(
        nameless.message(),
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"devs\"}, \
         Extra:map[string][]string(nil)} without impersonating a user name"
    );
    server.grant("bob", "impersonate", "", "users").await;
    let alice = server.list_as(user("bob", &[]), &[("impersonate-user", "alice")]).expect("granted");
    assert_eq!(alice, user("alice", &["system:authenticated"]));
    let devs = [("impersonate-user", "alice"), ("impersonate-group", "devs")];
    // The mode that was allowed last is tried first.
    assert_eq!(
        refused(&devs),
        "groups \"devs\" is forbidden: User \"bob\" cannot impersonate resource \"groups\" in API group \
         \"\" at the cluster scope"
    );
}

#[tokio::test]
async fn the_newer_modes_need_the_verb_of_the_request_too() {
    let server = Server::start().await;
    server.grant("bob", "impersonate:user-info", GROUP, "users").await;
    server.grant("bob", "impersonate-on:user-info:list", "", "configmaps").await;
    server.list_as(user("bob", &[]), &[("impersonate-user", "alice")]).expect("granted");
    let masters = [("impersonate-user", "alice"), ("impersonate-group", MASTERS)];
    server.grant("bob", "impersonate:user-info", GROUP, "groups").await;
    let status = server.list_as(user("bob", &[]), &masters).expect_err("refused");
    let why = "impersonating the system:masters group is not allowed";
    assert!(status.message().ends_with(why), "{status}");
}
