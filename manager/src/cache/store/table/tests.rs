use serde_json::json;

use super::walk::STRIDE;
use super::*;
use crate::cache::store::Select;
use crate::cache::tests::fixtures::{object, object_in, request, view, view_of};
use crate::client::Writer;

impl From<View> for Arrival {
    fn from(view: View) -> Self {
        Self { view, values: Values::default() }
    }
}

impl Table {
    pub(crate) fn list(&self, select: &Select) -> Vec<View> {
        let (mut walk, mut views) = (self.walk(), Vec::new());
        while self.stride(&mut walk, select, &mut views) {}
        views
    }
}

/// A table of one part that has listed `views` at `version` and delivered the changes.
fn synced(views: impl IntoIterator<Item = View>, version: u64) -> Table {
    let mut table = Table::new([None]);
    list(&mut table, views, version);
    table.jobs.clear();
    table
}

fn list(table: &mut Table, views: impl IntoIterator<Item = View>, at: u64) {
    let epoch = table.begin_list();
    for view in views {
        table.listed(0, epoch, view.into());
    }
    end_list(table, epoch, at);
}

fn end_list(table: &mut Table, epoch: u64, at: u64) {
    for older in table.end_list(0, epoch, &version(at)) {
        table.set_back(&older, older.listed.clone().into());
    }
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

/// As after a DELETE whose response was a `Status`.
fn hide(table: &mut Table, name: &str, uid: &str) {
    let removal = Removal { request: &request(name), uid: &Uid::new(uid), version: None, shown: &[] };
    table.hide(&removal, Writer::default());
}

/// Takes the queued changes as lines: `- a/u1@5` and `+ a/u1@6`, with the origin unless it is a live event.
fn changes(table: &mut Table) -> Vec<String> {
    let side = |view: &View| {
        let meta = view.meta();
        format!("{}/{}@{}", meta.name(), meta.uid, meta.resource_version)
    };
    let line = |old: Option<View>, new: Option<View>, origin| {
        let text = match (&old, &new) {
            (Some(old), Some(new)) => format!("{} -> {}", side(old), side(new)),
            (None, Some(new)) => format!("+ {}", side(new)),
            (Some(old), None) => format!("- {}", side(old)),
            (None, None) => "no state".to_owned(),
        };
        match origin {
            Origin::Live => text,
            Origin::OwnWrite(_) => format!("{text} OwnWrite"),
            origin => format!("{text} {origin:?}"),
        }
    };
    let jobs = std::mem::take(&mut table.jobs).into_iter();
    let lines = jobs.filter_map(|job| match job {
        Job::Change { old, new, origin } => Some(line(old, new, origin)),
        _ => None,
    });
    lines.collect()
}

#[test]
fn a_relist_reports_only_differences() {
    for (case, listed, at, expected) in [
        ("unchanged", vec![view("a", "u1", 5)], 20, vec![]),
        ("changed", vec![view("a", "u1", 8)], 20, vec!["a/u1@5 -> a/u1@8"]),
        ("vanished", vec![], 20, vec!["- a/u1@5"]),
        ("recreated", vec![view("a", "u2", 9)], 20, vec!["- a/u1@5", "+ a/u2@9"]),
        ("new", vec![view("a", "u1", 5), view("b", "u2", 9)], 20, vec!["+ b/u2@9"]),
        ("set back to an older version", vec![view("a", "u1", 3)], 20, vec!["a/u1@5 -> a/u1@3"]),
        ("set back to an earlier object", vec![view("a", "u0", 3)], 20, vec!["- a/u1@5", "+ a/u0@3"]),
        ("older, then current in one list", vec![view("a", "u1", 3), view("a", "u1", 5)], 20, vec![]),
        ("older in a list below the stored version", vec![view("a", "u1", 3)], 4, vec![]),
        ("missing in a list below the stored version", vec![], 4, vec![]),
    ] {
        let mut table = synced([view("a", "u1", 5)], 10);
        list(&mut table, listed, at);
        assert_eq!(changes(&mut table), expected, "{case}");
    }
}

#[test]
fn the_first_list_is_initial_and_ends_in_sync() {
    let mut table = Table::new([None]);
    let epoch = table.begin_list();
    table.listed(0, epoch, view("a", "u1", 5).into());
    assert!(!table.synced);
    table.end_list(0, epoch, &version(10));
    assert!(table.synced);
    assert!(matches!(table.jobs.back(), Some(Job::Synced)), "queued behind the objects");
    assert_eq!(changes(&mut table), ["+ a/u1@5 Initial"]);
}

#[test]
fn parts_sync_together_and_sweep_only_their_own_namespace() {
    let mut table = Table::new([Some("shop".into()), Some("bank".into())]);
    let bank = view_of(&object_in("bank", "b", "u2", 6));
    let epoch = table.begin_list();
    table.listed(0, epoch, view("a", "u1", 5).into());
    table.end_list(0, epoch, &version(10));
    assert!(!table.synced, "one of two parts is listed");
    let epoch = table.begin_list();
    table.listed(1, epoch, bank.into());
    table.end_list(1, epoch, &version(11));
    assert!(table.synced);
    changes(&mut table);
    let epoch = table.begin_list();
    table.end_list(1, epoch, &version(12));
    assert_eq!(changes(&mut table), ["- b/u2@6"]);
}

#[test]
fn events_move_a_key_forward_only() {
    let mut table = synced([view("a", "u1", 5)], 10);
    table.changed(0, view("a", "u1", 12).into());
    table.changed(0, view("a", "u1", 12).into());
    table.changed(0, view("a", "u1", 11).into());
    table.deleted(0, &request("a"), &Uid::new("u1"), &version(10));
    assert_eq!(changes(&mut table), ["a/u1@5 -> a/u1@12"]);
    table.deleted(0, &request("a"), &Uid::new("u1"), &version(13));
    table.deleted(0, &request("a"), &Uid::new("u1"), &version(13));
    table.changed(0, view("a", "u2", 14).into());
    assert_eq!(changes(&mut table), ["- a/u1@12", "+ a/u2@14"]);
}

#[test]
fn a_late_delete_of_an_earlier_uid_spares_its_successor() {
    let mut table = synced([view("a", "u1", 5)], 10);
    table.written(view("a", "u2", 12).into(), Writer::default());
    assert_eq!(changes(&mut table), ["- a/u1@5 OwnWrite", "+ a/u2@12 OwnWrite"]);
    table.deleted(0, &request("a"), &Uid::new("u1"), &version(11));
    table.changed(0, view("a", "u2", 12).into());
    assert_eq!(changes(&mut table), [""; 0]);
}

#[test]
fn an_own_write_enters_once_and_its_event_is_silent() {
    let mut table = synced([view("a", "u1", 5)], 10);
    table.written(view("a", "u1", 12).into(), Writer::default());
    table.written(view("b", "u2", 13).into(), Writer::default());
    assert_eq!(changes(&mut table), ["a/u1@5 -> a/u1@12 OwnWrite", "+ b/u2@13 OwnWrite"]);
    table.changed(0, view("a", "u1", 12).into());
    table.changed(0, view("b", "u2", 13).into());
    table.written(view("a", "u1", 11).into(), Writer::default());
    assert_eq!(changes(&mut table), [""; 0]);
}

#[test]
fn a_late_write_response_restores_no_deleted_object() {
    let mut table = synced([], 10);
    table.changed(0, view("a", "u1", 12).into());
    table.deleted(0, &request("a"), &Uid::new("u1"), &version(14));
    changes(&mut table);
    table.written(view("a", "u1", 12).into(), Writer::default());
    assert_eq!(changes(&mut table), [""; 0]);
    assert!(table.get(&request("a")).is_none());
}

#[test]
fn write_responses_in_any_order_restore_no_older_object() {
    let mut table = Table::new([None]);
    table.written(view("a", "u1", 3).into(), Writer::default());
    table.written(view("a", "u2", 6).into(), Writer::default());
    hide(&mut table, "a", "u2");
    changes(&mut table);
    table.written(view("a", "u1", 2).into(), Writer::default());
    table.written(view("a", "u2", 7).into(), Writer::default());
    assert_eq!(changes(&mut table), [""; 0]);
}

#[test]
fn an_own_write_above_a_list_survives_it_and_one_below_does_not() {
    for (at, expected) in [(11, vec![]), (12, vec!["- a/u1@12"])] {
        let mut table = synced([], 10);
        table.written(view("a", "u1", 12).into(), Writer::default());
        changes(&mut table);
        list(&mut table, [], at);
        assert_eq!(changes(&mut table), expected, "list at {at}");
    }
}

#[test]
fn an_own_delete_hides_the_uid_until_its_event() {
    let mut table = synced([view("a", "u1", 5)], 10);
    hide(&mut table, "a", "u1");
    assert_eq!(changes(&mut table), ["- a/u1@5 OwnWrite"]);
    table.changed(0, view("a", "u1", 11).into());
    table.written(view("a", "u1", 11).into(), Writer::default());
    assert_eq!(changes(&mut table), [""; 0], "writes before the deletion");
    table.deleted(0, &request("a"), &Uid::new("u1"), &version(12));
    assert_eq!((changes(&mut table), table.hidden.len()), (vec![], 0));
    table.changed(0, view("a", "u2", 13).into());
    assert_eq!(changes(&mut table), ["+ a/u2@13"]);
}

#[test]
fn a_late_event_of_a_return_to_the_selection_does_not_undo_an_own_delete() {
    for late_list in [false, true] {
        let mut table = synced([view("a", "u1", 4)], 10);
        hide(&mut table, "a", "u1");
        assert_eq!(changes(&mut table), ["- a/u1@4 OwnWrite"]);
        // The object left the selection, re-entered it, and was then deleted by the own write.
        if late_list {
            list(&mut table, [], 11);
        } else {
            table.deleted(0, &request("a"), &Uid::new("u1"), &version(11));
        }
        table.changed(0, view("a", "u1", 12).into());
        table.deleted(0, &request("a"), &Uid::new("u1"), &version(13));
        assert_eq!((changes(&mut table), table.get(&request("a")).is_some()), (vec![], false), "{late_list}");
    }
}

#[test]
fn a_late_event_does_not_undo_an_own_write_outside_the_selection() {
    let mut table = synced([], 3);
    let epoch = table.begin_list();
    // u1 was created and deleted; then an own write created u2 outside the selection.
    table.left_selection(view("a", "u2", 6).meta(), Writer::default());
    table.changed(0, view("a", "u1", 4).into());
    assert!(table.get(&request("a")).is_none());
    table.listed(0, epoch, view("a", "u1", 4).into());
    table.end_list(0, epoch, &version(4));
    table.deleted(0, &request("a"), &Uid::new("u1"), &version(5));
    assert_eq!(changes(&mut table), [""; 0]);
    table.changed(0, view("a", "u2", 8).into());
    assert_eq!(changes(&mut table), ["+ a/u2@8"], "u2 has entered the selection");
    table.left_selection(view("b", "u3", 20).meta(), Writer::default());
    list(&mut table, [view("a", "u2", 8), view("b", "u4", 9)], 9);
    assert_eq!(changes(&mut table), ["+ b/u4@9"], "after a restore of the server its list decides");
}

#[test]
fn a_list_that_began_before_an_own_delete_does_not_undo_it_and_a_later_one_decides() {
    let mut table = synced([view("a", "u1", 5)], 10);
    let epoch = table.begin_list();
    hide(&mut table, "a", "u1");
    table.listed(0, epoch, view("a", "u1", 5).into());
    table.end_list(0, epoch, &version(11));
    assert_eq!(changes(&mut table), ["- a/u1@5 OwnWrite"]);
    list(&mut table, [view("a", "u1", 12)], 13);
    assert_eq!((changes(&mut table), table.hidden.len()), (vec!["+ a/u1@12".to_owned()], 0));
}

#[test]
fn an_own_delete_after_its_watch_event_hides_no_uid() {
    let mut table = synced([view("a", "u1", 5)], 10);
    table.deleted(0, &request("a"), &Uid::new("u1"), &version(12));
    hide(&mut table, "a", "u1");
    assert!(table.hidden.is_empty());
}

#[test]
fn indexes_follow_every_change_and_keep_no_empty_sets() {
    let owned = |owner: &str, at: u64| {
        let mut child = object("a", "u1", at);
        child["metadata"]["ownerReferences"] =
            json!([{"uid": owner, "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "controller": true}]);
        view_of(&child)
    };
    let mut table = synced([owned("o1", 5)], 10);
    assert_eq!(table.list(&Select::owned_by("o1")).len(), 1);
    table.changed(0, owned("o2", 11).into());
    assert_eq!(
        (table.list(&Select::owned_by("o1")).len(), table.list(&Select::owned_by("o2")).len()),
        (0, 1)
    );
    assert_eq!(table.list(&Select::namespace("shop")).len(), 1);
    assert_eq!(table.list(&Select::namespace("bank")).len(), 0);
    table.deleted(0, &request("a"), &Uid::new("u1"), &version(12));
    assert!(table.indexes.buckets().is_empty(), "{:?}", table.indexes.buckets());
    assert_eq!((table.count(), table.bytes), (0, 0));
}

#[test]
fn a_walk_returns_each_object_once_while_writers_interleave() {
    let name = |at: usize| format!("o{at:03}");
    let count = 4 * STRIDE;
    let mut table = synced((0..count).map(|at| view(&name(at), "u1", 5)), 10);
    let (mut walk, mut views) = (table.walk(), Vec::new());
    assert!(table.stride(&mut walk, &Select::namespace("shop"), &mut views));
    // o000 was visited and gets a slot ahead of the walk; the last object was not and gets the slot of o000.
    table.deleted(0, &request(&name(0)), &Uid::new("u1"), &version(11));
    table.deleted(0, &request(&name(count - 1)), &Uid::new("u1"), &version(12));
    table.changed(0, view(&name(count - 1), "u2", 13).into());
    table.changed(0, view(&name(0), "u2", 14).into());
    // Not visited yet: another version, another uid, deleted, new.
    table.changed(0, view(&name(100), "u1", 15).into());
    table.changed(0, view(&name(101), "u2", 16).into());
    table.deleted(0, &request(&name(102)), &Uid::new("u1"), &version(17));
    table.changed(0, view("new", "u1", 18).into());
    while table.stride(&mut walk, &Select::namespace("shop"), &mut views) {}
    let mut seen: Vec<String> =
        views.iter().map(|view| format!("{}@{}", view.meta().name(), view.meta().resource_version)).collect();
    seen.sort();
    let expected = (0..count - 1).filter(|at| *at != 102).map(|at| match at {
        100 => "o100@15".to_owned(),
        101 => "o101@16".to_owned(),
        at => format!("{}@5", name(at)),
    });
    assert_eq!(seen, expected.collect::<Vec<_>>());
}

#[test]
fn an_unreadable_listed_object_keeps_its_stored_version() {
    let mut table = synced([view("a", "u1", 5), view("b", "u2", 6), view("c", "u3", 7)], 10);
    let epoch = table.begin_list();
    table.keep(epoch, &request("a"), None);
    table.keep(epoch, &request("b"), Some(&Uid::new("u2")));
    table.keep(epoch, &request("c"), Some(&Uid::new("u9")));
    table.end_list(0, epoch, &version(20));
    assert_eq!(changes(&mut table), ["- c/u3@7"], "another object of that name is listed");
}

mod model;
