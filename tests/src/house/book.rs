//! Checks of the book: every page is a chapter, and every link and every included file exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::workspace;

#[test]
fn every_page_is_a_chapter() {
    let summary = read("docs/SUMMARY.md");
    let chapters: Vec<String> = links(&summary).map(|link| format!("docs/{link}")).collect();
    let listed: BTreeSet<&str> = chapters.iter().map(String::as_str).collect();
    assert_eq!(listed.len(), chapters.len(), "docs/SUMMARY.md lists a page twice");
    let pages: BTreeSet<String> = pages().into_iter().filter(|page| page.starts_with("docs/")).collect();
    let pages: BTreeSet<&str> =
        pages.iter().map(String::as_str).filter(|page| *page != "docs/SUMMARY.md").collect();
    assert_eq!(listed, pages, "docs/SUMMARY.md must list every page");
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = read(&page);
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (path, heading) =
                link.split_once('#').map_or((link, None), |(path, part)| (path, Some(part)));
            let target = if path.is_empty() { page.clone() } else { resolve(&page, path) };
            let exists = workspace().join(&target).exists();
            let has_heading = |heading: &str| {
                Path::new(&target).extension().is_none_or(|kind| kind != "md")
                    || headings(&read(&target)).any(|found| found == heading)
            };
            if !exists || !heading.is_none_or(has_heading) {
                wrong.push(format!("{page}: {link}"));
            }
        }
        let included = text.split("{{#include ").skip(1).filter_map(|rest| rest.split([':', '}']).next());
        for path in included.filter(|path| !workspace().join(resolve(&page, path)).is_file()) {
            wrong.push(format!("{page}: includes {path}"));
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn links_and_headings_are_found_as_markdown_has_them() {
    let text = "See [a](b.md) and [`c` d](../e.md#f), ![g](h.png).\n```sh\n[no](link)\n```\n[i]: j.md\n";
    assert_eq!(links(text).collect::<Vec<_>>(), ["b.md", "../e.md#f", "h.png", "j.md"]);
    let text = "# `run`, and its *flags*\n```\n# no heading\n```\n## Mm-hm (1.0)\n";
    assert_eq!(headings(text).collect::<Vec<_>>(), ["run-and-its-flags", "mm-hm-10"]);
    assert_eq!(resolve("docs/how-to/a.md", "../../api/src/./b.rs"), "api/src/b.rs");
}

/// Returns the paths of all pages, relative to the workspace.
pub(super) fn pages() -> Vec<String> {
    let crates = ["api", "manager", "controllers", "devcluster"].map(|folder| format!("{folder}/README.md"));
    let mut pages = vec!["README.md".to_owned(), "CHANGELOG.md".to_owned()];
    pages.extend(crates);
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(workspace().join(&folder)).expect("a readable folder") {
            let entry = entry.expect("a readable entry");
            let path = format!("{folder}/{}", entry.file_name().display());
            if entry.path().is_dir() {
                folders.push(path);
            } else if entry.path().extension().is_some_and(|kind| kind == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// Returns the targets of the links of a page, in order.
fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text).flat_map(|line| {
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let reference =
            line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
        inline.chain(reference)
    })
}

/// Returns the anchors of the headings of a page.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|line| line.starts_with('#')).map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|symbol| symbol.is_alphanumeric() || " -_".contains(*symbol));
        kept.map(|symbol| if symbol == ' ' { '-' } else { symbol }).collect()
    })
}

/// Returns the lines outside blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// Returns the path, relative to the workspace, of a link on a page.
fn resolve(page: &str, link: &str) -> String {
    let mut path = PathBuf::from(page);
    path.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.display().to_string()
}

fn read(path: &str) -> String {
    fs::read_to_string(workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
