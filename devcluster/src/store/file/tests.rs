use std::collections::BTreeMap;
use std::io;

use jiff::Timestamp;
use parking_lot::Mutex;
use redb::StorageBackend;
use serde_json::json;

use super::*;
use crate::store::{At, ReadError, Store};

fn widgets() -> GroupResource {
    GroupResource::new("example.com", "widgets")
}

fn open(path: &Path) -> Result<Store, FileError> {
    Store::open(path, Window::default(), Arc::new(|| Timestamp::UNIX_EPOCH))
}

fn names(store: &Store) -> Vec<String> {
    let listing = store.list(&widgets(), None, None, At::Newest).unwrap();
    listing.items.iter().map(|version| version.key().as_str().to_owned()).collect()
}

#[tokio::test]
async fn a_store_goes_on_where_its_file_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster");
    let store = open(&path).unwrap();
    for name in ["a", "b"] {
        store.create(&widgets(), Key::new("shop", name), json!({"v": 1})).unwrap();
    }
    let changed = store.update(&widgets(), &Key::new("shop", "a"), json!({"v": 2}), 2).unwrap();
    store.delete(&widgets(), &Key::new("shop", "b"), 3).unwrap();
    store.written().await.unwrap();
    store.close().await;

    let again = open(&path).unwrap();
    assert_eq!(names(&again), ["shop/a"]);
    let found = again.get(&widgets(), changed.key()).unwrap();
    assert_eq!((found.value(), found.revision(), found.created()), (changed.value(), 4, 2));
    let watch = again.watch(&widgets(), 5).err();
    assert_eq!(watch, Some(ReadError::Expired { requested: 5, floor: 5 + GAP }));
    let next = again.create(&widgets(), Key::new("shop", "c"), json!({})).unwrap();
    assert_eq!(next.revision(), 6 + GAP);
}

#[tokio::test]
async fn a_closed_store_refuses_writes_and_frees_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster");
    let store = open(&path).unwrap();
    let busy = open(&path).err().map(|error| error.to_string());
    assert_eq!(busy, Some(format!("{}: it is in use by another server", path.display())));
    store.close().await;
    store.close().await;
    open(&path).unwrap();
    store.create(&widgets(), Key::new("", "a"), json!({})).unwrap();
    let closed = Err(format!("{}: it is closed", path.display()));
    assert_eq!(store.written().await.map_err(|error| error.to_string()), closed);
    assert_eq!(store.check_file().map_err(|error| error.to_string()), closed);
}

#[test]
fn files_of_others_are_refused_and_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("text", "apiVersion: v1\n".repeat(500)), ("short", "x".to_owned())] {
        let path = folder.path().join(name);
        std::fs::write(&path, &text).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: ", path.display())), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    assert!(open(&folder.path().join("none/cluster")).is_err());

    let path = folder.path().join("newer");
    let database = Database::create(&path).unwrap();
    prepare(&database).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(NUMBERS).unwrap().insert("format", FORMAT + 1).unwrap();
    write.commit().unwrap();
    drop(database);
    let error = open(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{}: it has format 2; this version reads format 1", path.display()));
}

/// A disk whose power fails: of the writes since the last sync, some are done, some in part and some not.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<Platter>>);

#[derive(Debug, Default)]
struct Platter {
    /// The content as the process sees it.
    seen: Vec<u8>,
    /// The content of the last sync.
    synced: Vec<u8>,
    /// Writes since then; a change of the length has no bytes.
    since: Vec<(u64, Vec<u8>)>,
    /// Operations until the power fails.
    left: usize,
}

impl Disk {
    fn of(content: Vec<u8>, left: usize) -> Self {
        let platter = Platter { seen: content.clone(), synced: content, since: Vec::new(), left };
        Self(Arc::new(Mutex::new(platter)))
    }

    /// Returns what is on the disk after the failure.
    fn after_failure(&self, random: &mut fastrand::Rng) -> Vec<u8> {
        let platter = self.0.lock();
        let mut content = platter.synced.clone();
        for (offset, bytes) in &platter.since {
            let offset = usize::try_from(*offset).unwrap();
            let kept = match random.u8(0..3) {
                0 => continue,
                1 => bytes.len(),
                _ => random.usize(0..=bytes.len()),
            };
            if bytes.is_empty() || content.len() < offset + kept {
                content.resize(content.len().max(offset + kept), 0);
            }
            content[offset..offset + kept].copy_from_slice(&bytes[..kept]);
        }
        content
    }

    fn operation<T>(&self, run: impl FnOnce(&mut Platter) -> T) -> io::Result<T> {
        let mut platter = self.0.lock();
        if platter.left == 0 {
            return Err(io::Error::other("the power has failed"));
        }
        platter.left -= 1;
        Ok(run(&mut platter))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        let platter = self.0.lock();
        let bytes = platter.seen.get(offset..offset + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.operation(|platter| {
            platter.seen.resize(usize::try_from(len).unwrap(), 0);
            platter.since.push((len, Vec::new()));
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.operation(|platter| {
            platter.synced = platter.seen.clone();
            platter.since.clear();
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.operation(|platter| {
            let start = usize::try_from(offset).unwrap();
            platter.seen[start..start + data.len()].copy_from_slice(data);
            platter.since.push((offset, data.to_vec()));
        })
    }
}

/// Writes until the power fails, many times on one disk.
#[tokio::test]
async fn no_acknowledged_write_is_lost_when_the_power_fails() {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut content, mut acknowledged, mut newest) = (Vec::new(), BTreeMap::new(), 0);
    let mut failures = 0;
    for round in 0..120_u32 {
        let disk = Disk::of(content, random.usize(1..120));
        let opened = Builder::new().set_cache_size(PAGES).create_with_backend(disk.clone());
        let file = opened.map_err(|error| FileError::new(Path::new("disk"), &error));
        let file =
            file.and_then(|database| File::of_database(Path::new("disk"), database, &Window::default()));
        let mut unsure = None;
        if let Ok(file) = file {
            let store = Store::of_file(file, Window::default(), Arc::new(|| Timestamp::UNIX_EPOCH));
            let found: BTreeMap<String, u64> = store
                .list(&widgets(), None, None, At::Newest)
                .unwrap()
                .items
                .iter()
                .map(|version| (version.key().as_str().to_owned(), version.revision()))
                .collect();
            assert_eq!(found, acknowledged, "round {round}");
            assert!(store.revision() >= newest, "round {round}");
            for _ in 0..40 {
                let key = Key::new("", &format!("w{}", random.u8(0..8)));
                let name = key.as_str().to_owned();
                let text = "x".repeat(random.usize(0..6000));
                let written = match store.get(&widgets(), &key) {
                    Some(old) if random.bool() => {
                        store.delete(&widgets(), &key, old.revision()).map(|_| None)
                    }
                    Some(old) => store.update(&widgets(), &key, json!({"v": text}), old.revision()).map(Some),
                    None => store.create(&widgets(), key, json!({"v": text})).map(Some),
                };
                let version = written.unwrap().map(|version| version.revision());
                newest = store.revision();
                if store.written().await.is_err() {
                    unsure = Some((name, version));
                    failures += 1;
                    break;
                }
                match version {
                    Some(revision) => drop(acknowledged.insert(name, revision)),
                    None => drop(acknowledged.remove(&name)),
                }
            }
            store.close().await;
        }
        content = disk.after_failure(&mut random);
        // The last write may have reached the disk without being acknowledged.
        if let Some((name, revision)) = unsure {
            let (_, found) = File::of_database(
                Path::new("disk"),
                Builder::new().create_with_backend(Disk::of(content.clone(), usize::MAX)).unwrap(),
                &Window::default(),
            )
            .unwrap();
            let stored = found.tables.get(&widgets()).and_then(|table| table.get(&Key::parse(&name)));
            let stored = stored.map(|version| version.revision());
            if stored == revision {
                match revision {
                    Some(revision) => drop(acknowledged.insert(name, revision)),
                    None => drop(acknowledged.remove(&name)),
                }
            }
        }
    }
    assert!(failures > 40, "{failures}");
}
