//! The templates, with the names of a project in place of those of the project `shop`.

use std::path::{Path, PathBuf};

use super::files::{File, has_extension};
use super::names::{Kind, Name};
use super::source::{identifiers, masked};
use super::{Done, Refusal};

/// A template: its path in the project, and its text.
pub(super) type Template = (&'static str, &'static str);

macro_rules! templates {
    ($($path:literal = $file:literal),* $(,)?) => {
        [$(($path, include_str!(concat!("../../templates/", $file)))),*]
    };
}

/// The files of a new project.
pub(super) const PROJECT: [Template; 17] = templates![
    "Cargo.toml" = "project/manifest.toml",
    "README.md" = "project/README.md",
    "Dockerfile" = "project/Dockerfile",
    ".dockerignore" = "project/dockerignore",
    ".gitignore" = "project/gitignore",
    ".github/workflows/ci.yaml" = "project/ci.yaml",
    "rustfmt.toml" = "rustfmt.toml",
    "config/manager.yaml" = "project/config/manager.yaml",
    "samples/shop.yaml" = "project/samples/shop.yaml",
    "src/main.rs" = "project/src/main.rs",
    "src/lib.rs" = "project/src/lib.rs",
    "src/limits.rs" = "project/src/limits.rs",
    "src/api.rs" = "project/src/api.rs",
    "src/api/shop.rs" = "project/src/api/shop.rs",
    "src/controllers.rs" = "project/src/controllers.rs",
    "src/controllers/shop.rs" = "project/src/controllers/shop.rs",
    "tests/cluster.rs" = "project/tests/cluster.rs",
];

/// The files of a further kind.
pub(super) const KIND: [Template; 3] = templates![
    "src/api/shop.rs" = "kind/api.rs",
    "src/controllers/shop.rs" = "kind/controller.rs",
    "samples/shop.yaml" = "kind/sample.yaml",
];

/// The file of a further controller. Its name is `auditor`, its kind `ConfigMap`.
pub(super) const CONTROLLER: [Template; 1] = templates!["src/controllers/auditor.rs" = "controller.rs"];

/// The replacements of the words of templates.
pub(super) struct Words<'a> {
    /// The name of the package; none in templates without it.
    pub(super) project: Option<&'a Name>,
    pub(super) kind: &'a Kind,
    pub(super) group: &'a str,
}

// === impl Words ===

impl Words<'_> {
    /// Returns a file from its template.
    pub(super) fn file(&self, (path, text): Template) -> File {
        let is_rust = has_extension(path, "rs");
        let path = path.replace("shop.rs", &format!("{}.rs", self.kind.name.snake()));
        let path = path.replace("shop.yaml", &format!("{}.yaml", self.kind.name.kebab()));
        // No name has these characters: a group or a kind with `shop` in it stays as it is.
        let text = text.replace("shop.example.com", "\0").replace("Shop", "\u{1}");
        let text = if is_rust { self.rust(&text) } else { self.other(&text) };
        let text = text.replace('\0', self.group).replace('\u{1}', &self.kind.camel);
        File { path, text }
    }

    /// Replaces `shop` in a Rust source: the crate at the head of a path, a label in strings and comments,
    /// else a module or variable.
    fn rust(&self, text: &str) -> String {
        let masked = masked(text);
        let mut result = String::new();
        let mut done = 0;
        for (at, shop) in text.match_indices("shop") {
            result.push_str(&text[done..at]);
            done = at + shop.len();
            let is_crate = masked[done..].starts_with("::") && !masked[..at].ends_with("::");
            result.push_str(&match self.project {
                _ if !masked[at..].starts_with(shop) => self.kind.name.kebab().to_owned(),
                Some(project) if is_crate => project.snake(),
                _ => self.kind.name.snake(),
            });
        }
        result + &text[done..]
    }

    fn other(&self, text: &str) -> String {
        self.project.map_or_else(|| text.to_owned(), |project| text.replace("shop", project.kebab()))
    }
}

/// Returns the file of a controller of this name for objects of the type at a path such as
/// `crate::api::shop::Shop`.
pub(super) fn controller(name: &Name, kind: &str, type_path: &str) -> File {
    let [(path, text)] = CONTROLLER;
    let text = text.replace("k8s_openapi::api::core::v1::ConfigMap", "\0").replace("ConfigMap", "\u{1}");
    let text = text.replace("Auditor", &name.camel()).replace("auditor", name.kebab());
    let text = text.replace('\0', type_path).replace('\u{1}', kind);
    File { path: path.replace("auditor", &name.snake()), text }
}

/// Refuses names that the code of these templates uses for something else: a kind `Store` would hide the
/// `Store` of the runtime.
pub(super) fn check_words(templates: &[Template], names: &[&str]) -> Done<()> {
    let used = |name: &&&str| {
        let code = |path| has_extension(path, "rs") || has_extension(path, "toml");
        templates.iter().filter(|(path, _)| code(path)).any(|(_, text)| {
            identifiers(text).iter().any(|word| word == **name && !["shop", "Shop"].contains(name))
        })
    };
    match names.iter().find(used) {
        Some(name) => Err(Refusal::new(format_args!(
            "name {name:?}: the generated code uses this word for something else; choose another one"
        ))),
        None => Ok(()),
    }
}

/// Returns the checkout of mainstay that this binary was built from, if it is still there.
pub(super) fn checkout() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let is_there = |path: &str| root.join(path).is_file();
    (is_there("Cargo.toml") && is_there("manager/Cargo.toml") && is_there("devcluster/Cargo.toml"))
        .then(|| root.to_owned())
}
