//! Impersonation of other users by the headers `Impersonate-*`.
//!
//! As in Kubernetes 1.36 there are several modes with rights of their own, which are tried in order: those
//! for a Node, a ServiceAccount and other users, where the sender needs a right for the verb of the request
//! too, and the older one with the verb `impersonate` alone.

use std::collections::HashMap;

use http::HeaderMap;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

use super::auth;
use crate::api::{Access, Action, Api, Status, User};
use crate::kinds::{names, quoted};

const EXTRA: &str = "impersonate-extra-";
const GROUP: &str = "authentication.k8s.io";
const MASTERS: &str = "system:masters";
/// The number of groups or extra values from which on a right to all of them is looked for first.
const MANY: usize = 4;

/// A way to impersonate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

/// The mode that each sender was allowed last; it is tried first the next time.
#[derive(Debug, Default)]
pub(super) struct LastModes(Mutex<HashMap<String, Mode>>);

/// A sender that wants to be another user.
struct Attempt<'a> {
    api: &'a Api,
    sender: &'a User,
    wanted: &'a User,
}

/// Returns the impersonated user of a request; the sender if there are no `Impersonate-*` headers.
///
/// # Errors
/// 400 if the headers name no user, 403 if the sender lacks a right.
pub(super) fn impersonated(
    api: &Api,
    last: &LastModes,
    sender: User,
    headers: &HeaderMap,
    action: &Action<'_>,
) -> Result<User, Status> {
    let Some(wanted) = asked_for(headers) else { return Ok(sender) };
    if wanted.name.is_empty() {
        let wanted = in_go(&wanted);
        return Err(Status::bad_request(format!("requested {wanted} without impersonating a user name")));
    }
    let attempt = Attempt { api, sender: &sender, wanted: &wanted };
    let first = last.0.lock().get(&sender.name).copied();
    let others = Mode::ALL.into_iter().filter(|mode| Some(*mode) != first);
    let mut refusal = None;
    for mode in first.into_iter().chain(others).filter(|mode| mode.applies(&wanted, &sender)) {
        match attempt.check(mode, action) {
            Ok(()) => {
                last.0.lock().insert(sender.name.clone(), mode);
                let legacy = mode == Mode::Legacy;
                return Ok(if legacy { with_groups(wanted) } else { completed(wanted) });
            }
            Err(status) => drop(refusal.get_or_insert(status)),
        }
    }
    Err(refusal.unwrap_or_else(|| Status::unclassified("all impersonation modes failed")))
}

/// Returns a user with the groups that the server adds to those of an impersonation.
pub(super) fn completed(mut user: User) -> User {
    if only_named(&user) && node(&user.name).is_some() {
        user.groups.push("system:nodes".to_owned());
    }
    with_groups(user)
}

/// Returns a user with the groups of ServiceAccounts and of all authenticated users, as far as it has them.
fn with_groups(mut user: User) -> User {
    if user.groups.is_empty()
        && let Some((namespace, _)) = service_account(&user.name)
    {
        let namespace = format!("system:serviceaccounts:{namespace}");
        user.groups.extend(["system:serviceaccounts".to_owned(), namespace]);
    }
    auth::authenticated(user)
}

// === impl Mode ===

impl Mode {
    const ALL: [Self; 5] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    /// Returns the name in verbs; empty for the older mode.
    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn applies(self, wanted: &User, sender: &User) -> bool {
        let of_node = node(&wanted.name);
        let of_account = service_account(&wanted.name);
        match self {
            Self::AssociatedNode => {
                let own =
                    sender.extra.iter().find(|(key, _)| key == "authentication.kubernetes.io/node-name");
                let own = own.and_then(|(_, values)| if values.len() == 1 { values.first() } else { None });
                let own = own.is_some_and(|own| Some(own.as_str()) == of_node);
                only_named(wanted) && own && service_account(&sender.name).is_some()
            }
            Self::ArbitraryNode => only_named(wanted) && of_node.is_some(),
            Self::ServiceAccount => only_named(wanted) && of_account.is_some(),
            Self::UserInfo => of_node.is_none() && of_account.is_none(),
            Self::Legacy => true,
        }
    }
}

// === impl Attempt ===

impl Attempt<'_> {
    fn check(&self, mode: Mode, action: &Action<'_>) -> Result<(), Status> {
        if mode == Mode::Legacy {
            return self.check_parts(mode, "impersonate");
        }
        let on = |verb: &str| format!("impersonate-on:{}:{verb}", mode.name());
        match action {
            Action::Path { verb, path } => {
                self.api.authorize(self.sender, &Action::Path { verb: &on(verb), path })?;
            }
            Action::Resource(access) => self.may(Access { verb: &on(access.verb), ..*access })?,
        }
        self.check_parts(mode, &format!("impersonate:{}", mode.name()))
    }

    /// Checks the right to each part of the wanted user.
    fn check_parts(&self, mode: Mode, verb: &str) -> Result<(), Status> {
        let (wanted, legacy) = (self.wanted, mode == Mode::Legacy);
        let group = if legacy { "" } else { GROUP };
        let mut named = Access { verb, group, resource: "users", name: &wanted.name, ..Access::default() };
        if let Some((namespace, name)) = service_account(&wanted.name) {
            named = Access { resource: "serviceaccounts", namespace, name, ..named };
        } else if let Some(name) = node(&wanted.name).filter(|_| !legacy) {
            let name = if mode == Mode::AssociatedNode { "*" } else { name };
            named = Access { resource: "nodes", name, ..named };
        }
        self.may(named)?;
        if !wanted.uid.is_empty() {
            let (resource, name) = ("uids", wanted.uid.as_str());
            self.may(Access { verb, group: GROUP, resource, name, ..Access::default() })?;
        }
        self.check_groups(Access { verb, group, resource: "groups", ..Access::default() }, legacy)?;
        self.check_extra(Access { verb, group: GROUP, resource: "userextras", ..Access::default() }, legacy)
    }

    fn check_groups(&self, access: Access<'_>, legacy: bool) -> Result<(), Status> {
        let groups = &self.wanted.groups;
        let refused = |access, why| Err(Action::Resource(access).forbidden(self.sender, why));
        if !legacy && groups.iter().any(String::is_empty) {
            return refused(access, "impersonating the empty string group is not allowed");
        }
        if !legacy && groups.iter().any(|group| group == MASTERS) {
            let access = Access { name: MASTERS, ..access };
            return refused(access, "impersonating the system:masters group is not allowed");
        }
        if !legacy && groups.len() >= MANY && self.may(Access { name: "*", ..access }).is_ok() {
            return Ok(());
        }
        groups.iter().try_for_each(|name| self.may(Access { name, ..access }))
    }

    fn check_extra(&self, access: Access<'_>, legacy: bool) -> Result<(), Status> {
        let extra = &self.wanted.extra;
        if let Some(why) = extra.iter().filter(|_| !legacy).find_map(|(key, values)| unfit(key, values)) {
            return Err(Action::Resource(access).forbidden(self.sender, &why));
        }
        let count: usize = extra.iter().map(|(_, values)| values.len()).sum();
        let all = Access { subresource: "*", name: "*", ..access };
        if !legacy && count >= MANY && self.may(all).is_ok() {
            return Ok(());
        }
        let each = extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        let mut each = each.map(|(key, value)| Access { subresource: key, name: value, ..access });
        each.try_for_each(|access| self.may(access))
    }

    fn may(&self, access: Access<'_>) -> Result<(), Status> {
        self.api.authorize(self.sender, &Action::Resource(access))
    }
}

/// Returns why a key of the extra attributes, or its values, cannot be impersonated except in the older mode.
fn unfit(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let invalid = |why: &str| {
        let error = format!("extra.key: Invalid value: {}: {why}", quoted(key));
        Some(format!("impersonating an invalid key in extra is not allowed: {error}"))
    };
    match key.split_once('/') {
        None | Some((_, "")) => return invalid("must be a domain-prefixed path (such as \"acme.io/foo\")"),
        Some((domain, _)) => {
            if let Some(why) = names::dns1123_subdomain(domain).into_iter().next() {
                return invalid(&why);
            }
        }
    }
    let empty = values.iter().any(String::is_empty);
    empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

fn only_named(user: &User) -> bool {
    user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty()
}

/// Returns the namespace and the name of the ServiceAccount with this user name, if it is one.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let valid = names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(name).is_empty();
    valid.then_some((namespace, name))
}

/// Returns the name of the Node with this user name, if it is one.
fn node(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| names::dns1123_subdomain(name).is_empty())
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

#[cfg(test)]
mod tests;
