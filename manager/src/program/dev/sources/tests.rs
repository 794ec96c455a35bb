use futures_util::FutureExt as _;
use jiff::Timestamp;

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
    for path in of_package(folder.path()) {
        sources.add(&path, Timestamp::now().into()).await;
    }
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
    assert_eq!(look(sources.paths.clone(), Files::new()).await, seen);
    assert!(sources.changed().now_or_never().is_none());
}

#[tokio::test]
async fn a_file_written_again_with_the_same_content_is_no_change() {
    let (folder, sources) = package().await;
    let main = folder.path().join("src/main.rs");
    fs::write(&main, "old").unwrap();
    let later = SystemTime::from(Timestamp::now()) + Duration::from_secs(5);
    fs::File::options().append(true).open(&main).unwrap().set_modified(later).unwrap();
    assert_eq!(look(sources.paths.clone(), sources.seen.clone()).await, sources.seen);
}

#[tokio::test]
async fn a_file_saved_after_the_build_began_is_a_change() {
    let (folder, mut sources) = package().await;
    let library = folder.path().join("library.rs");
    fs::write(&library, "saved while the program is built").unwrap();
    sources.add(&library, SystemTime::UNIX_EPOCH).await;
    sources.changed().await;
}
