//! Finds the position of an error in the text of a rule.
//!
//! The parser gives no positions for a valid expression, so the text is searched: the checker visits the
//! names of a rule in the order of the text, so the n-th visit of a name belongs to its n-th occurrence.

use std::collections::HashMap;

/// The part of an expression that an error refers to.
#[derive(Debug)]
pub(super) enum Anchor<'a> {
    /// A variable.
    Ident(&'a str),
    /// A field. Errors point at the dot in front of it.
    Select(&'a str),
    /// A function. Errors point at the bracket behind it.
    Call(&'a str),
    /// An operator.
    Operator(&'a str),
}

impl Anchor<'_> {
    fn name(&self) -> String {
        match self {
            Self::Ident(name) => format!("i{name}"),
            Self::Select(name) => format!("s{name}"),
            Self::Call(name) => format!("c{name}"),
            Self::Operator(name) => format!("o{name}"),
        }
    }
}

/// The occurrences of names in a rule.
pub(super) struct Places<'a> {
    source: &'a str,
    /// The characters of the source. Those in string literals are blanked.
    code: Vec<char>,
    passed: HashMap<String, usize>,
}

impl<'a> Places<'a> {
    pub(super) fn new(source: &'a str) -> Self {
        let mut code: Vec<char> = Vec::new();
        let mut quote = None;
        let mut escaped = false;
        for c in source.chars() {
            let inside = quote.is_some();
            match quote {
                None if matches!(c, '\'' | '"') => quote = Some(c),
                Some(end) if c == end && !escaped => quote = None,
                _ => {}
            }
            escaped = inside && c == '\\' && !escaped;
            code.push(if inside && c != '\n' { ' ' } else { c });
        }
        Self { source, code, passed: HashMap::new() }
    }

    /// Counts one more visit of a name.
    pub(super) fn pass(&mut self, anchor: &Anchor<'_>) {
        *self.passed.entry(anchor.name()).or_default() += 1;
    }

    /// Formats an error at the last visited occurrence.
    pub(super) fn located(&self, anchor: &Anchor<'_>, message: &str) -> String {
        let nth = self.passed.get(&anchor.name()).copied().unwrap_or(1).saturating_sub(1);
        let found: Vec<usize> = (0..self.code.len()).filter_map(|at| self.matches(anchor, at)).collect();
        let at = found.get(nth).or(found.last()).copied().unwrap_or(0);
        let before = self.code.get(..at).unwrap_or_default();
        let line = before.iter().filter(|c| **c == '\n').count();
        let column = before.iter().rev().take_while(|c| **c != '\n').count();
        super::located(self.source, line + 1, column + 1, message)
    }

    /// Returns the position of the error if the anchor's text starts at `at`.
    fn matches(&self, anchor: &Anchor<'_>, at: usize) -> Option<usize> {
        let (Anchor::Ident(text) | Anchor::Select(text) | Anchor::Call(text) | Anchor::Operator(text)) =
            anchor;
        let end = at + text.chars().count();
        if !self.code.get(at..end)?.iter().copied().eq(text.chars()) {
            return None;
        }
        let is_name = |c: &char| c.is_alphanumeric() || *c == '_';
        let skip = |c: &&char| !c.is_whitespace();
        let before = self.code.get(..at)?.iter().rev().find(skip);
        let touches =
            at > 0 && self.code.get(at - 1).is_some_and(is_name) || self.code.get(end).is_some_and(is_name);
        let after = self.code.get(end..)?.iter().position(|c| !c.is_whitespace()).map(|offset| end + offset);
        let calls = after.is_some_and(|at| self.code.get(at) == Some(&'('));
        match anchor {
            Anchor::Operator(_) => {
                let part =
                    |c: Option<&char>| c.is_some_and(|c| matches!(c, '<' | '>' | '=' | '!' | '&' | '|'));
                let longer = part(self.code.get(end)) || at > 0 && part(self.code.get(at - 1));
                (!longer).then_some(at)
            }
            _ if touches => None,
            Anchor::Ident(_) => (before != Some(&'.') && !calls).then_some(at),
            Anchor::Select(_) if before == Some(&'.') && !calls => {
                self.code.get(..at)?.iter().rposition(|c| *c == '.')
            }
            Anchor::Call(_) if calls => after,
            _ => None,
        }
    }
}
