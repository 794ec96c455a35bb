//! Checks of the published crates: their features are explained, and each one is linted alone.

use std::fs;

use super::{CRATES, workspace};

#[test]
fn every_feature_is_explained_and_linted_alone() {
    let read = |path: String| fs::read_to_string(workspace().join(&path)).expect("a readable file");
    let ci = read(".ci/run".to_owned());
    let mut missing = Vec::new();
    for (folder, _) in CRATES.iter().filter(|(folder, _)| *folder != "tests") {
        let (manifest, readme) = (read(format!("{folder}/Cargo.toml")), read(format!("{folder}/README.md")));
        let lib = read(format!("{folder}/src/lib.rs"));
        let docs: String = lib.lines().filter(|line| line.starts_with("//!")).collect();
        for feature in features(&manifest) {
            let name = format!("`{feature}`");
            if !docs.contains(&name) {
                missing.push(format!("{folder}/src/lib.rs: {name}"));
            }
            if !readme.contains(&format!("| {name} |")) {
                missing.push(format!("{folder}/README.md: {name}"));
            }
            let word = |line: &str| line.split([' ', ';', '"']).any(|word| word == feature);
            if feature != "dev" && !ci.lines().any(|line| line.contains("for features in") && word(line)) {
                missing.push(format!(".ci/run: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "features that are not mentioned:\n{}", missing.join("\n"));
}

/// Returns the names of the features in a manifest, without `default`.
fn features(manifest: &str) -> Vec<&str> {
    let table = manifest.split_once("[features]\n").map_or("", |(_, rest)| rest);
    let lines = table.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    names.filter(|name| *name != "default" && !name.starts_with(['#', ' '])).collect()
}

/// CI compiles both examples where they stand.
#[test]
fn readmes_of_crates_show_examples_as_they_are() {
    let read = |path: &str| fs::read_to_string(workspace().join(path)).expect("a readable file");
    let example = read("controllers/examples/greeter.rs");
    let program = example.find("use ").map(|begin| &example[begin..]).expect("a program");
    assert!(read("manager/README.md").contains(&format!("```rust\n{program}```\n")));

    let docs = read("devcluster/src/lib.rs");
    let shown =
        docs.lines().filter_map(|line| line.strip_prefix("//!")).filter(|line| !line.starts_with(" # "));
    let docs: String = shown.map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n").collect();
    let readme = read("devcluster/README.md");
    let code = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    assert!(docs.contains(code.expect("an example")), "devcluster/README.md shows other code than lib.rs");
}

/// Users of a package read its minimum compiler in the README, so the number there must be the true one.
#[test]
fn readmes_of_crates_state_the_compiler() {
    let root = fs::read_to_string(workspace().join("Cargo.toml")).expect("a manifest");
    let version = root.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    let stated = format!("Rust {} or later", version.expect("a version"));
    for folder in ["api", "manager", "controllers", "devcluster", "."] {
        let readme = fs::read_to_string(workspace().join(folder).join("README.md")).expect("a README");
        assert!(readme.contains(&stated), "{folder}/README.md does not state: {stated}");
    }
}
