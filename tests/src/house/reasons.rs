//! The page of reasons in the book is made from the doc comments in `controllers/src/reasons.rs`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use super::workspace;

/// The line on the page after which the tables begin.
const BEGIN: &str =
    "<!-- `MAINSTAY_UPDATE=1 cargo test -p mainstay-tests --lib reasons` writes what follows. -->\n";
/// The beginnings of doc comments, and the headings of their tables.
const TABLES: [(&str, &str); 6] = [
    ("Condition type", "Conditions"),
    ("Reason of a condition", "Reasons of conditions"),
    ("Reason of the condition `TemplateAccepted`", "Reasons of the condition `TemplateAccepted`"),
    ("Reason of the condition `UpdateHeld`", "Reasons of the condition `UpdateHeld`"),
    ("Reason of an Event", "Reasons of Events"),
    ("Reason of a dependency", "Reasons of dependencies"),
];

/// The beginning of the doc comment of a reason that belongs to two tables.
const BOTH: &str = "Reason of a condition or dependency";

#[test]
fn the_page_of_reasons_is_made_from_the_code() {
    let source = fs::read_to_string(workspace().join("controllers/src/reasons.rs")).expect("the reasons");
    let made = tables(&source);
    let path = workspace().join("docs/reference/reasons.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (before, listed) = page.split_once(BEGIN).expect("the line before the tables");
    if std::env::var_os("MAINSTAY_UPDATE").is_some_and(|value| value == "1") {
        fs::write(path, [before, BEGIN, &made].concat()).expect("written");
        return;
    }
    assert!(listed == made, "docs/reference/reasons.md differs from controllers/src/reasons.rs:\n{made}");
}

/// Returns a table for each kind of constant, with a row for each value.
fn tables(source: &str) -> String {
    let mut rows: BTreeMap<usize, String> = BTreeMap::new();
    let (mut doc, mut values) = (String::new(), BTreeMap::new());
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            doc = [doc.as_str(), text].join(" ");
            continue;
        }
        let constant = line.strip_prefix("pub const ").and_then(|rest| rest.strip_suffix(';'));
        if let Some((name, value)) = constant.and_then(|rest| rest.split_once(": &str = ")) {
            let value = match value.strip_prefix("super::") {
                Some(other) => values.get(other).cloned().expect("a constant above"),
                None => value.trim_matches('"').to_owned(),
            };
            values.entry(name.to_owned()).or_insert_with(|| value.clone());
            let docs = match doc.trim_start().strip_prefix(BOTH) {
                Some(rest) => ["condition", "dependency"].map(|of| format!("Reason of a {of}{rest}")).into(),
                None => vec![doc.trim_start().to_owned()],
            };
            for doc in docs {
                let known = TABLES.iter().enumerate().find_map(|(table, (begin, _))| {
                    let rest = doc.strip_prefix(begin)?;
                    rest.starts_with([':', '.', ' ']).then_some((table, rest))
                });
                let Some((table, rest)) = known else { continue };
                let meaning = rest.trim_start_matches([':', '.', ' ']).trim_end_matches('.');
                writeln!(rows.entry(table).or_default(), "| `{value}` | {meaning} |").expect("a String");
            }
        }
        doc.clear();
    }
    let mut made = String::new();
    for (table, rows) in rows {
        writeln!(made, "\n## {}\n\n| | |\n|---|---|\n{}", TABLES[table].1, rows.trim_end())
            .expect("a String");
    }
    made
}
