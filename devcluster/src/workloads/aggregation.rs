//! Aggregated `ClusterRoles`: those with an aggregation rule get the rules of the roles that it selects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::client::Request;
use super::object::{Object as _, selects, without_empty};
use super::resources;

/// Returns the requests that complete the rules of aggregated roles. `roles` are all `ClusterRoles` by name.
pub(super) fn decide<'a>(roles: impl Iterator<Item = &'a Arc<Value>>) -> Vec<Request> {
    let roles: Vec<_> = roles.collect();
    let aggregated = roles.iter().filter(|role| !role["aggregationRule"].is_null());
    let request = |role: &&Arc<Value>| {
        let mut gathered: Vec<&Value> = Vec::new();
        for selector in role.list("/aggregationRule/clusterRoleSelectors") {
            let selected = |other: &&&Arc<Value>| {
                other.name() != role.name() && selects(selector, other.at("/metadata/labels"))
            };
            for rule in roles.iter().filter(selected).flat_map(|other| other.list("/rules")) {
                if !gathered.contains(&rule) {
                    gathered.push(rule);
                }
            }
        }
        let differs = gathered != role.list("/rules").iter().collect::<Vec<_>>();
        let gathered: Vec<_> = gathered.into_iter().map(without_empty).collect();
        differs.then(|| Request::apply(&resources::cluster_roles(), role, json!({"rules": gathered})))
    };
    aggregated.filter_map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, labels: &Value, grants: &Value) -> Arc<Value> {
        let metadata = json!({"name": name, "labels": labels});
        Arc::new(json!({"apiVersion": "v1", "kind": "ClusterRole", "metadata": metadata, "rules": grants}))
    }

    #[test]
    fn an_aggregated_role_has_the_rules_of_all_selected_roles_once() {
        let rule = |verb: &str| json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]});
        let mut roles = [
            role("a", &json!({"to": "view"}), &json!([rule("get"), rule("list")])),
            role("b", &json!({"to": "view"}), &json!([rule("list"), rule("watch")])),
            role("other", &json!({}), &json!([rule("delete")])),
            role("view", &json!({"to": "view"}), &Value::Null),
        ];
        Arc::make_mut(&mut roles[3])["aggregationRule"] =
            json!({"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}]});
        let requests = decide(roles.iter());
        let all = json!([rule("get"), rule("list"), rule("watch")]);
        assert_eq!(requests.len(), 1);
        assert_eq!((requests[0].name.as_str(), &requests[0].body["rules"]), ("view", &all));
        Arc::make_mut(&mut roles[3])["rules"] = all;
        assert_eq!(decide(roles.iter()), []);
    }
}
