//! Which keys of a queue are asked for.
//!
//! `?state=` (several times for several), `?namespace=` (empty: keys without one) and `?name=` all have to fit;
//! `?limit=` bounds how many keys are listed. What is misspelled is refused: a filter that does nothing would be
//! taken for an answer.

use crate::controller::Wanted;
use crate::queue::State;

/// Keys listed unless asked otherwise: more than a person reads, some hundred KiB.
pub(super) const DEFAULT_LIMIT: usize = 1000;
/// The most keys listed: some tens of MiB.
pub(super) const MAX_LIMIT: usize = 100_000;

/// A question about a queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) wanted: Wanted,
    /// 1..=[`MAX_LIMIT`].
    pub(super) limit: usize,
}

// === impl Query ===

impl Query {
    pub(super) fn parse(query: Option<&str>) -> Result<Self, String> {
        let mut wanted = Wanted::default();
        let mut limit = None;
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "state" => wanted.states.push(state(&value)?),
                "namespace" => once(&mut wanted.namespace, &name, value.into_owned())?,
                "name" => once(&mut wanted.name, &name, value.into_owned())?,
                "limit" => once(&mut limit, &name, self::limit(&value)?)?,
                _ => {
                    return Err(format!(
                        "{name:?} is no parameter here; there are state, namespace, name and limit"
                    ));
                }
            }
        }
        Ok(Self { wanted, limit: limit.unwrap_or(DEFAULT_LIMIT) })
    }
}

/// Refuses any parameter, where there are none.
pub(super) fn none(query: Option<&str>) -> Result<(), String> {
    match form_urlencoded::parse(query.unwrap_or_default().as_bytes()).next() {
        Some((name, _)) => Err(format!("{name:?} is no parameter here; this path takes none")),
        None => Ok(()),
    }
}

fn once<T>(field: &mut Option<T>, name: &str, value: T) -> Result<(), String> {
    if field.replace(value).is_some() {
        return Err(format!("{name} is given twice; give it once"));
    }
    Ok(())
}

fn state(value: &str) -> Result<State, String> {
    State::ALL.into_iter().find(|state| state.as_str() == value).ok_or_else(|| {
        let known: Vec<_> = State::ALL.iter().map(|state| state.as_str()).collect();
        format!("state {value:?} is none; expected one of {}", known.join(", "))
    })
}

fn limit(value: &str) -> Result<usize, String> {
    let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| format!("limit {value:?} is none; expected 1 to {MAX_LIMIT}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_and_bound_are_read() {
        let query = Query::parse(Some("state=backoff&state=parked&namespace=shop&name=a%2Fb&limit=5"));
        let wanted = Wanted {
            states: vec![State::Backoff, State::Parked],
            namespace: Some("shop".to_owned()),
            name: Some("a/b".to_owned()),
        };
        assert_eq!(query, Ok(Query { wanted, limit: 5 }));
        let everything = Query { wanted: Wanted::default(), limit: DEFAULT_LIMIT };
        assert_eq!(Query::parse(None), Ok(everything));
    }

    #[test]
    fn what_would_do_nothing_is_refused() {
        let known = "expected one of delayed, ready, running, dirty, backoff, parked";
        for (query, expected) in [
            ("sate=ready", r#""sate" is no parameter here; there are state, namespace, name and limit"#),
            ("state=", &*format!(r#"state "" is none; {known}"#)),
            ("state=Ready", &format!(r#"state "Ready" is none; {known}"#)),
            ("name=a&name=b", "name is given twice; give it once"),
            ("limit=0", r#"limit "0" is none; expected 1 to 100000"#),
            ("limit=100001", r#"limit "100001" is none; expected 1 to 100000"#),
            ("limit=all", r#"limit "all" is none; expected 1 to 100000"#),
        ] {
            assert_eq!(Query::parse(Some(query)), Err(expected.to_owned()), "{query}");
        }
        assert_eq!(none(Some("")), Ok(()));
        assert_eq!(none(Some("a")), Err(r#""a" is no parameter here; this path takes none"#.to_owned()));
    }
}
