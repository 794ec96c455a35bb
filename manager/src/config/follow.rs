//! Tells when the text of a file has become another one.
//!
//! A file is saved in three ways, and each is seen: written in place; replaced by renaming another one over it, as
//! editors do; or reached through symbolic links of which one is replaced, as the kubelet does with a mounted `ConfigMap`
//! (`manager.yaml` -> `..data/manager.yaml`, `..data` -> a directory with a new name each time). So not the file is watched
//! but the names on the way to it: each symbolic link, and the file at the end, in the directories they stand in.
//!
//! A file that is written in place is at first shorter than it will be, and its beginning may well be valid by itself.
//! So a text is believed once two reads agree: shortly after each other where somebody has closed or renamed the file,
//! far apart where nothing says that the writer is done. What the process was started with needs no second read.
//!
//! Where the system has no inotify left to give, and for what it does not tell of, such as changes made on another
//! machine, the file is read every ten seconds as well.
//!
//! # Invariants
//! 1. A change is not missed for having been made between two looks: names are watched before the file is read.
//! 2. The runtime waits for no file system: every look is made on a blocking thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use super::loaded::{read_regular, sha256};

/// Between a sign that somebody is done with the file and a read, and between two reads that have to agree: long enough
/// for the second of two saves in a row, and for the second step of those that save in two.
const SETTLE: Duration = Duration::from_millis(50);
/// Between two reads that have to agree where nothing says that the writer is done: longer than one pauses.
const DOUBT: Duration = Duration::from_secs(1);
/// Between two looks without a sign.
const POLL: Duration = Duration::from_secs(10);
/// As many symbolic links as Linux follows on the way to a file.
const MAX_LINKS: usize = 40;
/// Tries to read a file while the links to it do not change: they are replaced every few seconds at most.
const TRIES: usize = 3;

/// What may be a change, or the beginning of one.
const SIGNS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR);
/// What says that somebody is done with the file. Its creation and its removal do not: its text is on its way.
const DONE: ReadFlags = ReadFlags::CLOSE_WRITE.union(ReadFlags::MOVED_TO);

/// Follows one file. Made inside the runtime in which it is asked.
#[derive(Debug)]
pub(crate) struct Follower {
    file: PathBuf,
    /// What was told last; `None` before the first.
    told: Option<io::Result<String>>,
    /// SHA-256 of the text that is known already; empty if none is.
    known: String,
    /// `None` where the file is only read now and then.
    watch: Option<Watch>,
    poll_at: Instant,
}

#[derive(Debug)]
struct Watch {
    signs: AsyncFd<Arc<OwnedFd>>,
    /// What is watched now.
    names: Names,
}

/// Names by the watch of the directory they stand in.
type Names = BTreeMap<i32, BTreeSet<OsString>>;

/// What one look found.
struct Look {
    read: io::Result<String>,
    names: io::Result<Names>,
}

/// How sure it is that whoever changes the file is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    /// Time to have a look.
    Doubtful,
    Sure,
}

// === impl Follower ===

impl Follower {
    /// Follows the file of this path, which need not be there. `known` is the SHA-256 of a text that was read from it.
    pub(crate) fn new(file: PathBuf, known: String) -> Self {
        let watch = Watch::new().inspect_err(|error| tell_of_polling(&file, error)).ok();
        Self { file, told: None, known, watch, poll_at: Instant::now() }
    }

    /// Returns the text of the file, or why it cannot be read, whenever that has become another than was returned last;
    /// at first at once if it is the one that is known.
    pub(crate) async fn next(&mut self) -> io::Result<String> {
        loop {
            let sign = self.sign().await;
            if let Some(read) = self.settled(sign).await {
                self.told = Some(copy(&read));
                return read;
            }
        }
    }

    /// Waits for a sign.
    async fn sign(&mut self) -> Sign {
        let (poll_at, watch) = (self.poll_at, &mut self.watch);
        // Order does not matter: both lead to a look.
        tokio::select! {
            () = sleep_until(poll_at) => Sign::Doubtful,
            sign = signs(watch) => sign,
        }
    }

    /// Reads until two reads agree; `None` if on what was told last.
    async fn settled(&mut self, mut sign: Sign) -> Option<io::Result<String>> {
        if sign == Sign::Sure {
            sleep(SETTLE).await;
        }
        let mut before = None;
        loop {
            let read = self.look().await;
            if self.told.as_ref().is_some_and(|told| same(told, &read)) {
                return None;
            }
            // A text that was read before is not the beginning of another one.
            let known = self.told.is_none() && read.as_ref().is_ok_and(|text| sha256(text) == self.known);
            if known || before.as_ref().is_some_and(|before| same(before, &read)) {
                return Some(read);
            }
            before = Some(read);
            let pause = if sign == Sign::Sure { SETTLE } else { DOUBT };
            // Order does not matter: who is sure need not wait as long as who is not.
            tokio::select! {
                () = sleep(pause) => {}
                surer = surer(&mut self.watch, sign) => {
                    sign = surer;
                    before = None;
                    sleep(SETTLE).await;
                }
            }
        }
    }

    /// Looks what is there, and watches the names on the way to it from now on.
    async fn look(&mut self) -> io::Result<String> {
        let file = self.file.clone();
        let watch = self.watch.as_ref().map(|watch| (Arc::clone(watch.signs.get_ref()), watch.names.clone()));
        let looked = spawn_blocking(move || {
            let (signs, names) = watch.unzip();
            Look::at(&file, signs.as_deref(), names.unwrap_or_default())
        });
        self.poll_at = Instant::now() + POLL;
        // Not even out of memory would panic there; a runtime that ends drops this future.
        let look = looked.await.map_err(io::Error::other)?;
        match (look.names, &mut self.watch) {
            (Ok(names), Some(watch)) => watch.names = names,
            (Err(error), Some(_)) => {
                tell_of_polling(&self.file, &error);
                self.watch = None;
            }
            (_, None) => {}
        }
        look.read
    }
}

// === impl Watch ===

impl Watch {
    fn new() -> io::Result<Self> {
        let signs = Arc::new(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?);
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for types whose descriptor may change or close while it is registered; \
                      that of an `Arc<OwnedFd>` does neither"
        )]
        let signs = AsyncFd::new(signs)?;
        Ok(Self { signs, names: Names::new() })
    }

    /// Waits for something to happen to one of the names.
    ///
    /// # Cancel safety
    /// A sign is taken only when it is returned.
    async fn sign(&mut self) -> io::Result<Sign> {
        loop {
            let mut ready = self.signs.readable().await?;
            if let Some(sign) = drain(ready.get_inner(), &self.names)? {
                return Ok(sign);
            }
            ready.clear_ready();
        }
    }
}

// === impl Look ===

impl Look {
    /// Watches first and reads then, so that nothing happens unseen in between.
    fn at(file: &Path, signs: Option<&OwnedFd>, mut watched: Names) -> Self {
        let mut way = way_to(file);
        let mut tries = 0;
        loop {
            let names = match signs {
                Some(signs) => watch_names(signs, &way, &watched),
                None => Ok(Names::new()),
            };
            let read = read_regular(file);
            let (way_now, last) = (way_to(file), tries == TRIES);
            if way == way_now || last || names.is_err() {
                return Self { read, names };
            }
            watched = names.unwrap_or_default();
            way = way_now;
            tries += 1;
        }
    }
}

/// Waits for a sign of the watch; for ever without one. A watch that fails is given up.
async fn signs(watch: &mut Option<Watch>) -> Sign {
    let Some(watching) = watch else { return std::future::pending().await };
    match watching.sign().await {
        Ok(sign) => sign,
        Err(error) => {
            warn!(%error, "changes of the configuration file are not told any more; it is read every {POLL:?}");
            *watch = None;
            Sign::Doubtful
        }
    }
}

/// Waits for a sign that is surer than this one.
async fn surer(watch: &mut Option<Watch>, than: Sign) -> Sign {
    loop {
        let sign = signs(watch).await;
        if sign > than {
            return sign;
        }
    }
}

/// Takes all that has happened, and returns the surest sign in it. An error means that there is no telling.
fn drain(signs: &OwnedFd, names: &Names) -> io::Result<Option<Sign>> {
    // Room for several events: each is 16 bytes and a name of at most 256.
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(signs, &mut room);
    let mut surest = None;
    loop {
        let event = match events.next() {
            Ok(event) => event,
            Err(rustix::io::Errno::AGAIN) => return Ok(surest),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let told = event.events();
        let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
        let ours = name.is_none_or(|name| names.get(&event.wd()).is_some_and(|names| names.contains(name)));
        // What has no name is about the directory itself, or says that events were lost.
        if ours {
            let sure = name.is_some() && told.intersects(DONE);
            surest = surest.max(Some(if sure { Sign::Sure } else { Sign::Doubtful }));
        }
    }
}

/// Watches these names and, of those watched before, no others.
fn watch_names(signs: &OwnedFd, way: &[(PathBuf, OsString)], before: &Names) -> io::Result<Names> {
    let mut names = Names::new();
    for (directory, name) in way {
        match inotify::add_watch(signs, directory, SIGNS) {
            // The same watch as before, unless another directory has taken the place.
            Ok(watch) => drop(names.entry(watch).or_default().insert(name.clone())),
            // Found again by one of the looks that need no sign.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for gone in before.keys().filter(|watch| !names.contains_key(watch)) {
        // Fails where the directory has gone, and its watch with it.
        inotify::remove_watch(signs, *gone).ok();
    }
    Ok(names)
}

/// The names that decide which file a path means, each with the directory it stands in: the symbolic links on the way,
/// and the file at the end.
fn way_to(file: &Path) -> Vec<(PathBuf, OsString)> {
    let parts = |path: &Path| path.components().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    let mut ahead: VecDeque<OsString> = match std::path::absolute(file) {
        Ok(path) => parts(&path).into(),
        Err(_) => parts(file).into(),
    };
    let (mut here, mut way, mut links) = (PathBuf::new(), Vec::new(), 0);
    while let Some(part) = ahead.pop_front() {
        if !matches!(Path::new(&part).components().next(), Some(Component::Normal(_))) {
            // "/" begins anew; ".." of a directory that was reached through links is the one it stands in.
            if part == ".." {
                here.pop();
            } else {
                here.push(&part);
            }
            continue;
        }
        let there = here.join(&part);
        match std::fs::read_link(&there) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                way.push((here.clone(), part));
                for part in parts(&target).into_iter().rev() {
                    ahead.push_front(part);
                }
            }
            _ if ahead.is_empty() => way.push((here.clone(), part)),
            _ => here = there,
        }
    }
    way
}

fn same(one: &io::Result<String>, other: &io::Result<String>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => one.to_string() == other.to_string(),
        _ => false,
    }
}

fn copy(read: &io::Result<String>) -> io::Result<String> {
    match read {
        Ok(text) => Ok(text.clone()),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}

fn tell_of_polling(file: &Path, error: &io::Error) {
    warn!(
        file = %file.display(), %error,
        "the system tells nothing of changes of the configuration file; it is read every {POLL:?}"
    );
}

#[cfg(test)]
mod tests;
