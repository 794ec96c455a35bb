//! What the shipped file says of each key: its comments, by path.
//!
//! The file is the documentation; what else needs such texts takes them from here instead of having its own.

use std::collections::HashMap;

use super::cursor::child;

/// The comments above one key, joined, without the default, which whoever asks knows as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comment {
    pub(super) text: String,
    /// What stands between `Default:` and the next sentence; empty for a section.
    pub(super) default: String,
}

/// Returns the comments of a file that has one key on a line, as the shipped one has. Of several comments above a key
/// the one that touches it counts.
pub(super) fn comments(text: &str) -> HashMap<String, Comment> {
    let mut found = HashMap::new();
    // The keys around the line, each with how far it is indented.
    let mut around: Vec<(usize, String)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(words) = trimmed.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        let words = std::mem::take(&mut comment).join(" ");
        let Some((key, _)) = trimmed.split_once(':') else { continue };
        let indent = line.len() - trimmed.len();
        around.retain(|(outer, _)| *outer < indent);
        let path = child(around.last().map_or("", |(_, path)| path), key.trim_matches('"'));
        around.push((indent, path.clone()));
        if !words.is_empty() {
            found.insert(path, Comment::of(&words));
        }
    }
    found
}

// === impl Comment ===

impl Comment {
    fn of(words: &str) -> Self {
        let split =
            words.split_once("Default: ").and_then(|(text, rest)| Some((text, rest.split_once(". ")?)));
        match split {
            Some((text, (default, rest))) => {
                Self { text: format!("{text}{rest}"), default: default.trim_matches('"').to_owned() }
            }
            None => Self { text: words.to_owned(), default: String::new() },
        }
    }
}
