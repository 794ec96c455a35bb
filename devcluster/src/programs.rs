//! Where the programs of a control plane come from.
//!
//! `KUBEBUILDER_ASSETS` if set; else those built from `tests/controlplane` of the source tree this crate was
//! compiled in, brought up to date first if Go is there.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::cluster::Progress;

/// The variable of envtest and its kin; whoever sets it has chosen the programs.
const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// The build script, and where it puts its programs unless told otherwise.
const BUILD_SCRIPT: &str = "tests/controlplane/build";
const BUILT_FOLDER: &str = "target/controlplane/bin";

/// What one cluster needs.
const NAMES: [&str; 6] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl"];

/// A folder that holds every program by its usual name.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
}

/// Where to look: what the environment says, as a value.
#[derive(Debug)]
struct Place {
    chosen: Option<PathBuf>,
    assets: Option<PathBuf>,
    workspace: PathBuf,
    /// Whether Go is on the path.
    go: bool,
}

/// Why there are no programs to start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramsError {
    /// The folder was chosen by hand and is not complete.
    #[error(
        "{origin} is {folder}, which lacks {missing}; add them, or unset it to build all from tests/controlplane",
        folder = .folder.display(), missing = .missing.join(", ")
    )]
    Incomplete {
        /// Who chose the folder.
        origin: &'static str,
        /// The folder.
        folder: PathBuf,
        /// The programs that are not in it.
        missing: Vec<&'static str>,
    },
    /// No programs, and no way to build them here. Tests may skip on it.
    #[error(
        "no control plane here: set KUBEBUILDER_ASSETS to a folder with {names}, or install Go 1.26 or later to \
         build them",
        names = NAMES.join(", ")
    )]
    Unavailable,
    /// The build script could not be started.
    #[error("starting {script} failed", script = .script.display())]
    Script {
        /// The script.
        script: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The build failed; its own words were passed on as progress and end the text.
    #[error("building the control plane failed ({status}); last lines: {last}")]
    Build {
        /// How the script ended.
        status: std::process::ExitStatus,
        /// Its last lines.
        last: String,
    },
}

impl Programs {
    /// Finds the programs, building them where that is possible and needed.
    pub(crate) async fn find(chosen: Option<PathBuf>, progress: &Progress) -> Result<Self, ProgramsError> {
        let place = Place {
            chosen,
            assets: std::env::var_os(ASSETS_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from),
            // The crate lies one level below the workspace. An installed binary may have outlived its source tree.
            workspace: Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default(),
            go: on_path("go"),
        };
        Self::find_in(place, progress).await
    }

    async fn find_in(place: Place, progress: &Progress) -> Result<Self, ProgramsError> {
        if let Some(folder) = place.chosen {
            return Self::complete("the chosen folder", folder);
        }
        if let Some(folder) = place.assets {
            return Self::complete(ASSETS_VARIABLE, folder);
        }
        let script = place.workspace.join(BUILD_SCRIPT);
        if place.go && script.is_file() {
            build(&script, progress).await?;
        }
        match Self::complete(BUILT_FOLDER, place.workspace.join(BUILT_FOLDER)) {
            // Whoever has Go and no source tree lacks the script, which comes to the same.
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

/// Runs the build script, which itself decides whether there is anything to do.
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
            progress.tell(&line);
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
mod tests {
    use super::*;

    use std::fs;
    use std::sync::{Arc, Mutex};

    /// A workspace with these built programs and, if there is one, this build script.
    fn workspace(built: &[&str], script: Option<&str>) -> tempfile::TempDir {
        let workspace = tempfile::tempdir().unwrap();
        let folder = workspace.path().join(BUILT_FOLDER);
        fs::create_dir_all(&folder).unwrap();
        for name in built {
            fs::write(folder.join(name), "").unwrap();
        }
        if let Some(text) = script {
            let path = workspace.path().join(BUILD_SCRIPT);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
        }
        workspace
    }

    fn place(workspace: &tempfile::TempDir, go: bool) -> Place {
        Place { chosen: None, assets: None, workspace: workspace.path().to_owned(), go }
    }

    #[tokio::test]
    async fn an_incomplete_assets_folder_is_refused_by_the_names_it_lacks() {
        let workspace = workspace(&["etcd", "kube-apiserver", "kubectl"], None);
        let folder = workspace.path().join(BUILT_FOLDER);
        let place = Place { assets: Some(folder.clone()), ..place(&workspace, true) };
        let error = Programs::find_in(place, &Progress::default()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "KUBEBUILDER_ASSETS is {}, which lacks kube-controller-manager, kube-scheduler, kwok; add them, or \
                 unset it to build all from tests/controlplane",
                folder.display()
            )
        );
    }

    #[tokio::test]
    async fn without_go_what_was_built_before_is_used_as_it_is() {
        let workspace = workspace(&NAMES, Some("echo must not run >&2; exit 1"));
        let found = Programs::find_in(place(&workspace, false), &Progress::default()).await.unwrap();
        assert_eq!(found.path("etcd"), workspace.path().join(BUILT_FOLDER).join("etcd"));
    }

    #[tokio::test]
    async fn without_go_and_programs_the_text_says_what_to_do() {
        let workspace = workspace(&[], Some("exit 1"));
        let error = Programs::find_in(place(&workspace, false), &Progress::default()).await.unwrap_err();
        assert!(matches!(error, ProgramsError::Unavailable), "tests may skip on it");
        assert_eq!(
            error.to_string(),
            "no control plane here: set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, \
             kube-controller-manager, kube-scheduler, kwok, kubectl, or install Go 1.26 or later to build them"
        );
    }

    #[tokio::test]
    async fn with_go_the_build_runs_first_and_its_progress_is_heard() {
        let script = format!(
            "echo building >&2; cd \"$(dirname \"$0\")/../../{BUILT_FOLDER}\" && touch {}",
            NAMES.join(" ")
        );
        let workspace = workspace(&[], Some(&script));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let progress = Progress::new({
            let heard = heard.clone();
            move |line| heard.lock().unwrap().push(line.to_owned())
        });
        Programs::find_in(place(&workspace, true), &progress).await.expect("the build made them");
        assert_eq!(*heard.lock().unwrap(), ["building"]);
    }

    #[tokio::test]
    async fn a_failed_build_ends_with_its_own_words() {
        let workspace = workspace(&NAMES, Some("echo no space left >&2; exit 3"));
        let error = Programs::find_in(place(&workspace, true), &Progress::default()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "building the control plane failed (exit status: 3); last lines: no space left"
        );
    }
}
