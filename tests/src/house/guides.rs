//! Checks of the documentation: its code is that of the examples, and the tests that it cites exist.

use std::fs;

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

/// CI compiles and tests the examples, so the code in the guides works.
#[test]
fn the_guides_show_their_examples_as_they_are() {
    let read = |path: &str| fs::read_to_string(workspace().join(path)).expect("a readable file");
    for (guide, examples) in [
        ("docs/testing.md", &["controllers/examples/copier.rs", "manager/src/manager/testing.rs"][..]),
        ("docs/writing.md", &["controllers/examples/directory.rs"]),
        ("docs/clusters.md", &["manager/src/manager/cluster.rs"]),
        ("docs/configuration.md", &["controllers/examples/shop.rs"]),
        (
            "docs/coming-from.md",
            &[
                "manager/src/reconcile/writes.rs",
                "manager/src/reconcile/object.rs",
                "manager/src/watch/handler.rs",
                "controllers/examples/shop.rs",
            ],
        ),
    ] {
        let (text, example) = (read(guide), examples.iter().map(|example| read(example)).collect::<String>());
        let documented = without_comment_marks(&example);
        let blocks: Vec<_> =
            text.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert!(!blocks.is_empty(), "{guide} shows no code");
        for block in blocks {
            let shown = example.contains(block) || documented.contains(block);
            assert!(shown, "{guide} shows code that is not in the example:\n{block}");
        }
    }
}

/// How-to pages have short listings, from any example or doc comment of the runtime.
#[test]
fn how_to_pages_show_code_that_is_compiled() {
    let mut files = rust_files(&workspace().join("controllers/examples"));
    files.extend(rust_files(&workspace().join("manager/src")));
    let sources: Vec<String> =
        files.iter().map(|file| fs::read_to_string(file).expect("a readable source")).collect();
    let documented: Vec<String> = sources.iter().map(|source| without_comment_marks(source)).collect();
    let mut pages = 0;
    for page in fs::read_dir(workspace().join("docs/how-to")).expect("a readable folder") {
        let page = page.expect("a readable entry").path();
        let text = fs::read_to_string(&page).expect("a readable page");
        for block in text.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let is_shown = sources.iter().chain(&documented).any(|source| source.contains(block));
            assert!(is_shown, "{} shows code that no example has:\n{block}", page.display());
        }
        pages += 1;
    }
    assert!(pages > 5, "{pages} pages");
}

/// Returns a source with the marks of its doc comments removed, so that examples in them can be found.
fn without_comment_marks(source: &str) -> String {
    let lines = source.lines().map(|line| {
        line.trim_start().strip_prefix("///").map_or(line, |doc| doc.strip_prefix(' ').unwrap_or(doc))
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
