//! Authentication by client certificate or bearer token, and impersonation of other users.
//!
//! Anonymous requests are refused, as in a kube-apiserver with `--anonymous-auth=false`. There is no RBAC:
//! every authenticated user may do everything, except that only administrators may impersonate.

use std::collections::HashMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use percent_encoding::percent_decode_str;

use super::path::ResourcePath;
use crate::api::{Details, Status, User};
use crate::kinds::quoted;

const ADMINISTRATORS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const EXTRA: &str = "impersonate-extra-";

/// The user of each bearer token.
pub(super) type Tokens = HashMap<String, User>;

/// The user of a connection's client certificate, stored in the extensions of its requests.
#[derive(Clone, Debug)]
pub(super) struct Peer(pub(super) User);

/// The action of a request, for the text of a 403 error.
#[derive(Debug)]
pub(super) enum Action<'a> {
    /// A verb, and the resource that it acts on.
    Resource(&'a str, &'a ResourcePath),
    /// A method in lower case, and a path that is no resource.
    Path(&'a str, &'a str),
}

/// Returns the user of a bearer token: one of `tokens`, or one that the server has `issued`.
///
/// # Errors
/// 401 if the token is missing or unknown.
pub(super) fn by_token(
    headers: &HeaderMap,
    tokens: &Tokens,
    issued: impl FnOnce(&str) -> Option<User>,
) -> Result<User, Status> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (scheme, token) = header.split_once(' ').unwrap_or_default();
    let token = scheme.eq_ignore_ascii_case("bearer").then_some(token.trim());
    let user = token.and_then(|token| tokens.get(token).cloned().or_else(|| issued(token)));
    let user = user.ok_or_else(|| Status::new(401, "Unauthorized", "Unauthorized"))?;
    Ok(authenticated(user))
}

/// Returns the impersonated user of a request; the sender if there are no `Impersonate-*` headers.
///
/// # Errors
/// 400 if the headers name no user, 403 if the sender is not an administrator.
pub(super) fn impersonated(sender: User, headers: &HeaderMap, action: &Action<'_>) -> Result<User, Status> {
    let Some(user) = asked_for(headers) else { return Ok(sender) };
    if user.name.is_empty() {
        return Err(Status::bad_request(format!(
            "requested {} without impersonating a user name",
            in_go(&user)
        )));
    }
    if !sender.groups.iter().any(|group| group == ADMINISTRATORS) {
        return Err(action.forbidden(&sender, "impersonate-on:user-info:"));
    }
    Ok(authenticated(user))
}

fn asked_for(headers: &HeaderMap) -> Option<User> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut user = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: headers.get_all("impersonate-group").iter().map(text).collect(),
        extra: Vec::new(),
    };
    for name in headers.keys().filter(|name| name.as_str().starts_with(EXTRA)) {
        let key = percent_decode_str(&name.as_str()[EXTRA.len()..]).decode_utf8_lossy().into_owned();
        user.extra.push((key, headers.get_all(name).iter().map(text).collect()));
    }
    user.extra.sort();
    (user != User::default()).then_some(user)
}

/// Adds the groups that every authenticated user and every ServiceAccount has.
pub(super) fn authenticated(mut user: User) -> User {
    if user.groups.is_empty()
        && let Some((namespace, _)) =
            user.name.strip_prefix("system:serviceaccount:").and_then(|name| name.split_once(':'))
    {
        let namespace = format!("system:serviceaccounts:{namespace}");
        user.groups.extend(["system:serviceaccounts".to_owned(), namespace]);
    }
    if user.name != "system:anonymous" && !user.groups.iter().any(|group| group == AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// Returns a user in the form in which Go prints the struct.
fn in_go(user: &User) -> String {
    let list = |values: &[String]| match values {
        [] => "[]string(nil)".to_owned(),
        values => {
            format!("[]string{{{}}}", values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", "))
        }
    };
    let extra = match user.extra.as_slice() {
        [] => "map[string][]string(nil)".to_owned(),
        extra => {
            let pair = |(key, values): &(String, Vec<String>)| format!("{}:{}", quoted(key), list(values));
            let pairs: Vec<_> = extra.iter().map(pair).collect();
            format!("map[string][]string{{{}}}", pairs.join(", "))
        }
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{}, Extra:{extra}}}",
        quoted(&user.name),
        quoted(&user.uid),
        list(&user.groups)
    )
}

// === impl Action ===

impl Action<'_> {
    /// Returns a 403 error for the action of a user. `prefix` precedes the verb in the message.
    fn forbidden(&self, user: &User, prefix: &str) -> Status {
        let user = quoted(&user.name);
        let (verb, path) = match self {
            Self::Path(verb, path) => {
                let message = format!("forbidden: User {user} cannot {prefix}{verb} path {}", quoted(path));
                return Status::new(403, "Forbidden", message).with_details(Details::default());
            }
            Self::Resource(verb, path) => (verb, path),
        };
        let qualified = if path.group.is_empty() {
            path.resource.clone()
        } else {
            format!("{}.{}", path.resource, path.group)
        };
        let subject = match path.name.as_str() {
            "" => qualified,
            name => format!("{qualified} {}", quoted(name)),
        };
        let resource = match path.subresource.as_str() {
            "" => path.resource.clone(),
            subresource => format!("{}/{subresource}", path.resource),
        };
        let scope = match path.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quoted(namespace)),
        };
        let (resource, group) = (quoted(&resource), quoted(&path.group));
        let action = format!("{prefix}{verb} resource {resource} in API group {group} {scope}");
        let message = format!("{subject} is forbidden: User {user} cannot {action}");
        Status::new(403, "Forbidden", message).with_details(Details {
            name: path.name.clone(),
            group: path.group.clone(),
            kind: path.resource.clone(),
            ..Details::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        User { name: name.to_owned(), groups, ..User::default() }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().expect("name"), HeaderValue::from_static(value)))
            .collect()
    }

    fn config_maps() -> ResourcePath {
        let (namespace, resource) = ("default".to_owned(), "configmaps".to_owned());
        ResourcePath { version: "v1".to_owned(), namespace, resource, ..ResourcePath::default() }
    }

    #[test]
    fn a_token_stands_for_its_user() {
        let tokens = Tokens::from([("secret".to_owned(), user("bob", &["devs"]))]);
        let bob =
            by_token(&headers(&[("authorization", "bearer secret")]), &tokens, |_| None).expect("known");
        assert_eq!(bob, user("bob", &["devs", "system:authenticated"]));
        for header in ["Bearer nope", "Basic secret", "secret", ""] {
            let status =
                by_token(&headers(&[("authorization", header)]), &tokens, |_| None).expect_err(header);
            assert_eq!((status.code(), status.message()), (401, "Unauthorized"));
        }
        for header in ["Basic secret", "secret", ""] {
            let issued = |_: &str| Some(User::admin());
            by_token(&headers(&[("authorization", header)]), &tokens, issued).expect_err("no bearer token");
        }
    }

    #[test]
    fn an_administrator_may_impersonate_other_users() {
        let path = config_maps();
        let action = Action::Resource("list", &path);
        let asked = headers(&[
            ("impersonate-user", "alice"),
            ("impersonate-group", "devs"),
            ("impersonate-extra-foo%2fbar", "1"),
        ]);
        let alice = impersonated(User::admin(), &asked, &action).expect("allowed");
        assert_eq!((alice.name.as_str(), alice.groups.len()), ("alice", 2));
        assert_eq!(alice.extra, [("foo/bar".to_owned(), vec!["1".to_owned()])]);
        let account = headers(&[("impersonate-user", "system:serviceaccount:default:x")]);
        let account = impersonated(User::admin(), &account, &action).expect("allowed");
        let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
        assert_eq!(account.groups, groups);
        assert_eq!(impersonated(user("bob", &[]), &HeaderMap::new(), &action), Ok(user("bob", &[])));
    }

    #[test]
    fn other_users_may_not_impersonate() {
        let path = config_maps();
        let asked = headers(&[("impersonate-user", "alice")]);
        let status =
            impersonated(user("bob", &[]), &asked, &Action::Resource("list", &path)).expect_err("refused");
        assert_eq!(
            status.message(),
            "configmaps is forbidden: User \"bob\" cannot impersonate-on:user-info:list resource \
             \"configmaps\" \
             in API group \"\" in the namespace \"default\""
        );
        let nameless = headers(&[("impersonate-group", "devs")]);
        let status = impersonated(User::admin(), &nameless, &Action::Path("get", "/")).expect_err("refused");
        assert_eq!(
            status.message(),
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"devs\"}, \
             Extra:map[string][]string(nil)} without impersonating a user name"
        );
    }
}
