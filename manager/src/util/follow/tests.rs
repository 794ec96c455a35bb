use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, timeout};

use super::*;
use crate::util::os::tests::make_pipe;

/// Longer than the time in which any change is returned.
const SETTLED: Duration = Duration::from_secs(4);

/// Makes a file with this text, and a follower that has returned the text once.
async fn followed(text: &str) -> (TempDir, PathBuf, Follower<1>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manager.yaml");
    fs::write(&file, text).unwrap();
    let mut follower = Follower::new([file.clone()]);
    assert_eq!(next(&mut follower).await, text, "the first contents");
    (folder, file, follower)
}

/// Returns the next text, or the kind of the read error.
async fn next(follower: &mut Follower<1>) -> String {
    let [read] = timeout(SETTLED, follower.next()).await.expect("returned in time");
    read.map_or_else(|error| format!("{:?}", error.kind()), |bytes| String::from_utf8(bytes).unwrap())
}

/// Asserts that the follower returns no contents for this long.
async fn silent(follower: &mut Follower<1>, during: Duration) {
    let early = timeout(during, follower.next()).await;
    assert!(early.is_err(), "{early:?}");
}

#[tokio::test(start_paused = true)]
async fn a_file_is_followed_through_every_way_to_save_it() {
    let (folder, file, mut follower) = followed("first").await;
    fs::write(&file, "in place").unwrap();
    assert_eq!(next(&mut follower).await, "in place");

    let beside = folder.path().join(".manager.yaml.swp");
    fs::write(&beside, "by rename").unwrap();
    fs::rename(&beside, &file).unwrap();
    assert_eq!(next(&mut follower).await, "by rename");

    // As vim does: rename the old file and write a new one.
    fs::rename(&file, folder.path().join("manager.yaml~")).unwrap();
    fs::write(&file, "by backup").unwrap();
    assert_eq!(next(&mut follower).await, "by backup");

    fs::remove_file(&file).unwrap();
    assert_eq!(next(&mut follower).await, "NotFound");
    fs::create_dir(&file).unwrap();
    assert_eq!(next(&mut follower).await, "Other", "another error");
    fs::remove_dir(&file).unwrap();
    fs::write(&file, "back").unwrap();
    assert_eq!(next(&mut follower).await, "back");
}

#[tokio::test(start_paused = true)]
async fn a_change_with_the_same_length_and_modification_time_is_noticed() {
    let (_folder, file, mut follower) = followed("one").await;
    let modified = metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "two").unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
    assert_eq!(next(&mut follower).await, "two");
}

/// Writes a version as the kubelet does: into its own directory, behind one link that is renamed.
fn mount(folder: &Path, version: &str, text: &str) {
    let versioned = folder.join(version);
    fs::create_dir(&versioned).unwrap();
    fs::write(versioned.join("manager.yaml"), text).unwrap();
    symlink(version, folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_mounted_config_map_is_followed_from_version_to_version() {
    let folder = tempfile::tempdir().unwrap();
    mount(folder.path(), "..1", "one");
    let file = folder.path().join("manager.yaml");
    symlink("..data/manager.yaml", &file).unwrap();
    let mut follower = Follower::new([file]);
    assert_eq!(next(&mut follower).await, "one");
    for (before, version, text) in [("..1", "..2", "two"), ("..2", "..3", "three"), ("..3", "..4", "four")] {
        mount(folder.path(), version, text);
        fs::remove_dir_all(folder.path().join(before)).unwrap();
        assert_eq!(next(&mut follower).await, text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_returned_once_it_is_confirmed_and_at_most_a_period_later() {
    let (_folder, file, mut follower) = followed("first").await;
    for offset in [0, 300, 999] {
        silent(&mut follower, Duration::from_millis(offset)).await;
        let text = offset.to_string();
        fs::write(&file, &text).unwrap();
        let began = Instant::now();
        assert_eq!(next(&mut follower).await, text);
        let took = began.elapsed();
        assert!((CONFIRMATION..=PERIOD + CONFIRMATION).contains(&took), "{offset}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_file_is_not_returned() {
    let (_folder, file, mut follower) = followed("old").await;
    for length in 1..=40 {
        fs::write(&file, "x".repeat(length)).unwrap();
        silent(&mut follower, CONFIRMATION / 2).await;
    }
    assert_eq!(next(&mut follower).await, "x".repeat(40));
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_file_is_not_returned_at_the_start_either() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manager.yaml");
    fs::write(&file, "the beginning").unwrap();
    let mut follower = Follower::new([file.clone()]);
    silent(&mut follower, CONFIRMATION / 2).await;
    fs::write(&file, "the beginning and the end").unwrap();
    assert_eq!(next(&mut follower).await, "the beginning and the end");
}

#[tokio::test(start_paused = true)]
async fn contents_that_were_changed_and_restored_are_not_returned() {
    let (folder, file, mut follower) = followed("same").await;
    fs::write(&file, "other").unwrap();
    silent(&mut follower, PERIOD + CONFIRMATION / 2).await;
    fs::write(&file, "same").unwrap();
    fs::write(folder.path().join("neighbour.yaml"), "another file").unwrap();
    silent(&mut follower, SETTLED).await;
}

#[tokio::test(start_paused = true)]
async fn files_that_belong_together_are_returned_together() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
    let write = |texts: [&str; 2]| {
        for (file, text) in files.iter().zip(texts) {
            fs::write(file, text).unwrap();
        }
    };
    write(["old", "old"]);
    let mut follower = Follower::new(files.clone());
    let texts = |read: [io::Result<Vec<u8>>; 2]| read.map(|read| String::from_utf8(read.unwrap()).unwrap());
    assert_eq!(texts(follower.next().await), ["old", "old"]);
    write(["new", "old"]);
    assert!(timeout(PERIOD + CONFIRMATION / 2, follower.next()).await.is_err());
    write(["new", "new"]);
    assert_eq!(texts(follower.next().await), ["new", "new"]);
}

#[tokio::test(start_paused = true)]
async fn a_pipe_is_an_error_and_does_not_block() {
    let (_folder, file, mut follower) = followed("first").await;
    fs::remove_file(&file).unwrap();
    make_pipe(&file);
    assert_eq!(next(&mut follower).await, "Other");
}

#[test]
fn a_file_that_is_too_long_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(MAX_FILE_BYTES).unwrap();
    assert!(read_regular(file.path()).is_ok());
    file.as_file().set_len(MAX_FILE_BYTES + 1).unwrap();
    assert_eq!(read_regular(file.path()).unwrap_err().to_string(), "longer than 1 MiB");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_error_is_noticed_without_a_change_of_the_file() {
    static FAILS: AtomicUsize = AtomicUsize::new(0);
    let (_folder, _file, mut follower) = followed("text").await;
    follower.attributes = None;
    follower.read = |path| match FAILS.fetch_add(1, Ordering::Relaxed) {
        0..3 => Err(io::Error::from(io::ErrorKind::ResourceBusy)),
        _ => read_regular(path),
    };
    assert_eq!(next(&mut follower).await, "ResourceBusy");
    assert_eq!(next(&mut follower).await, "text");
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_file_is_not_read_again() {
    static READS: AtomicUsize = AtomicUsize::new(0);
    let (_folder, _file, mut follower) = followed("text").await;
    follower.read = |path| {
        READS.fetch_add(1, Ordering::Relaxed);
        read_regular(path)
    };
    silent(&mut follower, 100 * PERIOD).await;
    assert_eq!(READS.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_volume_blocks_one_thread_and_no_other_task() {
    static READS: AtomicUsize = AtomicUsize::new(0);
    static HANGS: (Mutex<bool>, Condvar) = (Mutex::new(true), Condvar::new());
    let (_folder, file, mut follower) = followed("before").await;
    follower.read = |path| {
        READS.fetch_add(1, Ordering::Relaxed);
        HANGS.1.wait_while(&mut HANGS.0.lock(), |hangs| *hangs);
        read_regular(path)
    };
    fs::write(&file, "after").unwrap();
    let mut following = JoinSet::from_iter([async move { follower.next().await }]);
    let mut waited = Duration::ZERO;
    while READS.load(Ordering::Relaxed) == 0 || waited < 10 * PERIOD {
        advance(PERIOD / 10).await;
        waited += PERIOD / 10;
        assert!(following.try_join_next().is_none());
    }
    let reads = READS.load(Ordering::Relaxed);
    *HANGS.0.lock() = false;
    HANGS.1.notify_all();
    let [read] = following.join_next().await.unwrap().unwrap();
    assert_eq!((reads, read.unwrap()), (1, b"after".to_vec()));
}
