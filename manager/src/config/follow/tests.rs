use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;

use tempfile::TempDir;
use tokio::time::timeout;

use super::*;

/// Longer than any change takes to be told of, poll included.
const PATIENCE: Duration = Duration::from_mins(1);

/// A file `manager.yaml` with this text, and who follows it and has told of it once.
async fn followed(text: &str) -> (TempDir, PathBuf, Follower) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manager.yaml");
    fs::write(&file, text).unwrap();
    let mut follower = Follower::new(file.clone(), sha256(text));
    assert_eq!(next(&mut follower).await, text, "what is there at first");
    (folder, file, follower)
}

/// The next text, or which kind of error reading it is.
async fn next(follower: &mut Follower) -> String {
    let read = timeout(PATIENCE, follower.next()).await.expect("told in time");
    read.unwrap_or_else(|error| format!("{:?}", error.kind()))
}

/// Asserts that the follower says this next, and by a sign: no poll could have come so early.
async fn told(follower: &mut Follower, text: &str) {
    follower.poll_at = Instant::now() + 2 * PATIENCE;
    assert_eq!(next(follower).await, text);
}

#[tokio::test]
async fn a_file_is_followed_through_every_way_to_save_it() {
    let (folder, file, mut follower) = followed("first").await;
    fs::write(&file, "in place").unwrap();
    told(&mut follower, "in place").await;

    let beside = folder.path().join(".manager.yaml.swp");
    fs::write(&beside, "by rename").unwrap();
    fs::rename(&beside, &file).unwrap();
    told(&mut follower, "by rename").await;

    // As vim does: the old one goes aside, and a new one is written.
    fs::rename(&file, folder.path().join("manager.yaml~")).unwrap();
    fs::write(&file, "by backup").unwrap();
    told(&mut follower, "by backup").await;

    fs::remove_file(&file).unwrap();
    told(&mut follower, "NotFound").await;
    fs::write(&file, "back").unwrap();
    told(&mut follower, "back").await;
    fs::write(&file, [0xff, 0xfe]).unwrap();
    told(&mut follower, "InvalidData").await;
}

/// What the kubelet makes of a `ConfigMap`: each version in a directory of its own, behind one link that is renamed.
fn mount(folder: &Path, version: &str, text: &str) {
    let versioned = folder.join(version);
    fs::create_dir(&versioned).unwrap();
    fs::write(versioned.join("manager.yaml"), text).unwrap();
    symlink(version, folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
}

#[tokio::test]
async fn a_mounted_config_map_is_followed_from_version_to_version() {
    let folder = tempfile::tempdir().unwrap();
    mount(folder.path(), "..1", "one");
    let file = folder.path().join("manager.yaml");
    symlink("..data/manager.yaml", &file).unwrap();
    let mut follower = Follower::new(file, sha256("one"));
    assert_eq!(next(&mut follower).await, "one");
    for (before, version, text) in [("..1", "..2", "two"), ("..2", "..3", "three"), ("..3", "..4", "four")] {
        mount(folder.path(), version, text);
        fs::remove_dir_all(folder.path().join(before)).unwrap();
        told(&mut follower, text).await;
    }
    let watched = &follower.watch.as_ref().unwrap().names;
    assert_eq!(
        watched.len(),
        2,
        "the folder, and the version it shows, and none of the earlier ones: {watched:?}"
    );
}

#[tokio::test]
async fn links_are_followed_wherever_they_stand_and_whatever_takes_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["a", "b"] {
        fs::create_dir(path(name)).unwrap();
        fs::write(path(name).join("real.yaml"), name).unwrap();
        symlink("real.yaml", path(name).join("manager.yaml")).unwrap();
    }
    symlink(path("a"), path("current")).unwrap();
    let mut follower = Follower::new(path("current").join("../current/./manager.yaml"), sha256("a"));
    assert_eq!(next(&mut follower).await, "a");
    // A file behind the links is written in place.
    fs::write(path("a/real.yaml"), "a2").unwrap();
    told(&mut follower, "a2").await;
    // As `ln -sfn` does: gone for a moment.
    fs::remove_file(path("current")).unwrap();
    symlink(path("b"), path("current")).unwrap();
    told(&mut follower, "b").await;
    fs::write(path("b/real.yaml"), "b2").unwrap();
    told(&mut follower, "b2").await;
    // A loop is no file.
    fs::remove_file(path("current")).unwrap();
    symlink(path("current"), path("current")).unwrap();
    let read = timeout(PATIENCE, follower.next()).await.unwrap();
    assert!(read.is_err(), "{read:?}");
}

#[tokio::test]
async fn the_beginning_of_a_text_is_never_taken_for_all_of_it() {
    let (_folder, file, mut follower) = followed("old").await;
    for round in 0..5 {
        let mut writer = fs::File::create(&file).unwrap();
        write!(writer, "the beginning of {round}").unwrap();
        // As if the poll came right now. Longer than two reads need to agree that follow a sign; and nobody gives one.
        follower.poll_at = Instant::now();
        let early = timeout(3 * SETTLE, follower.next()).await;
        assert!(early.is_err(), "told while it is being written: {early:?}");
        write!(writer, " and the end").unwrap();
        drop(writer);
        told(&mut follower, &format!("the beginning of {round} and the end")).await;
    }
}

#[tokio::test]
async fn the_beginning_of_a_text_is_not_taken_for_all_of_it_at_the_start_either() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manager.yaml");
    let mut writer = fs::File::create(&file).unwrap();
    write!(writer, "the beginning").unwrap();
    let mut follower = Follower::new(file, sha256("what the process was started with"));
    let early = timeout(3 * SETTLE, follower.next()).await;
    assert!(early.is_err(), "told while it is being written: {early:?}");
    write!(writer, " and the end").unwrap();
    drop(writer);
    told(&mut follower, "the beginning and the end").await;
}

#[tokio::test]
async fn a_pipe_in_place_of_the_file_is_refused_and_waited_for_by_nobody() {
    let (_folder, file, mut follower) = followed("first").await;
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    told(&mut follower, "Other").await;
}

#[tokio::test]
async fn what_is_written_back_before_anybody_looked_is_no_change() {
    let (folder, file, mut follower) = followed("same").await;
    fs::write(&file, "other").unwrap();
    fs::write(&file, "same").unwrap();
    fs::write(folder.path().join("neighbour.yaml"), "not ours").unwrap();
    // Whatever was told of these would come before it.
    let later = async {
        sleep(4 * SETTLE).await;
        fs::write(&file, "later").unwrap();
    };
    let (text, ()) = tokio::join!(next(&mut follower), later);
    assert_eq!(text, "later");
}

#[tokio::test(start_paused = true)]
async fn without_signs_a_file_is_read_every_ten_seconds_and_believed_a_second_later() {
    let (_folder, file, mut follower) = followed("first").await;
    follower.watch = None;
    let began = Instant::now();
    fs::write(&file, "second").unwrap();
    assert_eq!(next(&mut follower).await, "second");
    let took = began.elapsed();
    assert!(took >= POLL + DOUBT && took < POLL + 2 * DOUBT, "{took:?}");
    fs::remove_file(&file).unwrap();
    assert_eq!(next(&mut follower).await, "NotFound");
}

#[test]
fn the_way_to_a_file_is_its_links_and_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("..1")).unwrap();
    fs::write(path("..1/manager.yaml"), "").unwrap();
    symlink("..1", path("..data")).unwrap();
    symlink("..data/manager.yaml", path("manager.yaml")).unwrap();
    let here = |name: &str| (folder.path().to_owned(), OsString::from(name));
    let expected = [here("manager.yaml"), here("..data"), (path("..1"), "manager.yaml".into())];
    assert_eq!(way_to(&path("manager.yaml")), expected);
    assert_eq!(way_to(&path("missing/../manager.yaml")), expected);
    symlink("round", path("round")).unwrap();
    let way = way_to(&path("round"));
    assert!((2..=MAX_LINKS + 1).contains(&way.len()), "it ends: {}", way.len());
}
