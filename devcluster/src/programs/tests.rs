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
