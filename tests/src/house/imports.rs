//! Finds the imports of a source as text.

use std::collections::BTreeSet;

#[test]
fn grouped_nested_and_inline_imports_are_all_found() {
    let source = "
        // use crate::comment;
        use crate::queue::{WorkQueue, retry::RetryPolicy};
        use crate::{
            cache::{Store, index::Index}, // crate::also_comment
            client,
        };
        fn f(key: &crate::key::Key) { crate::metrics::count() }
        pub(in crate::watch) fn g() {}
    ";
    let expected = ["cache", "client", "key", "metrics", "queue", "watch"].map(ToOwned::to_owned);
    assert_eq!(imports(source, "crate::"), BTreeSet::from(expected));
}

/// Returns the segment after `prefix`, which ends with `::`, of every path in a source that begins with it.
pub(super) fn imports(source: &str, prefix: &str) -> BTreeSet<String> {
    let code = without_comments(source);
    let mut found = BTreeSet::new();
    for (at, path) in code.match_indices(prefix) {
        // For example `mainstay_crate::` is another path.
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &code[at + path.len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(first_segments(group)),
            None => found.extend(identifier(rest)),
        }
    }
    found
}

pub(super) fn without_comments(source: &str) -> String {
    source
        .lines()
        .filter_map(|line| line.split("//").next())
        .fold(String::new(), |code, line| code + line + "\n")
}

/// Returns the first path segment of each item of an import group, up to its closing brace.
fn first_segments(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut item = String::new();
    let mut items = Vec::new();
    for character in group.chars() {
        match character {
            '}' if depth == 0 => break,
            ',' if depth == 0 => items.push(std::mem::take(&mut item)),
            _ => {
                depth += i32::from(character == '{') - i32::from(character == '}');
                item.push(character);
            }
        }
    }
    items.push(item);
    items.iter().filter_map(|item| identifier(item.trim())).collect()
}

fn identifier(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}
