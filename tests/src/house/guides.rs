//! Checks of the documentation: its code is that of the examples, and the tests that it cites exist.

use std::fs;

use super::book::pages;
use super::{CRATES, rust_files, workspace};

/// CI compiles the example, so the code in the README compiles too.
#[test]
fn the_readme_shows_the_example_as_it_is() {
    let readme = fs::read_to_string(workspace().join("README.md")).expect("README.md");
    let example = workspace().join("controllers/examples/greeter.rs");
    let example = fs::read_to_string(example).expect("the example");
    let program = example.find("use ").map(|begin| &example[begin..]).expect("a program");
    assert!(
        readme.contains(&format!("```rust\n{program}```\n")),
        "README.md shows another program than {example}"
    );
}

/// A block of `rust` on a page is part of a source or of an example in a doc comment, so CI compiles it. Code of
/// other frameworks, and included files, are in blocks of `rust,ignore`.
#[test]
fn pages_show_code_that_is_compiled() {
    let folders = CRATES.map(|(folder, _)| workspace().join(folder));
    let files = folders.iter().flat_map(|folder| rust_files(folder));
    let sources: Vec<String> =
        files.map(|file| fs::read_to_string(file).expect("a readable source")).collect();
    let documented: Vec<String> = sources.iter().map(|source| without_comment_marks(source)).collect();
    let (mut blocks, mut unknown) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(workspace().join(&page)).expect("a readable page");
        for block in text.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            blocks += 1;
            if !sources.iter().chain(&documented).any(|source| source.contains(block)) {
                unknown.push(format!("{page}:\n{block}"));
            }
        }
    }
    assert!(blocks > 30, "{blocks} blocks");
    assert!(unknown.is_empty(), "code that no source has:\n{}", unknown.join("\n"));
}

/// Returns a source with the marks of its doc comments removed, and without the hidden lines of their examples,
/// so that a page can show these examples.
fn without_comment_marks(source: &str) -> String {
    let lines = source.lines().filter_map(|line| {
        let doc = ["///", "//!"].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        let Some(doc) = doc else { return Some(line) };
        let text = doc.strip_prefix(' ').unwrap_or(doc);
        (text != "#" && !text.starts_with("# ")).then_some(text)
    });
    lines.fold(String::new(), |text, line| text + line + "\n")
}

/// A decision in `docs/decisions` cites the tests that prove it, so these tests must exist.
#[test]
fn every_test_named_by_a_decision_exists() {
    let folders = CRATES.map(|(folder, _)| workspace().join(folder));
    let sources = folders.iter().flat_map(|folder| rust_files(folder));
    let code: String = sources.map(|file| fs::read_to_string(file).expect("a readable source")).collect();
    let mut missing = Vec::new();
    for decision in ["behaviours.md", "defects.md", "differences.md"] {
        let text = fs::read_to_string(workspace().join("docs/decisions").join(decision)).expect("a decision");
        let named: Vec<&str> = text.lines().flat_map(tests_of_row).collect();
        assert!(!named.is_empty(), "{decision} has no table whose last column names tests");
        missing.extend(
            named
                .into_iter()
                .filter(|name| {
                    let found = if name.contains('/') {
                        workspace().join(name).exists()
                    } else {
                        code.contains(&format!("fn {name}("))
                    };
                    !found
                })
                .map(|name| format!("{decision}: {name}")),
        );
    }
    assert!(missing.is_empty(), "no such test or file:\n{}", missing.join("\n"));
}

/// Returns the names of tests between backticks in the last column of a table row.
fn tests_of_row(row: &str) -> impl Iterator<Item = &str> {
    let cells = row.strip_prefix('|').and_then(|row| row.trim_end().strip_suffix('|'));
    let tests = cells.and_then(|cells| cells.rsplit('|').next()).unwrap_or_default();
    tests.split('`').skip(1).step_by(2)
}
