//! Authentication by client certificate or bearer token.
//!
//! Anonymous requests are refused, as in a kube-apiserver with `--anonymous-auth=false`.

use std::collections::HashMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::api::{Status, User};

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The user of each bearer token.
pub(super) type Tokens = HashMap<String, User>;

/// The user of a connection's client certificate, stored in the extensions of its requests.
#[derive(Clone, Debug)]
pub(super) struct Peer(pub(super) User);

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

/// Adds the group of all authenticated users, or of all anonymous ones.
pub(super) fn authenticated(mut user: User) -> User {
    let has = |group: &str| user.groups.iter().any(|own| own == group);
    let group = if user.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if !has(group) && !has(UNAUTHENTICATED) {
        user.groups.push(group.to_owned());
    }
    user
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
}
