//! Which keys of a queue are asked for, and in which order.
//!
//! `?state=` (several times for several), `?namespace=` (empty: keys without one) and `?name=` all have to fit; `?sort=`
//! orders those that do, and `?limit=` bounds how many are listed. `?after=` goes on behind a key, in the order of names
//! only: any other order changes between two pages, and keys would be missed without a word. What is misspelled is
//! refused: a filter that does nothing would be taken for an answer.

use crate::controller::Wanted;
use crate::queue::State;

/// Keys listed unless asked otherwise: more than a person reads, some hundred KiB.
pub(super) const DEFAULT_LIMIT: usize = 1000;
/// The most keys listed: some tens of MiB.
pub(super) const MAX_LIMIT: usize = 100_000;

/// What `?state=` takes. `delayed` is whatever waits for a moment, as it is for the counts of a queue.
const STATES: [(&str, &[State]); 7] = [
    ("delayed", &[State::Backoff, State::Requeued]),
    ("backoff", &[State::Backoff]),
    ("requeued", &[State::Requeued]),
    ("parked", &[State::Parked]),
    ("running", &[State::Running]),
    ("dirty", &[State::Dirty]),
    ("ready", &[State::Ready]),
];

/// What `?sort=` takes.
const SORTS: [(&str, Sort); 5] = [
    ("trouble", Sort::Trouble),
    ("attempts", Sort::Attempts),
    ("next", Sort::Next),
    ("since", Sort::Since),
    ("name", Sort::Name),
];

/// A question about a queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) wanted: Wanted,
    pub(super) sort: Sort,
    /// 1..=[`MAX_LIMIT`].
    pub(super) limit: usize,
    /// Only keys whose text comes after this one. Never with another order than [`Sort::Name`].
    pub(super) after: Option<String>,
}

/// An order of keys; equals are in the order of their texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// Those in backoff, parked ones, those with a worker, ready ones, those that merely wait for a moment.
    #[default]
    Trouble,
    /// Most attempts first.
    Attempts,
    /// The soonest first, those that wait for no moment last.
    Next,
    /// The longest in its state first.
    Since,
    /// By the text of the key.
    Name,
}

/// Returns the words that `?state=` takes.
pub fn states() -> impl Iterator<Item = &'static str> {
    STATES.into_iter().map(|(word, _)| word)
}

/// Returns the words that `?sort=` takes, the default first.
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
                    let known = "state, namespace, name, sort, limit and after";
                    return Err(format!("{name:?} is no parameter here; there are {known}"));
                }
            }
        }
        let sort = sort.unwrap_or_default();
        if after.is_some() && sort != Sort::Name {
            return Err("after goes with sort=name; any other order changes from page to page".to_owned());
        }
        Ok(Self { wanted, sort, limit: limit.unwrap_or(DEFAULT_LIMIT), after })
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

/// Returns what a word stands for.
fn among<T: Copy>(known: &[(&str, T)], name: &str, value: &str) -> Result<T, String> {
    let found = known.iter().find(|(word, _)| *word == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
        format!("{name} {value:?} is none; expected one of {}", words.join(", "))
    })
}

fn limit(value: &str) -> Result<usize, String> {
    let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| format!("limit {value:?} is none; expected 1 to {MAX_LIMIT}"))
}

#[cfg(test)]
mod tests;
