//! Builds the program with cargo, with the profile that it was built with, and with its default features.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

use serde::Deserialize;
use tokio::process::Command;

use super::sources;
use crate::reconcile::BoxError;

/// The command that builds the program.
#[derive(Debug)]
pub(super) struct Build {
    /// The manifest of the package.
    manifest: PathBuf,
    /// The name of the binary or example.
    target: String,
    arguments: Vec<OsString>,
}

/// The result of a build.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Built {
    /// The executable; `None` if the build failed.
    pub(super) executable: Option<PathBuf>,
    /// The sources on this machine that the program consists of, as far as they were built.
    pub(super) sources: BTreeSet<PathBuf>,
}

/// The parts of a line of `cargo build --message-format json` that are used.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    package_id: String,
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    src_path: PathBuf,
}

/// The parts of the answer of `cargo metadata` that are used.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

// === impl Build ===

impl Build {
    /// Returns the command that builds the running program. The package is the one that `cargo run` started,
    /// or that of the current folder.
    ///
    /// # Errors
    /// There is no manifest in the current folder or above it, or its packages have no such program.
    pub(super) fn of_this_program() -> Result<Self, String> {
        let executable = env::current_exe().map_err(|error| format!("the running program: {error}"))?;
        let folder = match env::var_os("CARGO_MANIFEST_DIR") {
            Some(folder) => PathBuf::from(folder),
            None => env::current_dir().map_err(|error| format!("the current folder: {error}"))?,
        };
        let build = Self::of(&executable, &folder)?;
        build.check()?;
        Ok(build)
    }

    fn of(executable: &Path, folder: &Path) -> Result<Self, String> {
        let manifest = folder.ancestors().map(|folder| folder.join("Cargo.toml")).find(|file| file.is_file());
        let manifest = manifest.ok_or_else(|| {
            let folder = folder.display();
            format!(
                "{folder}: no Cargo.toml here or above; --watch builds the program with cargo in its package"
            )
        })?;
        let target = executable.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name_of = |folder: Option<&Path>| folder.and_then(Path::file_name).unwrap_or_default().to_owned();
        let mut folder = executable.parent();
        let is_example = name_of(folder) == "examples";
        if is_example {
            folder = folder.and_then(Path::parent);
        }
        let profile = name_of(folder);
        let mut arguments: Vec<OsString> =
            ["build", "--message-format", "json-render-diagnostics", "--manifest-path"]
                .map(Into::into)
                .into();
        arguments.push(manifest.clone().into());
        arguments.extend([if is_example { "--example" } else { "--bin" }, &target].map(OsString::from));
        if profile != "debug" {
            arguments.extend(["--profile".into(), profile]);
        }
        Ok(Self { manifest, target, arguments })
    }

    /// Checks that the packages of the manifest have the program. An installed program has none of them.
    fn check(&self) -> Result<(), String> {
        let mut command = process::Command::new(cargo());
        command.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]);
        let output = command.arg(&self.manifest).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("{}: {error}", Path::new(&cargo()).display()))?;
        let manifest = self.manifest.display();
        let metadata: Metadata = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{manifest}: cargo metadata ({}): {error}", output.status))?;
        let mut targets = metadata.packages.iter().flat_map(|package| &package.targets);
        if targets.any(|target| target.name == self.target) {
            return Ok(());
        }
        Err(format!(
            "{manifest}: no program {}; --watch needs the package of the running program: cargo run -- dev --watch",
            self.target
        ))
    }

    /// Returns the folder of the package.
    pub(super) fn package(&self) -> &Path {
        self.manifest.parent().unwrap_or(Path::new("."))
    }

    /// Runs the build. cargo prints its progress and the errors of the compiler on standard error.
    ///
    /// # Cancel safety
    /// Dropping it kills cargo.
    pub(super) async fn run(&self) -> Result<Built, BoxError> {
        let cargo = cargo();
        let mut command = Command::new(&cargo);
        // `cargo run` sets these variables of a package for the program. If the build had them, build scripts
        // that depend on them would run again here, and once more in the next build without them.
        let of_cargo = |name: &str| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_");
        for (name, _) in env::vars_os().filter(|(name, _)| of_cargo(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().map_err(|error| format!("{}: {error}", Path::new(&cargo).display()))?;
        let output = child.wait_with_output().await?;
        let mut built = self.built(&String::from_utf8_lossy(&output.stdout));
        if !output.status.success() {
            built.executable = None;
        }
        Ok(built)
    }

    /// Reads the messages of cargo.
    fn built(&self, messages: &str) -> Built {
        let mut built = Built::default();
        for message in messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok()) {
            let Message { package_id, manifest_path, executable, target } = message;
            let Some(target) = target else { continue };
            if package_id.starts_with("path+")
                && let Some(package) = manifest_path.as_deref().and_then(Path::parent)
            {
                built.sources.extend(sources::of_package(package));
                // A crate elsewhere than in `src`. The folder of the package also has what cargo writes.
                let folder = target.src_path.parent().filter(|folder| !package.starts_with(folder));
                built.sources.extend(folder.map(Path::to_owned));
            }
            if executable.is_some() && target.name == self.target {
                built.executable = executable;
            }
        }
        built
    }
}

fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

#[cfg(test)]
mod tests;
