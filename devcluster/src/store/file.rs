//! The objects of a store in a file, so that they outlive the process.
//!
//! A thread appends the changes in the order of their revisions. All changes that have come meanwhile are one
//! transaction of redb, which is on the disk before it counts, so a process that is killed leaves the state
//! after some transaction. The store acknowledges a write only after its transaction.

use std::collections::HashMap;
use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use redb::{Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tokio::sync::watch;

use super::{Change, FIRST, GroupResource, Key, Table, Version, Window};

/// The current objects.
const OBJECTS: TableDefinition<'_, Name<'_>, Stored<'_>> = TableDefinition::new("objects");
/// The numbers of the file by name: its `format`, and the `revision` of its newest change.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// The form of the two tables.
const FORMAT: u64 = 1;
/// Revisions that are left out when a file is opened. Readers may have seen revisions that were not on the
/// disk yet when the process was killed; no later write may have one of them.
const GAP: u64 = 100_000;
/// Most changes in one transaction.
const BATCH: usize = 1000;
/// Memory for pages of the file, in bytes. Everything is read once, at the start.
const PAGES: usize = 1 << 20;

/// Group, plural name and key of an object.
type Name<'a> = (&'a str, &'a str, &'a str);

/// Revision and revision of the creation, then the object as JSON.
type Stored<'a> = (u64, u64, &'a [u8]);

/// The file of a store: takes the changes, and tells how far they are on the disk.
pub(super) struct File {
    changes: Sender<Step>,
    written: watch::Receiver<Written>,
}

/// The state that a file had when it was opened.
pub(super) struct Content {
    /// The first revision after those that any reader may have seen.
    pub(super) revision: u64,
    pub(super) tables: HashMap<GroupResource, Table>,
}

/// The revision up to which all changes are on the disk, or the error that ended the writes.
type Written = Result<u64, FileError>;

/// A step of the writing thread.
enum Step {
    Change(GroupResource, Arc<Change>),
    Close,
}

/// The file of a store cannot be opened, read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {why}", .path.display())]
pub struct FileError {
    path: PathBuf,
    why: Arc<str>,
}

// === impl File ===

impl File {
    /// Opens a file, or makes one that does not exist, and reads it. It is locked until it is closed.
    pub(super) fn open(path: &Path, window: &Window) -> Result<(Self, Content), FileError> {
        // Secrets and the key of the administrator are in it.
        let private = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        drop(private.map_err(|why| FileError::new(path, &why))?);
        let mut builder = Builder::new();
        let database = builder.set_cache_size(PAGES).create(path).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => FileError::new(path, &"it is in use by another server"),
            error => FileError::new(path, &error),
        })?;
        Self::of_database(path, database, window)
    }

    fn of_database(path: &Path, database: Database, window: &Window) -> Result<(Self, Content), FileError> {
        let error = |why: &dyn fmt::Display| FileError::new(path, why);
        let content = prepare(&database).and_then(|revision| read(&database, revision, window));
        let content = content.map_err(|why| error(&why))?;
        let (changes, steps) = mpsc::channel();
        let (progress, written) = watch::channel(Ok(content.revision));
        let path = path.to_owned();
        let run = move || write_all(&path, &database, &steps, &progress);
        thread::Builder::new().name("devcluster-file".to_owned()).spawn(run).map_err(|why| error(&why))?;
        Ok((Self { changes, written }, content))
    }

    /// Passes a change on. The caller holds the lock of the store, so that changes come in order.
    pub(super) fn append(&self, resource: &GroupResource, change: &Arc<Change>) {
        // The thread has ended after a failure, which `written` reports.
        drop(self.changes.send(Step::Change(resource.clone(), Arc::clone(change))));
    }

    /// Returns the failure of an earlier write, if there was one.
    pub(super) fn check(&self) -> Result<(), FileError> {
        self.written.borrow().as_ref().map(drop).map_err(FileError::clone)
    }

    /// Returns once all changes up to a revision are on the disk.
    pub(super) async fn written(&self, revision: u64) -> Result<(), FileError> {
        let mut written = self.written.clone();
        let enough = |written: &Written| written.as_ref().map_or(true, |written| *written >= revision);
        let Ok(written) = written.wait_for(enough).await else { return self.check() };
        written.as_ref().map(drop).map_err(FileError::clone)
    }

    /// Writes the changes so far, and returns once the file is closed and unlocked. Later writes fail.
    pub(super) async fn close(&self) {
        drop(self.changes.send(Step::Close));
        let mut written = self.written.clone();
        while written.changed().await.is_ok() {}
    }
}

// === impl FileError ===

impl FileError {
    fn new(path: &Path, why: &dyn fmt::Display) -> Self {
        Self { path: path.to_owned(), why: why.to_string().into() }
    }
}

/// Makes the tables of a new file, refuses a file of another format, and takes the revisions of the gap.
/// Returns the revision at which the store goes on.
fn prepare(database: &Database) -> Result<u64, String> {
    let prepare = || -> Result<(u64, u64), redb::Error> {
        let write = database.begin_write()?;
        drop(write.open_table(OBJECTS)?);
        let found = {
            let mut numbers = write.open_table(NUMBERS)?;
            let number = |name| numbers.get(name).map(|number| number.map(|number| number.value()));
            let (format, newest) = (number("format")?, number("revision")?);
            let (format, revision) = (format.unwrap_or(FORMAT), newest.map_or(FIRST, |newest| newest + GAP));
            if format == FORMAT {
                numbers.insert("format", format)?;
                numbers.insert("revision", revision)?;
            }
            (format, revision)
        };
        write.commit()?;
        Ok(found)
    };
    match prepare() {
        Ok((FORMAT, revision)) => Ok(revision),
        Ok((other, _)) => Err(format!("it has format {other}; this version reads format {FORMAT}")),
        Err(error) => Err(error.to_string()),
    }
}

fn read(database: &Database, revision: u64, window: &Window) -> Result<Content, String> {
    let read = || -> Result<_, redb::Error> {
        let mut objects = Vec::new();
        for entry in database.begin_read()?.open_table(OBJECTS)?.iter()? {
            let (name, object) = entry?;
            let (group, resource, key) = name.value();
            let (at, created, json) = object.value();
            objects.push((GroupResource::new(group, resource), Key::parse(key), at, created, json.to_vec()));
        }
        Ok(objects)
    };
    let mut tables = HashMap::new();
    for (resource, key, at, created, json) in read().map_err(|error| error.to_string())? {
        let value = serde_json::from_slice(&json);
        let value = value.map_err(|error| format!("{resource} {key:?} is no JSON: {error}"))?;
        let table = tables.entry(resource).or_insert_with(|| Table::new(revision));
        table.import(Version::new(key, value, at, created), revision, window);
    }
    Ok(Content { revision, tables })
}

/// Writes changes until the store is dropped or closed, or a transaction fails.
fn write_all(path: &Path, database: &Database, steps: &Receiver<Step>, progress: &watch::Sender<Written>) {
    while let Ok(first) = steps.recv() {
        let mut batch = Vec::new();
        let mut is_last = false;
        for step in std::iter::once(first).chain(steps.try_iter()).take(BATCH) {
            match step {
                Step::Change(resource, change) => batch.push((resource, change)),
                Step::Close => {
                    is_last = true;
                    break;
                }
            }
        }
        if let Some((_, newest)) = batch.last() {
            match write(database, &batch) {
                Ok(()) => drop(progress.send_replace(Ok(newest.revision()))),
                Err(error) => {
                    drop(progress.send_replace(Err(FileError::new(path, &error))));
                    return;
                }
            }
        }
        if is_last {
            drop(progress.send_replace(Err(FileError::new(path, &"it is closed"))));
            return;
        }
    }
}

/// Writes changes in one transaction.
fn write(database: &Database, batch: &[(GroupResource, Arc<Change>)]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        for (resource, change) in batch {
            let name = (&*resource.group, &*resource.resource, change.key().as_str());
            match change.current() {
                Some(version) => {
                    let json = version.json();
                    objects.insert(name, (version.revision(), version.created(), &*json))?;
                }
                None => drop(objects.remove(name)?),
            }
        }
        let newest = batch.last().map_or(0, |(_, change)| change.revision());
        transaction.open_table(NUMBERS)?.insert("revision", newest)?;
    }
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests;
