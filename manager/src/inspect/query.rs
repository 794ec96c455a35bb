//! The parameters of a queue's page: filters, order and limit.
//!
//! A key must match all filters: `?state=` (may be repeated), `?namespace=` (empty: keys without a namespace)
//! and `?name=`. `?sort=` orders the matching keys, and `?limit=` limits the list. `?after=` continues behind
//! a key, only in the order of names: any other order changes between two pages, and keys would be skipped.
//! An unknown parameter or value is refused, because an ignored filter would give a misleading answer.

use crate::controller::Wanted;
use crate::queue::State;

/// The default of `?limit=`, the most keys in an answer: more keys than a person reads, some hundred KiB.
pub(super) const DEFAULT_LIMIT: usize = 1000;
/// The greatest value of `?limit=`, the most keys in an answer: some tens of MiB.
pub(super) const MAX_LIMIT: usize = 100_000;

/// The values of `?state=`, each with the states of keys that it selects. `delayed` has the same meaning as
/// in the counts of a queue.
const STATES: [(&str, &[State]); 7] = [
    ("delayed", &[State::Backoff, State::Requeued]),
    ("backoff", &[State::Backoff]),
    ("requeued", &[State::Requeued]),
    ("parked", &[State::Parked]),
    ("running", &[State::Running]),
    ("dirty", &[State::Dirty]),
    ("ready", &[State::Ready]),
];

/// The values of `?sort=`, each with the order of keys that it selects.
const SORTS: [(&str, Sort); 5] = [
    ("trouble", Sort::Trouble),
    ("attempts", Sort::Attempts),
    ("next", Sort::Next),
    ("since", Sort::Since),
    ("name", Sort::Name),
];

/// The parsed query parameters of one request for the keys of a queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) wanted: Wanted,
    pub(super) sort: Sort,
    /// The most keys in the answer: 1..=[`MAX_LIMIT`].
    pub(super) limit: usize,
    /// Selects only keys with a text after this one; `None` unless `sort` is [`Sort::Name`].
    pub(super) after: Option<String>,
}

/// An order of a queue's keys; keys that are equal in it are sorted by their texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// Keys in backoff come first, then parked keys, keys with a worker, ready keys, and requeued keys.
    #[default]
    Trouble,
    /// Keys with the most attempts come first.
    Attempts,
    /// Keys with the soonest next run come first, keys without a next run last.
    Next,
    /// Keys that have been in their state for the longest time come first.
    Since,
    /// Keys are sorted by their texts, such as `shop/web`.
    Name,
}

/// Returns the valid values of the query parameter `?state=`.
pub fn states() -> impl Iterator<Item = &'static str> {
    STATES.into_iter().map(|(word, _)| word)
}

/// Returns the valid values of the query parameter `?sort=`, the default first.
pub fn sorts() -> impl Iterator<Item = &'static str> {
    SORTS.into_iter().map(|(word, _)| word)
}

// === impl Query ===

impl Query {
    pub(super) fn parse(query: Option<&str>) -> Result<Self, String> {
        let mut wanted = Wanted::default();
        let (mut sort, mut limit, mut after) = (None, None, None);
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "state" => wanted.states.extend(among(&STATES, &name, &value)?),
                "namespace" => once(&mut wanted.namespace, &name, value.into_owned())?,
                "name" => once(&mut wanted.name, &name, value.into_owned())?,
                "sort" => once(&mut sort, &name, among(&SORTS, &name, &value)?)?,
                "limit" => once(&mut limit, &name, self::limit(&value)?)?,
                "after" => once(&mut after, &name, value.into_owned())?,
                _ => {
                    let known = "state, namespace, name, sort, limit or after";
                    return Err(format!("unknown parameter {name:?}; expected {known}"));
                }
            }
        }
        let sort = sort.unwrap_or_default();
        if after.is_some() && sort != Sort::Name {
            return Err("after needs sort=name; any other order changes from page to page".to_owned());
        }
        Ok(Self { wanted, sort, limit: limit.unwrap_or(DEFAULT_LIMIT), after })
    }
}

/// Returns an error if a request has any query parameter, for paths without parameters.
pub(super) fn none(query: Option<&str>) -> Result<(), String> {
    match form_urlencoded::parse(query.unwrap_or_default().as_bytes()).next() {
        Some((name, _)) => Err(format!("unknown parameter {name:?}; this path has no parameters")),
        None => Ok(()),
    }
}

fn once<T>(field: &mut Option<T>, name: &str, value: T) -> Result<(), String> {
    if field.replace(value).is_some() {
        return Err(format!("{name} is given twice; give it once"));
    }
    Ok(())
}

/// Returns the meaning of a query parameter's value, or an error with the known values.
fn among<T: Copy>(known: &[(&str, T)], name: &str, value: &str) -> Result<T, String> {
    let found = known.iter().find(|(word, _)| *word == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
        format!("unknown {name} {value:?}; expected one of {}", words.join(", "))
    })
}

fn limit(value: &str) -> Result<usize, String> {
    let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| format!("invalid limit {value:?}; expected 1 to {MAX_LIMIT}"))
}

#[cfg(test)]
mod tests;
