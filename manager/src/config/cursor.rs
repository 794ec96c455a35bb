//! Typed readers over the tree: each returns the value, or reports what is wrong and returns nothing.
//!
//! A reader never stops at the first problem, and a key is named once: asking for it is what makes it known, so
//! the list of valid keys in a message cannot differ from what is read.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::problem::Problems;
use super::tree::{Node, Value};
use super::units::{self, DURATION_FORM, SIZE_FORM};

/// Longest key of a mapping, in bytes: a kind with its group. The path of each value below a key repeats it.
const MAX_KEY: usize = 63 + 1 + 253;

/// One value of the document, with its path.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    node: &'a Node,
    path: String,
    problems: &'a Problems,
}

/// The keys of one mapping, taken one by one; [`Fields::close`] refuses the rest.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    path: String,
    problems: &'a Problems,
    /// Entries not taken yet, in the order of the file.
    rest: Vec<(String, Cursor<'a>)>,
    asked: Vec<&'static str>,
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    pub(super) fn root(node: &'a Node, problems: &'a Problems) -> Self {
        Self { node, path: String::new(), problems }
    }

    /// Reports the value as wrong: `FOUND; expected EXPECTED`.
    pub(super) fn refuse(&self, expected: impl Display) {
        self.report(format!("{}; expected {expected}", self.node.value));
    }

    /// Reports a problem in words of its own.
    pub(super) fn report(&self, message: String) {
        self.problems.at(self.node.at, &self.path, message);
    }

    /// Reads `null`, which only keys that can be switched off by it ask for.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.node.value, Value::Null)
    }

    /// Returns whether the value is a mapping, for keys that also take something else.
    pub(super) fn is_mapping(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match self.node.value {
            Value::Bool(value) => Some(value),
            _ => self.refused("true or false"),
        }
    }

    pub(super) fn whole(&self, range: RangeInclusive<u32>) -> Option<u32> {
        match self.node.value {
            Value::Whole(value) => u32::try_from(value)
                .ok()
                .filter(|value| range.contains(value))
                .or_else(|| self.out_of(&range)),
            _ => self.out_of(&range),
        }
    }

    pub(super) fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let number = match self.node.value {
            // Six digits of a whole number are exact in either type; the range refuses the rest.
            Value::Whole(value) => i32::try_from(value).ok().map(f64::from),
            Value::Fraction(value) => Some(value),
            _ => None,
        };
        number
            .filter(|number| range.contains(number))
            .or_else(|| self.refused(format_args!("a number from {} to {}", range.start(), range.end())))
    }

    pub(super) fn percent(&self, range: RangeInclusive<u8>) -> Option<u8> {
        let (low, high) = range.into_inner();
        match self.node.value {
            Value::Whole(value) => u8::try_from(value).ok().filter(|value| (low..=high).contains(value)),
            _ => None,
        }
        .or_else(|| self.refused(format_args!("a percentage as a whole number from {low} to {high}")))
    }

    /// Reads a duration within the range. Zero is a value like any other: the range says whether it is allowed.
    pub(super) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        match &self.node.value {
            Value::Text(text) => {
                if let Some(duration) = units::parse_duration(text) {
                    if range.contains(&duration) {
                        return Some(duration);
                    }
                    let [low, high] = [range.start(), range.end()].map(|end| units::format_duration(*end));
                    return self.refused(format_args!("a duration from {low} to {high}"));
                }
            }
            Value::Whole(value) if *value >= 0 => {
                self.report(format!(
                    "{value} has no unit; expected {DURATION_FORM}, perhaps {value}s or {value}ms"
                ));
                return None;
            }
            _ => {}
        }
        self.refused(format_args!("{DURATION_FORM} (units h, m, s, ms)"))
    }

    pub(super) fn size(&self, range: RangeInclusive<u64>) -> Option<u64> {
        match &self.node.value {
            Value::Text(text) => {
                if let Some(size) = units::parse_size(text) {
                    if range.contains(&size) {
                        return Some(size);
                    }
                    let [low, high] = [range.start(), range.end()].map(|end| units::format_size(*end));
                    return self.refused(format_args!("a size from {low} to {high}"));
                }
            }
            Value::Whole(value) => {
                self.report(format!("{value} has no unit; expected {SIZE_FORM}"));
                return None;
            }
            _ => {}
        }
        self.refused(format_args!("{SIZE_FORM} (units Ki, Mi, Gi)"))
    }

    pub(super) fn is_text(&self, text: &str) -> bool {
        matches!(&self.node.value, Value::Text(written) if written == text)
    }

    /// Reads text through a parser whose refusal says what it expected.
    pub(super) fn parse<T: FromStr<Err: Display>>(&self) -> Option<T> {
        // What is no text at all is refused in the words for a text that says nothing.
        let text = match &self.node.value {
            Value::Text(text) => text.as_str(),
            _ => "?",
        };
        text.parse().map_err(|expected| self.refuse(expected)).ok()
    }

    /// Reads text through a parser whose refusal is `None`.
    pub(super) fn parsed<T>(&self, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        match &self.node.value {
            Value::Text(text) => parse(text).or_else(|| self.refused(expected)),
            _ => self.refused(expected),
        }
    }

    /// Reads one of a few words; the case matters, and a wrong case is pointed out.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        if let Value::Text(text) = &self.node.value {
            if let Some((_, value)) = choices.iter().find(|(name, _)| name == text) {
                return Some(*value);
            }
            if let Some(name) = closest(text, &names) {
                return self.refused(format_args!("{}; did you mean {name}?", one_of(&names)));
            }
        }
        self.refused(one_of(&names))
    }

    /// Reads a list without duplicates, every item of it. A list with a wrong item is no list.
    pub(super) fn list<T: Eq + Hash>(
        &self,
        of: &str,
        read: impl Fn(&Cursor<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Value::List(items) = &self.node.value else {
            return self.refused(format_args!("a list of {of}"));
        };
        // With its place in the order of the file.
        let mut kept = HashMap::with_capacity(items.len());
        for (index, node) in items.iter().enumerate() {
            let cursor = Cursor { node, path: format!("{}[{index}]", self.path), problems: self.problems };
            match read(&cursor).map(|item| kept.entry(item)) {
                Some(Entry::Occupied(_)) => cursor.report(format!("{}; already listed", node.value)),
                Some(Entry::Vacant(free)) => {
                    free.insert(index);
                }
                None => {}
            }
        }
        if kept.len() < items.len() {
            return None;
        }
        let mut kept: Vec<_> = kept.into_iter().collect();
        kept.sort_unstable_by_key(|(_, index)| *index);
        Some(kept.into_iter().map(|(item, _)| item).collect())
    }

    /// Opens a mapping with fixed keys. An empty section means that nothing of it is set.
    pub(super) fn fields(&self) -> Fields<'a> {
        let rest = self.entries("a mapping").unwrap_or_default();
        Fields { path: self.path.clone(), problems: self.problems, rest, asked: Vec::new() }
    }

    /// Opens a mapping whose keys are names that the user chose.
    pub(super) fn entries(&self, expected: &str) -> Option<Vec<(String, Cursor<'a>)>> {
        let pairs = match &self.node.value {
            Value::Map(pairs) => pairs,
            Value::Null => return Some(Vec::new()),
            _ => return self.refused(expected),
        };
        let mut entries: Vec<(String, Cursor<'a>)> = Vec::new();
        let mut names = HashSet::new();
        for (key, node) in pairs {
            let Value::Text(name) = &key.value else {
                self.problems.at(key.at, &self.path, format!("{} as a key; expected a name", key.value));
                continue;
            };
            if name.len() > MAX_KEY {
                let message = format!("{} as a key; expected at most {MAX_KEY} bytes", key.value);
                self.problems.at(key.at, &self.path, message);
                continue;
            }
            let path = child(&self.path, name);
            if !names.insert(name) {
                self.problems.at(key.at, &path, "written twice; expected one value".to_owned());
                continue;
            }
            self.problems.seen(&path, node.at);
            entries.push((name.clone(), Cursor { node, path, problems: self.problems }));
        }
        Some(entries)
    }

    fn out_of<T>(&self, range: &RangeInclusive<u32>) -> Option<T> {
        match (*range.start(), *range.end()) {
            (low, u32::MAX) => self.refused(format_args!("a whole number from {low}")),
            (low, high) => self.refused(format_args!("a whole number from {low} to {high}")),
        }
    }

    fn refused<T>(&self, expected: impl Display) -> Option<T> {
        self.refuse(expected);
        None
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Returns one key's value unread, if it is there.
    pub(super) fn cursor(&mut self, key: &'static str) -> Option<Cursor<'a>> {
        self.asked.push(key);
        let index = self.rest.iter().position(|(name, _)| name == key)?;
        Some(self.rest.remove(index).1)
    }

    /// Refuses every key that was not asked for.
    pub(super) fn close(self) {
        for (done, (name, cursor)) in self.rest.iter().enumerate() {
            if self.problems.is_full() {
                return self.problems.count(self.rest.len() - done);
            }
            let found = format!("unknown key, set to {}", cursor.node.value);
            let message = match closest(name, &self.asked) {
                Some(near) => format!("{found}; did you mean {near}?"),
                None => format!("{found}; expected {}", one_of(&self.asked)),
            };
            self.problems.at(cursor.node.at, &child(&self.path, name), message);
        }
    }
}

/// Appends a key to a path: `.key` where that is unambiguous, else `["key"]`.
pub(super) fn child(path: &str, key: &str) -> String {
    let plain =
        key.starts_with(|c: char| c.is_ascii_alphabetic()) && key.chars().all(|c| c.is_ascii_alphanumeric());
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{key:?}]"),
    }
}

/// Returns the name that was probably meant: at most two slips away, or one in three letters of a short name.
pub(super) fn closest<'n>(written: &str, names: &[&'n str]) -> Option<&'n str> {
    let written = written.to_lowercase();
    let distance = |name: &&str| strsim::osa_distance(&written, &name.to_lowercase());
    let near = names.iter().min_by_key(|name| distance(name))?;
    (distance(near) <= 2.min(near.len() / 3)).then_some(*near)
}

/// Writes `a, b or c`.
pub(super) fn one_of(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let names = ["leaseDuration", "renewDeadline", "enabled"];
        assert_eq!(closest("leaseDuraton", &names), Some("leaseDuration"));
        assert_eq!(closest("leaseduration", &names), Some("leaseDuration"));
        assert_eq!(closest("ReneDeadlnie", &names), Some("renewDeadline"));
        assert_eq!(closest("burst", &names), None);
        assert_eq!(closest("", &names), None);
    }

    #[test]
    fn names_that_are_not_words_are_quoted_in_paths() {
        assert_eq!(child("", "controllers"), "controllers");
        assert_eq!(child("controllers", "*"), r#"controllers["*"]"#);
        assert_eq!(child("controllers", "wait-deployment"), r#"controllers["wait-deployment"]"#);
        assert_eq!(child("cache.kinds", "a\nb"), r#"cache.kinds["a\nb"]"#);
    }
}
