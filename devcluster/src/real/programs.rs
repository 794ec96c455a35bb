//! Finds or builds the programs of a control plane.
//!
//! They are in `KUBEBUILDER_ASSETS` if set; else they are built from `tests/controlplane` of the source tree
//! in which this crate was compiled, and built again after changes if Go is installed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::real::progress::Progress;

/// Environment variable, also of envtest, with the folder of programs that the user has chosen.
const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// Path of the script that builds the programs, relative to the workspace.
const BUILD_SCRIPT: &str = "tests/controlplane/build";
/// Folder into which the build script writes the programs, relative to the workspace.
const BUILT_FOLDER: &str = "target/controlplane/bin";

/// File names of the programs that one cluster needs.
const NAMES: [&str; 6] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl"];

/// A folder that holds every program of a control plane by its usual name.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) folder: PathBuf,
}

/// Where to search for the programs of a control plane: the chosen folder, the workspace, and whether Go is
/// installed to build them.
#[derive(Debug)]
struct Search {
    chosen: Option<PathBuf>,
    assets: Option<PathBuf>,
    workspace: PathBuf,
    /// Whether the program `go` is on the path, so that the control plane can be built.
    go: bool,
}

/// The reason why no programs of a control plane could be found or built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramsError {
    /// The folder that the user chose lacks some of the programs.
    #[error(
        "{origin} is {folder}, which lacks {missing}; add them, or unset it to build all from \
         tests/controlplane",
        folder = .folder.display(), missing = .missing.join(", ")
    )]
    Incomplete {
        /// The setting or variable that chose the folder, such as `KUBEBUILDER_ASSETS`.
        origin: &'static str,
        /// The chosen folder.
        folder: PathBuf,
        /// Names of the programs that the chosen folder lacks.
        missing: Vec<&'static str>,
    },
    /// No folder with programs was found, and Go is not installed to build them. Tests skip on this error.
    #[error(
        "no control plane here: set KUBEBUILDER_ASSETS to a folder with {names}, or install Go 1.26 or later \
         to build them",
        names = NAMES.join(", ")
    )]
    Unavailable,
    /// The script that builds the programs could not be started.
    #[error("starting {script} failed", script = .script.display())]
    Script {
        /// Path of the build script.
        script: PathBuf,
        /// The error of the start of the script.
        source: io::Error,
    },
    /// The build of the programs failed. All its output was reported as progress.
    #[error("building the control plane failed ({status}); last lines: {last}")]
    Build {
        /// Exit status of the build script.
        status: std::process::ExitStatus,
        /// Last lines of the output of the build script.
        last: String,
    },
}

impl Programs {
    /// Returns the folder of the programs of a control plane; builds them where needed and possible.
    pub(crate) async fn find(chosen: Option<PathBuf>, progress: &Progress) -> Result<Self, ProgramsError> {
        let search = Search {
            chosen,
            assets: std::env::var_os(ASSETS_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from),
            // The crate lies one level below the workspace. An installed binary may have outlived its source
            // tree.
            workspace: Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default(),
            go: on_path("go"),
        };
        Self::find_in(search, progress).await
    }

    async fn find_in(search: Search, progress: &Progress) -> Result<Self, ProgramsError> {
        if let Some(folder) = search.chosen {
            return Self::complete("the chosen folder", folder);
        }
        if let Some(folder) = search.assets {
            return Self::complete(ASSETS_VARIABLE, folder);
        }
        let script = search.workspace.join(BUILD_SCRIPT);
        if search.go && script.is_file() {
            build(&script, progress).await?;
        }
        match Self::complete(BUILT_FOLDER, search.workspace.join(BUILT_FOLDER)) {
            // Go without a source tree, and so without the script, is the same case.
            Err(ProgramsError::Incomplete { .. }) => Err(ProgramsError::Unavailable),
            found => found,
        }
    }

    fn complete(origin: &'static str, folder: PathBuf) -> Result<Self, ProgramsError> {
        // The programs run in a folder of their own, where a relative path would point elsewhere.
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let missing: Vec<_> = NAMES.into_iter().filter(|name| !folder.join(name).is_file()).collect();
        if missing.is_empty() {
            Ok(Self { folder })
        } else {
            Err(ProgramsError::Incomplete { origin, folder, missing })
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Runs the script that builds the programs of a control plane; it does nothing if they are up to date.
async fn build(script: &Path, progress: &Progress) -> Result<(), ProgramsError> {
    const KEPT_LINES: usize = 10;
    let failed = |source| ProgramsError::Script { script: script.to_owned(), source };
    let mut child = Command::new("bash")
        .arg(script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut last = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let mut lines = BufReader::new(stderr).lines();
        while let Some(line) = lines.next_line().await.map_err(failed)? {
            progress.report(&line);
            last.push(line);
            if last.len() > KEPT_LINES {
                last.remove(0);
            }
        }
    }
    let status = child.wait().await.map_err(failed)?;
    if status.success() { Ok(()) } else { Err(ProgramsError::Build { status, last: last.join("; ") }) }
}

fn on_path(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
}

#[cfg(test)]
mod tests;
