use futures_util::FutureExt as _;

use super::*;

/// Returns a new package, and its sources, watched.
async fn package() -> (tempfile::TempDir, Sources) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["src/api", "target"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    for name in ["Cargo.toml", "src/main.rs", "src/api/shop.rs"] {
        fs::write(folder.path().join(name), "old").unwrap();
    }
    let mut sources = Sources::default();
    sources.add_package(folder.path()).await;
    (folder, sources)
}

#[tokio::test]
async fn every_change_of_a_source_is_noticed_once() {
    let (folder, mut sources) = package().await;
    for (name, text) in [
        ("src/main.rs", "longer"),
        ("src/api/new.rs", "new"),
        ("Cargo.toml", "also longer"),
        ("samples/shop.yaml", "a folder of its own"),
    ] {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        sources.changed().await;
    }
    fs::remove_file(folder.path().join("src/api/new.rs")).unwrap();
    sources.changed().await;
    // Not a change during the call, but before it.
    fs::write(folder.path().join("src/main.rs"), "during a build").unwrap();
    sources.changed().await;
}

#[tokio::test]
async fn other_files_are_no_sources() {
    let (folder, mut sources) = package().await;
    for name in ["cluster.db", "target/shop", "src/.main.rs.swp", "src/main.rs~", "src/#main.rs#"] {
        fs::write(folder.path().join(name), "written").unwrap();
    }
    let seen = sources.seen.clone();
    assert_eq!(look(sources.paths.clone()).await, seen);
    assert!(sources.changed().now_or_never().is_none());
}
