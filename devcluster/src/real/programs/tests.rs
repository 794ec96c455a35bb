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

fn search(workspace: &tempfile::TempDir, go: bool) -> Search {
    Search { chosen: None, assets: None, workspace: workspace.path().to_owned(), go }
}

#[tokio::test]
async fn an_incomplete_assets_folder_is_refused_with_the_missing_names() {
    let workspace = workspace(&["etcd", "kube-apiserver", "kubectl"], None);
    let folder = workspace.path().join(BUILT_FOLDER);
    let search = Search { assets: Some(folder.clone()), ..search(&workspace, true) };
    let error = Programs::find_in(search, &Progress::default()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "KUBEBUILDER_ASSETS is {}, which lacks kube-controller-manager, kube-scheduler, kwok; add them, \
             or unset it to build all from tests/controlplane",
            folder.display()
        )
    );
}

#[tokio::test]
async fn without_go_the_built_programs_are_used_as_they_are() {
    let workspace = workspace(&NAMES, Some("echo must not run >&2; exit 1"));
    let found = Programs::find_in(search(&workspace, false), &Progress::default()).await.unwrap();
    assert_eq!(found.path("etcd"), workspace.path().join(BUILT_FOLDER).join("etcd"));
}

#[tokio::test]
async fn without_go_and_programs_the_error_names_the_remedy() {
    let workspace = workspace(&[], Some("exit 1"));
    let error = Programs::find_in(search(&workspace, false), &Progress::default()).await.unwrap_err();
    assert!(matches!(error, ProgramsError::Unavailable), "tests may skip on it");
    assert_eq!(
        error.to_string(),
        "no control plane here: set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, \
         kube-controller-manager, kube-scheduler, kwok, kubectl, or install Go 1.26 or later to build them"
    );
}

#[tokio::test]
async fn with_go_the_build_runs_first_and_reports_its_progress() {
    let script = format!(
        "echo building >&2; cd \"$(dirname \"$0\")/../../{BUILT_FOLDER}\" && touch {}",
        NAMES.join(" ")
    );
    let workspace = workspace(&[], Some(&script));
    let lines = Arc::new(Mutex::new(Vec::new()));
    let progress = Progress::new({
        let lines = lines.clone();
        move |line| lines.lock().unwrap().push(line.to_owned())
    });
    Programs::find_in(search(&workspace, true), &progress).await.expect("the build made them");
    assert_eq!(*lines.lock().unwrap(), ["building"]);
}

#[tokio::test]
async fn the_error_of_a_failed_build_ends_with_its_last_lines() {
    let workspace = workspace(&NAMES, Some("echo no space left >&2; exit 3"));
    let error = Programs::find_in(search(&workspace, true), &Progress::default()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "building the control plane failed (exit status: 3); last lines: no space left"
    );
}
