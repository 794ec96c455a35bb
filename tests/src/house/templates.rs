//! Checks of the templates of `mainstay new`: their versions are those of this workspace.

use std::fs;

use super::workspace;

#[test]
fn a_new_project_has_the_versions_of_the_workspace() {
    let read = |path: &str| fs::read_to_string(workspace().join(path)).expect("a readable file");
    let (ours, theirs) = (read("Cargo.toml"), read("controllers/templates/project/manifest.toml"));
    let (_, dependencies) = theirs.split_once("[dependencies]").expect("dependencies");
    let mut compared = 0;
    for line in dependencies.lines() {
        let Some((name, version)) = versioned(line) else { continue };
        let expected = ours.lines().filter_map(versioned).find(|(known, _)| *known == name);
        assert_eq!(expected, Some((name, version)), "{line}");
        compared += 1;
    }
    assert!(compared >= 7, "{compared} versions found in {theirs}");
    let rust = ours.lines().find(|line| line.starts_with("rust-version")).expect("a version of Rust");
    assert!(theirs.contains(rust), "{rust}");
    let (_, rust) = rust.split_once(" = ").expect("a value");
    let rust = rust.trim_matches('"');
    for (path, text) in [("ci.yaml", format!("install {rust} ")), ("Dockerfile", format!("rust:{rust}-"))] {
        assert!(read(&format!("controllers/templates/project/{path}")).contains(&text), "{path}: {text}");
    }
}

/// Returns name and version of a dependency in a line of a manifest.
fn versioned(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(" = ")?;
    let value = value.strip_prefix("{ version = ").unwrap_or(value);
    Some((name, value.strip_prefix('"')?.split('"').next()?))
}
