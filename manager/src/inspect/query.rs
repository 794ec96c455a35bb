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
pub(crate) fn states() -> impl Iterator<Item = &'static str> {
    STATES.into_iter().map(|(word, _)| word)
}

/// Returns the words that `?sort=` takes, the default first.
pub(crate) fn sorts() -> impl Iterator<Item = &'static str> {
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
mod tests {
    use super::*;

    #[test]
    fn filters_order_and_bound_are_read() {
        let query = "state=delayed&state=parked&namespace=shop&name=a%2Fb&sort=name&limit=5&after=shop/a";
        let wanted = Wanted {
            states: vec![State::Backoff, State::Requeued, State::Parked],
            namespace: Some("shop".to_owned()),
            name: Some("a/b".to_owned()),
        };
        let after = Some("shop/a".to_owned());
        assert_eq!(Query::parse(Some(query)), Ok(Query { wanted, sort: Sort::Name, limit: 5, after }));
        let everything =
            Query { wanted: Wanted::default(), sort: Sort::Trouble, limit: DEFAULT_LIMIT, after: None };
        assert_eq!(Query::parse(None), Ok(everything));
    }

    #[test]
    fn every_state_can_be_asked_for_by_its_own_word() {
        for state in State::ALL {
            let query = Query::parse(Some(&format!("state={}", state.as_str())));
            assert_eq!(query.map(|query| query.wanted.states), Ok(vec![state]));
        }
        assert_eq!(states().count(), State::ALL.len() + 1);
    }

    #[test]
    fn what_would_do_nothing_is_refused() {
        let known = "there are state, namespace, name, sort, limit and after";
        let states = "expected one of delayed, backoff, requeued, parked, running, dirty, ready";
        let sorts = "expected one of trouble, attempts, next, since, name";
        let pages = "after goes with sort=name; any other order changes from page to page";
        for (query, expected) in [
            ("sate=ready", &*format!(r#""sate" is no parameter here; {known}"#)),
            ("state=", &format!(r#"state "" is none; {states}"#)),
            ("state=Ready", &format!(r#"state "Ready" is none; {states}"#)),
            ("name=a&name=b", "name is given twice; give it once"),
            ("sort=age", &format!(r#"sort "age" is none; {sorts}"#)),
            ("limit=0", r#"limit "0" is none; expected 1 to 100000"#),
            ("limit=100001", r#"limit "100001" is none; expected 1 to 100000"#),
            ("limit=all", r#"limit "all" is none; expected 1 to 100000"#),
            ("after=shop/a", pages),
            ("sort=next&after=shop/a", pages),
        ] {
            assert_eq!(Query::parse(Some(query)), Err(expected.to_owned()), "{query}");
        }
        assert_eq!(none(Some("")), Ok(()));
        assert_eq!(none(Some("a")), Err(r#""a" is no parameter here; this path takes none"#.to_owned()));
    }
}
