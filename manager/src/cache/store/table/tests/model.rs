//! Random histories of a server, its watch, lists and own writes: the table must end in the server's state.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A server with one global version and its history of events.
#[derive(Default)]
struct Server {
    version: u64,
    uids: u64,
    objects: BTreeMap<u8, (u64, u64)>,
    /// Name, uid, version, deleted.
    history: Vec<(u8, u64, u64, bool)>,
    /// A copy of the objects.
    backup: BTreeMap<u8, (u64, u64)>,
}

impl Server {
    fn put(&mut self, name: u8) -> View {
        self.version += 1;
        let uid = self.objects.get(&name).map_or_else(
            || {
                self.uids += 1;
                self.uids
            },
            |(uid, _)| *uid,
        );
        self.objects.insert(name, (uid, self.version));
        self.history.push((name, uid, self.version, false));
        state(name, uid, self.version)
    }

    /// Restores the backup at a later version and without a history: `etcdutl snapshot restore
    /// --bump-revision`.
    fn restore(&mut self) {
        self.objects = self.backup.clone();
        self.version += 1000;
        self.history.clear();
    }

    fn delete(&mut self, name: u8) -> Option<u64> {
        let (uid, _) = self.objects.remove(&name)?;
        self.version += 1;
        self.history.push((name, uid, self.version, true));
        Some(uid)
    }
}

fn state(name: u8, uid: u64, version: u64) -> View {
    view(&format!("n{name}"), &format!("u{uid}"), version)
}

/// A table that follows the server, and a replica that follows the table's changes.
struct Follower {
    table: Table,
    /// The version of the last event that the watch has delivered.
    watched: u64,
    /// The list in progress: its epoch, its version, and the objects that are still to come.
    listing: Option<(u64, u64, Vec<View>)>,
    /// Responses to own writes that have not arrived yet.
    answers: Vec<Answer>,
    replica: BTreeMap<String, (String, String)>,
    /// Whether the server was restored and no list has ended since.
    restored: bool,
}

enum Answer {
    Written(View),
    Deleted(u8, u64),
}

impl Follower {
    fn deliver(&mut self, server: &Server, count: usize) {
        if self.listing.is_some() {
            return;
        }
        for (name, uid, at, deleted) in
            server.history.iter().filter(|event| event.2 > self.watched).take(count)
        {
            if *deleted {
                self.table.deleted(
                    0,
                    &request(&format!("n{name}")),
                    &Uid::new(&format!("u{uid}")),
                    &version(*at),
                );
            } else {
                self.table.changed(0, state(*name, *uid, *at).into());
            }
        }
        let last = server.history.iter().filter(|event| event.2 > self.watched).take(count).last();
        self.watched = last.map_or(self.watched, |event| event.2);
    }

    fn begin_list(&mut self, server: &Server) {
        let all = server.objects.iter().map(|(name, (uid, at))| state(*name, *uid, *at)).collect();
        self.listing = Some((self.table.begin_list(), server.version, all));
    }

    fn continue_list(&mut self, count: usize) {
        let Some((epoch, at, rest)) = &mut self.listing else { return };
        for _ in 0..count {
            let Some(next) = rest.pop() else {
                end_list(&mut self.table, *epoch, *at);
                self.watched = *at;
                self.listing = None;
                return;
            };
            self.table.listed(0, *epoch, next.into());
        }
    }

    fn answer(&mut self, at: usize) {
        if self.answers.is_empty() {
            return;
        }
        match self.answers.remove(at % self.answers.len()) {
            Answer::Written(view) => {
                self.table.written(view.into(), Writer::default());
            }
            Answer::Deleted(name, uid) => {
                hide(&mut self.table, &format!("n{name}"), &format!("u{uid}"));
            }
        }
    }

    /// Replays the changes since the last call; each must continue the state before it.
    fn replay(&mut self) {
        // Only the end of the first list after a restore may show older versions.
        let set_back = self.restored && self.listing.is_none();
        self.restored &= !set_back;
        for job in std::mem::take(&mut self.table.jobs) {
            let Job::Change { old, new, .. } = job else { continue };
            let of = |view: &View| (view.meta().uid.to_string(), view.meta().resource_version.to_string());
            let name = old.as_ref().or(new.as_ref()).unwrap().meta().name().to_owned();
            assert_eq!(
                self.replica.get(&name),
                old.as_ref().map(of).as_ref(),
                "a change starts from the state before it"
            );
            if let (Some(old), Some(new)) = (&old, &new) {
                assert_eq!(old.meta().uid, new.meta().uid, "another uid is another object");
                let newer = new.meta().resource_version.is_newer_than(&old.meta().resource_version);
                assert!(newer || set_back, "versions increase");
            }
            match new {
                Some(new) => self.replica.insert(name, of(&new)),
                None => self.replica.remove(&name),
            };
        }
    }
}

fn table_state(table: &Table) -> BTreeMap<String, (String, String)> {
    let entry = |view: &View| {
        let meta = view.meta();
        (meta.name().to_owned(), (meta.uid.to_string(), meta.resource_version.to_string()))
    };
    table.all().iter().map(entry).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Each step is (action, name, count). Writes are foreign or own; responses arrive late and in any order;
    /// the watch lags, breaks, repeats events, and is replaced by lists that lag too; the server is restored
    /// from a backup.
    #[test]
    fn any_history_ends_in_the_servers_state(
        steps in prop::collection::vec((0_u8..11, 0_u8..4, 1_usize..4), 1..80),
    ) {
        let mut server = Server::default();
        let mut follower = Follower {
            table: Table::new([None]),
            watched: 0,
            listing: None,
            answers: Vec::new(),
            replica: BTreeMap::new(),
            restored: false,
        };
        follower.begin_list(&server);
        for (action, name, count) in steps {
            match action {
                0 => drop(server.put(name)),
                1 => drop(server.delete(name)),
                2 => follower.answers.push(Answer::Written(server.put(name))),
                3 => follower.answers.extend(server.delete(name).map(|uid| Answer::Deleted(name, uid))),
                4 => follower.deliver(&server, count),
                5 => follower.watched = follower.watched.saturating_sub(count as u64),
                6 if follower.listing.is_none() => follower.begin_list(&server),
                7 => follower.continue_list(count),
                8 => follower.answer(count),
                9 => server.backup = server.objects.clone(),
                10 => {
                    server.restore();
                    follower.restored = true;
                    // An old response about a restored object would look newer: it is lost with its
                    // connection.
                    let is_back = |given: &str| server.objects.keys().any(|name| format!("n{name}") == given);
                    follower.answers.retain(|answer| !is_back(&match answer {
                        Answer::Written(view) => view.meta().name().to_owned(),
                        Answer::Deleted(name, _) => format!("n{name}"),
                    }));
                    follower.begin_list(&server);
                }
                _ => {}
            }
            follower.replay();
            prop_assert_eq!(&follower.replica, &table_state(&follower.table));
        }
        follower.continue_list(usize::MAX);
        follower.deliver(&server, usize::MAX);
        while !follower.answers.is_empty() {
            follower.answer(0);
        }
        follower.replay();
        let expected: BTreeMap<_, _> = server.objects.iter()
            .map(|(name, (uid, at))| (format!("n{name}"), (format!("u{uid}"), at.to_string())))
            .collect();
        prop_assert_eq!(table_state(&follower.table), expected.clone());
        prop_assert_eq!(follower.replica, expected);
        prop_assert!(follower.table.hidden.is_empty(), "no uid stays hidden");
    }
}
