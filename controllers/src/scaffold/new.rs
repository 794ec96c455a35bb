//! `mainstay new`: a project in a folder of its own.

use std::path::Path;

use super::files::{File, make_folder};
use super::names::{Kind, Name, check_group};
use super::templates::{PROJECT, Words, check_words};
use super::{Done, Refusal};

/// Makes a project in a new folder below `parent`, and returns what to print. Its dependencies are paths into
/// `checkout`, or versions without one.
pub(super) fn new(
    parent: &Path,
    name: &str,
    kind: Option<&str>,
    group: Option<&str>,
    checkout: Option<&Path>,
) -> Done<String> {
    let name = Name::parse_package(name)?;
    let kind = kind.map_or_else(|| Ok(Kind::of(&name)), Kind::parse)?;
    let group = group.map_or_else(|| format!("{}.example.com", name.kebab()), str::to_owned);
    check_group(&group)?;
    check_words(&PROJECT, &[&name.snake(), &kind.name.snake(), &kind.camel])?;

    let words = Words { project: Some(&name), kind: &kind, group: &group };
    let mut files: Vec<File> = PROJECT.into_iter().map(|template| words.file(template)).collect();
    let dependency = |folder: &str| dependency(checkout, folder);
    for file in files.iter_mut().filter(|file| file.path == "Cargo.toml") {
        let text = file.text.replace("@mainstay@", &dependency("manager")?);
        file.text = text.replace("@devcluster@", &dependency("devcluster")?);
    }
    // The versions that the tests of the checkout ran with. Cargo drops what the project does not need.
    let locked = checkout.and_then(|checkout| std::fs::read_to_string(checkout.join("Cargo.lock")).ok());
    files.extend(locked.map(|text| File { path: "Cargo.lock".to_owned(), text }));
    make_folder(parent, name.kebab(), &files)?;

    let mut report = vec![format!("created {}/ with {} files\n", name.kebab(), files.len())];
    report.extend(checkout.map(|checkout| {
        format!(
            "its dependencies are paths into {}, because this binary was built there; the image and CI need \
             published versions: use --registry after the crates are published\n",
            checkout.display()
        )
    }));
    report.push(format!("next: cd {} && cargo run -- dev\n", name.kebab()));
    Ok(report.concat())
}

/// Returns the source of a crate of mainstay as a manifest names it.
fn dependency(checkout: Option<&Path>, folder: &str) -> Done<String> {
    let Some(checkout) = checkout else {
        let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
        return Ok(format!("version = \"{major}.{minor}\""));
    };
    // A string of JSON is one of TOML too.
    let path = serde_json::to_string(&checkout.join(folder)).map_err(Refusal::new)?;
    Ok(format!("path = {path}"))
}
